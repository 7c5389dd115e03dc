"""How a retirement empties its node: one pass of the drain after the other."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from leeway.drain.checkpoint import RetrySchedule, changed_in, pace_of, resumed
from leeway.drain.deadline import Terms
from leeway.drain.executor import (
    DrainExecutor,
    NodeIdentity,
    pause_before_next,
    pause_while_they_go,
)
from leeway.drain.ports import DrainStates
from leeway.drain.progress import Drain, is_expired
from leeway.drain.publish import ProgressPublisher
from leeway.execution.attempt import AttemptId
from leeway.execution.retrying import API_ERRORS, LONGEST_RETRY, RETRY_EVERY
from leeway.lifecycle_hooks.actions import LifecycleActions
from leeway.lifecycle_hooks.held_hooks import HeldHook, next_heartbeat, with_hooks
from leeway.retirement.cordon_result import CordonResult
from leeway.retirement.hooks_of_record import held_for
from leeway.retirement.record import Retirement
from leeway.retirement.step_context import StepContext

PASS = timedelta(seconds=10)
"""How long one drain step lasts at most; what it achieved is checkpointed at its end."""

ANSWERS = timedelta(seconds=20)
"""How much longer a step lasts at most for evictions that the API server holds."""

BELIEVED_FOR = timedelta(seconds=2)
"""How long it is believed that no newer attempt has taken over: it would ask the same pods to
go, which does no harm twice."""


@dataclass(frozen=True, slots=True)
class DrainPassResult:
    """A drain after one more pass, how many seconds may pass before the next, and the lifecycle
    hooks that are kept waiting for it.

    As it is written down, `drain` has only the pods in which the pass changed something, and `pace`
    says of all pods how often they were tried and when they are due again. No pace: `drain` has all
    pods, as versions before this one wrote it.
    """

    drain: Drain
    record: Retirement | None
    rest: int = 0
    expired: bool = False
    held: tuple[HeldHook, ...] = ()
    pace: RetrySchedule | None = None

    def since(self, before: Drain, now: datetime) -> "DrainPassResult":
        """Return it as it is written down, by whoever knows the drain before the pass."""
        return replace(self, drain=changed_in(before, self.drain), pace=pace_of(self.drain, now))

    def after(self, before: Drain) -> "DrainPassResult":
        """Return what was written down with the whole drain."""
        return replace(self, drain=resumed(before, self.drain, self.pace), pace=None)


@dataclass(frozen=True, slots=True)
class _Limits:
    """What a pass of a drain must not miss: the deadline, the next heartbeat of a hook, and, unless
    all else is `settled`, the next try of what has failed."""

    deadline: datetime | None
    heartbeat: datetime | None
    settled: bool

    def pause(self, drain: Drain, now: datetime) -> timedelta:
        """Return how long pods that only need time may be left alone."""
        if not self.settled:
            return timedelta(0)
        return pause_while_they_go(drain, now, self.deadline, self.heartbeat)

    def rest(self, drain: Drain, started: datetime, now: datetime) -> timedelta:
        """Return how long to rest until the next pass of a drain that has been on since then."""
        paced = pause_before_next(started, now, self.deadline, self.heartbeat)
        return paced or self.pause(drain, now)


class DrainStep:
    """Drains nodes."""

    def __init__(
        self, context: StepContext, drains: DrainStates, actions: LifecycleActions
    ) -> None:
        self._context = context
        self._drains = drains
        self._actions = actions

    def drain(
        self, order: AttemptId, located: CordonResult, passed: DrainPassResult, tries: int
    ) -> DrainPassResult:
        """Work on the drain for a while; returns what is written down of it. `tries` counts how
        often the cordon or the replacement has been tried in vain, 0 where both are settled: the
        more, the longer until the next."""
        drain, clock = passed.drain, self._context.clock
        record = self._record(order, passed)
        if record is None:
            return DrainPassResult(Drain(), None)
        held = held_for(record, passed.held, clock.now())
        held = self._actions.send_heartbeats(order.instance, held)
        deadline = with_hooks(record.deadline, held)
        limits = _Limits(deadline, next_heartbeat(held), settled=not tries)
        if located.node:
            drain = self._work(order, record, located, drain, limits)
        rest = timedelta(0)
        if not drain.over or tries:
            rest = limits.rest(drain, record.begun_at or record.noticed_at, clock.now())
        # A drain that is on paces itself, and must not be looked away from near its deadline.
        if tries and not rest and (drain.over or not located.node):
            clock.sleep(min(tries * RETRY_EVERY, LONGEST_RETRY))
        expired = is_expired(Terms(deadline), clock.now())
        after = DrainPassResult(drain, record, int(rest.total_seconds()), expired, held)
        return after.since(passed.drain, clock.now())

    def _record(self, order: AttemptId, passed: DrainPassResult) -> Retirement | None:
        """Read the record, unless this execution has just written it."""
        record = passed.record if not passed.drain.listed else None
        written_at = record.running_at if record is not None else None
        if written_at and timedelta(0) <= self._context.clock.now() - written_at < BELIEVED_FOR:
            return record
        return self._context.read(order)

    def _while_current(self, order: AttemptId) -> Callable[[], bool]:
        """Ask, at a pace, whether no newer attempt has taken over. It was none just now."""
        clock = self._context.clock
        asked_at = clock.now()

        def wanted() -> bool:
            nonlocal asked_at
            if clock.now() - asked_at < BELIEVED_FOR:
                return True
            asked_at = clock.now()
            return self._context.is_current(order)

        return wanted

    def _work(
        self,
        order: AttemptId,
        record: Retirement,
        located: CordonResult,
        drain: Drain,
        limits: _Limits,
    ) -> Drain:
        clock, node, since = self._context.clock, located.node, located.cordoned_at
        until = clock.now() + PASS
        answers_until = until + ANSWERS
        if limits.heartbeat is not None:
            until = min(until, limits.heartbeat)
            answers_until = min(answers_until, limits.heartbeat)
        terms = Terms(limits.deadline, record.on_blocked)
        showing = ProgressPublisher(self._drains, clock, order, node, drain)
        try:
            cluster = self._context.open_cluster(record.facts.cluster)
            draining = DrainExecutor(
                cluster,
                clock,
                showing.round,
                may_leave=lambda so_far: bool(limits.pause(so_far, clock.now())),
            )
            wanted = self._while_current(order)
            machine = NodeIdentity(located.node_uid, since) if since is not None else None
            drain = draining.work(
                node, drain, terms, until, wanted, machine=machine, answers_until=answers_until
            )
        except API_ERRORS as error:
            clock.sleep(RETRY_EVERY)
            drain = replace(drain, problem=f"{type(error).__name__}: {error}")
        showing.end(drain)
        return drain
