"""A drain under way: what was decided, asked and answered for every pod, as a value."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from leeway.drain.answers import Answer, Meaning
from leeway.drain.deadline import Terms, grace_that_fits, latest_moment
from leeway.drain.pods import FINISHED_PHASES, Pod, Verdict, decide_pod
from leeway.policies import OnBlocked


class Stage(StrEnum):
    """How far a pod is. `left`, `gone` and `failed` are ends; the others are waited for."""

    LEFT = "left"
    PENDING = "pending"
    BLOCKED = "blocked"
    TERMINATING = "terminating"
    RETURNED = "returned"
    GONE = "gone"
    FAILED = "failed"


ENDS = frozenset({Stage.LEFT, Stage.GONE, Stage.FAILED})


class Way(StrEnum):
    """How a pod is asked to go: by the Eviction API, which heeds budgets, or by DELETE."""

    EVICT = "evict"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class PodProgress:
    """One pod's part of a drain. Times are UTC, `grace` is in seconds (None: the pod's own)."""

    pod: str
    uid: str
    workload: str
    stage: Stage
    reason: str
    warning: str = ""
    way: Way | None = None
    grace: int | None = None
    attempts: int = 0
    next_try_at: datetime | None = None
    asked_at: datetime | None = None
    gone_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Drain:
    """A drain of one node. `pods` is by UID, in the order in which they were first seen.

    `listed` says that the node's pods were listed before: a pod first seen later came later.
    `problem` is why they could not be listed when that was last tried.
    """

    listed: bool = False
    problem: str = ""
    pods: Mapping[str, PodProgress] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether nothing is left to do or to wait for. What was never listed is not over."""
        return self.listed and all(pod.stage in ENDS for pod in self.pods.values())

    @property
    def drained(self) -> bool:
        """Whether every pod that had to go is gone."""
        return self.over and all(pod.stage is not Stage.FAILED for pod in self.pods.values())

    def at(self, *stages: Stage) -> tuple[PodProgress, ...]:
        """Return the pods that are at one of these stages."""
        return tuple(pod for pod in self.pods.values() if pod.stage in stages)


@dataclass(frozen=True, slots=True)
class Ask:
    """One request to make now: evict or delete this pod, with this grace, for this reason."""

    pod: Pod
    way: Way
    grace: int | None
    reason: str


def observe(drain: Drain, pods: Sequence[Pod], now: datetime) -> Drain:
    """Take in a fresh and complete list of the node's pods."""
    listed = {pod.uid: pod for pod in pods}
    seen = dict(drain.pods)
    for uid, known in drain.pods.items():
        if uid not in listed and known.stage not in ENDS:
            seen[uid] = replace(known, stage=Stage.GONE, gone_at=now)
    evicted = {known.workload for known in drain.pods.values() if known.asked_at is not None}
    for uid, pod in listed.items():
        known_pod = seen.get(uid)
        if known_pod is None:
            seen[uid] = _first_sight(pod, drain, now, drain.listed and pod.workload in evicted)
        elif known_pod.stage is Stage.GONE:
            # An answer was misread: what is listed is not gone.
            seen[uid] = replace(known_pod, stage=Stage.PENDING, gone_at=None)
        elif pod.deletion is not None and known_pod.stage in {Stage.PENDING, Stage.BLOCKED}:
            seen[uid] = replace(known_pod, stage=Stage.TERMINATING, reason="terminating")
    return Drain(listed=True, pods=seen)


def _first_sight(pod: Pod, drain: Drain, now: datetime, returned: bool) -> PodProgress:
    decision = decide_pod(pod, now, returned)
    stage = {
        Verdict.LEAVE: Stage.LEFT,
        Verdict.EVICT: Stage.PENDING,
        Verdict.AWAIT: Stage.TERMINATING,
        Verdict.RETURNED: Stage.RETURNED,
    }[decision.verdict]
    if stage is Stage.RETURNED and _returned_before(pod, drain):
        stage = Stage.LEFT
    return PodProgress(
        pod.key, pod.uid, pod.workload, stage, decision.reason, warning=decision.warning
    )


def _returned_before(pod: Pod, drain: Drain) -> bool:
    """Whether this workload was sent away a second time already; a third would not help."""
    return any(
        known.workload == pod.workload and known.way is Way.DELETE and known.asked_at is not None
        for known in drain.pods.values()
    )


def plan(drain: Drain, pods: Sequence[Pod], terms: Terms, now: datetime) -> tuple[Ask, ...]:
    """Decide what to ask for now. `pods` is the list that was last observed."""
    ordinary_left = any(
        not pod.critical and drain.pods[pod.uid].stage not in ENDS | {Stage.RETURNED}
        for pod in pods
    )
    asks = []
    for pod in pods:
        progress = drain.pods[pod.uid]
        latest = latest_moment(pod, terms)
        late = latest is not None and now >= latest
        # A first DELETE does not wait for the pause after an eviction; one that failed does.
        may_delete = progress.way is not Way.DELETE or _due(progress, now)
        if progress.stage is Stage.RETURNED:
            if late and may_delete:
                asks.append(_delete(pod, terms, now, progress.reason))
        elif progress.stage is Stage.BLOCKED and late:
            if terms.on_blocked is OnBlocked.DELETE:
                if may_delete:
                    asks.append(_delete(pod, terms, now, progress.reason))
            elif terms.on_blocked is OnBlocked.WAIT and _due(progress, now):
                asks.append(_evict(pod, terms, now))
        elif progress.stage in {Stage.PENDING, Stage.BLOCKED} and _due(progress, now):
            waits_for_tier = pod.critical and ordinary_left and not late
            if not waits_for_tier:
                asks.append(_evict(pod, terms, now))
    return tuple(asks)


