"""The durable step of a retirement that drains its node: one pass after the other."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from leeway.drain.checkpoint import RetrySchedule, changed_pods, restored, retry_schedule
from leeway.drain.deadline import Terms
from leeway.drain.executor import DrainExecutor, NodeIdentity
from leeway.drain.pauses import pause_before_next_pass, pause_while_terminating
from leeway.drain.ports import DrainStates
from leeway.drain.progress import Drain, is_expired
from leeway.drain.publish import ProgressPublisher
from leeway.drain.reasons import PODS_NOT_LISTED
from leeway.execution.attempt import AttemptId
from leeway.execution.retrying import API_ERRORS, LONGEST_RETRY, RETRY_EVERY
from leeway.lifecycle_hooks.actions import LifecycleActions
from leeway.lifecycle_hooks.held_hooks import HeldHook, earliest_deadline, next_heartbeat
from leeway.retirement.cordon_result import CordonResult
from leeway.retirement.hooks_of_record import held_for
from leeway.retirement.record import Retirement
from leeway.retirement.step_context import StepContext

PASS_TIMEOUT = timedelta(seconds=10)
"""How long one drain step lasts at most; its result is checkpointed at its end."""

ANSWERS_TIMEOUT = timedelta(seconds=20)
"""How much longer a step lasts at most for evictions that the API server has not answered."""

CHECK_ATTEMPT_EVERY = timedelta(seconds=2)
"""How long a check that no newer attempt has superseded this one is valid. Until then both attempts
may evict the same pods, which loses none."""


@dataclass(frozen=True, slots=True)
class DrainPassResult:
    """A drain after one more pass, the pause in seconds before the next pass, and the lifecycle
    hooks that are held open. There is no record if a newer attempt has superseded this one."""

    drain: Drain
    record: Retirement | None
    pause: int = 0
    expired: bool = False
    held: tuple[HeldHook, ...] = ()

    def checkpoint(self, before: Drain, now: datetime) -> "DrainCheckpoint":
        """Return what the step stores, given the drain before the pass."""
        stored = replace(self, drain=changed_pods(before, self.drain))
        return DrainCheckpoint(stored, retry_schedule(self.drain, now))


@dataclass(frozen=True, slots=True)
class DrainCheckpoint:
    """What a drain step stores: `result` has only the pods that the pass changed, `schedule` the
    tries and retry times of all pods."""

    result: DrainPassResult
    schedule: RetrySchedule

    def restore(self, before: Drain) -> DrainPassResult:
        """Return the result with the whole drain, given the drain before the pass."""
        drain = restored(before, self.result.drain, self.schedule)
        return replace(self.result, drain=drain)


@dataclass(frozen=True, slots=True)
class _Limits:
    """The moments that a pause must not pass: the deadline, the next heartbeat of a hook, and,
    unless the cordon and the replacement are `settled`, their next try."""

    deadline: datetime | None
    heartbeat: datetime | None
    settled: bool

    def pause_while_terminating(self, drain: Drain, now: datetime) -> timedelta:
        """Return how long the drain may be suspended while its pods terminate."""
        if not self.settled:
            return timedelta(0)
        return pause_while_terminating(drain, now, self.deadline, self.heartbeat)

    def pause(self, drain: Drain, started: datetime, now: datetime) -> timedelta:
        """Return the pause before the next pass of a drain that began at `started`."""
        pause = pause_before_next_pass(
            started, now, self.deadline, self.heartbeat, retries=not self.settled
        )
        return pause or self.pause_while_terminating(drain, now)


class DrainStep:
    """Drains nodes, one pass at a time."""

    def __init__(
        self, context: StepContext, drains: DrainStates, actions: LifecycleActions
    ) -> None:
        self._context = context
        self._drains = drains
        self._actions = actions

    def run(
        self,
        attempt_id: AttemptId,
        cordoned: CordonResult,
        previous: DrainPassResult,
        failures: int,
    ) -> DrainCheckpoint:
        """Run one pass of the drain. `failures` is how often the cordon or the replacement failed,
        0 if both are settled: the pause before their next try grows with it."""
        result = self._pass(attempt_id, cordoned, previous, failures)
        return result.checkpoint(previous.drain, self._context.clock.now())

    def _pass(
        self,
        attempt_id: AttemptId,
        cordoned: CordonResult,
        previous: DrainPassResult,
        failures: int,
    ) -> DrainPassResult:
        drain, clock = previous.drain, self._context.clock
        record = self._record(attempt_id, previous)
        if record is None:
            return DrainPassResult(drain, None)
        held = held_for(record, previous.held, clock.now())
        held = self._actions.send_heartbeats(attempt_id.instance, held)
        deadline = earliest_deadline(record.deadline, held)
        limits = _Limits(deadline, next_heartbeat(held), settled=not failures)
        if cordoned.node:
            drain = self._drain(attempt_id, record, cordoned, drain, limits)
        pause = timedelta(0)
        if not drain.over or failures:
            pause = limits.pause(drain, record.drain_began_at or record.noticed_at, clock.now())
        # A drain that is not over waits by itself; a pause here could miss its deadline.
        if failures and not pause and (drain.over or not cordoned.node):
            clock.sleep(min(failures * RETRY_EVERY, LONGEST_RETRY))
        expired = is_expired(Terms(deadline), clock.now())
        return DrainPassResult(drain, record, int(pause.total_seconds()), expired, held)

    def _record(self, attempt_id: AttemptId, previous: DrainPassResult) -> Retirement | None:
        """Read the record, unless this execution has just written it."""
        record = previous.record if not previous.drain.listed else None
        written_at = record.replacement_began_at if record is not None else None
        now = self._context.clock.now()
        if written_at and timedelta(0) <= now - written_at < CHECK_ATTEMPT_EVERY:
            return record
        return self._context.read(attempt_id)

    def _is_current(self, attempt_id: AttemptId) -> Callable[[], bool]:
        """Return a check that no newer attempt has superseded this one. It reads the record at most
        every CHECK_ATTEMPT_EVERY; the caller has just read it."""
        clock = self._context.clock
        checked_at = clock.now()

        def is_current() -> bool:
            nonlocal checked_at
            if clock.now() - checked_at < CHECK_ATTEMPT_EVERY:
                return True
            checked_at = clock.now()
            return self._context.is_current(attempt_id)

        return is_current

    def _drain(
        self,
        attempt_id: AttemptId,
        record: Retirement,
        cordoned: CordonResult,
        drain: Drain,
        limits: _Limits,
    ) -> Drain:
        clock, node, seen_at = self._context.clock, cordoned.node, cordoned.cordoned_at
        until = clock.now() + PASS_TIMEOUT
        answers_until = until + ANSWERS_TIMEOUT
        if limits.heartbeat is not None:
            until = min(until, limits.heartbeat)
            answers_until = min(answers_until, limits.heartbeat)
        terms = Terms(limits.deadline, record.on_blocked)
        publisher = ProgressPublisher(self._drains, clock, attempt_id, node, drain)
        try:
            executor = DrainExecutor(
                self._context.open_cluster(record.facts.cluster),
                clock,
                publisher.publish,
                may_suspend=lambda so_far: bool(
                    limits.pause_while_terminating(so_far, clock.now())
                ),
            )
            drain = executor.run(
                node,
                drain,
                terms,
                until,
                self._is_current(attempt_id),
                identity=NodeIdentity(cordoned.node_uid, seen_at) if seen_at else None,
                answers_until=answers_until,
            )
        except API_ERRORS as error:
            clock.sleep(RETRY_EVERY)
            problem = PODS_NOT_LISTED(error=f"{type(error).__name__}: {error}")
            drain = replace(drain, problem=problem)
        publisher.publish_end(drain)
        return drain
