"""The cache of groups' rules: how often a group is read, and what the cached rules decide."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from leeway.execution.attempt import Phase
from leeway.execution.shared_cache import FRESH_FOR, READ_WITHIN, SharedCache
from leeway.instances.groups import GroupRules
from leeway.instances.owners import Owner, OwnerKind
from leeway.notices import LifecycleHook, NoticeKind
from leeway.ports.aws import CloudRefused, CloudUnavailable, HookSettings
from leeway.ports.table import CachedValue
from leeway.retirement.hooks import GroupCache
from leeway.retirement.record import Method
from leeway.typed_json import adapter_of

from tests.fakes.cache_store import CacheStoreInMemory
from tests.fakes.retirement import RetirementFakes, retire, retirement_fakes
from tests.retirement.retirements import HOOK, NOTICED

HOOKS: dict[str, Any] = {"hooks": ("leeway-drain",)}


def cache_of(fakes: RetirementFakes) -> GroupCache:
    return GroupCache(fakes.groups, SharedCache(fakes.cache_store, fakes.clock))


def test_the_rules_of_a_group_are_read_once_within_some_seconds() -> None:
    fakes = retirement_fakes(**HOOKS)
    for _ in range(10):
        assert cache_of(fakes).rules_of("ng").terminate_hooks == ("leeway-drain",)
    assert fakes.groups.reads == ["rules of ng"]
    fakes.clock.sleep(FRESH_FOR.total_seconds())
    cache_of(fakes).rules_of("ng")
    assert fakes.groups.reads == ["rules of ng"] * 2


@dataclass
class SlowReader(CacheStoreInMemory):
    """A store into which another function writes the value after some reads."""

    reads_left: int = 3
    written: CachedValue | None = None

    def get(self, what: str) -> CachedValue | None:
        self.reads_left -= 1
        return self.written if self.reads_left < 0 else None


def test_a_cache_waits_for_another_function_that_reads_the_group() -> None:
    fakes = retirement_fakes(**HOOKS)
    rules = cache_of(fakes).rules_of("ng")
    (read,) = fakes.cache_store.values.values()
    fakes.groups.reads.clear()
    fakes.cache_store = SlowReader(written=read)
    fakes.cache_store.claim("group/ng", fakes.clock.time, fakes.clock.time + READ_WITHIN)
    assert cache_of(fakes).rules_of("ng") == rules
    assert fakes.groups.reads == []


def test_a_cache_reads_the_group_itself_when_the_other_function_takes_too_long() -> None:
    fakes = retirement_fakes(**HOOKS)
    fakes.cache_store = SlowReader(reads_left=10_000)
    began = fakes.clock.time
    fakes.cache_store.claim("group/ng", fakes.clock.time, fakes.clock.time + READ_WITHIN)
    cache_of(fakes).rules_of("ng")
    assert fakes.groups.reads == ["rules of ng"]
    assert fakes.clock.time - began < READ_WITHIN + timedelta(seconds=1)


class Counting(SlowReader):
    """A store that counts claims."""

    claims = 0

    def claim(self, what: str, now: datetime, until: datetime) -> bool:
        self.claims += 1
        return super().claim(what, now, until)


def test_a_waiting_cache_does_not_claim_the_read_at_every_poll() -> None:
    store = Counting(reads_left=8)
    fakes = retirement_fakes(cache_store=store, **HOOKS)
    rules = fakes.groups.rules("ng")
    body = adapter_of(GroupRules).dump_json(rules).decode()
    store.written = CachedValue(body, fakes.clock.time)
    store.claim("group/ng", fakes.clock.time, fakes.clock.time + READ_WITHIN)
    assert cache_of(fakes).rules_of("ng") == rules
    assert store.claims == 2, "the other function's claim, and one that failed"


class AlwaysClaimed(CacheStoreInMemory):
    """A store in which every read fails and is claimed by yet another function."""

    def claim(self, what: str, now: datetime, until: datetime) -> bool:
        assert now < NOTICED + timedelta(minutes=2), "the instance is gone by then"
        return False


def test_a_cache_reads_the_group_itself_if_all_other_reads_fail() -> None:
    fakes = retirement_fakes(cache_store=AlwaysClaimed(), **HOOKS)
    groups, began = cache_of(fakes), fakes.clock.time
    assert groups.rules_of("ng").terminate_hooks == ("leeway-drain",)
    assert fakes.clock.time - began < 2 * READ_WITHIN + timedelta(seconds=1)


def test_a_cache_that_waited_in_vain_does_not_wait_again_at_once() -> None:
    fakes = retirement_fakes(cache_store=AlwaysClaimed(), **HOOKS)
    rules = fakes.groups.rules

    def refuses(group: str) -> GroupRules:
        raise CloudRefused("AccessDenied")

    groups = cache_of(fakes)
    fakes.groups.rules = refuses  # type: ignore[method-assign]
    with pytest.raises(CloudRefused):
        groups.rules_of("ng")
    began = fakes.clock.time
    with pytest.raises(CloudRefused):
        groups.rules_of("ng")
    assert fakes.clock.time - began < timedelta(seconds=1)
    fakes.groups.rules = rules  # type: ignore[method-assign]
    assert groups.rules_of("ng").name == "ng"


@pytest.mark.parametrize("off", [timedelta(minutes=-1), timedelta(hours=1)])
def test_a_value_that_is_old_or_from_the_future_is_read_again(off: timedelta) -> None:
    fakes = retirement_fakes(**HOOKS)
    fakes.cache_store.put("group/ng", CachedValue("{}", fakes.clock.time + off))
    assert cache_of(fakes).rules_of("ng").name == "ng"
    assert fakes.groups.reads == ["rules of ng"]


def test_a_value_that_cannot_be_parsed_is_read_again() -> None:
    fakes = retirement_fakes(**HOOKS)
    fakes.cache_store.put("group/ng", CachedValue('{"name": "ng"}', fakes.clock.time))
    assert cache_of(fakes).rules_of("ng").terminate_hooks == ("leeway-drain",)
    assert cache_of(fakes).rules_of("ng").terminate_hooks == ("leeway-drain",)
    assert fakes.groups.reads == ["rules of ng"]


class Broken(CacheStoreInMemory):
    """A store that is throttled."""

    def get(self, what: str) -> CachedValue | None:
        raise CloudUnavailable("ThrottlingException")

    def put(self, what: str, value: CachedValue) -> None:
        raise CloudUnavailable("ThrottlingException")


def test_a_throttled_store_does_not_prevent_a_read() -> None:
    fakes = retirement_fakes(cache_store=Broken(), **HOOKS)
    assert cache_of(fakes).rules_of("ng").name == "ng"


def test_cached_rules_tell_which_hooks_notify_a_target() -> None:
    fakes = retirement_fakes(with_target=("leeway-drain",), **HOOKS)
    settings = cache_of(fakes).hook_settings(LifecycleHook("ng", "leeway-drain"))
    assert settings is not None
    assert settings.has_target


def test_the_timeout_of_a_hook_is_cached_and_an_unknown_hook_is_read() -> None:
    fakes = retirement_fakes(timeout=120, **HOOKS)
    cache = cache_of(fakes)
    ours, another = LifecycleHook("ng", "leeway-drain"), LifecycleHook("ng", "another")
    assert cache.hook_settings(ours) == HookSettings(120)
    fakes.groups.timeout, fakes.groups.with_target = 240, ("another",)
    assert cache.hook_settings(ours) == HookSettings(120)
    assert cache.hook_settings(another) == HookSettings(240, has_target=True)


def test_an_interruption_uses_the_cached_rules_and_reads_no_instance() -> None:
    fakes = retirement_fakes(**HOOKS)
    outcome = retire(fakes)
    assert outcome.replacement == Method.TERMINATE_IN_GROUP
    assert fakes.groups.reads == ["rules of ng"]


@pytest.mark.parametrize("kind", [NoticeKind.REBALANCE, NoticeKind.SCHEDULED_CHANGE])
def test_a_voluntary_retirement_reads_the_instance_itself(kind: NoticeKind) -> None:
    fakes = retirement_fakes(kind, **HOOKS)
    retire(fakes)
    assert "facts" in fakes.groups.reads
    assert "rules of ng" not in fakes.groups.reads


@pytest.mark.parametrize("case", ["with a hook", "of a managed node group"])
def test_an_interruption_reads_an_instance_that_may_not_be_in_service(case: str) -> None:
    fakes = retirement_fakes(**HOOKS)
    changes: dict[str, object] = {"hooks": (HOOK,)}
    if case == "of a managed node group":
        owner = Owner(OwnerKind.MANAGED_NODE_GROUP, "ng")
        changes = {"facts": fakes.record.facts.model_copy(update={"owner": owner})}
    fakes.record = fakes.record.model_copy(update=changes)
    retire(fakes)
    assert fakes.groups.reads[0] == "facts"


def test_a_group_that_refuses_a_request_by_cached_rules_is_read_again() -> None:
    """The hook is gone meanwhile: the instance is detached, and not terminated before the drain."""
    fakes = retirement_fakes(**HOOKS)
    terminate = fakes.groups.terminate_in_group

    def refuses(instance: str, decrement: bool = False) -> None:
        if fakes.groups.reads == ["rules of ng"]:
            fakes.groups.hooks = ()
            raise CloudRefused("ValidationError: not in service")
        terminate(instance, decrement)

    fakes.groups.terminate_in_group = refuses  # type: ignore[method-assign]
    outcome = retire(fakes)
    assert fakes.groups.reads == ["rules of ng", "facts"]
    assert outcome.replacement == Method.DETACH
    assert fakes.record.phase is Phase.FINISHED


def test_an_interruption_reads_the_instance_if_its_group_is_gone() -> None:
    fakes = retirement_fakes(state=None, ends_in=5)

    def refuses(group: str) -> GroupRules:
        raise CloudRefused("ValidationError: AutoScalingGroup name not found")

    fakes.groups.rules = refuses  # type: ignore[method-assign]
    outcome = retire(fakes)
    assert fakes.groups.reads == ["facts"]
    assert outcome.replacement == Method.NOTHING
    assert fakes.clock.time < NOTICED + timedelta(seconds=60)


@pytest.mark.parametrize("state", ["Detaching", None])
def test_a_detachment_whose_answer_was_lost_is_recognised(state: str | None) -> None:
    """The second try is refused, because the first succeeded. Leeway terminates the instance after
    its drain: neither the group nor EC2 would."""
    fakes = retirement_fakes()
    detach = fakes.groups.detach

    def detach_without_answer(instance: str, group: str) -> None:
        detach(instance, group)
        fakes.groups.state = state
        raise CloudRefused("ValidationError: the instance is not in service in the group")

    fakes.groups.detach = detach_without_answer  # type: ignore[method-assign]
    outcome = retire(fakes)
    assert fakes.groups.reads == ["rules of ng", "facts"]
    assert (outcome.replacement, outcome.terminated) == (Method.DETACH, True)
    assert fakes.actions.ended == ["terminated"]


def test_a_retirement_without_a_successor_reads_the_groups_rules_only() -> None:
    """The rules tell whether the hook notifies a target of its own."""
    fakes = retirement_fakes(NoticeKind.TERMINATE_HOOK, **HOOKS)
    retire(fakes)
    assert fakes.groups.reads == ["rules of ng"]
    assert fakes.clock.time > NOTICED
