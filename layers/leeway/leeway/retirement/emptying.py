"""How a retirement empties its node: one pass of the drain after the other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from leeway.drain.deadline import Terms
from leeway.drain.progress import Drain, is_expired
from leeway.draining.engine import Draining, Machine, pause_before_next, pause_while_they_go
from leeway.execution.orders import Order
from leeway.hooks import HeldHook, joined, next_heartbeat, with_hooks
from leeway.lifecycle_actions import LifecycleActions
from leeway.notices import NoticeKind
from leeway.records.retirement import Retirement
from leeway.replacement import Method
from leeway.retirement.results import Located, Passed
from leeway.retirement.showing import Showing
from leeway.retirement.surroundings import LONGEST_RETRY, RETRY_EVERY, TROUBLE, Surroundings

PASS = timedelta(seconds=10)
"""How long one drain step lasts at most; what it achieved is checkpointed at its end."""

ANSWERS = timedelta(seconds=20)
"""How much longer a step lasts at most for evictions that the API server holds."""

BELIEVED_FOR = timedelta(seconds=2)
"""How long it is believed that no newer generation has taken over: it would ask the same pods to
go, which does no harm twice."""


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


class Emptying:
    """Drains nodes."""

    def __init__(self, world: Surroundings, actions: LifecycleActions) -> None:
        self._world = world
        self._actions = actions

    def drain(self, order: Order, located: Located, passed: Passed, tries: int) -> Passed:
        """Work on the drain for a while; returns what is written down of it. `tries` counts how
        often the cordon or the replacement has been tried in vain, 0 where both are settled: the
        more, the longer until the next."""
        drain, clock = passed.drain, self._world.clock
        record = self._record(order, passed)
        if record is None:
            return Passed(Drain(), None)
        held = held_for(record, passed.held, clock.now())
        held = self._actions.keep(order.instance, held)
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
        after = Passed(drain, record, int(rest.total_seconds()), expired, held)
        return after.since(passed.drain, clock.now())

    def _record(self, order: Order, passed: Passed) -> Retirement | None:
        """Read the record, unless this execution has just written it."""
        record = passed.record if not passed.drain.listed else None
        written_at = record.running_at if record is not None else None
        if written_at and timedelta(0) <= self._world.clock.now() - written_at < BELIEVED_FOR:
            return record
        return self._world.read_patiently(order)

    def _while_current(self, order: Order) -> Callable[[], bool]:
        """Ask, at a pace, whether no newer generation has taken over. It was none just now."""
        clock = self._world.clock
        asked_at = clock.now()

        def wanted() -> bool:
            nonlocal asked_at
            if clock.now() - asked_at < BELIEVED_FOR:
                return True
            asked_at = clock.now()
            return self._world.is_current(order)

        return wanted

    def _work(
        self, order: Order, record: Retirement, located: Located, drain: Drain, limits: _Limits
    ) -> Drain:
        clock, node, since = self._world.clock, located.node, located.cordoned_at
        until = clock.now() + PASS
        answers_until = until + ANSWERS
        if limits.heartbeat is not None:
            until = min(until, limits.heartbeat)
            answers_until = min(answers_until, limits.heartbeat)
        terms = Terms(limits.deadline, record.on_blocked)
        showing = Showing(self._world, order, node, drain)
        try:
            cluster = self._world.cluster_named(record.facts.cluster)
            draining = Draining(
                cluster,
                clock,
                showing.round,
                may_leave=lambda so_far: bool(limits.pause(so_far, clock.now())),
            )
            wanted = self._while_current(order)
            machine = Machine(located.node_uid, since) if since is not None else None
            drain = draining.work(
                node, drain, terms, until, wanted, machine=machine, answers_until=answers_until
            )
        except TROUBLE as error:
            clock.sleep(RETRY_EVERY)
            drain = replace(drain, problem=f"{type(error).__name__}: {error}")
        showing.end(drain)
        return drain


def held_for(record: Retirement, held: Sequence[HeldHook], now: datetime) -> tuple[HeldHook, ...]:
    """Return what is held for a retirement: with what its record learned of since."""
    return joined(held, record.hooks, _waits_since(record), now)


def _waits_since(record: Retirement) -> datetime | None:
    """Return when the record's hook began to wait, where the record tells. What an earlier
    generation asked of the group may have been refused: it does not date a hook that came since."""
    if record.kind is NoticeKind.TERMINATE_HOOK:
        return record.noticed_at
    asked = record.replaced
    if asked is None or asked.method is not Method.TERMINATE_IN_GROUP:
        return None
    return asked.asked_at if asked.asked_at >= record.noticed_at else None
