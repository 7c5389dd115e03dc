"""What is remembered of groups: who asks, who waits for whom, and for what it will do."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest
from leeway.execution.attempt import Phase
from leeway.execution.shared_cache import ASKS_FOR, FRESH_FOR, SharedCache
from leeway.instances.groups import GroupRules
from leeway.instances.owners import Owner, OwnerKind
from leeway.notices import LifecycleHook, NoticeKind
from leeway.ports.aws import CloudRefused, CloudUnavailable, HookSettings
from leeway.ports.table import CachedValue
from leeway.replacement.cache import GroupCache
from leeway.retirement.replacement_intent import Method
from leeway.typed_json import adapter_of

from tests.retire_node.retiring import CacheStoreInMemory, Surrounding, retire, surrounding
from tests.retirement.retirements import HOOK, NOTICED

HOOKS: dict[str, Any] = {"hooks": ("leeway-drain",)}


def recollecting(world: Surrounding) -> GroupCache:
    return GroupCache(world, SharedCache(world.memory, world))


def test_a_groups_rules_are_read_once_for_all_that_ask_within_some_seconds() -> None:
    world = surrounding(**HOOKS)
    for _ in range(10):
        assert recollecting(world).rules_of("ng").terminate_hooks == ("leeway-drain",)
    assert world.looks == ["rules of ng"]
    world.sleep(FRESH_FOR.total_seconds())
    recollecting(world).rules_of("ng")
    assert world.looks == ["rules of ng"] * 2


@dataclass
class SlowReader(CacheStoreInMemory):
    """Another function reads the group, and has written it down after so many looks."""

    looks_left: int = 3
    written: CachedValue | None = None
    looked: list[datetime] = field(default_factory=list)

    def get(self, what: str) -> CachedValue | None:
        self.looks_left -= 1
        return self.written if self.looks_left < 0 else None


def test_whoever_reads_a_group_just_now_is_waited_for() -> None:
    world = surrounding(**HOOKS)
    rules = recollecting(world).rules_of("ng")
    (read,) = world.memory.recalled.values()
    world.looks.clear()
    world.memory = SlowReader(written=read)
    world.memory.claim("group/ng", world.now_, world.now_ + ASKS_FOR)
    assert recollecting(world).rules_of("ng") == rules
    assert world.looks == []


def test_one_that_never_tells_is_waited_for_no_longer_than_it_may_take() -> None:
    world = surrounding(**HOOKS)
    world.memory = SlowReader(looks_left=10_000)
    began = world.now_
    world.memory.claim("group/ng", world.now_, world.now_ + ASKS_FOR)
    recollecting(world).rules_of("ng")
    assert world.looks == ["rules of ng"]
    assert world.now_ - began < ASKS_FOR + timedelta(seconds=1)


class Counting(SlowReader):
    """A table that counts how often somebody says that it is its turn."""

    claims = 0

    def claim(self, what: str, now: datetime, until: datetime) -> bool:
        self.claims += 1
        return super().claim(what, now, until)


def test_who_waits_for_another_does_not_ask_for_its_turn_at_every_look() -> None:
    memory = Counting(looks_left=8)
    world = surrounding(memory=memory, **HOOKS)
    rules = world.rules("ng")
    body = adapter_of(GroupRules).dump_json(rules).decode()
    memory.written = CachedValue(body, world.now_)
    memory.claim("group/ng", world.now_, world.now_ + ASKS_FOR)
    assert recollecting(world).rules_of("ng") == rules
    assert memory.claims == 2, "that of the one who reads, and one in vain"


class AlwaysAnothersTurn(CacheStoreInMemory):
    """Whoever reads fails, and somebody else of hundreds is the next one to try."""

    def claim(self, what: str, now: datetime, until: datetime) -> bool:
        assert now < NOTICED + timedelta(minutes=2), "its instance is gone"
        return False


def test_where_all_that_read_fail_nobody_waits_for_a_turn_among_hundreds() -> None:
    world = surrounding(memory=AlwaysAnothersTurn(), **HOOKS)
    groups, began = recollecting(world), world.now_
    assert groups.rules_of("ng").terminate_hooks == ("leeway-drain",)
    assert world.now_ - began < 2 * ASKS_FOR + timedelta(seconds=1)


def test_who_waited_in_vain_does_not_wait_again_at_once() -> None:
    world = surrounding(memory=AlwaysAnothersTurn(), **HOOKS)
    rules = world.rules

    def refuses(group: str) -> GroupRules:
        raise CloudRefused("AccessDenied")

    groups = recollecting(world)
    world.rules = refuses  # type: ignore[method-assign]
    with pytest.raises(CloudRefused):
        groups.rules_of("ng")
    began = world.now_
    with pytest.raises(CloudRefused):
        groups.rules_of("ng")
    assert world.now_ - began < timedelta(seconds=1)
    world.rules = rules  # type: ignore[method-assign]
    assert groups.rules_of("ng").name == "ng"


@pytest.mark.parametrize("off", [timedelta(minutes=-1), timedelta(hours=1)])
def test_what_was_read_long_ago_or_by_a_clock_that_was_ahead_is_read_afresh(off: timedelta) -> None:
    world = surrounding(**HOOKS)
    world.memory.put("group/ng", CachedValue("{}", world.now_ + off))
    assert recollecting(world).rules_of("ng").name == "ng"
    assert world.looks == ["rules of ng"]


def test_what_another_version_remembered_is_read_afresh() -> None:
    world = surrounding(**HOOKS)
    world.memory.put("group/ng", CachedValue('{"name": "ng"}', world.now_))
    assert recollecting(world).rules_of("ng").terminate_hooks == ("leeway-drain",)
    assert recollecting(world).rules_of("ng").terminate_hooks == ("leeway-drain",)
    assert world.looks == ["rules of ng"]


class Broken(CacheStoreInMemory):
    """A table that is throttled."""

    def get(self, what: str) -> CachedValue | None:
        raise CloudUnavailable("ThrottlingException")

    def put(self, what: str, value: CachedValue) -> None:
        raise CloudUnavailable("ThrottlingException")


def test_a_table_that_does_not_answer_keeps_nobody_from_asking() -> None:
    world = surrounding(memory=Broken(), **HOOKS)
    assert recollecting(world).rules_of("ng").name == "ng"


def test_hooks_with_a_target_of_their_own_are_known_with_their_group() -> None:
    world = surrounding(with_target=("leeway-drain",), **HOOKS)
    settings = recollecting(world).hook_settings(LifecycleHook("ng", "leeway-drain"))
    assert settings is not None
    assert settings.has_target


def test_a_hooks_timeout_is_known_with_its_group_and_one_that_is_not_there_is_asked_for() -> None:
    world = surrounding(timeout=120, **HOOKS)
    recollection = recollecting(world)
    ours, another = LifecycleHook("ng", "leeway-drain"), LifecycleHook("ng", "another")
    assert recollection.hook_settings(ours) == HookSettings(120)
    world.timeout, world.with_target = 240, ("another",)
    assert recollection.hook_settings(ours) == HookSettings(120)
    assert recollection.hook_settings(another) == HookSettings(240, has_target=True)


def test_an_interruption_goes_by_its_groups_rules_and_asks_for_no_instance() -> None:
    world = surrounding(**HOOKS)
    outcome = retire(world)
    assert outcome.replacement == Method.TERMINATE_IN_GROUP
    assert world.looks == ["rules of ng"]


@pytest.mark.parametrize("kind", [NoticeKind.REBALANCE, NoticeKind.SCHEDULED_CHANGE])
def test_whoever_has_time_reads_the_instance_itself(kind: NoticeKind) -> None:
    world = surrounding(kind, **HOOKS)
    retire(world)
    assert "facts" in world.looks
    assert "rules of ng" not in world.looks


@pytest.mark.parametrize("heard", ["of its hook", "of another owner"])
def test_an_interrupted_instance_that_is_not_simply_in_service_is_read_itself(heard: str) -> None:
    world = surrounding(**HOOKS)
    changes: dict[str, object] = {"hooks": (HOOK,)}
    if heard == "of another owner":
        owner = Owner(OwnerKind.MANAGED_NODE_GROUP, "ng")
        changes = {"facts": world.record.facts.model_copy(update={"owner": owner})}
    world.record = world.record.model_copy(update=changes)
    retire(world)
    assert world.looks[0] == "facts"


def test_a_group_that_refuses_what_was_remembered_of_it_is_read_afresh() -> None:
    """Its hook is gone since: the instance is detached, and not ended before it is drained."""
    world = surrounding(**HOOKS)
    asked = world.terminate_in_group

    def refuses(instance: str, decrement: bool = False) -> None:
        if world.looks == ["rules of ng"]:
            world.hooks = ()
            raise CloudRefused("ValidationError: not in service")
        asked(instance, decrement)

    world.terminate_in_group = refuses  # type: ignore[method-assign]
    outcome = retire(world)
    assert world.looks == ["rules of ng", "facts"]
    assert outcome.replacement == Method.DETACH
    assert world.record.phase is Phase.FINISHED


def test_of_a_group_that_is_gone_the_instance_itself_tells_and_nothing_is_tried_in_vain() -> None:
    world = surrounding(state=None, lingers=5)

    def refuses(group: str) -> GroupRules:
        raise CloudRefused("ValidationError: AutoScalingGroup name not found")

    world.rules = refuses  # type: ignore[method-assign]
    outcome = retire(world)
    assert world.looks == ["facts"]
    assert outcome.replacement == Method.NOTHING
    assert world.now_ < NOTICED + timedelta(seconds=60)


@pytest.mark.parametrize("by_then", ["Detaching", None])
def test_a_detach_whose_answer_was_lost_is_known_for_what_it_is(by_then: str | None) -> None:
    """The second try is refused, since the first was carried out: who is out of the group by it is
    ended when it is drained, which nobody else would do."""
    world = surrounding()
    detach = world.detach

    def detached_in_silence(instance: str, group: str) -> None:
        detach(instance, group)
        world.state = by_then
        raise CloudRefused("ValidationError: the instance is not in service in the group")

    world.detach = detached_in_silence  # type: ignore[method-assign]
    outcome = retire(world)
    assert world.looks == ["rules of ng", "facts"]
    assert (outcome.replacement, outcome.terminated) == (Method.DETACH, True)
    assert world.ended == ["terminated"]


def test_a_retirement_that_wants_no_successor_looks_at_what_its_group_has_in_common_alone() -> None:
    """Whose business the hook is that it answers."""
    world = surrounding(NoticeKind.TERMINATE_HOOK, **HOOKS)
    retire(world)
    assert world.looks == ["rules of ng"]
    assert world.now_ > NOTICED
