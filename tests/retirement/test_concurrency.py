"""Two retirements, Cluster Autoscaler and a person change one group concurrently, with crashes."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from leeway.execution.attempt import AttemptId
from leeway.instances.facts import GroupFacts
from leeway.notices import NoticeKind
from leeway.ports.aws import Launched, LaunchedInstance
from leeway.retirement.context import Attempt
from leeway.retirement.cordon import CordonResult
from leeway.retirement.finish import RetirementProgress, finish
from leeway.retirement.reasons import REPLACEMENT_DECIDED
from leeway.retirement.record import RETIREMENT, Retirement
from leeway.retirement.replace import ReplacementResult, request_replacement
from leeway.table import Item, Key

from tests.fakes.crashes import Crashed
from tests.fakes.retirement import retirement_fakes
from tests.fakes.table import Stored, TableInMemory
from tests.retirement.retirements import FACTS, take

SIZE = 10
A, B = "i-a", "i-b"


class _ContendedTable(TableInMemory):
    """A table of which others may change the records before and after each write."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        super().__init__()
        self._meanwhile = meanwhile

    def _write(self, key: Key, item: Item | None, replaces: int | None) -> None:
        self._meanwhile()
        super()._write(key, item, replaces)
        self._meanwhile()


@dataclass
class Fleet:
    """A group that other clients may change before and after each call.

    `events` are the changes by others, in order. An event that begins with `+` happens during a
    call, one at each point of the call; `+` alone skips a point.
    """

    events: list[str] = field(default_factory=list)
    desired: int = SIZE
    members: list[str] = field(
        default_factory=lambda: [A, B, *(f"i-other{n}" for n in range(SIZE - 2))]
    )
    table: TableInMemory = field(init=False)
    tokens: dict[str, Launched] = field(default_factory=dict)
    launched: int = 0
    desired_by_others: int = 0
    acting: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.table = _ContendedTable(self.meanwhile)

    def settle(self) -> None:
        while len(self.members) < self.desired:
            self.members.append(self._new())
        while len(self.members) > self.desired:
            self.members.pop(0)

    def _new(self) -> str:
        self.launched += 1
        return f"i-new{self.launched}"

    def meanwhile(self) -> None:
        """Apply the event for this point of a call, if there is one."""
        if self.events and self.events[0].startswith("+"):
            self.happens(self.events.pop(0).removeprefix("+"))

    def happens(self, event: str) -> None:
        others = [one for one in self.members if one.startswith("i-other")]
        match event.split():
            case ["crash"]:
                if self.acting:
                    raise Crashed
            case ["autoscaler", "raises"]:
                self.desired += 1
                self.desired_by_others += 1
            case ["autoscaler", "shrinks"] if others:
                self.members.remove(others[0])
                self.desired -= 1
                self.desired_by_others -= 1
            case ["person", "terminates"] if others:
                self.members.remove(others[-1])
            case ["request", name] if name not in self.acting:
                self.run(name, self.request_of(name))
            case ["finish", name] if name not in self.acting and name in self.records:
                self.run(name, self.finish_of(name))
        self.settle()

    def run(self, name: str, step: Callable[[], object]) -> None:
        """Run a step of a retirement, and repeat it after a crash."""
        self.acting.append(name)
        while name in self.acting:
            with suppress(Crashed):
                step()
                self.acting.remove(name)

    # Groups
    def facts(self, instance: str) -> GroupFacts | None:
        self.meanwhile()
        if instance not in self.members:
            return None
        return GroupFacts(
            name="ng",
            capacity_rebalance=False,
            refreshing=False,
            suspended=frozenset(),
            terminate_hooks=(),
            zones=("us-east-1a", "us-east-1b"),
            lifecycle_state="InService",
            desired=self.desired,
            maximum=99,
        )

    def launch(self, group: str, zone: str, units: int, token: str) -> Launched:
        self.meanwhile()
        if token not in self.tokens:
            new = self._new()
            self.members.append(new)
            self.desired += units
            self.tokens[token] = Launched((LaunchedInstance(new, "m5.large", zone),))
        self.meanwhile()
        return self.tokens[token]

    def terminate_in_group(self, instance: str, decrement: bool = False) -> None:
        self.meanwhile()
        if instance in self.members:
            self.members.remove(instance)
            self.desired -= decrement
            self.settle()
        self.meanwhile()

    @property
    def records(self) -> Stored[Retirement]:
        return self.table.records(RETIREMENT)

    # Steps of a retirement
    def attempt(self, name: str) -> Attempt:
        itself: Any = self
        fakes = retirement_fakes()
        ports = replace(fakes.ports, table=self.table, groups=itself)
        return Attempt(AttemptId(name, "prod", 1), fakes.steps, ports)

    # A step that crashes runs again with the record that the step before it returned.
    def request_of(self, name: str) -> Callable[[], object]:
        if name not in self.records:
            record = take(None, NoticeKind.REBALANCE, "n-1").record
            facts = FACTS.model_copy(update={"instance": name, "joined": True})
            self.records[name] = record.model_copy(update={"facts": facts})
        record = self.records[name]
        if record.ended_at is not None:
            return lambda: None
        return partial(request_replacement, self.attempt(name), record, "node-1")

    def finish_of(self, name: str) -> Callable[[], object]:
        record = self.records[name]
        intent = record.replacement_intent
        if record.ended_at is not None or intent is None or not intent.successors:
            return lambda: None
        progress = RetirementProgress(
            CordonResult(True, record),
            ReplacementResult(
                True,
                record,
                REPLACEMENT_DECIDED("An earlier attempt requested the successor from group ng."),
            ),
        )
        return partial(finish, self.attempt(name), record, progress)


