"""How a retirement ends: closed, its hooks answered, its instance terminated, and reported."""

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
from leeway.replacement.launch import SuccessorLaunch
from leeway.replacement.request import ReplacementResult
from leeway.retire_node.dependencies import Telemetry
from leeway.retire_node.dry_run import rehearsed
from leeway.retire_node.outcome import FAILED, Outcome
from leeway.retire_node.step_results import FinishResult, RetirementProgress
from leeway.retirement.cordon_result import CordonResult, Course
from leeway.retirement.record import Retirement
from leeway.retirement.replacement_intent import Method, ReplacementIntent
from leeway.retirement.step_context import StepContext

HOOK_TOLD_WITHIN = timedelta(seconds=10)
"""How long the notice of a hook is waited for that the end of its instance has called."""

LOOK_EVERY = 0.5
"""Seconds."""


ATTEMPTS = 6
"""How often an instance that is detached and drained is tried to be terminated: for an hour, since
`reconcile` waits twice as long after each failure."""


@dataclass(frozen=True, slots=True)
class TerminationResult:
    """What came of terminating an instance: whether EC2 was `asked` to, what it `refused`, and why
    the instance is `left` running, both empty where neither is so."""

    asked: bool = False
    refused: tuple[str, ...] = ()
    left: str = ""


@dataclass(frozen=True, slots=True)
class GroupRestored:
    """What came of having a group be as large as before: `settled` says that it is, `refused` what
    was refused. No record where a newer attempt has taken over."""

    record: Retirement | None
    refused: tuple[str, ...] = ()
    settled: bool = False


