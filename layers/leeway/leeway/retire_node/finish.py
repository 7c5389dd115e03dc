"""The last durable steps of a retirement: close, answer hooks, terminate, and report."""

from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from leeway.execution.attempt import AttemptId, Phase
from leeway.execution.retrying import API_ERRORS
from leeway.execution.steps import Steps
from leeway.lifecycle_hooks.actions import HookAnswers, LifecycleActions
from leeway.ports.aws import (
    CloudRefused,
    CloudUnavailable,
    Groups,
    HookResult,
    Instances,
    LeewayEvents,
)
from leeway.reasons import Reason
from leeway.replacement.launch import SuccessorLaunch
from leeway.replacement.reasons import NOT_REQUESTED
from leeway.replacement.request import ReplacementResult
from leeway.retire_node.dependencies import Telemetry
from leeway.retire_node.dry_run import dry_run
from leeway.retire_node.outcome import FAILED, Outcome
from leeway.retire_node.reasons import (
    GROUP_TERMINATION_REFUSED,
    LAST_TERMINATION,
    LEEWAY_EVENT_NOT_PUBLISHED,
    NO_NODE_LEFT_RUNNING,
    NODE_EVENT_NOT_WRITTEN,
    NOT_DRAINED_LEFT_RUNNING,
    TERMINATION_REFUSED,
)
from leeway.retire_node.step_results import FinishResult, RetirementProgress
from leeway.retirement.cordon_result import CordonResult, Course
from leeway.retirement.record import Retirement
from leeway.retirement.replacement_intent import Method, ReplacementIntent
from leeway.retirement.step_context import StepContext

HOOK_NOTICE_TIMEOUT = timedelta(seconds=10)
"""How long to wait for the notice of a lifecycle hook after the group terminated the instance."""

READ_RECORD_EVERY = 0.5
"""Seconds between two reads of the record while waiting for that notice."""

TERMINATION_ATTEMPTS = 6
"""How many attempts try to terminate a detached and drained instance. They take about an hour,
since `reconcile` waits twice as long after each failure."""


@dataclass(frozen=True, slots=True)
class TerminationResult:
    """The result of terminating a detached instance: whether EC2 was `requested` to, and why the
    instance is `left_running`."""

    requested: bool = False
    left_running: Reason | None = None


