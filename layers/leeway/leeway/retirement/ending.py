"""How a retirement ends: closed, its hooks answered, its instance terminated, and reported."""

from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from leeway.cloud.ports import CloudRefused, CloudUnavailable
from leeway.drain.progress import Drain
from leeway.execution.orders import Order
from leeway.execution.steps import Steps
from leeway.hooks import HookResult
from leeway.lifecycle_actions import Answered, LifecycleActions
from leeway.owners import OwnerKind
from leeway.records.retirement import Phase, Retirement
from leeway.replacement import Method
from leeway.retirement.outcome import FAILED, Outcome, Result, result_of
from leeway.retirement.rehearsing import rehearsed
from leeway.retirement.results import Course, Finished, Located, Replaced
from leeway.retirement.surging import Surging
from leeway.retirement.surroundings import TROUBLE, Surroundings

HOOK_TOLD_WITHIN = timedelta(seconds=10)
"""How long the notice of a hook is waited for that the end of its instance has called."""

LOOK_EVERY = 0.5
"""Seconds."""

_RESULTS = {
    Course.CORDON: Result.CORDONED,
    Course.DECLINE: Result.DECLINED,
    Course.REHEARSE: Result.REHEARSED,
    Course.UNDO: Result.UNDONE,
}


@dataclass(frozen=True, slots=True)
class Lowered:
    """What came of having a group be as large as before: `settled` says that it is, `refused` what
    was refused. No record where a newer generation has taken over."""

    record: Retirement | None
    refused: tuple[str, ...] = ()
    settled: bool = False


