"""Use case: one generation of an instance's retirement, step by step."""

from functools import partial

from leeway.drain.progress import Drain
from leeway.drain.step import Emptying, Passed
from leeway.execution.attempt import Order
from leeway.execution.steps import Steps
from leeway.lifecycle_hooks.actions import LifecycleActions
from leeway.replacement.cache import KnownGroups
from leeway.replacement.launch import Launching
from leeway.replacement.request import Replaced, Replacing
from leeway.retire_node.cordon import Entering, never_joined
from leeway.retire_node.dependencies import Dependencies
from leeway.retire_node.finish import Ending
from leeway.retire_node.outcome import Outcome
from leeway.retire_node.request_disruption import Turns
from leeway.retire_node.step_results import Finished, Standing
from leeway.retirement.cordon_result import Course, Located


class RetireNode:
    """Retires instances."""

    def __init__(self, deps: Dependencies) -> None:
        context, groups = deps.context, deps.groups
        known_groups = KnownGroups(groups, deps.cache)
        actions = LifecycleActions(groups, context.clock, known_groups)
        launching = Launching(context, groups, deps.offerings, deps.region)
        turns = Turns(context, groups, deps.ledgers)
        self._entering = Entering(context, deps.policies, turns, groups, deps.telemetry)
        self._replacing = Replacing(
            context, groups, deps.instances, known_groups, launching, actions
        )
        self._emptying = Emptying(context, deps.drains, actions)
        self._ending = Ending(
            context, groups, deps.instances, deps.announcements, deps.telemetry, actions, launching
        )

    def retire(self, order: Order, steps: Steps) -> Outcome | None:
        """Run one generation of a retirement; None where a newer one has taken over.

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
            finished = steps.run("finish", Finished, early)
        self._ending.report(order, located, finished, steps)
        return finished.outcome

    def _empty(self, order: Order, located: Located, steps: Steps) -> Finished:
        """See to the successor and the pods, and to what failed before, until all is done or the
        time is up."""
        located = self._entering.await_node(order, located, steps)
        if located.record is None:
            return Finished(None)
        if never_joined(located):
            left = Replaced(True, located.record, reason="it has no node, and is left as it is")
            standing = Standing(located, left)
            finish = partial(self._ending.finish, order, located.record, standing)
            return steps.run("finish", Finished, finish)
        replaced = self._replacing.succeed(order, located.record, steps)
        located = self._entering.expect(order, located, replaced, steps)
        passed = Passed(Drain(), replaced.record, held=replaced.held)
        standing = Standing(located, replaced)
        turn = 0
        while passed.record is not None and not (passed.expired or standing.over):
            turn += 1
            if not located.settled:
                cordon = partial(self._entering.cordon, order, passed.record)
                located = steps.run(f"cordon-{turn}", Located, cordon)
            if not replaced.settled:
                ask = partial(self._replacing.ask, order, passed.record)
                replaced = steps.run(f"replace-{turn}", Replaced, ask)
            unsettled = not (located.settled and replaced.settled)
            work = partial(self._emptying.drain, order, located, passed, turn if unsettled else 0)
            passed = steps.run(f"drain-{turn}", Passed, work).after(passed.drain)
            if passed.rest:
                steps.wait(f"rest-{turn}", passed.rest)
            standing = Standing(located, replaced, passed.drain)
        if passed.record is None:
            return Finished(None)
        finish = partial(self._ending.finish, order, passed.record, standing)
        return steps.run("finish", Finished, finish)