@dataclass(frozen=True, slots=True)
class CapacityResult:
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
    ) -> None:
        self._context = context
        self._groups = groups
        self._instances = instances
        self._events = events
        self._telemetry = telemetry
        self._actions = actions
        self._launch = launch

    def finish(
        self, attempt_id: AttemptId, record: Retirement, progress: RetirementProgress
    ) -> FinishResult:
        """Restore the group's capacity, close the record, answer the lifecycle hooks of the
        instance, and terminate the instance if it is detached.

        The record is closed before the hooks are answered. So `receive_notice` knows that the state
        changes that follow belong to this retirement, and starts a new attempt for a later hook.
        """
        capacity = CapacityResult(record)
        if progress.drained or not record.deadline_from_begin:
            stays = progress.drained and not progress.instance_is_empty(record)
            capacity = self._restore_capacity(attempt_id, record, stays)
        closed = self._close(attempt_id, capacity, Phase.FINISHED, HookResult.CONTINUE, progress)
        if closed is None:
            return FinishResult(None)
        termination = TerminationResult()
        intent = closed.replacement_intent
        if progress.replacement.settled and intent is not None and intent.detached:
            termination = self._terminate(attempt_id, closed, progress)
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
        capacity, phase = CapacityResult(record), Phase.FINISHED
        if cordoned.course is Course.UNDO:
            capacity = self._restore_capacity(attempt_id, record, stays=True)
            phase = Phase.UNDONE
        answer = HookResult.CONTINUE if cordoned.course is Course.CORDON else None
        closed = self._close(attempt_id, capacity, phase, answer)
        if closed is None:
            return FinishResult(None)
        answered = HookAnswers()
        if answer is not None:
            answered = self._actions.answer(attempt_id.instance, closed.hooks, answer)
        return self._finished(closed, progress, answered, capacity.refused)

    def _finished(
        self,
        closed: Retirement,
        progress: RetirementProgress,
        answered: HookAnswers,
        refused: tuple[Reason, ...],
        termination: TerminationResult = TerminationResult(),
    ) -> FinishResult:
        """Build and log the outcome. `refused` is what AWS refused before the hooks' answers."""
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
        return FinishResult(outcome, answered)

    def _restore_capacity(
        self, attempt_id: AttemptId, record: Retirement, stays: bool = False
    ) -> CapacityResult:
        """Restore the capacity of a group that launched a successor, and terminate the instance
        unless it stays. If the group refuses, the record stays open and `reconcile` retries it."""
        intent = record.replacement_intent
        if intent is None or not intent.to_restore:
            return CapacityResult(record)
        written = self._context.write(attempt_id, record, _ending)
        if written is None:
            return CapacityResult(None)
        running, _ = written
        restore = partial(
            self._launch.restore_capacity, running, stays=stays, repeated=intent.ending
        )
        try:
            hook_waits = self._context.retry(restore)
        except CloudRefused as error:
            return CapacityResult(running, (GROUP_TERMINATION_REFUSED(error=error),))
        latest = self._wait_for_hook_notice(attempt_id, running) if hook_waits else running
        return CapacityResult(latest, restored=True)

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
        capacity: CapacityResult,
        phase: Phase,
        answer: HookResult | None,
        progress: RetirementProgress | None = None,
    ) -> Retirement | None:
        """Close the record; None if a newer attempt has superseded this one. `progress` is given
        for a retirement that was to terminate its instance."""
        if capacity.record is None:
            return None
        ended_at = self._context.clock.now()

        def closed(record: Retirement) -> tuple[Retirement, None]:
            intent, node_is_empty = record.replacement_intent, record.node_is_empty
            if intent is not None:
                to_restore = intent.to_restore and not capacity.restored
                intent = intent.model_copy(update={"to_restore": to_restore, "ending": False})
            if progress is not None:
                node_is_empty = progress.leaves_empty_node(record)
                if intent is not None:
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

    def _terminate(
        self, attempt_id: AttemptId, record: Retirement, progress: RetirementProgress
    ) -> TerminationResult:
        """Terminate an instance that Leeway detached. If EC2 throttles and takes the instance back
        anyway, EC2 terminates it. A failure is retried by up to TERMINATION_ATTEMPTS attempts."""
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
            self._instances.terminate(record.instance)
        except CloudRefused as error:
            return TerminationResult(True, TERMINATION_REFUSED(error=error))
        except CloudUnavailable:
            if not record.ec2_terminates:
                raise
            return TerminationResult()
        return TerminationResult(requested=True)

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
        steps.run("report", str, partial(self._report, finished.outcome, cordoned))
        self._actions.retry_refused(
            attempt_id.instance, finished.answered, HookResult.CONTINUE, steps
        )

    def _report(self, outcome: Outcome, cordoned: CordonResult) -> str:
        """Write both reports in one step, because every step costs. The Leeway event comes last: it
        may fail and repeat the step, and a repeated Kubernetes Event is the same object."""
        if cordoned.node and cordoned.course is not Course.DRY_RUN:
            self._write_node_event(outcome, cordoned.node_uid)
        return self._publish(outcome)

    def _publish(self, outcome: Outcome) -> str:
        """Publish the Leeway event. Readers recognise a repeated one by instance and attempt; a
        refused one is logged."""
        try:
            self._events.publish(outcome.title, outcome.to_json())
        except CloudRefused as error:
            problem = LEEWAY_EVENT_NOT_PUBLISHED(error=error)
            self._telemetry.retirement_not_reported(outcome, problem)
            return problem.message
        return outcome.title

    def _write_node_event(self, outcome: Outcome, node_uid: str) -> None:
        """Write the Kubernetes Event; a failure is logged and does not delay the rest."""
        event = outcome.as_node_event(node_uid)
        open_cluster = self._context.open_cluster
        try:
            self._context.retry(lambda: open_cluster(outcome.cluster).write_event(event))
        except API_ERRORS as error:
            problem = NODE_EVENT_NOT_WRITTEN(error=error)
            self._telemetry.retirement_not_reported(outcome, problem)


def _detached(
    intent: ReplacementIntent, replacement: ReplacementResult, ec2_terminates: bool
) -> ReplacementIntent:
    """Record whether this retirement detached the instance, so that Leeway has to terminate it
    unless EC2 does. Another client may have attached it to a group again."""
    if intent.method is not Method.DETACH or not replacement.settled:
        return intent
    if replacement.method is not Method.DETACH:
        return intent.model_copy(update={"detached": False})
    return intent.model_copy(update={"detached": True, "settled": ec2_terminates})


def _tried(failed: bool, record: Retirement) -> tuple[Retirement, None]:
    """Record the result of a try to terminate a detached instance."""
    intent = record.replacement_intent
    if intent is None:
        return record, None
    failures = intent.failures + failed
    settled = not failed or failures >= TERMINATION_ATTEMPTS
    tried = intent.model_copy(update={"settled": settled, "failures": failures})
    return record.model_copy(update={"replacement_intent": tried}), None


def _ending(record: Retirement) -> tuple[Retirement, None]:
    if record.replacement_intent is None:
        return record, None
    intent = record.replacement_intent.model_copy(update={"ending": True})
    return record.model_copy(update={"replacement_intent": intent}), None
