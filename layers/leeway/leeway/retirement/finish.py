"""The last durable steps of a retirement: close, answer hooks, terminate, and report."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from leeway.execution.attempt import Phase
from leeway.execution.retrying import API_ERRORS
from leeway.instances.facts import EKS_CLUSTER_TAG, FLEET_TAG, OwnerKind
from leeway.policy.rules import VOLUNTARY
from leeway.ports.aws import (
    CloudRefused,
    CloudUnavailable,
    HookResult,
)
from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable
from leeway.reasons import Reason, clause
from leeway.retirement.context import Attempt, with_intent
from leeway.retirement.cordon import CordonResult, Course
from leeway.retirement.decide_replacement import decide_replacement
from leeway.retirement.group_successors import RestoredCapacity, restore_capacity
from leeway.retirement.hooks import HookAnswers
from leeway.retirement.outcome import FAILED, Outcome, RetirementResult, report_outcome
from leeway.retirement.pods import Terms
from leeway.retirement.pool_successors import CapacityResult, end_request, wake_provision_nodes
from leeway.retirement.progress import Drain, observe
from leeway.retirement.reasons import (
    GROUP_TERMINATION_REFUSED,
    INSTANCE_LEFT_RUNNING,
    PODS_NOT_LISTED,
    REPLACEMENT_DECIDED,
    REPLACEMENT_REFUSED,
    SUCCESSOR_NOT_READ,
)
from leeway.retirement.record import DETACHED, Method, ReplacementIntent, Retirement, Successor
from leeway.retirement.replace import ReplacementResult

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

    def may_end(self, record: Retirement) -> bool:
        """Whether the instance may end: its node is drained, or the time is over and its retirement
        does not wait for pods that are left. They were listed, and no other machine has the name of
        the node."""
        evicted = self.cordoned.node and self.drain.listed and not self.drain.displaced
        return self.drained or bool(record.ends_at_deadline and evicted)

    def ends_with_notice(self, record: Retirement) -> bool:
        """Whether the instance ends at the time that its notice announced, pods or not. EC2 may
        only reboot an instance for a scheduled change, so its pods must have been listed."""
        listed = record.kind not in VOLUNTARY or self.drain.listed
        return listed and not record.deadline_from_begin

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


def dry_run(attempt: Attempt, record: Retirement, node: str) -> tuple[ReplacementResult, Drain]:
    """Decide the replacement and the drain without acting; the results name what cannot be read."""
    try:
        group = attempt.ports.groups.facts(record.instance)
    except (CloudUnavailable, CloudRefused) as error:
        replacement = ReplacementResult(
            False,
            record,
            REPLACEMENT_REFUSED(
                f"Leeway cannot read the Auto Scaling group of the instance: {error}."
            ),
        )
    else:
        decision = decide_replacement(record.kind, record.replacement, record.facts.owner, group)
        replacement = ReplacementResult(True, record, decision.reason, decision.method)
    if not node:
        return replacement, Drain()
    try:
        pods = attempt.ports.open_cluster(record.facts.cluster).pods_on(node)
    except API_ERRORS as error:
        return replacement, Drain(
            problem=PODS_NOT_LISTED(f"Leeway cannot list the pods of the node: {error}.")
        )
    return replacement, observe(Drain(), pods, Terms(record.deadline), attempt.now())


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


def terminate(
    attempt: Attempt, record: Retirement, progress: RetirementProgress
) -> TerminationResult:
    """Terminate an instance that Leeway detached or launched. If EC2 throttles and takes the
    instance back anyway, EC2 terminates it. A failure is retried by up to TERMINATION_ATTEMPTS
    attempts."""
    if not progress.may_end(record):
        return TerminationResult(left_running=INSTANCE_LEFT_RUNNING("its node is not drained"))
    result = _request_termination(attempt, record, progress)
    if record.ec2_terminates:
        return result
    failed = result.left_running is not None
    written = attempt.write(record, partial(_tried, failed))
    intent = written[0].replacement_intent if written else None
    if intent is None or result.left_running is None or not intent.settled:
        return result
    last = f"This was the last of {TERMINATION_ATTEMPTS} attempts: terminate it yourself."
    return replace(result, left_running=result.left_running.and_then(last))


def _request_termination(
    attempt: Attempt, record: Retirement, progress: RetirementProgress
) -> TerminationResult:
    if progress.drained and not progress.instance_is_empty(record):
        return TerminationResult(
            left_running=INSTANCE_LEFT_RUNNING("it has no node and is not known to have had one")
        )
    try:
        if problem := _why_not_own(attempt, record):
            return TerminationResult(left_running=INSTANCE_LEFT_RUNNING(problem))
        attempt.ports.instances.terminate(record.instance)
    except CloudRefused as error:
        return TerminationResult(
            True, INSTANCE_LEFT_RUNNING(f"EC2 refuses to terminate it: {error}")
        )
    except CloudUnavailable:
        if not record.ec2_terminates:
            raise
        return TerminationResult()
    return TerminationResult(requested=True)


def _why_not_own(attempt: Attempt, record: Retirement) -> str:
    """Return why Leeway has no right to terminate an instance; empty if it has: by a fresh read of
    EC2 Leeway launched it for the cluster, or retire_node has detached it from a group.

    The record does not decide: other functions write it too. The tags of Leeway can be written by
    everybody who may tag instances. Only EC2 and EKS write the tags of the fleet, of the group and
    of the cluster that an instance has joined.
    """
    cluster, instance = attempt.id.cluster, record.instance
    if record.facts.owner.kind is not OwnerKind.LEEWAY:
        group = attempt.ports.table.get(DETACHED, cluster=cluster, instance=instance)
        return "" if group else "the table does not say that retire_node detached it from a group"
    facts, problem = attempt.ports.instances.describe(instance), ""
    if facts is None:
        problem = "there is no such instance with the tags of a cluster"
    elif facts.owner.kind is not OwnerKind.LEEWAY:
        problem = f"its owner is now {facts.owner.kind} {facts.owner.name}".rstrip()
    elif facts.cluster != cluster or not facts.joined:
        problem = f"it has no tag {EKS_CLUSTER_TAG} with the value {cluster}"
    elif not facts.from_fleet:
        problem = f"it has no tag {FLEET_TAG}"
    known = "EC2 does not confirm that Leeway launched it for the cluster"
    return f"{known}: {problem}" if problem else ""


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


HOOK_NOTICE_TIMEOUT = timedelta(seconds=10)
"""How long to wait for the notice of a lifecycle hook after the group terminated the instance."""

READ_RECORD_EVERY = 0.5
"""Seconds between two reads of the record while waiting for that notice."""


def finish(attempt: Attempt, record: Retirement, progress: RetirementProgress) -> FinishResult:
    """End the request for nodes, restore the group's capacity, close the record, answer the
    lifecycle hooks of the instance, and terminate the instance if only Leeway does so.

    The record is closed before the hooks are answered. So `receive_notice` knows that the state
    changes that follow belong to this retirement, and starts a new attempt for a later hook.
    """
    progress, successors = _end_request(attempt, record, progress)
    capacity = RestoredCapacity(record)
    if progress.may_end(record) or progress.ends_with_notice(record):
        stays = progress.drained and not progress.instance_is_empty(record)
        capacity = _restore_capacity(attempt, record, stays, successors)
    closed = _close(attempt, capacity, Phase.FINISHED, HookResult.CONTINUE, progress, successors)
    if closed is None:
        return FinishResult(None)
    termination = NOT_TERMINATED
    intent = closed.replacement_intent
    if intent is not None and intent.to_terminate and may_terminate(closed, progress):
        termination = terminate(attempt, closed, progress)
    answered = attempt.hooks.answer(attempt.id.instance, closed.hooks, HookResult.CONTINUE)
    return _finished(attempt, closed, progress, answered, capacity.refused, termination)


def finish_early(attempt: Attempt, record: Retirement, cordoned: CordonResult) -> FinishResult:
    """Close a retirement without a drain: it only cordons, is declined or undone, or is a dry
    run."""
    reason = REPLACEMENT_DECIDED(
        f"No replacement is requested: {f'the retirement ends with the step {cordoned.course}'}."
    )
    progress = RetirementProgress(cordoned, ReplacementResult(True, record, reason))
    if cordoned.course is Course.DRY_RUN:
        progress = RetirementProgress(cordoned, *dry_run(attempt, record, cordoned.node))
    capacity, phase = RestoredCapacity(record), Phase.FINISHED
    if cordoned.course is Course.UNDO:
        _end_request(attempt, record, progress)
        capacity = _restore_capacity(attempt, record, stays=True)
        phase = Phase.UNDONE
    if cordoned.course is Course.DECLINE and record.returns is not None:
        if not record.follows_template:
            end_request(attempt, record)
        why = {"reason": cordoned.problem or record.reason}
        capacity = RestoredCapacity(record.model_copy(update=why))
    answer = HookResult.CONTINUE if cordoned.course is Course.CORDON else None
    closed = _close(attempt, capacity, phase, answer)
    if closed is None:
        return FinishResult(None)
    answered = HookAnswers()
    if answer is not None:
        answered = attempt.hooks.answer(attempt.id.instance, closed.hooks, answer)
    return _finished(attempt, closed, progress, answered, capacity.refused)


def close_called_off(
    attempt: Attempt, record: Retirement, progress: RetirementProgress
) -> FinishResult:
    """Close a return of capacity whose node is kept after the cordon. Its request for nodes
    ends, and is forgotten: a later attempt is confirmed anew."""
    progress, _ = _end_request(attempt, record, progress)
    capacity = _restore_capacity(attempt, record, stays=True)
    if capacity.record is None:
        return FinishResult(None)
    left = record.must_restore_capacity and not capacity.restored
    end = partial(_called_off, attempt, progress.cordoned.problem, left)
    written = attempt.write(capacity.record, end)
    if written is None:
        return FinishResult(None)
    return _finished(attempt, written[0], progress, HookAnswers(), capacity.refused)


def _called_off(
    attempt: Attempt, reason: Reason | None, left: bool, record: Retirement
) -> tuple[Retirement, None]:
    """End a retirement whose node stays. If the group has refused to end the successor (`left`),
    the record stays open as one that is undone: `reconcile` repeats only that."""
    intent = record.replacement_intent if record.needs_termination or left else None
    phase = Phase.UNDONE if left else Phase.FINISHED
    ended = {"phase": phase, "answer": None, "ended_at": attempt.now()}
    why = {"reason": reason or record.reason, "replacement_intent": intent}
    return record.model_copy(update=ended | why), None


def _finished(
    attempt: Attempt,
    closed: Retirement,
    progress: RetirementProgress,
    answered: HookAnswers,
    refused: tuple[Reason, ...],
    termination: TerminationResult = NOT_TERMINATED,
) -> FinishResult:
    """Build and log the outcome. `refused` is what AWS refused before the hooks' answers. When
    a return has ended, the budgets may allow the next one."""
    cordoned, replacement, drain = progress.cordoned, progress.replacement, progress.drain
    intent = closed.replacement_intent
    hooks_refused = (refusal.reason for refusal in answered.refused)
    outcome = Outcome(
        result=progress.result,
        instance=closed.instance,
        cluster=closed.facts.cluster,
        node=cordoned.node,
        kind=closed.kind,
        attempt=closed.attempt,
        reason=progress.problem or closed.reason,
        noticed_at=closed.noticed_at,
        cordoned_at=cordoned.cordoned_at,
        ended_at=attempt.now(),
        deadline=closed.deadline,
        replacement=replacement.method if replacement.settled else FAILED,
        replacement_reason=replacement.reason,
        refused=(*refused, *hooks_refused),
        hooks=tuple(hook.name for hook in closed.hooks),
        terminated=termination.requested,
        left_running=termination.left_running,
        pods=tuple(drain.pods.values()),
        load_balancers=drain.load_balancers,
        in_service=closed.must_restore_capacity,
        successors=intent.successors if intent else (),
        still_attached=tuple(pod.pod for pod in drain.with_attached_volumes),
    )
    attempt.ports.telemetry.retired(outcome)
    if closed.returns is not None and not closed.follows_template:
        wake_provision_nodes(
            attempt, closed, f"the return of {cordoned.node or closed.instance} has ended"
        )
    return FinishResult(outcome, answered)


def _end_request(
    attempt: Attempt, record: Retirement, progress: RetirementProgress
) -> tuple[RetirementProgress, tuple[Successor, ...]]:
    """End the request for nodes of Leeway's pools. Return the progress with what came of it,
    and the instances that were launched."""
    intent = record.replacement_intent
    if intent is None or intent.method is not Method.REQUEST_CAPACITY:
        return progress, ()
    result = end_request(attempt, record)
    successors = result.successors or intent.successors
    return replace(progress, replacement=_with_result(progress.replacement, result)), successors


def _restore_capacity(
    attempt: Attempt,
    record: Retirement,
    stays: bool = False,
    successors: tuple[Successor, ...] = (),
) -> RestoredCapacity:
    """Restore the capacity of a group that launched a successor, and terminate the instance
    unless it stays. If the group refuses, or the node of the successor cannot be read, the record
    stays open and `reconcile` retries it."""
    if not record.must_restore_capacity:
        return RestoredCapacity(record)
    again, capacity = attempt.again(), None
    try:
        while capacity is None:
            with again:
                capacity = _try_to_restore(attempt, stays, successors)
    except CloudRefused as error:
        return RestoredCapacity(record, (GROUP_TERMINATION_REFUSED(error=error),))
    except (ClusterUnavailable, ClusterRefused) as error:
        return RestoredCapacity(record, (SUCCESSOR_NOT_READ(error=clause(error)),))
    if capacity.record is None or not capacity.hook_waits:
        return capacity
    return replace(capacity, record=_wait_for_hook_notice(attempt, capacity.record))


def _try_to_restore(
    attempt: Attempt, stays: bool, successors: tuple[Successor, ...]
) -> RestoredCapacity:
    """Restore the capacity by a fresh read of the record: an earlier try, also of a function that
    died in this step, may have had the instance terminated."""
    latest = attempt.current()
    intent = latest.replacement_intent if latest is not None else None
    if latest is None or intent is None or not intent.to_restore:
        return RestoredCapacity(latest, restored=True)
    known, _ = with_intent({"successors": successors or intent.successors}, latest)
    return restore_capacity(attempt, known, stays, repeated=intent.ending)


def _wait_for_hook_notice(attempt: Attempt, record: Retirement) -> Retirement | None:
    """Wait for the notice of the hook that now keeps the instance, so that this attempt answers
    it. A notice that arrives later starts an attempt of its own."""
    latest: Retirement | None = record
    until = attempt.now() + HOOK_NOTICE_TIMEOUT
    while latest is not None and not latest.hooks and attempt.now() < until:
        attempt.ports.clock.sleep(READ_RECORD_EVERY)
        latest = attempt.read()
    return latest


def _close(
    attempt: Attempt,
    capacity: RestoredCapacity,
    phase: Phase,
    answer: HookResult | None,
    progress: RetirementProgress | None = None,
    successors: tuple[Successor, ...] = (),
) -> Retirement | None:
    """Close the record; None if a newer attempt has superseded this one. `progress` is given
    for a retirement that was to terminate its instance; `successors` are the instances that
    Leeway's pools launched."""
    if capacity.record is None:
        return None
    ended_at = attempt.now()

    def closed(record: Retirement) -> tuple[Retirement, None]:
        intent, node_is_empty = record.replacement_intent, record.node_is_empty
        if intent is not None:
            to_restore = intent.to_restore and not capacity.restored
            known = successors or intent.successors
            update = {"to_restore": to_restore, "ending": False, "successors": known}
            intent = intent.model_copy(update=update)
        if progress is not None:
            node_is_empty = progress.leaves_empty_node(record)
        if record.facts.owner.kind is OwnerKind.LEEWAY:
            if progress is not None:
                intent = _own(intent, record, progress, ended_at)
            elif intent is not None and phase is Phase.UNDONE:
                intent = intent.model_copy(update={"to_terminate": False})
        elif progress is not None and intent is not None:
            intent = _detached(intent, progress.replacement, record.ec2_terminates)
        fields = {
            "phase": phase,
            "answer": answer,
            "ended_at": ended_at,
            "node_is_empty": node_is_empty,
            "replacement_intent": intent,
        }
        return record.model_copy(update=fields), None

    written = attempt.write(capacity.record, closed)
    return written[0] if written else None


