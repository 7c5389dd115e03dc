"""Terminates the instances that only Leeway terminates: those it detached or launched."""

from dataclasses import dataclass, replace
from functools import partial

from leeway.execution.attempt import AttemptId
from leeway.instances.owners import EKS_CLUSTER_TAG, FLEET_TAG, OwnerKind
from leeway.ports.aws import CloudRefused, CloudUnavailable, Instances
from leeway.reasons import Reason
from leeway.retire_node.reasons import (
    LAST_TERMINATION,
    NO_NODE_LEFT_RUNNING,
    NOT_DRAINED_LEFT_RUNNING,
    NOT_OWN_LEFT_RUNNING,
    TERMINATION_REFUSED,
)
from leeway.retire_node.step_results import RetirementProgress
from leeway.retirement.record import Retirement
from leeway.retirement.step_context import StepContext, with_intent

TERMINATION_ATTEMPTS = 6
"""How many attempts try to terminate a drained instance that only Leeway terminates. They take
about an hour, since `reconcile` waits twice as long after each failure."""


@dataclass(frozen=True, slots=True)
class TerminationResult:
    """The result of terminating an instance that only Leeway terminates: whether EC2 was
    `requested` to, and why the instance is `left_running`."""

    requested: bool = False
    left_running: Reason | None = None


NOT_TERMINATED = TerminationResult()


class TerminateInstance:
    """Terminates instances, after a fresh read of those that Leeway launched."""

    def __init__(self, context: StepContext, instances: Instances) -> None:
        self._context = context
        self._instances = instances

    def run(
        self, attempt_id: AttemptId, record: Retirement, progress: RetirementProgress
    ) -> TerminationResult:
        """Terminate an instance that Leeway detached or launched. If EC2 throttles and takes the
        instance back anyway, EC2 terminates it. A failure is retried by up to TERMINATION_ATTEMPTS
        attempts."""
        if not progress.drained:
            return TerminationResult(left_running=NOT_DRAINED_LEFT_RUNNING())
        result = self._request_termination(record, progress)
        if record.ec2_terminates:
            return result
        failed = result.left_running is not None
        written = self._context.write(attempt_id, record, partial(_tried, failed))
        intent = written[0].replacement_intent if written else None
        if intent is None or result.left_running is None or not intent.settled:
            return result
        last = LAST_TERMINATION(attempts=TERMINATION_ATTEMPTS)
        return replace(result, left_running=result.left_running.and_then(last))

    def _request_termination(
        self, record: Retirement, progress: RetirementProgress
    ) -> TerminationResult:
        if not progress.instance_is_empty(record):
            return TerminationResult(left_running=NO_NODE_LEFT_RUNNING())
        try:
            if problem := self._why_not_own(record):
                return TerminationResult(left_running=NOT_OWN_LEFT_RUNNING(problem=problem))
            self._instances.terminate(record.instance)
        except CloudRefused as error:
            return TerminationResult(True, TERMINATION_REFUSED(error=error))
        except CloudUnavailable:
            if not record.ec2_terminates:
                raise
            return TerminationResult()
        return TerminationResult(requested=True)

    def _why_not_own(self, record: Retirement) -> str:
        """Return why an instance may not be one that Leeway launched for the cluster, by a fresh
        read of EC2; empty if it is one, or if Leeway detached it from a group.

        The tags of Leeway can be written by everybody who may tag instances. Only EC2 and EKS write
        the tags of the fleet, of the group and of the cluster that an instance has joined.
        """
        if record.facts.owner.kind is not OwnerKind.LEEWAY:
            return ""
        facts, cluster = self._instances.describe(record.instance), record.facts.cluster
        if facts is None:
            return "there is no such instance with the tags of a cluster"
        if facts.owner.kind is not OwnerKind.LEEWAY:
            return f"its owner is now {facts.owner.kind} {facts.owner.name}".rstrip()
        if facts.cluster != cluster or not facts.joined:
            return f"it has no tag {EKS_CLUSTER_TAG} with the value {cluster}"
        return "" if facts.from_fleet else f"it has no tag {FLEET_TAG}"


def may_terminate(record: Retirement, progress: RetirementProgress) -> bool:
    """Whether Leeway may terminate the instance. One that was to be detached may still be in its
    group; the termination of Leeway's own instance depends on no request."""
    return progress.replacement.settled or record.facts.owner.kind is OwnerKind.LEEWAY


def _tried(failed: bool, record: Retirement) -> tuple[Retirement, None]:
    """Record the result of a try to terminate an instance."""
    intent = record.replacement_intent
    if intent is None:
        return record, None
    failures = intent.failures + failed
    settled = not failed or failures >= TERMINATION_ATTEMPTS
    return with_intent({"settled": settled, "failures": failures}, record)