CHANGES = [
    "autoscaler raises",
    "autoscaler shrinks",
    "person terminates",
    *(f"{action} {instance}" for action in ("request", "finish") for instance in (A, B)),
]
EVENTS = [*CHANGES, *(f"+{change}" for change in CHANGES), "+crash", "+", "+", "+"]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(EVENTS), max_size=40))
@example([f"request {A}", *["+"] * 4, "+autoscaler raises"])
@example(
    [f"request {A}", "+autoscaler raises", f"+request {B}", f"finish {A}", "+crash", f"finish {B}"]
)
@example([f"request {A}", f"request {B}", f"finish {A}", *["+"] * 4, "+crash", f"finish {B}"])
def test_the_groups_capacity_is_restored_under_concurrency_and_crashes(events: list[str]) -> None:
    fleet = Fleet(list(events))
    while fleet.events:
        fleet.happens(fleet.events.pop(0).removeprefix("+"))
    for name in (A, B):
        fleet.happens(f"request {name}")
        fleet.happens(f"finish {name}")
    assert fleet.desired == len(fleet.members) == SIZE + fleet.desired_by_others
    assert not {A, B} & {*fleet.members}
    successors = [fleet.records[name].replacement_intent for name in (A, B)]
    launched = [one.instance for intent in successors if intent for one in intent.successors]
    assert len(launched) == len({*launched}) == 2, "one successor for each retirement"
    assert {*launched} <= {*fleet.members}


def requested() -> tuple[Fleet, str]:
    """A group that has launched the successor of A, and the successor."""
    fleet = Fleet()
    fleet.happens(f"request {A}")
    intent = fleet.records[A].replacement_intent
    assert intent is not None
    return fleet, intent.successors[0].instance


def test_a_terminated_successor_with_a_decrement_counts_as_the_restored_capacity() -> None:
    fleet, successor = requested()
    fleet.members.remove(successor)
    fleet.desired -= 1
    fleet.happens(f"finish {A}")
    assert fleet.desired == SIZE, "the instance is replaced"
    assert A not in fleet.members


@pytest.mark.parametrize("gone", [A, "its successor"])
def test_a_replacement_by_the_group_does_not_change_its_capacity(gone: str) -> None:
    fleet, successor = requested()
    fleet.members.remove(A if gone == A else successor)
    fleet.settle()
    fleet.happens(f"finish {A}")
    assert fleet.desired == len(fleet.members) == SIZE


def test_a_capacity_that_a_person_restored_is_not_lowered_again() -> None:
    fleet, successor = requested()
    fleet.desired = SIZE
    fleet.settle()
    assert A not in fleet.members
    fleet.happens(f"finish {A}")
    assert fleet.desired == len(fleet.members) == SIZE
    assert successor in fleet.members


def test_a_launch_that_is_repeated_with_its_token_changes_nothing() -> None:
    fleet, successor = requested()
    fleet.happens(f"finish {A}")
    [token] = fleet.tokens
    late = fleet.launch("ng", "us-east-1a", 1, token)
    assert late.instances[0].instance == successor
    assert fleet.desired == SIZE
