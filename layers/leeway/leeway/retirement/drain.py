"""The durable step of a retirement that drains its node: one pass after the other."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from leeway.clock import Clock
from leeway.execution.attempt import AttemptId
from leeway.execution.retrying import API_ERRORS, LONGEST_RETRY, RETRY_EVERY
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.retirement.context import DRAIN_STATE, Attempt, DrainState, PodState, summarise
from leeway.retirement.cordon import CordonResult
from leeway.retirement.executor import DrainExecutor, NodeIdentity
from leeway.retirement.hooks import HeldHook, earliest_deadline, next_heartbeat, with_new_hooks
from leeway.retirement.plan import pause_before_next_pass, pause_while_terminating
from leeway.retirement.pods import Terms
from leeway.retirement.progress import Drain, PodProgress, is_expired
from leeway.retirement.reasons import PODS_NOT_LISTED
from leeway.retirement.record import Retirement
from leeway.retirement.surge import PodSurge, advance, has_failed, is_due, with_reasons
from leeway.table import Table

_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class RetrySchedule:
    """The number of tries of each pod and its next try, in the order of the drain's pods: `due` is
    in milliseconds from `at`, None for at once."""

    at: datetime
    tries: tuple[int, ...]
    due: tuple[int | None, ...]


def retry_schedule(drain: Drain, at: datetime) -> RetrySchedule:
    """Return the tries and retry times of a drain's pods."""
    pods = drain.pods.values()
    next_tries = [pod.next_try_at for pod in pods]
    due = tuple(
        None if next_try is None else -((at - next_try) // _MILLISECOND) for next_try in next_tries
    )
    return RetrySchedule(at, tuple(pod.attempts for pod in pods), due)


def changed_pods(before: Drain, after: Drain) -> Drain:
    """Return the later drain with only the pods in which more than the retry time changed."""
    known = before.pods
    return replace(
        after,
        pods={
            uid: pod
            for uid, pod in after.pods.items()
            if uid not in known or _without_retries(known[uid]) != _without_retries(pod)
        },
    )


def restored(before: Drain, changed: Drain, schedule: RetrySchedule) -> Drain:
    """Return the drain after a pass, from the drain before it and the checkpoint of the pass."""
    pods = {**before.pods, **changed.pods}
    for pod, tries, due in zip(pods.copy().values(), schedule.tries, schedule.due, strict=True):
        moment = None if due is None else schedule.at + due * _MILLISECOND
        pods[pod.uid] = replace(pod, attempts=tries, next_try_at=moment)
    return replace(changed, pods=pods)


def _without_retries(pod: PodProgress) -> PodProgress:
    return replace(pod, attempts=0, next_try_at=None)


PUBLISH_EVERY = timedelta(seconds=2)
"""The shortest pause between two writes. A storm's hundred drains share one table."""

RETRY_AFTER = timedelta(seconds=30)
"""The pause after a write that failed."""


class ProgressPublisher:
    """Publishes one pass of a drain: changes every PUBLISH_EVERY, and the end. `before` is the
    drain at the beginning of the pass, which the pass before has published."""

    def __init__(
        self, table: Table, clock: Clock, attempt_id: AttemptId, node: str, before: Drain
    ) -> None:
        self._table = table
        self._clock = clock
        self._attempt_id = attempt_id
        self._node = node
        self._next = clock.now() + PUBLISH_EVERY
        self._last: tuple[PodState, ...] | None = None
        if before.listed:
            self._last = self._state(before, clock.now()).pods

    def publish(self, drain: Drain) -> None:
        """Publish the progress if it changed and the pause is over."""
        now = self._clock.now()
        if now >= self._next:
            self._write(drain, now)

    def publish_end(self, drain: Drain) -> None:
        """Publish the progress at the end of the pass if it changed. A drain that is over before
        the first write is not published: the outcome reports it."""
        if drain.over and self._last is None:
            return
        now = self._clock.now()
        if now + PUBLISH_EVERY >= self._next:
            self._write(drain, now)

    def _write(self, drain: Drain, now: datetime) -> None:
        """Write the progress; a failed write does not delay the drain."""
        state = self._state(drain, now)
        if state.pods == self._last and not state.problem:
            return
        self._last, self._next = state.pods, now + PUBLISH_EVERY
        try:
            self._table.put(DRAIN_STATE, state)
        except (CloudUnavailable, CloudRefused):
            self._next = now + RETRY_AFTER

    def _state(self, drain: Drain, now: datetime) -> DrainState:
        return summarise(self._attempt_id, self._node, drain, now)


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
    hooks that are held open. There is no record if a newer attempt has superseded this one.
    `surges` are the pods that have, or do not get, an additional pod first. `kept`: the node may as
    well stay, and the surge of one of its pods has failed. `asks_for_targets`: the drain is over,
    and the policy asks that load balancers drain the instance before it ends."""

    drain: Drain
    record: Retirement | None
    pause: int = 0
    expired: bool = False
    held: tuple[HeldHook, ...] = ()
    surges: tuple[PodSurge, ...] = ()
    kept: bool = False
    asks_for_targets: bool = False

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


def drain_pass(
    attempt: Attempt,
    cordoned: CordonResult,
    previous: DrainPassResult,
    failures: int,
) -> DrainCheckpoint:
    """Run one pass of the drain. `failures` is how often the cordon or the replacement failed,
    0 if both are settled: the pause before their next try grows with it."""
    drain, surges, clock = previous.drain, previous.surges, attempt.ports.clock
    record = _record(attempt, previous)
    if record is None:
        return DrainPassResult(drain, None).checkpoint(drain, clock.now())
    held = with_new_hooks(previous.held, record.hooks, record.hooks_wait_since, clock.now())
    held = attempt.hooks.send_heartbeats(attempt.id.instance, held)
    deadline = earliest_deadline(record.deadline, held)
    limits = _Limits(deadline, next_heartbeat(held), settled=not failures)
    if cordoned.node:
        until = clock.now() + PASS_TIMEOUT
        answers_until = until + ANSWERS_TIMEOUT
        if limits.heartbeat is not None:
            until = min(until, limits.heartbeat)
            answers_until = min(answers_until, limits.heartbeat)
        forced = record.returns is not None and record.returns.forced
        seen_at = cordoned.cordoned_at
        table = attempt.ports.fast_table
        publisher = ProgressPublisher(table, clock, attempt.id, cordoned.node, drain)
        surges = advance(attempt, record, drain, surges)
        try:
            executor = DrainExecutor(
                attempt.ports.open_cluster(record.facts.cluster),
                clock,
                lambda so_far: publisher.publish(with_reasons(surges, so_far)),
                may_suspend=lambda so_far: (
                    is_due(so_far, surges, record)
                    or bool(limits.pause_while_terminating(so_far, clock.now()))
                ),
            )
            drain = executor.run(
                cordoned.node,
                drain,
                Terms(
                    deadline,
                    record.on_blocked,
                    keeps_protected=forced,
                    held=frozenset(one.uid for one in surges if one.held),
                    covered=frozenset(one.uid for one in surges if one.covered),
                ),
                until,
                _is_current(attempt),
                identity=NodeIdentity(cordoned.node_uid, seen_at) if seen_at else None,
                answers_until=answers_until,
            )
        except API_ERRORS as error:
            clock.sleep(RETRY_EVERY)
            problem = PODS_NOT_LISTED(
                f"Leeway cannot list the pods of the node: {type(error).__name__}: {error}."
            )
            drain = replace(drain, problem=problem)
        ending = drain.over or is_expired(Terms(deadline), clock.now())
        surges = advance(attempt, record, drain, surges, ending=ending)
        drain = with_reasons(surges, drain)
        publisher.publish_end(drain)
    pause = timedelta(0)
    if not drain.over or failures:
        pause = limits.pause(drain, record.drain_began_at or record.noticed_at, clock.now())
    # A drain that is not over waits by itself; a pause here could miss its deadline.
    if failures and not pause and (drain.over or not cordoned.node):
        clock.sleep(min(failures * RETRY_EVERY, LONGEST_RETRY))
    expired = is_expired(Terms(deadline), clock.now())
    optional = record.returns is not None and record.returns.optional
    kept = optional and not record.follows_template and has_failed(surges, drain)
    seconds = int(pause.total_seconds())
    ends = drain.drained or (expired and record.ec2_terminates)
    asks = ends and bool(cordoned.node) and _asks_for_targets(attempt, record)
    result = DrainPassResult(drain, record, seconds, expired, held, surges, kept, asks)
    return result.checkpoint(previous.drain, clock.now())


def _asks_for_targets(attempt: Attempt, record: Retirement) -> bool:
    """Whether the policy asks that load balancers drain the instance before it ends."""
    try:
        return attempt.ports.policies.policy_of(record.facts.cluster).waits_for_targets
    except (CloudUnavailable, CloudRefused):
        return False


def _record(attempt: Attempt, previous: DrainPassResult) -> Retirement | None:
    """Read the record, unless this execution has just written it."""
    record = previous.record if not previous.drain.listed else None
    written_at = record.replacement_began_at if record is not None else None
    now = attempt.now()
    if written_at and timedelta(0) <= now - written_at < CHECK_ATTEMPT_EVERY:
        return record
    return attempt.read()


def _is_current(attempt: Attempt) -> Callable[[], bool]:
    """Return a check that no newer attempt has superseded this one. It reads the record at most
    every CHECK_ATTEMPT_EVERY; the caller has just read it."""
    clock = attempt.ports.clock
    checked_at = clock.now()

    def is_current() -> bool:
        nonlocal checked_at
        if clock.now() - checked_at < CHECK_ATTEMPT_EVERY:
            return True
        checked_at = clock.now()
        return attempt.is_current()

    return is_current
