"""The contract of the Groups port: the fake of the retirements' tests and the adapter keep it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count

import pytest
from leeway.aws.autoscaling import AutoScalingGroups
from leeway.notices import LifecycleHook
from leeway.ports.aws import CloudRefused, Groups, HookResult, LifecycleActionOver

from tests.fakes.actions import ActionLog
from tests.fakes.clock import FakeClock
from tests.fakes.groups import GROUP, FakeGroups
from tests.retirement.retirements import FACTS
from tests.sandbox.aws.started import Sandbox, hook

NUMBERS = count(1)
DRAIN = "leeway-drain"


@dataclass(frozen=True)
class Case:
    """A group of three instances of at most four, with one terminate hook; `instance` is one of
    its instances. `until` waits for a condition: AWS takes some time, the fake none."""

    port: Groups
    name: str
    instance: str
    until: Callable[[Callable[[], object]], object]

    @property
    def desired(self) -> int:
        facts = self.port.facts(self.instance)
        assert facts is not None
        return facts.desired


def check_at_once(condition: Callable[[], object]) -> object:
    value = condition()
    assert value
    return value


@pytest.fixture(params=["fake", "adapter"])
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    """The same group behind the fake and behind the adapter."""
    if request.param == "fake":
        groups = FakeGroups(ActionLog(FakeClock()), maximum=4, hooks=(DRAIN,))
        yield Case(groups, GROUP, FACTS.instance, check_at_once)
        return
    aws: Sandbox = request.getfixturevalue("aws")
    name = f"contract-{next(NUMBERS)}"
    first, *_ = aws.group(name, 3, MaxSize=4, LifecycleHookSpecificationList=[hook(DRAIN)])
    adapter = AutoScalingGroups(partial(aws.client, "autoscaling"))
    yield Case(adapter, name, first, aws.wait)


def test_the_facts_of_an_instance_are_those_of_its_group(case: Case) -> None:
    facts = case.port.facts(case.instance)
    assert facts is not None
    assert (facts.name, facts.lifecycle_state) == (case.name, "InService")
    assert (facts.desired, facts.maximum, facts.units) == (3, 4, 1)
    assert facts.terminate_hooks == (DRAIN,)
    assert facts.terminate_hook_waits
    assert facts.stays_in_group
    assert not facts.protected
    assert facts.zones


def test_an_instance_of_no_group_has_no_facts(case: Case) -> None:
    assert case.port.facts("i-0dddddddddddddddd") is None


def test_the_rules_of_a_group_have_its_hooks_and_their_timeouts(case: Case) -> None:
    rules = case.port.rules(case.name)
    assert rules.terminate_hooks == (DRAIN,)
    assert rules.timeouts[DRAIN] >= 30
    assert rules.zones
    with pytest.raises(CloudRefused, match="there is no group never-was"):
        case.port.rules("never-was")


def test_a_launch_is_done_once_for_its_token_and_not_above_the_maximum(case: Case) -> None:
    zone = case.port.rules(case.name).zones[0]
    first, repeated = (case.port.launch(case.name, zone, 1, f"{case.name}-1") for _ in range(2))
    assert first == repeated
    (launched,) = first.instances
    assert launched.zone == zone
    assert case.desired == 4
    facts = case.port.facts(launched.instance)
    assert facts is not None
    assert facts.stays_in_group
    with pytest.raises(CloudRefused):
        case.port.launch(case.name, zone, 1, f"{case.name}-2")


def test_a_termination_with_a_decrement_lowers_the_desired_capacity(case: Case) -> None:
    case.port.terminate_in_group(case.instance, decrement=True)
    facts = case.port.facts(case.instance)
    assert facts is not None
    assert facts.lifecycle_state.startswith("Terminating")
    assert facts.desired == 2
    assert case.port.missing(case.name) == 0


def test_a_termination_without_a_decrement_keeps_the_desired_capacity(case: Case) -> None:
    case.port.terminate_in_group(case.instance)
    assert case.desired == 3


def test_a_detached_instance_leaves_its_group_which_keeps_its_desired_capacity(case: Case) -> None:
    case.port.detach(case.instance, case.name)
    case.until(lambda: case.port.facts(case.instance) is None)
    case.until(lambda: case.port.missing(case.name) == 0)


def test_a_hook_has_settings_and_an_unknown_hook_has_none(case: Case) -> None:
    settings = case.port.hook_settings(LifecycleHook(case.name, DRAIN))
    assert settings is not None
    assert settings.timeout >= 30
    assert not settings.has_target
    assert case.port.hook_settings(LifecycleHook(case.name, "never-was")) is None


def test_a_waiting_action_takes_heartbeats_and_one_answer(case: Case) -> None:
    action = LifecycleHook(case.name, DRAIN)
    case.port.terminate_in_group(case.instance)

    def waits() -> bool:
        facts = case.port.facts(case.instance)
        return facts is not None and facts.lifecycle_state == "Terminating:Wait"

    case.until(waits)
    case.port.heartbeat(case.instance, action)
    case.port.complete(case.instance, action, HookResult.CONTINUE)
    with pytest.raises(LifecycleActionOver):
        case.port.complete(case.instance, action, HookResult.CONTINUE)
    with pytest.raises(LifecycleActionOver):
        case.port.heartbeat(case.instance, action)
