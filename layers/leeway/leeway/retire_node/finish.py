"""The last durable steps of a retirement: close, answer hooks, terminate, and report."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from leeway.execution.attempt import AttemptId, Phase
from leeway.execution.steps import Steps
from leeway.instances.owners import OwnerKind
from leeway.lifecycle_hooks.actions import HookAnswers, LifecycleActions
from leeway.policy.rules import VOLUNTARY
from leeway.ports.aws import CloudRefused, Groups, HookResult, Instances, LeewayEvents
from leeway.reasons import Reason
from leeway.replacement.launch import SuccessorLaunch
from leeway.replacement.reasons import NOT_REQUESTED
from leeway.replacement.request import ReplacementResult
from leeway.replacement.request_capacity import CapacityResult, RequestCapacity
from leeway.retire_node.dependencies import Telemetry
from leeway.retire_node.dry_run import dry_run
from leeway.retire_node.outcome import FAILED, Outcome
from leeway.retire_node.reasons import GROUP_TERMINATION_REFUSED
from leeway.retire_node.report import RetirementReports
from leeway.retire_node.step_results import FinishResult, RetirementProgress
from leeway.retire_node.terminate import (
    NOT_TERMINATED,
    TerminateInstance,
    TerminationResult,
    may_terminate,
)
from leeway.retirement.cordon_result import CordonResult, Course
from leeway.retirement.record import Retirement
from leeway.retirement.replacement_intent import Method, ReplacementIntent, Successor
from leeway.retirement.step_context import StepContext, with_intent

HOOK_NOTICE_TIMEOUT = timedelta(seconds=10)
"""How long to wait for the notice of a lifecycle hook after the group terminated the instance."""

READ_RECORD_EVERY = 0.5
"""Seconds between two reads of the record while waiting for that notice."""


@dataclass(frozen=True, slots=True)
class RestoredCapacity:
    """The result of restoring a group's capacity: whether it is `restored`, and what the group
    `refused`. There is no record if a newer attempt has superseded this one."""

    record: Retirement | None
    refused: tuple[Reason, ...] = ()
    restored: bool = False


class FinishStep:
    """Finishes and reports retirements."""

    def __init__(
        self,
        context: StepContext,
        groups: Groups,
        instances: Instances,
        events: LeewayEvents,
        telemetry: Telemetry,
        actions: LifecycleActions,
        launch: SuccessorLaunch,
        capacity: RequestCapacity,
    ) -> None:
        self._context = context
        self._groups = groups
        self._telemetry = telemetry
        self._actions = actions
        self._launch = launch
        self._capacity = capacity
        self._termination = TerminateInstance(context, instances)
        self._reports = RetirementReports(context, events, telemetry)

    def finish(
        self, attempt_id: AttemptId, record: Retirement, progress: RetirementProgress
    ) -> FinishResult:
        """End the request for nodes, restore the group's capacity, close the record, answer the
        lifecycle hooks of the instance, and terminate the instance if only Leeway does so.

        The record is closed before the hooks are answered. So `receive_notice` knows that the state
        changes that follow belong to this retirement, and starts a new attempt for a later hook.
        """
        progress, successors = self._end_request(record, progress)
        capacity = RestoredCapacity(record)
        if progress.drained or not record.deadline_from_begin:
            stays = progress.drained and not progress.instance_is_empty(record)
            capacity = self._restore_capacity(attempt_id, record, stays, successors)
        closed = self._close(
            attempt_id, capacity, Phase.FINISHED, HookResult.CONTINUE, progress, successors
        )
        if closed is None:
            return FinishResult(None)
        termination = NOT_TERMINATED
        intent = closed.replacement_intent
        if intent is not None and intent.to_terminate and may_terminate(closed, progress):
            termination = self._termination.run(attempt_id, closed, progress)
        answered = self._actions.answer(attempt_id.instance, closed.hooks, HookResult.CONTINUE)
        return self._finished(closed, progress, answered, capacity.refused, termination)

    def finish_early(
        self, attempt_id: AttemptId, record: Retirement, cordoned: CordonResult
    ) -> FinishResult:
        """Close a retirement without a drain: it only cordons, is declined or undone, or is a dry
        run."""
        reason = NOT_REQUESTED(why=f"the retirement ends with the step {cordoned.course}")
        progress = RetirementProgress(cordoned, ReplacementResult(True, record, reason))
        if cordoned.course is Course.DRY_RUN:
            progress = RetirementProgress(
                cordoned, *dry_run(self._context, self._groups, record, cordoned.node)
            )
        capacity, phase = RestoredCapacity(record), Phase.FINISHED
        if cordoned.course is Course.UNDO:
            self._end_request(record, progress)
            capacity = self._restore_capacity(attempt_id, record, stays=True)
            phase = Phase.UNDONE
        if cordoned.course is Course.DECLINE and record.returns is not None:
            self._capacity.end(record)
        answer = HookResult.CONTINUE if cordoned.course is Course.CORDON else None
        closed = self._close(attempt_id, capacity, phase, answer)
        if closed is None:
            return FinishResult(None)
        answered = HookAnswers()
        if answer is not None:
            answered = self._actions.answer(attempt_id.instance, closed.hooks, answer)
        return self._finished(closed, progress, answered, capacity.refused)

    def call_off(
        self, attempt_id: AttemptId, record: Retirement, progress: RetirementProgress
    ) -> FinishResult:
        """Close a return of capacity whose node is kept after the cordon. Its request for nodes
        ends, and is forgotten: a later attempt is confirmed anew."""
        progress, _ = self._end_request(record, progress)
        written = self._context.write(attempt_id, record, self._called_off)
        if written is None:
            return FinishResult(None)
        return self._finished(written[0], progress, HookAnswers(), ())

    def _called_off(self, record: Retirement) -> tuple[Retirement, None]:
        intent = record.replacement_intent if record.needs_termination else None
        ended = {"phase": Phase.FINISHED, "answer": None, "ended_at": self._context.clock.now()}
        return record.model_copy(update={**ended, "replacement_intent": intent}), None

    def _finished(
        self,
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
            ended_at=self._context.clock.now(),
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
        self._telemetry.retired(outcome)
        if closed.returns is not None:
            self._capacity.wake(
                closed, f"the return of {cordoned.node or closed.instance} has ended"
            )
        return FinishResult(outcome, answered)

    def _end_request(
        self, record: Retirement, progress: RetirementProgress
    ) -> tuple[RetirementProgress, tuple[Successor, ...]]:
        """End the request for nodes of Leeway's pools. Return the progress with what came of it,
        and the instances that were launched."""
        intent = record.replacement_intent
        if intent is None or intent.method is not Method.REQUEST_CAPACITY:
            return progress, ()
        result = self._capacity.end(record)
        successors = result.successors or intent.successors
        return replace(progress, replacement=_with_result(progress.replacement, result)), successors

    def _restore_capacity(
        self,
        attempt_id: AttemptId,
        record: Retirement,
        stays: bool = False,
        successors: tuple[Successor, ...] = (),
    ) -> RestoredCapacity:
        """Restore the capacity of a group that launched a successor, and terminate the instance
        unless it stays. If the group refuses, the record stays open and `reconcile` retries it."""
        intent = record.replacement_intent
        if intent is None or not intent.to_restore:
            return RestoredCapacity(record)
        written = self._context.write(attempt_id, record, partial(_ending, successors))
        if written is None:
            return RestoredCapacity(None)
        running, _ = written
        restore = partial(
            self._launch.restore_capacity, running, stays=stays, repeated=intent.ending
        )
        try:
            hook_waits = self._context.retry(restore)
        except CloudRefused as error:
            return RestoredCapacity(running, (GROUP_TERMINATION_REFUSED(error=error),))
        latest = self._wait_for_hook_notice(attempt_id, running) if hook_waits else running
        return RestoredCapacity(latest, restored=True)

    def _wait_for_hook_notice(self, attempt_id: AttemptId, record: Retirement) -> Retirement | None:
        """Wait for the notice of the hook that now keeps the instance, so that this attempt answers
        it. A notice that arrives later starts an attempt of its own."""
        latest: Retirement | None = record
        until = self._context.clock.now() + HOOK_NOTICE_TIMEOUT
        while latest is not None and not latest.hooks and self._context.clock.now() < until:
            self._context.clock.sleep(READ_RECORD_EVERY)
            latest = self._context.read(attempt_id)
        return latest

    def _close(
        self,
        attempt_id: AttemptId,
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
        ended_at = self._context.clock.now()

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

        written = self._context.write(attempt_id, capacity.record, closed)
        return written[0] if written else None

    def report(
        self,
        attempt_id: AttemptId,
        cordoned: CordonResult,
        finished: FinishResult,
        steps: Steps,
    ) -> None:
        """Report the outcome, and retry the hook answers that were refused."""
        if finished.outcome is None:
            return
        steps.run("report", str, partial(self._reports.report, finished.outcome, cordoned))
        self._actions.retry_refused(
            attempt_id.instance, finished.answered, HookResult.CONTINUE, steps
        )


def _with_result(replacement: ReplacementResult, result: CapacityResult) -> ReplacementResult:
    """Add what came of a request for nodes to the reason, unless the reason says it already."""
    told = replacement.reason.message
    news = [reason for reason in result.reasons if reason.message not in told]
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


def _ending(successors: tuple[Successor, ...], record: Retirement) -> tuple[Retirement, None]:
    intent = record.replacement_intent
    if intent is None:
        return record, None
    ending = {"ending": True, "successors": successors or intent.successors}
    return with_intent(ending, record)
