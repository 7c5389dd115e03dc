"""What is written down between the steps of a retirement.

Executions go on with the version that began them; what is stored is read by that version alone.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from leeway.drain.passes import Pace, changed_in, pace_of, resumed
from leeway.drain.progress import Drain
from leeway.execution.orders import Order
from leeway.hooks import HeldHook
from leeway.lifecycle_actions import Answered
from leeway.records.retirement import Retirement, Successor
from leeway.replacement import Method
from leeway.retirement.outcome import Outcome, Result


class Course(StrEnum):
    """What a retirement comes to, when its turn is decided."""

    RETIRE = "retire"
    CORDON = "cordon"
    WAIT = "wait"
    DECLINE = "decline"
    REHEARSE = "rehearse"
    UNDO = "undo"


@dataclass(frozen=True, slots=True)
class Located:
    """Where a retirement stands with its node.

    `settled` says that the node is as the course asks, or known not to exist (`node` empty). There
    is no record where a newer generation has taken over; so with the results below. `rest` is how
    many seconds to wait before trying again, where nothing else is to be done meanwhile.
    """

    settled: bool
    record: Retirement | None = None
    node: str = ""
    node_uid: str = ""
    cordoned_at: datetime | None = None
    problem: str = ""
    course: Course = Course.RETIRE
    rest: int = 0


@dataclass(frozen=True, slots=True)
class Replaced:
    """Where a retirement stands with its replacement.

    `rest` is how many seconds to wait before looking for the successor again, 0 where it is not
    waited for, or no longer. `held` are the lifecycle hooks that are kept waiting meanwhile.
    """

    settled: bool
    record: Retirement | None
    method: Method = Method.NOTHING
    reason: str = ""
    successors: tuple[Successor, ...] = ()
    rest: int = 0
    held: tuple[HeldHook, ...] = ()


@dataclass(frozen=True, slots=True)
class Passed:
    """A drain after one more pass, how many seconds may pass before the next, and the lifecycle
    hooks that are kept waiting for it.

    As it is written down, `drain` has only the pods in which the pass changed something, and `pace`
    says of all pods how often they were tried and when they are due again. No pace: `drain` has all
    pods, as versions before this one wrote it.
    """

    drain: Drain
    record: Retirement | None
    rest: int = 0
    expired: bool = False
    held: tuple[HeldHook, ...] = ()
    pace: Pace | None = None

    def since(self, before: Drain, now: datetime) -> "Passed":
        """Return it as it is written down, by whoever knows the drain before the pass."""
        return replace(self, drain=changed_in(before, self.drain), pace=pace_of(self.drain, now))

    def after(self, before: Drain) -> "Passed":
        """Return what was written down with the whole drain."""
        return replace(self, drain=resumed(before, self.drain, self.pace), pace=None)


_ENDED_EARLY = {
    Course.DECLINE: Result.DECLINED,
    Course.REHEARSE: Result.REHEARSED,
    Course.UNDO: Result.UNDONE,
}


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a retirement has come with all that it does; never written down as such."""

    located: Located
    replaced: Replaced
    drain: Drain = field(default_factory=Drain)

    @property
    def drained(self) -> bool:
        """Whether every pod that had to go is gone. Where there is no node there is none."""
        return self.located.settled and (not self.located.node or self.drain.drained)

    def left_nothing(self, record: Retirement) -> bool:
        """Whether there was a node, now or before, and nothing is left on it: no pod that had to
        go, no volume."""
        if not self.located.node:
            return self.drained and record.emptied
        return self.drained and not self.drain.unclean

    def is_known_to_be_empty(self, record: Retirement) -> bool:
        """Whether no pod is left on the instance. That it has no node shows nothing of an instance
        that is not known to have had one: it may be no node at all, and serve something else."""
        if self.located.node or not self.drained:
            return self.drained
        return record.emptied or record.facts.joined

    @property
    def over(self) -> bool:
        """Whether nothing is left to try: the node, the pods and the successor are seen to."""
        emptied = self.located.settled and (not self.located.node or self.drain.over)
        return emptied and self.replaced.settled

    @property
    def result(self) -> Result:
        """How it ends, if it ends here."""
        course, settled = self.located.course, self.located.settled
        if course in _ENDED_EARLY:
            return _ENDED_EARLY[course]
        if course is Course.CORDON and settled:
            return Result.CORDONED
        if settled and not self.located.node:
            return Result.NO_NODE
        return Result.DRAINED if self.drained else Result.INCOMPLETE

    @property
    def problem(self) -> str:
        """What stood in the way last; empty where nothing did."""
        return self.located.problem or self.drain.problem or self.drain.unseen


@dataclass(frozen=True, slots=True)
class Finished:
    """How it ended; no outcome where a newer generation has taken over."""

    outcome: Outcome | None
    answered: Answered = field(default_factory=Answered)


STEP_RESULTS = (Order, Located, Replaced, Passed, Finished, Outcome, Answered)
"""What is written down between the steps."""
