"""A step: closes the record of an admission, and answers its launch hooks."""

from leeway.admission.check_node import CheckNode
from leeway.admission.outcome import AdmissionOutcome
from leeway.admission.pool_results import PoolResults
from leeway.admission.ports import Admissions
from leeway.admission.readiness import AdmissionResult, Readiness, not_ready
from leeway.admission.reasons import NODE_ADMITTED
from leeway.admission.record import Admission
from leeway.admission.step_results import FinishResult, NodeCheck
from leeway.clock import Clock
from leeway.execution.attempt import AttemptId, Phase
from leeway.execution.retrying import retry_conflicts
from leeway.ports.aws import HookResult
from leeway.retirement.hooks import HookAnswers, LifecycleActions

ANSWERS = {
    AdmissionResult.ADMITTED: HookResult.CONTINUE,
    AdmissionResult.POOLED: HookResult.CONTINUE,
    AdmissionResult.NOT_READY: HookResult.ABANDON,
}
"""How the launch hooks are answered; those of a terminated instance are not."""


class FinishAdmission:
    """Ends admissions."""

    def __init__(
        self,
        admissions: Admissions,
        node: CheckNode,
        pools: PoolResults,
        actions: LifecycleActions,
        clock: Clock,
    ) -> None:
        self._admissions = admissions
        self._node = node
        self._pools = pools
        self._actions = actions
        self._clock = clock

    def run(self, attempt: AttemptId, check: NodeCheck, unjoined: Readiness | None) -> FinishResult:
        """Close the record and answer the hooks. `unjoined` is how the admission of an instance
        ends that has not joined, None for any other.

        The node is read once more before ABANDON: the engine may pause for hours between steps.
        """
        verdict = unjoined or check.verdict
        if verdict is None:
            return FinishResult(None, check_again=True)
        late = verdict.result is AdmissionResult.NOT_READY and unjoined is None
        if late and check.record is not None:
            check, unmet = self._node.observe(check, check.record)
            if unmet is None:
                return FinishResult(None, check_again=True)
            admitted = Readiness(AdmissionResult.ADMITTED, NODE_ADMITTED())
            verdict = not_ready(unmet) if unmet else admitted
        # Before the record is closed, as in EndUnjoined.
        paused = self._pools.count_readiness(check, verdict)
        answer = ANSWERS.get(verdict.result)
        closed = self._close(attempt, verdict.result, answer)
        if closed is None:
            return FinishResult(None)
        answers = HookAnswers()
        if answer is not None:
            answers = self._actions.answer(attempt.instance, closed.hooks, answer)
        if verdict.result is AdmissionResult.ADMITTED and closed.launch is not None:
            self._pools.measure_join(closed, closed.launch)
        outcome = AdmissionOutcome(
            result=verdict.result,
            instance=attempt.instance,
            cluster=attempt.cluster,
            node=check.node,
            attempt=attempt.attempt,
            reason=verdict.reason,
            noticed_at=closed.noticed_at,
            joined_at=check.joined_at,
            ended_at=self._clock.now(),
            deadline=closed.deadline,
            hooks=tuple(hook.name for hook in closed.hooks),
            refused=tuple(refusal.reason for refusal in answers.refused),
        )
        return FinishResult(outcome, False, check.node_uid, paused, answers)

    def _close(
        self, attempt: AttemptId, result: AdmissionResult, answer: HookResult | None
    ) -> Admission | None:
        def close() -> Admission | None:
            record = self._node.current(attempt)
            if record is None:
                return None
            closed = record.model_copy(
                update={
                    "phase": Phase.FINISHED,
                    "answer": answer,
                    "result": result,
                    "ended_at": self._clock.now(),
                    "version": record.version + 1,
                }
            )
            self._admissions.write(closed)
            return closed

        return retry_conflicts(f"the admission record of {attempt.instance}", close)