def report(attempt: Attempt, cordoned: CordonResult, finished: FinishResult) -> None:
    """Report the outcome, and retry the hook answers that were refused."""
    if finished.outcome is None:
        return
    attempt.steps.run("report", str, partial(report_outcome, attempt, finished.outcome, cordoned))
    attempt.hooks.retry_refused(
        attempt.id.instance, finished.answered, HookResult.CONTINUE, attempt.steps
    )


def _with_result(replacement: ReplacementResult, result: CapacityResult) -> ReplacementResult:
    """Add what came of a request for nodes to the reason, unless the reason says it already."""
    told = replacement.reason.message
    news = [reason for reason in result.reasons if reason not in told]
    return replace(replacement, reason=replacement.reason.and_then(*news))


def _own(
    intent: ReplacementIntent | None,
    record: Retirement,
    progress: RetirementProgress,
    now: datetime,
) -> ReplacementIntent | None:
    """Record whether Leeway has to terminate an instance that it launched: after a voluntary
    retirement. In other cases EC2 or a person ends the instance, or it stays. If it has never
    joined, its admission terminates it."""
    cordoned = progress.cordoned
    may_be_node = bool(cordoned.node) or record.facts.joined or not cordoned.settled
    if not may_be_node or record.kind not in VOLUNTARY:
        return intent.model_copy(update={"to_terminate": False}) if intent else None
    if intent is None:
        reason = progress.replacement.reason
        intent = ReplacementIntent(method=Method.NOTHING, reason=reason, requested_at=now)
    return intent.model_copy(update={"to_terminate": True, "settled": False})


def _detached(
    intent: ReplacementIntent, replacement: ReplacementResult, ec2_terminates: bool
) -> ReplacementIntent:
    """Record whether this retirement detached the instance, so that Leeway has to terminate it
    unless EC2 does. Another client may have attached it to a group again, or for the first time an
    instance that Leeway launched."""
    if intent.method is not Method.DETACH:
        return intent.model_copy(update={"to_terminate": False})
    if not replacement.settled:
        return intent
    if replacement.method is not Method.DETACH:
        return intent.model_copy(update={"to_terminate": False})
    return intent.model_copy(update={"to_terminate": True, "settled": ec2_terminates})
