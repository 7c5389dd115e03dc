"""A function that crashes before or after any call, and repeats the step."""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any

import pytest
from leeway.notices import NoticeKind
from leeway.ports.kubernetes_objects import Pod
from leeway.retirement.context import Attempt
from leeway.retirement.disruption_budget import read_ledger
from leeway.retirement.retire_node import retire_node

from tests.fakes.groups import SUCCESSOR
from tests.fakes.pools import of_full_group, of_pool, report_no_capacity
from tests.fakes.retirement import ATTEMPT_ID, RetirementFakes, retirement_fakes
from tests.retirement.retirements import FACTS

POD = Pod("shop", "web-1", "u-1", "Running", 30, None)
HOOKED = ("leeway-drain",)


class Crashed(BaseException):
    """The function crashed: a BaseException, so that no error handler catches it."""


class Crashing:
    """A port that counts its calls; the call with the given number crashes the function."""

    def __init__(self, part: Any, plan: "CrashPlan") -> None:
        self._part, self._plan = part, plan

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if not callable(found):
            return found

        def call(*args: Any, **more: Any) -> Any:
            number = self._plan.next_call()
            try:
                return found(*args, **more)
            finally:
                self._plan.after(number)

        return call


class CrashPlan:
    """Counts calls and crashes once, `when` (before or after) the call with this number."""

    def __init__(self, number: int, when: str) -> None:
        self.calls, self._number, self._when = 0, number, when
        self.crashed = False

    def next_call(self) -> int:
        """Count a call, before it is made."""
        self.calls += 1
        number = self.calls
        self._crash(number, "before")
        return number

    def after(self, number: int) -> None:
        """Note that a call returned."""
        self._crash(number, "after")

    def _crash(self, number: int, moment: str) -> None:
        if (number, moment) == (self._number, self._when) and not self.crashed:
            self.crashed = True
            raise Crashed


class Steps:
    """The durable engine: a step in which the function crashed runs again; earlier steps do not."""

    def __init__(self, fakes: RetirementFakes) -> None:
        self._fakes = fakes

    def run[T](self, name: str, kind: type[T], work: Callable[[], T]) -> T:
        try:
            return work()
        except Crashed:
            return work()

    def wait(self, name: str, seconds: int) -> None:
        self._fakes.clock.sleep(seconds)


def run(fakes: RetirementFakes, plan: CrashPlan) -> Any:
    """Run the retirement and return its outcome."""
    whole = fakes.ports
    unchanged = {"clock", "open_cluster", "telemetry", "region", "cache", "names", "successors"}
    parts: dict[str, Any] = {
        part.name: Crashing(getattr(whole, part.name), plan)
        for part in fields(whole)
        if part.name not in unchanged
    }
    cluster: Any = Crashing(fakes.cluster, plan)
    cache: Any = Crashing(whole.cache, plan)
    ports = replace(whole, open_cluster=lambda _: cluster, cache=cache, **parts)
    return retire_node(Attempt(ATTEMPT_ID, Steps(fakes), ports))


CASES: dict[str, tuple[NoticeKind, dict[str, Any], list[str]]] = {
    "rebalance, with a hook": (
        NoticeKind.REBALANCE,
        {"hooks": HOOKED},
        ["launch", "evict", "terminate and decrement"],
    ),
    "rebalance, without a hook": (
        NoticeKind.REBALANCE,
        {},
        ["launch", "evict", "terminate and decrement"],
    ),
    "rebalance, without LaunchInstances": (
        NoticeKind.REBALANCE,
        {"overrides": {"launch_unsupported": "has a warm pool"}},
        ["detach", "evict"],
    ),
    "interruption, with a hook": (
        NoticeKind.SPOT_INTERRUPTION,
        {"hooks": HOOKED},
        ["terminate", "evict"],
    ),
    "interruption, without a hook": (NoticeKind.SPOT_INTERRUPTION, {}, ["detach", "evict"]),
}


POOL_CASES: dict[str, tuple[Callable[[], RetirementFakes], list[str], list[str], int]] = {
    "rebalance, of a pool": (of_pool, ["buy", "evict"], ["terminated"], 3),
    "interruption, of a pool": (
        partial(of_pool, NoticeKind.SPOT_INTERRUPTION),
        ["buy", "evict"],
        [],
        3,
    ),
    "rebalance, of a group without capacity": (
        of_full_group,
        ["buy", "evict", "terminate and decrement"],
        ["leeway-drain"],
        2,
    ),
    "interruption, of a group without capacity": (
        lambda: report_no_capacity(of_full_group(NoticeKind.SPOT_INTERRUPTION)),
        ["buy", "evict", "terminate and decrement"],
        ["leeway-drain"],
        2,
    ),
}
"""What is done, which hooks are answered and instances terminated, and the group's desired
capacity at the end."""


def fresh(case: str) -> RetirementFakes:
    kind, changes, _ = CASES[case]
    return retirement_fakes(kind, pods=[POD], blocks=False, **changes)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("case", CASES)
def test_a_crash_at_any_call_neither_loses_nor_repeats_an_action(case: str, when: str) -> None:
    kind, _, expected = CASES[case]
    uncrashed = CrashPlan(0, when)
    assert run(fresh(case), uncrashed).result == "drained"
    assert uncrashed.calls > 12
    for number in range(1, uncrashed.calls + 1):
        fakes, plan = fresh(case), CrashPlan(number, when)
        outcome = run(fakes, plan)
        assert plan.crashed, number
        assert outcome.result == "drained", number
        acts = [what for what, _ in fakes.actions.done if what != "cordon"]
        assert acts == expected, number
        assert fakes.groups.desired == 3, number
        if kind is NoticeKind.REBALANCE:
            assert [one.instance for one in outcome.successors] == [SUCCESSOR], number
            assert read_ledger(fakes.table, "prod").begun.keys() == {FACTS.instance}, number


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("case", POOL_CASES)
def test_a_crash_at_any_call_buys_one_successor_and_ends_the_request(case: str, when: str) -> None:
    make, expected, ended, desired = POOL_CASES[case]
    uncrashed = CrashPlan(0, when)
    assert run(make(), uncrashed).result == "drained"
    for number in range(1, uncrashed.calls + 1):
        fakes, plan = make(), CrashPlan(number, when)
        outcome = run(fakes, plan)
        assert plan.crashed, number
        assert (outcome.result, outcome.replacement) == ("drained", "request-capacity"), number
        acts = [what for what, _ in fakes.actions.done if what != "cordon"]
        assert acts == expected, number
        assert (set(fakes.actions.ended), fakes.groups.desired) == (set(ended), desired), number
        assert [one.instance for one in outcome.successors] == [SUCCESSOR], number
        [request] = fakes.capacity.values()
        assert not request.is_open(fakes.clock.time), number
        assert not fakes.record.is_open, number
