"""One group, two retirements, Cluster Autoscaler and a person at the same time: its size ends where
it should."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from leeway.execution.attempt import AttemptId
from leeway.instances.groups import GroupFacts
from leeway.lifecycle_hooks.actions import LifecycleActions
from leeway.notices import NoticeKind
from leeway.ports.aws import Launched, LaunchedInstance
from leeway.ports.table import RecordChanged
from leeway.replacement.cache import GroupCache
from leeway.replacement.launch import SuccessorLaunch
from leeway.replacement.request import ReplacementResult, ReplacementStep
from leeway.retire_node.finish import FinishStep
from leeway.retire_node.step_results import RetirementProgress
from leeway.retirement.cordon_result import CordonResult
from leeway.retirement.record import Retirement

from tests.retire_node.retiring import surrounding
from tests.retirement.retirements import FACTS, take

SIZE = 10
A, B = "i-a", "i-b"


class Died(BaseException):
    """The function died: no handler of errors sees it."""


@dataclass
class Fleet:
    """A group of which every call may find that others have acted just before, or just after.

    `events` are what others do, in order: those that begin with `+` happen in the midst of a call,
    one at each of its moments; a mere `+` lets the moment pass.
    """

    events: list[str] = field(default_factory=list)
    desired: int = SIZE
    members: list[str] = field(
        default_factory=lambda: [A, B, *(f"i-other{n}" for n in range(SIZE - 2))]
    )
    records: dict[str, Retirement] = field(default_factory=dict)
    tokens: dict[str, Launched] = field(default_factory=dict)
    launched: int = 0
    others_want: int = 0
    acting: list[str] = field(default_factory=list)

    # What happens
    def settle(self) -> None:
        while len(self.members) < self.desired:
            self.members.append(self._new())
        while len(self.members) > self.desired:
            self.members.pop(0)

    def _new(self) -> str:
        self.launched += 1
        return f"i-new{self.launched}"

    def meanwhile(self) -> None:
        """Let happen what is to happen at this moment of a call, if anything is."""
        if self.events and self.events[0].startswith("+"):
            self.happens(self.events.pop(0).removeprefix("+"))

    def happens(self, event: str) -> None:
        others = [one for one in self.members if one.startswith("i-other")]
        match event.split():
            case ["die"]:
                if self.acting:
                    raise Died
            case ["autoscaler", "raises"]:
                self.desired += 1
                self.others_want += 1
            case ["autoscaler", "shrinks"] if others:
                self.members.remove(others[0])
                self.desired -= 1
                self.others_want -= 1
            case ["person", "terminates"] if others:
                self.members.remove(others[-1])
            case ["ask", name] if name not in self.acting:
                self.run(name, self.ask)
            case ["end", name] if name not in self.acting and name in self.records:
                self.run(name, self.end)
        self.settle()

    def run(self, name: str, work: Callable[[str], None]) -> None:
        """Do a step of a retirement, again where its function died."""
        self.acting.append(name)
        while name in self.acting:
            with suppress(Died):
                work(name)
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

    # Records
    def retirement(self, instance: str) -> Retirement | None:
        return self.records.get(instance)

    def write(self, record: Retirement) -> None:
        self.meanwhile()
        if record.version != self.records[record.instance].version + 1:
            raise RecordChanged(record.instance)
        self.records[record.instance] = record
        self.meanwhile()

    # Steps of a retirement
    @property
    def parts(self) -> tuple[ReplacementStep, FinishStep]:
        itself: Any = self
        deps = surrounding().dependencies
        context = replace(deps.context, records=itself)
        launching = SuccessorLaunch(context, itself, deps.offerings, deps.region)
        actions = LifecycleActions(itself, context.clock)
        known = GroupCache(itself, deps.cache)
        replacing = ReplacementStep(context, itself, deps.instances, known, launching, actions)
        ending = FinishStep(
            context, itself, deps.instances, deps.announcements, deps.telemetry, actions, launching
        )
        return replacing, ending

    def ask(self, name: str) -> None:
        if name not in self.records:
            record = take(None, NoticeKind.REBALANCE, "n-1").record
            facts = FACTS.model_copy(update={"instance": name, "joined": True})
            self.records[name] = record.model_copy(update={"facts": facts})
        elif self.records[name].ended_at is not None:
            return
        replacing, _ = self.parts
        replacing.ask(AttemptId(name, "prod", 1), self.records[name])

    def end(self, name: str) -> None:
        record = self.records[name]
        if (
            record.ended_at is None
            and record.replacement_intent is not None
            and record.replacement_intent.successors
        ):
            standing = RetirementProgress(
                CordonResult(True, record), ReplacementResult(True, record)
            )
            _, ending = self.parts
            ending.finish(AttemptId(name, "prod", 1), record, standing)


WHAT = [
    "autoscaler raises",
    "autoscaler shrinks",
    "person terminates",
    *(f"{what} {who}" for what in ("ask", "end") for who in (A, B)),
]
EVENTS = [*WHAT, *(f"+{what}" for what in WHAT), "+die", "+", "+", "+"]


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(EVENTS), max_size=40))
@example([f"ask {A}", *["+"] * 4, "+autoscaler raises"])
@example([f"ask {A}", "+autoscaler raises", f"+ask {B}", f"end {A}", "+die", f"end {B}"])
def test_however_they_interleave_the_groups_size_ends_where_it_should(events: list[str]) -> None:
    fleet = Fleet(list(events))
    while fleet.events:
        fleet.happens(fleet.events.pop(0).removeprefix("+"))
    for name in (A, B):
        fleet.happens(f"ask {name}")
        fleet.happens(f"end {name}")
    assert fleet.desired == len(fleet.members) == SIZE + fleet.others_want
    assert not {A, B} & {*fleet.members}
    successors = [fleet.records[name].replacement_intent for name in (A, B)]
    named = [one.instance for intent in successors if intent for one in intent.successors]
    assert len(named) == len({*named}) == 2, "one successor each, never two"
    assert {*named} <= {*fleet.members}


def asked() -> tuple[Fleet, str]:
    """A group that has launched the successor of A, and the successor."""
    fleet = Fleet()
    fleet.happens(f"ask {A}")
    intent = fleet.records[A].replacement_intent
    assert intent is not None
    return fleet, intent.successors[0].instance


def test_who_takes_the_successor_away_has_lowered_the_group_already() -> None:
    fleet, successor = asked()
    fleet.members.remove(successor)
    fleet.desired -= 1
    fleet.happens(f"end {A}")
    assert fleet.desired == SIZE, "the instance is replaced"
    assert A not in fleet.members


@pytest.mark.parametrize("gone", [A, "its successor"])
def test_what_its_group_replaces_meanwhile_changes_no_size(gone: str) -> None:
    fleet, successor = asked()
    fleet.members.remove(A if gone == A else successor)
    fleet.settle()
    fleet.happens(f"end {A}")
    assert fleet.desired == len(fleet.members) == SIZE


def test_who_sets_the_former_size_and_ends_the_instance_by_that_has_done_it_all() -> None:
    fleet, successor = asked()
    fleet.desired = SIZE
    fleet.settle()
    assert A not in fleet.members
    fleet.happens(f"end {A}")
    assert fleet.desired == len(fleet.members) == SIZE
    assert successor in fleet.members


def test_an_answer_that_comes_eight_hours_late_changes_nothing() -> None:
    fleet, successor = asked()
    fleet.happens(f"end {A}")
    [token] = fleet.tokens
    late = fleet.launch("ng", "us-east-1a", 1, token)
    assert late.instances[0].instance == successor
    assert fleet.desired == SIZE
