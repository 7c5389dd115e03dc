"""Use case: one attempt of an instance's retirement, step by step."""

from functools import partial

from leeway.drain.progress import Drain
from leeway.drain.step import DrainPassResult, DrainStep
from leeway.execution.attempt import AttemptId
from leeway.execution.steps import Steps
from leeway.lifecycle_hooks.actions import LifecycleActions
from leeway.replacement.cache import GroupCache
from leeway.replacement.launch import SuccessorLaunch
from leeway.replacement.request import ReplacementResult, ReplacementStep
from leeway.retire_node.cordon import CordonStep, never_joined
from leeway.retire_node.dependencies import Dependencies
from leeway.retire_node.finish import FinishStep
from leeway.retire_node.outcome import Outcome
from leeway.retire_node.request_disruption import DisruptionRequests
from leeway.retire_node.step_results import FinishResult, RetirementProgress
from leeway.retirement.cordon_result import CordonResult, Course


class RetireNode:
    """Retires instances."""

    def __init__(self, deps: Dependencies) -> None:
        context, groups = deps.context, deps.groups
        known_groups = GroupCache(groups, deps.cache)
        actions = LifecycleActions(groups, context.clock, known_groups)
        launching = SuccessorLaunch(context, groups, deps.offerings, deps.region)
        turns = DisruptionRequests(context, groups, deps.ledgers)
        self._entering = CordonStep(context, deps.policies, turns, groups, deps.telemetry)
        self._replacing = ReplacementStep(
            context, groups, deps.instances, known_groups, launching, actions
        )
        self._emptying = DrainStep(context, deps.drains, actions)
        self._ending = FinishStep(
            context, groups, deps.instances, deps.announcements, deps.telemetry, actions, launching
        )

    def retire(self, order: AttemptId, steps: Steps) -> Outcome | None:
        """Run one attempt of a retirement; None where a newer one has taken over.

        Every step may run again from its start: each first looks at what is, and does what is
        missing. Between steps nothing reads a clock or the world.
        """
        located = self._entering.enter(order, steps)
        if located.record is None:
            return None
        if located.course is Course.RETIRE:
            finished = self._empty(order, located, steps)
        else:
            early = partial(self._ending.finish_early, order, located.record, located)
            finished = steps.run("finish", FinishResult, early)
        self._ending.report(order, located, finished, steps)
        return finished.outcome

    def _empty(self, order: AttemptId, located: CordonResult, steps: Steps) -> FinishResult:
        """See to the successor and the pods, and to what failed before, until all is done or the
        time is up."""
        located = self._entering.await_node(order, located, steps)
        if located.record is None:
            return FinishResult(None)
        if never_joined(located):
            left = ReplacementResult(
                True, located.record, reason="it has no node, and is left as it is"
            )
            standing = RetirementProgress(located, left)
            finish = partial(self._ending.finish, order, located.record, standing)
            return steps.run("finish", FinishResult, finish)
        replaced = self._replacing.succeed(order, located.record, steps)
        located = self._entering.expect(order, located, replaced, steps)
        passed = DrainPassResult(Drain(), replaced.record, held=replaced.held)
        standing = RetirementProgress(located, replaced)
        turn = 0
        while passed.record is not None and not (passed.expired or standing.over):
            turn += 1
            if not located.settled:
                cordon = partial(self._entering.cordon, order, passed.record)
                located = steps.run(f"cordon-{turn}", CordonResult, cordon)
            if not replaced.settled:
                ask = partial(self._replacing.ask, order, passed.record)
                replaced = steps.run(f"replace-{turn}", ReplacementResult, ask)
            unsettled = not (located.settled and replaced.settled)
            work = partial(self._emptying.drain, order, located, passed, turn if unsettled else 0)
            passed = steps.run(f"drain-{turn}", DrainPassResult, work).after(passed.drain)
            if passed.rest:
                steps.wait(f"rest-{turn}", passed.rest)
            standing = RetirementProgress(located, replaced, passed.drain)
        if passed.record is None:
            return FinishResult(None)
        finish = partial(self._ending.finish, order, passed.record, standing)
        return steps.run("finish", FinishResult, finish)