class FinishStep:
    """Ends retirements."""

    def __init__(
        self,
        context: StepContext,
        groups: Groups,
        instances: Instances,
        announcements: LeewayEvents,
        telemetry: Telemetry,
        actions: LifecycleActions,
        launching: SuccessorLaunch,
    ) -> None:
        self._context = context
        self._groups = groups
        self._instances = instances
        self._announcements = announcements
        self._telemetry = telemetry
        self._actions = actions
        self._launching = launching

    def finish(
        self, order: AttemptId, record: Retirement, standing: RetirementProgress
    ) -> FinishResult:
        """Have a group that was made larger end its instance, close the record, answer every hook
        that told of this instance, and terminate what is Leeway's to terminate.

        The record is closed before the rest: the state changes that follow are then known to be
        its own doing, and a hook that is announced after it gets an attempt that answers it.
        """
        lowered = GroupRestored(record)
        if standing.drained or not record.deadline_from_begin:
            stays = standing.drained and not standing.is_known_to_be_empty(record)
            lowered = self._lower(order, record, stays)
        closed = self._close(order, lowered, Phase.FINISHED, HookResult.CONTINUE, standing)
        if closed is None:
            return FinishResult(None)
        terminated = TerminationResult()
        if (
            standing.replaced.settled
            and closed.replacement_intent is not None
            and closed.replacement_intent.detached
        ):
            terminated = self._terminate(order, closed, standing)
        answered = self._actions.answer(order.instance, closed.hooks, HookResult.CONTINUE)
        return self._finished(closed, standing, answered, lowered.refused, terminated)

    def finish_early(
        self, order: AttemptId, record: Retirement, located: CordonResult
    ) -> FinishResult:
        """Close a retirement that does not go as far as a drain: one that only cordons, is
        declined, undone, or rehearsed."""
        standing = RetirementProgress(
            located, ReplacementResult(True, record, reason="not asked for")
        )
        if located.course is Course.REHEARSE:
            standing = RetirementProgress(
                located, *rehearsed(self._context, self._groups, record, located.node)
            )
        lowered, phase = GroupRestored(record), Phase.FINISHED
        if located.course is Course.UNDO:
            lowered, phase = self._lower(order, record, stays=True), Phase.UNDONE
        answer = HookResult.CONTINUE if located.course is Course.CORDON else None
        closed = self._close(order, lowered, phase, answer)
        if closed is None:
            return FinishResult(None)
        answered = HookAnswers()
        if answer is not None:
            answered = self._actions.answer(order.instance, closed.hooks, answer)
        return self._finished(closed, standing, answered, lowered.refused)

    def _finished(
        self,
        closed: Retirement,
        standing: RetirementProgress,
        answered: HookAnswers,
        refused: tuple[str, ...],
        terminated: TerminationResult = TerminationResult(),
    ) -> FinishResult:
        """Render how it ended, and log it. `refused` is what AWS said before the hooks' answers."""
        located, replaced, drain = standing.located, standing.replaced, standing.drain
        outcome = Outcome(
            result=standing.result,
            instance=closed.instance,
            cluster=closed.facts.cluster,
            node=located.node,
            kind=closed.kind,
            attempt=closed.attempt,
            reason=standing.problem or closed.reason,
            noticed_at=closed.noticed_at,
            cordoned_at=located.cordoned_at,
            ended_at=self._context.clock.now(),
            deadline=closed.deadline,
            replacement=replaced.method if replaced.settled else FAILED,
            replacement_reason=replaced.reason,
            refused=(
                *refused,
                *terminated.refused,
                *(refusal.said for refusal in answered.refused),
            ),
            hooks=tuple(hook.name for hook in closed.hooks),
            terminated=terminated.asked,
            left_running=terminated.left,
            pods=tuple(drain.pods.values()),
            load_balancers=drain.load_balancers,
            kept=closed.must_restore_capacity,
            successors=closed.replacement_intent.successors if closed.replacement_intent else (),
            still_attached=tuple(pod.pod for pod in drain.unclean),
        )
        self._telemetry.retired(outcome)
        return FinishResult(outcome, answered)

    def _lower(self, order: AttemptId, record: Retirement, stays: bool = False) -> GroupRestored:
        """Have a group that was made larger be as large as before, and end the instance unless it
        stays. What is refused stays owed, and is found again."""
        intent = record.replacement_intent
        if intent is None or not intent.to_restore:
            return GroupRestored(record)
        written = self._context.write(order, record, _ending)
        if written is None:
            return GroupRestored(None)
        running, _ = written
        lower = partial(self._launching.end, running, stays, again=intent.ending)
        try:
            held = self._context.retry(lower)
        except CloudRefused as error:
            return GroupRestored(running, (str(error),))
        return GroupRestored(self._hooks_told(order, running) if held else running, settled=True)

    def _hooks_told(self, order: AttemptId, record: Retirement) -> Retirement | None:
        """Wait a moment for the notice of the hook that keeps the instance now, so that it is
        answered at once: one that comes later takes an attempt of its own."""
        latest: Retirement | None = record
        until = self._context.clock.now() + HOOK_TOLD_WITHIN
        while latest is not None and not latest.hooks and self._context.clock.now() < until:
            self._context.clock.sleep(LOOK_EVERY)
            latest = self._context.read(order)
        return latest

    def _close(
        self,
        order: AttemptId,
        lowered: GroupRestored,
        phase: Phase,
        answer: HookResult | None,
        standing: RetirementProgress | None = None,
    ) -> Retirement | None:
        """Close the record; None where a newer attempt has taken over. `standing` is how far a
        retirement has come that was to end its instance."""
        if lowered.record is None:
            return None
        ended_at = self._context.clock.now()

        def closed(record: Retirement) -> tuple[Retirement, None]:
            intent = record.replacement_intent
            if intent is not None:
                owed = {"to_restore": intent.to_restore and not lowered.settled, "ending": False}
                intent = intent.model_copy(update=owed)
            if intent is not None and standing is not None:
                intent = _detached(intent, standing.replaced, record.ec2_terminates)
            fields = {
                "phase": phase,
                "answer": answer,
                "ended_at": ended_at,
                "node_is_empty": standing.left_nothing(record)
                if standing
                else record.node_is_empty,
                "replacement_intent": intent,
            }
            return record.model_copy(update=fields), None

        written = self._context.write(order, lowered.record, closed)
        return written[0] if written else None

    def _terminate(
        self, order: AttemptId, record: Retirement, standing: RetirementProgress
    ) -> TerminationResult:
        """Terminate an instance that Leeway detached. One that EC2 takes anyway is left to it where
        EC2 throttles. What fails is tried again, ATTEMPTS times in all."""
        if not standing.drained:
            return TerminationResult(left="since it is not drained")
        terminated = self._asked_to_terminate(record, standing)
        if record.ec2_terminates:
            return terminated
        failed = bool(terminated.left)
        written = self._context.write(order, record, partial(_tried, failed))
        intent = written[0].replacement_intent if written else None
        if intent is None or not failed or not intent.settled:
            return terminated
        last = f"{terminated.left}; this was the last of {ATTEMPTS} attempts: terminate it yourself"
        return replace(terminated, left=last)

    def _asked_to_terminate(
        self, record: Retirement, standing: RetirementProgress
    ) -> TerminationResult:
        if not standing.is_known_to_be_empty(record):
            return TerminationResult(left="since it has no node, and nothing shows that it had one")
        try:
            self._instances.terminate(record.instance)
        except CloudRefused as error:
            return TerminationResult(True, (str(error),), "since EC2 refuses to terminate it")
        except CloudUnavailable:
            if not record.ec2_terminates:
                raise
            return TerminationResult()
        return TerminationResult(asked=True)

    def report(
        self, order: AttemptId, located: CordonResult, finished: FinishResult, steps: Steps
    ) -> None:
        """Tell the others how it ended, and go on answering hooks whose answer was refused."""
        if finished.outcome is None:
            return
        steps.run("report", str, partial(self._report, finished.outcome, located))
        self._actions.retry_refused(order.instance, finished.answered, HookResult.CONTINUE, steps)

    def _report(self, outcome: Outcome, located: CordonResult) -> str:
        """One step, since each is paid for. What may have to wait for its service comes last: the
        Kubernetes Event is the same one when it is written again."""
        if located.node and located.course is not Course.REHEARSE:
            self._note(outcome, located.node_uid)
        return self._announce(outcome)

    def _announce(self, outcome: Outcome) -> str:
        """Put the Leeway event. A repeated one has the same instance and attempt, by which its
        readers can tell; one that is refused holds up nothing."""
        try:
            self._announcements.publish(outcome.title, outcome.to_json())
        except CloudRefused as error:
            self._telemetry.retirement_not_reported(outcome, f"no Leeway event: {error}")
            return f"not put: {error}"
        return outcome.title

    def _note(self, outcome: Outcome, node_uid: str) -> None:
        """Write the Kubernetes Event; a cluster that does not take it holds up nothing."""
        event = outcome.as_node_event(node_uid)
        open_cluster = self._context.open_cluster
        try:
            self._context.retry(lambda: open_cluster(outcome.cluster).write_event(event))
        except API_ERRORS as error:
            self._telemetry.retirement_not_reported(outcome, f"no Kubernetes Event: {error}")


def _detached(
    intent: ReplacementIntent, replaced: ReplacementResult, ec2_terminates: bool
) -> ReplacementIntent:
    """Note whether the instance has left its group for this retirement, so that Leeway has to end
    it, unless EC2 does. Somebody may have attached it to a group again."""
    if intent.method is not Method.DETACH or not replaced.settled:
        return intent
    if replaced.method is not Method.DETACH:
        return intent.model_copy(update={"detached": False})
    return intent.model_copy(update={"detached": True, "settled": ec2_terminates})


def _tried(failed: bool, record: Retirement) -> tuple[Retirement, None]:
    """Note what came of asking EC2 to end a detached instance."""
    intent = record.replacement_intent
    if intent is None:
        return record, None
    failures = intent.failures + failed
    settled = not failed or failures >= ATTEMPTS
    tried = intent.model_copy(update={"settled": settled, "failures": failures})
    return record.model_copy(update={"replacement_intent": tried}), None


def _ending(record: Retirement) -> tuple[Retirement, None]:
    if record.replacement_intent is None:
        return record, None
    intent = record.replacement_intent.model_copy(update={"ending": True})
    return record.model_copy(update={"replacement_intent": intent}), None
