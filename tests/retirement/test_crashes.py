"""A function that crashes before or after any call, and repeats the step."""

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from leeway.notices import NoticeKind
from leeway.retirement.context import Attempt
from leeway.retirement.disruption_budget import read_ledger
from leeway.retirement.retire_node import retire_node

from tests.fakes.crashes import Crash, Crashed, Crashing, crashing
from tests.fakes.groups import SUCCESSOR
from tests.fakes.pools import of_full_group, of_pool, report_no_capacity
from tests.fakes.retirement import ATTEMPT_ID, HOOKED, POD, RetirementFakes, retirement_fakes
from tests.retirement.retirements import FACTS


class Steps:
    """The durable engine: a step in which the function crashed runs again; earlier steps do not."""

    def __init__(self, fakes: RetirementFakes) -> None:
        self._fakes = fakes

    def run[T](self, name: str, kind: type[T], work: Callable[[], T]) -> T:
        self._fakes.steps.begin(name)
        try:
            return work()
        except Crashed:
            return work()

    def wait(self, name: str, seconds: int) -> None:
        self._fakes.clock.sleep(seconds)


NO_CALLS = {"clock", "open_cluster", "open_workloads", "telemetry", "region", "described"}


def run(fakes: RetirementFakes, crash: Crash, only: Collection[str] = ()) -> Any:
    """Run the retirement with a crash at a call of the cluster, its workloads or these ports, or
    of all; return its outcome."""
    ports = fakes.ports
    cluster: Any = Crashing(fakes.cluster, crash)
    workloads: Any = Crashing(fakes.workloads, crash)
    opened = replace(ports, open_cluster=lambda _: cluster, open_workloads=lambda _: workloads)
    crashes = replace(opened, **crashing(ports, crash, only, but=NO_CALLS))
    return retire_node(Attempt(ATTEMPT_ID, Steps(fakes), crashes))


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


@pytest.mark.parametrize(
    ("case", "moment"), [*((one, "after") for one in CASES), ("rebalance, with a hook", "before")]
)
def test_a_crash_at_any_call_neither_loses_nor_repeats_an_action(case: str, moment: str) -> None:
    kind, _, expected = CASES[case]
    uncrashed = Crash(0, moment)
    assert run(fresh(case), uncrashed).result == "drained"
    assert uncrashed.calls > 12
    for number in range(1, uncrashed.calls + 1):
        fakes, crash = fresh(case), Crash(number, moment)
        outcome = run(fakes, crash)
        assert crash.happened, number
        assert outcome.result == "drained", number
        acts = [what for what, _ in fakes.actions.done if what != "cordon"]
        assert acts == expected, number
        assert fakes.groups.desired == 3, number
        if kind is NoticeKind.REBALANCE:
            assert [one.instance for one in outcome.successors] == [SUCCESSOR], number
            assert read_ledger(fakes.table, "prod").begun.keys() == {FACTS.instance}, number


@pytest.mark.parametrize("case", ["rebalance, with a hook", "rebalance, without a hook"])
def test_a_crash_at_any_call_ends_no_successor_of_a_group_that_is_raised(case: str) -> None:
    def raised() -> RetirementFakes:
        fakes = fresh(case)

        @fakes.steps.at("begin-drain")
        def autoscaler() -> None:
            fakes.groups.desired += 1

        fakes.notify_hooks()
        return fakes

    uncrashed = Crash(0, "after")
    assert run(raised(), uncrashed).result == "drained"
    for number in range(1, uncrashed.calls + 1):
        fakes = raised()
        assert run(fakes, Crash(number, "after")).result == "drained", number
        acts = [what for what, _ in fakes.actions.done if what != "cordon"]
        assert (acts, fakes.groups.desired) == (CASES[case][2], 4), number


@pytest.mark.parametrize("case", POOL_CASES)
def test_a_crash_at_any_call_buys_one_successor_and_ends_the_request(case: str) -> None:
    make, expected, ended, desired = POOL_CASES[case]
    uncrashed = Crash(0, "after")
    assert run(make(), uncrashed).result == "drained"
    for number in range(1, uncrashed.calls + 1):
        fakes, crash = make(), Crash(number, "after")
        outcome = run(fakes, crash)
        assert crash.happened, number
        assert (outcome.result, outcome.replacement) == ("drained", "request-capacity"), number
        acts = [what for what, _ in fakes.actions.done if what != "cordon"]
        assert acts == expected, number
        assert (set(fakes.actions.ended), fakes.groups.desired) == (set(ended), desired), number
        assert [one.instance for one in outcome.successors] == [SUCCESSOR], number
        [request] = fakes.capacity.values()
        assert not request.is_open(fakes.clock.time), number
        assert not fakes.record.is_open, number
