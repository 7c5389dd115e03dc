"""One attempt of an instance's retirement, step by step."""

from dataclasses import replace
from functools import partial

from leeway.execution.attempt import AttemptId
from leeway.execution.steps import Steps
from leeway.reasons import Reason
from leeway.retirement.context import Dependencies
from leeway.retirement.cordon import CordonResult, CordonStep, Course, never_joined
from leeway.retirement.disruption_budget import DisruptionRequests
from leeway.retirement.drain import DrainCheckpoint, DrainPassResult, DrainStep
from leeway.retirement.finish import FinishResult, FinishStep, RetirementProgress
from leeway.retirement.group_successors import GroupCache, SuccessorLaunch
from leeway.retirement.hooks import HookAnswers, LifecycleActions
from leeway.retirement.outcome import Outcome
from leeway.retirement.pool_successors import RequestCapacity
from leeway.retirement.progress import Drain
from leeway.retirement.reasons import INSTANCE_WITHOUT_NODE, RETURN_NOT_DRAINED
from leeway.retirement.replace import ReplacementResult, ReplacementStep

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


class RetireNode:
    """Retires instances."""

    def __init__(self, deps: Dependencies) -> None:
        context, groups = deps.context, deps.groups
        group_cache = GroupCache(groups, deps.cache)
        actions = LifecycleActions(groups, context.clock, group_cache)
        launch = SuccessorLaunch(context, groups, deps.offerings, deps.region)
        disruptions = DisruptionRequests(context, groups, deps.ledgers)
        capacity = RequestCapacity(
            context, deps.capacity_requests, deps.provision_nodes, deps.instances, deps.telemetry
        )
        self._cordon = CordonStep(context, deps.policies, disruptions, groups, deps.telemetry)
        self._replacement = ReplacementStep(
            context,
            groups,
            deps.instances,
            group_cache,
            launch,
            actions,
            capacity,
            deps.policies,
        )
        self._drain = DrainStep(context, deps.drains, actions)
        self._finish = FinishStep(
            context, groups, deps.instances, deps.events, deps.telemetry, actions, launch, capacity
        )

    def retire(self, attempt_id: AttemptId, steps: Steps) -> Outcome | None:
        """Run one attempt of a retirement; None if a newer attempt has superseded it.

        Every step may run again from its start: it reads the present state first, and does only
        what is missing. Code between the steps reads neither a clock nor a port.
        """
        cordoned = self._cordon.run(attempt_id, steps)
        if cordoned.record is None:
            return None
        if cordoned.course is Course.RETIRE:
            finished = self._replace_and_drain(attempt_id, cordoned, steps)
        else:
            early = partial(self._finish.finish_early, attempt_id, cordoned.record, cordoned)
            finished = steps.run("finish", FinishResult, early)
        self._finish.report(attempt_id, cordoned, finished, steps)
        return finished.outcome

    def _replace_and_drain(
        self, attempt_id: AttemptId, cordoned: CordonResult, steps: Steps
    ) -> FinishResult:
        """Request the replacement and drain the node; retry what failed until all steps are
        complete or the deadline has passed."""
        cordoned = self._cordon.wait_for_node(attempt_id, cordoned, steps)
        if cordoned.record is None:
            return FinishResult(None)
        if never_joined(cordoned):
            nothing = ReplacementResult(True, cordoned.record, INSTANCE_WITHOUT_NODE())
            progress = RetirementProgress(cordoned, nothing)
            finish = partial(self._finish.finish, attempt_id, cordoned.record, progress)
            return steps.run("finish", FinishResult, finish)
        replacement = self._replacement.run(attempt_id, cordoned.record, cordoned.known_node, steps)
        if replacement.called_off is not None:
            progress = RetirementProgress(cordoned, replacement)
            return self._call_off(attempt_id, progress, replacement.called_off, steps)
        cordoned = self._cordon.find_late_node(
            attempt_id, cordoned, replacement.record, replacement.settled, steps
        )
        drained = DrainPassResult(Drain(), replacement.record, held=replacement.held)
        progress = RetirementProgress(cordoned, replacement)
        number = 0
        while drained.record is not None and not (drained.expired or progress.over):
            number += 1
            if not cordoned.settled:
                cordon = partial(self._cordon.cordon, attempt_id, drained.record)
                cordoned = steps.run(f"retry-cordon-{number}", CordonResult, cordon)
            if not replacement.settled:
                request = partial(
                    self._replacement.request, attempt_id, drained.record, cordoned.known_node
                )
                name = f"retry-replacement-{number}"
                replacement = steps.run(name, ReplacementResult, request)
            failures = 0 if cordoned.settled and replacement.settled else number
            work = partial(self._drain.run, attempt_id, cordoned, drained, failures)
            checkpoint = steps.run(f"drain-{number}", DrainCheckpoint, work)
            drained = checkpoint.restore(drained.drain)
            if drained.pause:
                steps.wait(f"wait-for-pods-{number}", drained.pause)
            progress = RetirementProgress(cordoned, replacement, drained.drain)
        if drained.record is None:
            return FinishResult(None)
        returns = drained.record.returns
        if returns is not None and returns.optional and cordoned.node and not progress.drained:
            reason = RETURN_NOT_DRAINED(node=cordoned.node)
            return self._call_off(attempt_id, progress, reason, steps)
        self._replacement.wait_for_answer(drained.record, replacement, steps)
        finish = partial(self._finish.finish, attempt_id, drained.record, progress)
        return steps.run("finish", FinishResult, finish)

    def _call_off(
        self, attempt_id: AttemptId, progress: RetirementProgress, reason: Reason, steps: Steps
    ) -> FinishResult:
        """Uncordon a node that may as well stay, and end its retirement."""
        work = partial(self._cordon.call_off, attempt_id, progress.cordoned, reason)
        cordoned = steps.run("call-off", CordonResult, work)
        if cordoned.record is None:
            return FinishResult(None)
        progress = replace(progress, cordoned=cordoned)
        finish = partial(self._finish.call_off, attempt_id, cordoned.record, progress)
        return steps.run("finish", FinishResult, finish)
