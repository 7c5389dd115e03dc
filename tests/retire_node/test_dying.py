"""A function that dies at any call, with what it did or without, and is run again from the step."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from leeway.notices import NoticeKind
from leeway.ports.kubernetes_objects import Pod
from leeway.retire_node.retire_node import RetireNode
from leeway.retirement.step_context import StepContext

from tests.retire_node.retiring import ORDER, SUCCESSOR, Surrounding, surrounding
from tests.retirement.retirements import FACTS

POD = Pod("shop", "web-1", "u-1", "Running", 30, None)
HOOKED = ("leeway-drain",)


class Died(BaseException):
    """The function died: no handler of errors sees it."""


class Deadly:
    """One part of a surrounding; the call at which the count runs out kills."""

    def __init__(self, part: Any, fate: "Fate") -> None:
        self._part, self._fate = part, fate

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if not callable(found):
            return found

        def call(*args: Any, **more: Any) -> Any:
            number = self._fate.next_call()
            try:
                return found(*args, **more)
            finally:
                self._fate.after(number)

        return call


class Fate:
    """Counts calls, and kills once: `when` the call with this number is made."""

    def __init__(self, number: int, when: str) -> None:
        self.calls, self._number, self._when = 0, number, when
        self.killed = False

    def next_call(self) -> int:
        """Number a call that is about to be made."""
        self.calls += 1
        number = self.calls
        self._kill(number, "before")
        return number

    def after(self, number: int) -> None:
        """Take in that a call has been answered."""
        self._kill(number, "after")

    def _kill(self, number: int, moment: str) -> None:
        if (number, moment) == (self._number, self._when) and not self.killed:
            self.killed = True
            raise Died


class Steps:
    """The durable engine: a step whose function died is done again, those before it are not."""

    def __init__(self, world: Surrounding) -> None:
        self._world = world

    def run[T](self, name: str, kind: type[T], work: Callable[[], T]) -> T:
        try:
            return work()
        except Died:
            return work()

    def wait(self, name: str, seconds: int) -> None:
        self._world.sleep(seconds)


def run(world: Surrounding, fate: Fate) -> Any:
    """Run the retirement; its outcome."""
    whole = world.dependencies
    spared = {"context", "telemetry", "region", "cache"}
    parts: dict[str, Any] = {
        part.name: Deadly(getattr(whole, part.name), fate)
        for part in fields(whole)
        if part.name not in spared
    }
    cluster: Any = Deadly(world, fate)
    records: Any = Deadly(world, fate)
    cache: Any = Deadly(whole.cache, fate)
    context = StepContext(records, lambda _: cluster, world)
    deadly = replace(whole, context=context, cache=cache, **parts)
    return RetireNode(deadly).retire(ORDER, Steps(world))


CASES: dict[str, tuple[NoticeKind, dict[str, Any], list[str]]] = {
    "rebalance, hooked": (
        NoticeKind.REBALANCE,
        {"hooks": HOOKED},
        ["launch", "evict", "terminate and decrement"],
    ),
    "rebalance, without a hook": (
        NoticeKind.REBALANCE,
        {},
        ["launch", "evict", "terminate and decrement"],
    ),
    "rebalance, by the group": (
        NoticeKind.REBALANCE,
        {"facts_": {"launch_unsupported": "has a warm pool"}},
        ["detach", "evict"],
    ),
    "interruption, hooked": (
        NoticeKind.SPOT_INTERRUPTION,
        {"hooks": HOOKED},
        ["terminate", "evict"],
    ),
    "interruption, without a hook": (NoticeKind.SPOT_INTERRUPTION, {}, ["detach", "evict"]),
}


def fresh(case: str) -> Surrounding:
    kind, changes, _ = CASES[case]
    return surrounding(kind, pods=[POD], blocks=False, **changes)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("case", CASES)
def test_wherever_it_dies_everything_is_done_and_nothing_twice(case: str, when: str) -> None:
    kind, _, expected = CASES[case]
    alive = Fate(0, when)
    assert run(fresh(case), alive).result == "drained"
    assert alive.calls > 12
    for number in range(1, alive.calls + 1):
        world, fate = fresh(case), Fate(number, when)
        outcome = run(world, fate)
        assert fate.killed, number
        assert outcome.result == "drained", number
        acts = [what for what, _ in world.done if what != "cordon"]
        assert acts == expected, number
        assert world.desired == 3, number
        if kind is NoticeKind.REBALANCE:
            assert [one.instance for one in outcome.successors] == [SUCCESSOR], number
            assert world.ledgers.churns["prod"].begun.keys() == {FACTS.instance}, number