class Ending:
    """Ends retirements."""

    def __init__(self, world: Surroundings, actions: LifecycleActions, surging: Surging) -> None:
        self._world = world
        self._actions = actions
        self._surging = surging

    def finish(
        self,
        order: Order,
        record: Retirement,
        located: Located,
        replaced: Replaced,
        drain: Drain,
    ) -> Finished:
        """Have a group that was made larger end its instance, close the record, answer every hook
        that told of this instance, and terminate what is Leeway's to terminate.

        The record is closed before the rest: the state changes that follow are then known to be
        its own doing, and a hook that is announced after it gets a generation that answers it.
        """
        drained = located.settled and (not located.node or drain.drained)
        lowered = Lowered(record)
        if drained or not record.counts_from_its_turn:
            lowered = self._lower(order, record)
        closed = self._close(order, lowered, Phase.FINISHED, HookResult.CONTINUE)
        if closed is None:
            return Finished(None)
        # One that left its group before, and whose record is lost, is ended by nobody else.
        detached = replaced.method is Method.DETACH or (
            closed.facts.owner.kind is OwnerKind.DETACHED
        )
        terminate = drained and detached
        terminated, refused = self._terminate(closed) if terminate else (False, ())
        refused = lowered.refused + refused
        answered = self._actions.answer(order.instance, closed.hooks, HookResult.CONTINUE)
        refused += tuple(refusal.said for refusal in answered.refused)
        result = result_of(located.settled, located.node, drain)
        reason = located.problem or drain.problem or closed.reason
        outcome = self._outcome(
            order, closed, located, replaced, drain, result, reason, refused, terminated
        )
        self._world.telemetry.retired(outcome)
        return Finished(outcome, answered)

    def finish_early(self, order: Order, record: Retirement, located: Located) -> Finished:
        """Close a retirement that does not go as far as a drain: one that only cordons, is
        declined, undone, or rehearsed."""
        replaced, drain = Replaced(True, record, reason="not asked for"), Drain()
        if located.course is Course.REHEARSE:
            replaced, drain = rehearsed(self._world, record, located.node)
        lowered, phase = Lowered(record), Phase.FINISHED
        if located.course is Course.UNDO:
            lowered, phase = self._lower(order, record, stays=True), Phase.UNDONE
        answer = HookResult.CONTINUE if located.course is Course.CORDON else None
        closed = self._close(order, lowered, phase, answer)
        if closed is None:
            return Finished(None)
        answered = Answered()
        if answer is not None:
            answered = self._actions.answer(order.instance, closed.hooks, answer)
        refused = lowered.refused + tuple(refusal.said for refusal in answered.refused)
        reason = located.problem or closed.reason
        result = _RESULTS[located.course]
        outcome = self._outcome(
            order, closed, located, replaced, drain, result, reason, refused, False
        )
        self._world.telemetry.retired(outcome)
        return Finished(outcome, answered)

    def _lower(self, order: Order, record: Retirement, stays: bool = False) -> Lowered:
        """Have a group that was made larger be as large as before, and end the instance unless it
        stays. What is refused stays owed, and is found again."""
        intent = record.replaced
        if intent is None or not intent.owed:
            return Lowered(record)
        written = self._world.write(order, record, _ending)
        if written is None:
            return Lowered(None)
        running, _ = written
        lower = partial(self._surging.lower_for, order.instance, intent.group, stays)
        try:
            ended = self._world.patiently(lower)
        except CloudRefused as error:
            return Lowered(running, (str(error),))
        return Lowered(self._hooks_told(order, running) if ended else running, settled=True)

    def _hooks_told(self, order: Order, record: Retirement) -> Retirement | None:
        """Wait a moment for the notice of the hook that keeps the instance now, so that it is
        answered at once: one that comes later takes a generation of its own."""
        latest: Retirement | None = record
        until = self._world.clock.now() + HOOK_TOLD_WITHIN
        while latest is not None and not latest.hooks and self._world.clock.now() < until:
            self._world.clock.sleep(LOOK_EVERY)
            latest = self._world.read_patiently(order)
        return latest

    def _close(
        self, order: Order, lowered: Lowered, phase: Phase, answer: HookResult | None
    ) -> Retirement | None:
        """Close the record; None where a newer generation has taken over."""
        if lowered.record is None:
            return None
        fields = {"phase": phase, "answer": answer, "ended_at": self._world.clock.now()}

        def closed(record: Retirement) -> tuple[Retirement, None]:
            intent = record.replaced
            if intent is not None:
                owed = {"owed": intent.owed and not lowered.settled, "ending": False}
                intent = intent.model_copy(update=owed)
            return record.model_copy(update={**fields, "replaced": intent}), None

        written = self._world.write(order, lowered.record, closed)
        return written[0] if written else None

    def _outcome(
        self,
        order: Order,
        closed: Retirement,
        located: Located,
        replaced: Replaced,
        drain: Drain,
        result: Result,
        reason: str,
        refused: tuple[str, ...],
        terminated: bool,
    ) -> Outcome:
        return Outcome(
            result=result,
            instance=order.instance,
            cluster=order.cluster,
            node=located.node,
            kind=closed.kind,
            generation=order.generation,
            reason=reason,
            noticed_at=closed.noticed_at,
            cordoned_at=located.cordoned_at,
            ended_at=self._world.clock.now(),
            deadline=closed.deadline,
            replacement=replaced.method if replaced.settled else FAILED,
            replacement_reason=replaced.reason,
            refused=refused,
            hooks=tuple(hook.name for hook in closed.hooks),
            terminated=terminated,
            pods=tuple(drain.pods.values()),
            load_balancers=drain.load_balancers,
            kept=closed.owes,
            still_attached=tuple(pod.pod for pod in drain.unclean),
        )

    def _terminate(self, record: Retirement) -> tuple[bool, tuple[str, ...]]:
        """Terminate the instance: whether that was asked for, and what was refused, in words. One
        that EC2 takes anyway is left to it where EC2 throttles."""
        try:
            self._world.instances.terminate(record.instance)
        except CloudRefused as error:
            return True, (str(error),)
        except CloudUnavailable:
            if not record.ec2_takes_it:
                raise
            return False, ()
        return True, ()

    def report(self, order: Order, located: Located, finished: Finished, steps: Steps) -> None:
        """Tell the others how it ended, and go on answering hooks whose answer was refused."""
        if finished.outcome is None:
            return
        steps.run("report", str, partial(self._report, finished.outcome, located))
        self._actions.insist(order.instance, finished.answered, HookResult.CONTINUE, steps)

    def _report(self, outcome: Outcome, located: Located) -> str:
        """One step, since each is paid for. What may have to wait for its service comes last: the
        Kubernetes Event is the same one when it is written again."""
        if located.node and located.course is not Course.REHEARSE:
            self._note(outcome, located.node_uid)
        return self._announce(outcome)

    def _announce(self, outcome: Outcome) -> str:
        """Put the Leeway event. A repeated one has the same instance and generation, by which its
        readers can tell; one that is refused holds up nothing."""
        try:
            self._world.announcements.announce(outcome.title, outcome.to_json())
        except CloudRefused as error:
            self._world.telemetry.not_told(outcome, f"no Leeway event: {error}")
            return f"not put: {error}"
        return outcome.title

    def _note(self, outcome: Outcome, node_uid: str) -> None:
        """Write the Kubernetes Event; a cluster that does not take it holds up nothing."""
        event = outcome.as_node_event(node_uid)
        cluster_named = self._world.cluster_named
        try:
            self._world.patiently(lambda: cluster_named(outcome.cluster).note(event))
        except TROUBLE as error:
            self._world.telemetry.not_told(outcome, f"no Kubernetes Event: {error}")


def _ending(record: Retirement) -> tuple[Retirement, None]:
    if record.replaced is None:
        return record, None
    intent = record.replaced.model_copy(update={"ending": True})
    return record.model_copy(update={"replaced": intent}), None