def give_up(drain: Drain, pods: Sequence[Pod], terms: Terms, now: datetime) -> Drain:
    """End what can't go on: blocked pods under `fail` past their moment, and without a deadline
    those that came back."""
    ended = dict(drain.pods)
    for pod in pods:
        progress = ended[pod.uid]
        latest = latest_moment(pod, terms)
        blocked_late = progress.stage is Stage.BLOCKED and latest is not None and now >= latest
        if blocked_late and terms.on_blocked is OnBlocked.FAIL:
            ended[pod.uid] = replace(progress, stage=Stage.FAILED)
        elif progress.stage is Stage.RETURNED and terms.deadline is None:
            ended[pod.uid] = replace(progress, stage=Stage.LEFT)
    return replace(drain, pods=ended)


def is_expired(terms: Terms, now: datetime) -> bool:
    """Whether the deadline has come."""
    return terms.deadline is not None and now >= terms.deadline


def expire(drain: Drain) -> Drain:
    """End all that has not ended, when the deadline has come and everything was asked for."""
    ended = {
        uid: progress
        if progress.stage in ENDS
        else replace(
            progress,
            stage=Stage.FAILED,
            reason=f"the deadline came while it was {progress.stage}: {progress.reason}",
        )
        for uid, progress in drain.pods.items()
    }
    return replace(drain, pods=ended)


def record(drain: Drain, ask: Ask, answer: Answer, terms: Terms, now: datetime) -> Drain:
    """Take in the answer to a request that was made at `now`."""
    known = drain.pods[ask.pod.uid]
    attempts = known.attempts + 1
    tried = replace(known, attempts=attempts, way=ask.way, grace=ask.grace)
    match answer.meaning:
        case Meaning.ACCEPTED:
            changed = replace(
                tried, stage=Stage.TERMINATING, reason=_granted(ask), asked_at=now, next_try_at=None
            )
        case Meaning.GONE:
            changed = replace(tried, stage=Stage.GONE, reason=answer.detail, gone_at=now)
        case Meaning.TERMINATING if ask.pod.deletion is not None:
            changed = replace(tried, stage=Stage.TERMINATING, reason=answer.detail)
        case Meaning.BLOCKED | Meaning.NOT_EVICTABLE:
            changed = replace(
                tried,
                stage=Stage.BLOCKED,
                reason=answer.detail,
                next_try_at=now + _pause(ask.pod.uid, attempts, terms),
            )
        case Meaning.DENIED if terms.deadline is None:
            changed = replace(tried, stage=Stage.FAILED, reason=answer.detail)
        case Meaning.THROTTLED if answer.retry_after is not None:
            wait = timedelta(seconds=answer.retry_after)
            changed = replace(tried, reason=answer.detail, next_try_at=now + wait)
        case _:
            changed = replace(
                tried,
                reason=answer.detail,
                next_try_at=now + _pause(ask.pod.uid, attempts, terms),
            )
    return replace(drain, pods={**drain.pods, ask.pod.uid: changed})


def next_moment(drain: Drain, pods: Sequence[Pod], terms: Terms, now: datetime) -> datetime:
    """Return when to look again: at most `POLL` from now, sooner where a pod's moment comes."""
    soonest = now + POLL
    for pod in pods:
        progress = drain.pods[pod.uid]
        moments = [progress.next_try_at]
        if progress.stage in {Stage.BLOCKED, Stage.RETURNED, Stage.PENDING}:
            moments.append(latest_moment(pod, terms))
        soonest = min([soonest, *(at for at in moments if at is not None and at > now)])
    return soonest


POLL = timedelta(seconds=1)
"""How often a drain that is under way looks at the node's pods."""

FIRST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(seconds=5)
"""Between two tries of one pod's eviction; five seconds is also `kubectl drain`'s pause."""


def _due(progress: PodProgress, now: datetime) -> bool:
    return progress.next_try_at is None or now >= progress.next_try_at


def _evict(pod: Pod, terms: Terms, now: datetime) -> Ask:
    grace = None if pod.phase in FINISHED_PHASES else grace_that_fits(pod, terms, now)
    return Ask(pod, Way.EVICT, grace, "evicted")


def _delete(pod: Pod, terms: Terms, now: datetime, reason: str) -> Ask:
    return Ask(pod, Way.DELETE, grace_that_fits(pod, terms, now), reason)


def _granted(ask: Ask) -> str:
    cut = f", its grace of {ask.pod.grace}s cut to {ask.grace}s" if _is_cut(ask) else ""
    if ask.way is Way.DELETE:
        return f"deleted at its latest moment ({ask.reason}){cut}"
    return f"evicted{cut}"


def _is_cut(ask: Ask) -> bool:
    return ask.grace is not None and ask.grace < ask.pod.grace


def _pause(uid: str, attempts: int, terms: Terms) -> timedelta:
    """Return how long to wait after a try in vain: longer each time, and not all at once."""
    if terms.deadline is None:
        return LONGEST_PAUSE
    steady = min(FIRST_PAUSE * 1.5 ** min(attempts - 1, 8), LONGEST_PAUSE)
    # Jitter from the pod's own name and try: a replayed step pauses as it did before.
    fraction = (zlib.crc32(f"{uid}/{attempts}".encode()) % 1000) / 1000
    return steady * (0.75 + 0.25 * fraction)
