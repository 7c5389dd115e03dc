"""The cache of groups' rules: how often a group is read, and what the cached rules decide."""

from datetime import timedelta
from typing import Any

import pytest
from leeway.execution.attempt import Phase
from leeway.execution.shared_cache import FRESH_FOR, SharedCache
from leeway.instances.facts import Owner, OwnerKind
from leeway.notices import LifecycleHook, NoticeKind
from leeway.ports.aws import CloudRefused, HookSettings
from leeway.retirement.hooks import GroupCache
from leeway.retirement.record import Method

from tests.fakes.failing import failing
from tests.fakes.retirement import RetirementFakes, retire, retirement_fakes
from tests.retirement.retirements import HOOK, NOTICED

HOOKS: dict[str, Any] = {"hooks": ("leeway-drain",)}


def cache_of(fakes: RetirementFakes) -> GroupCache:
    return GroupCache(fakes.groups, SharedCache(fakes.table, fakes.clock))


def test_the_rules_of_a_group_are_read_once_within_some_seconds() -> None:
    fakes = retirement_fakes(**HOOKS)
    for _ in range(10):
        assert cache_of(fakes).rules_of("ng").terminate_hooks == ("leeway-drain",)
    assert fakes.groups.reads == ["rules of ng"]
    fakes.clock.sleep(FRESH_FOR.total_seconds())
    cache_of(fakes).rules_of("ng")
    assert fakes.groups.reads == ["rules of ng"] * 2


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
    fakes.amend(**changes)
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
    error = CloudRefused("ValidationError: AutoScalingGroup name not found")
    failing(fakes.groups, "rules", error)
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
