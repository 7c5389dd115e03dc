"""What is written down between the steps of a retirement.

Executions go on with the version that began them; what is stored is read by that version alone.
"""

from dataclasses import dataclass, field

from leeway.drain.progress import Drain
from leeway.drain.step import DrainPassResult
from leeway.execution.attempt import AttemptId
from leeway.lifecycle_hooks.actions import HookAnswers
from leeway.replacement.request import ReplacementResult
from leeway.retire_node.outcome import Outcome, RetirementResult
from leeway.retirement.cordon_result import CordonResult, Course
from leeway.retirement.record import Retirement

_ENDED_EARLY = {
    Course.DECLINE: RetirementResult.DECLINED,
    Course.REHEARSE: RetirementResult.REHEARSED,
    Course.UNDO: RetirementResult.UNDONE,
}


@dataclass(frozen=True, slots=True)
class RetirementProgress:
    """How far a retirement has come with all that it does; never written down as such."""

    located: CordonResult
    replaced: ReplacementResult
    drain: Drain = field(default_factory=Drain)

    @property
    def drained(self) -> bool:
        """Whether every pod that had to go is gone. Where there is no node there is none."""
        return self.located.settled and (not self.located.node or self.drain.drained)

    def left_nothing(self, record: Retirement) -> bool:
        """Whether there was a node, now or before, and nothing is left on it: no pod that had to
        go, no volume."""
        if not self.located.node:
            return self.drained and record.node_is_empty
        return self.drained and not self.drain.unclean

    def is_known_to_be_empty(self, record: Retirement) -> bool:
        """Whether no pod is left on the instance. That it has no node shows nothing of an instance
        that is not known to have had one: it may be no node at all, and serve something else."""
        if self.located.node or not self.drained:
            return self.drained
        return record.node_is_empty or record.facts.joined

    @property
    def over(self) -> bool:
        """Whether nothing is left to try: the node, the pods and the successor are seen to."""
        emptied = self.located.settled and (not self.located.node or self.drain.over)
        return emptied and self.replaced.settled

    @property
    def result(self) -> RetirementResult:
        """How it ends, if it ends here."""
        course, settled = self.located.course, self.located.settled
        if course in _ENDED_EARLY:
            return _ENDED_EARLY[course]
        if course is Course.CORDON and settled:
            return RetirementResult.CORDONED
        if settled and not self.located.node:
            return RetirementResult.NO_NODE
        return RetirementResult.DRAINED if self.drained else RetirementResult.INCOMPLETE

    @property
    def problem(self) -> str:
        """What stood in the way last; empty where nothing did."""
        return self.located.problem or self.drain.problem or self.drain.unseen


@dataclass(frozen=True, slots=True)
class FinishResult:
    """How it ended; no outcome where a newer attempt has taken over."""

    outcome: Outcome | None
    answered: HookAnswers = field(default_factory=HookAnswers)


STEP_RESULTS = (
    AttemptId,
    CordonResult,
    ReplacementResult,
    DrainPassResult,
    FinishResult,
    Outcome,
    HookAnswers,
)
"""What is written down between the steps."""
