"""The results of a retirement's steps, which the durable engine stores.

An execution continues on the version of the function that started it, so only that version reads
its results.
"""

from dataclasses import dataclass, field

from leeway.drain.progress import Drain
from leeway.drain.step import DrainCheckpoint
from leeway.execution.attempt import AttemptId
from leeway.lifecycle_hooks.actions import HookAnswers
from leeway.reasons import Reason
from leeway.replacement.request import ReplacementResult
from leeway.retire_node.outcome import Outcome, RetirementResult
from leeway.retirement.cordon_result import CordonResult, Course
from leeway.retirement.record import Retirement
from leeway.retirement.replacement_intent import Method

_ENDED_EARLY = {
    Course.DECLINE: RetirementResult.DECLINED,
    Course.DRY_RUN: RetirementResult.DRY_RUN,
    Course.UNDO: RetirementResult.UNDONE,
}


@dataclass(frozen=True, slots=True)
class RetirementProgress:
    """The progress of a retirement: the latest results of its steps. It is not stored itself."""

    cordoned: CordonResult
    replacement: ReplacementResult
    drain: Drain = field(default_factory=Drain)

    @property
    def drained(self) -> bool:
        """Whether every pod that had to be removed is gone, or there is no node."""
        return self.cordoned.settled and (not self.cordoned.node or self.drain.drained)

    def leaves_empty_node(self, record: Retirement) -> bool:
        """Whether the node, in this attempt or an earlier one, was drained of all pods that had to
        be removed, and no volume stayed attached."""
        if not self.cordoned.node:
            return self.drained and record.node_is_empty
        return self.drained and not self.drain.with_attached_volumes

    def instance_is_empty(self, record: Retirement) -> bool:
        """Whether no pod is left on the instance. An instance without a node counts only if it is
        known to have had one: otherwise it may be no node at all, and have another purpose."""
        if self.cordoned.node or not self.drained:
            return self.drained
        return record.node_is_empty or record.facts.joined

    @property
    def over(self) -> bool:
        """Whether the cordon, the drain and the request for the replacement are complete. A request
        for nodes is no use any more when the pods are gone: by then they are pending pods."""
        drained = self.cordoned.settled and (not self.cordoned.node or self.drain.over)
        by_pools = self.replacement.method is Method.REQUEST_CAPACITY
        return drained and (self.replacement.settled or by_pools)

    @property
    def result(self) -> RetirementResult:
        """How the retirement ends if it ends now."""
        course, settled = self.cordoned.course, self.cordoned.settled
        if course in _ENDED_EARLY:
            return _ENDED_EARLY[course]
        if course is Course.CORDON and settled:
            return RetirementResult.CORDONED
        if settled and not self.cordoned.node:
            return RetirementResult.NO_NODE
        return RetirementResult.DRAINED if self.drained else RetirementResult.INCOMPLETE

    @property
    def problem(self) -> Reason | None:
        """The last problem of the cordon or the drain; None if there is none."""
        return self.cordoned.problem or self.drain.problem or self.drain.listed_late


@dataclass(frozen=True, slots=True)
class FinishResult:
    """The result of the finish step; no outcome if a newer attempt has superseded this one."""

    outcome: Outcome | None
    answered: HookAnswers = field(default_factory=HookAnswers)


STEP_RESULTS = (
    AttemptId,
    CordonResult,
    ReplacementResult,
    DrainCheckpoint,
    FinishResult,
    Outcome,
    HookAnswers,
)
"""The types that the durable engine stores between the steps."""
