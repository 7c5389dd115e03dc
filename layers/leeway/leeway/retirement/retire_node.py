"""Use case: one generation of an instance's retirement, step by step."""

from functools import partial

from leeway.drain.progress import Drain
from leeway.execution.orders import Order
from leeway.execution.steps import Steps
from leeway.lifecycle_actions import LifecycleActions
from leeway.retirement.emptying import Emptying
from leeway.retirement.ending import Ending
from leeway.retirement.entering import Entering, never_joined
from leeway.retirement.launching import Launching
from leeway.retirement.outcome import Outcome
from leeway.retirement.recollection import KnownGroups
from leeway.retirement.replacing import Replacing
from leeway.retirement.results import (
    Course,
    Finished,
    Located,
    Passed,
    Replaced,
    Standing,
)
from leeway.retirement.surroundings import Surroundings


class RetireNode:
    """Retires instances."""

    def __init__(self, world: Surroundings) -> None:
        known_groups = KnownGroups(world.groups, world.recollection)
        actions = LifecycleActions(world.groups, world.clock, known_groups)
        self._entering = Entering(world)
        launching = Launching(world)
        self._replacing = Replacing(world, known_groups, launching, actions)
        self._emptying = Emptying(world, actions)
        self._ending = Ending(world, actions, launching)

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
