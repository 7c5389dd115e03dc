"""The requests of a drain that are due now, and its pauses."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from leeway.policy.rules import OnBlocked
from leeway.ports.kubernetes_objects import Pod
from leeway.retirement.pods import FINISHED_PHASES, Terms, grace_that_fits, latest_moment
from leeway.retirement.progress import (
    FINAL_STAGES,
    Drain,
    PodProgress,
    PodRequest,
    RemovalMethod,
    Stage,
)
from leeway.retirement.reasons import (
    DELETED_AT_LATEST_MOMENT,
    EVICTION_FAILED,
    POD_DELETED,
    POD_EVICTED,
    SURGE_REPLACES_POD,
)

POLL_EVERY = timedelta(seconds=1)
"""The longest pause between two polls of a drain in progress."""


def plan(
    drain: Drain,
    pods: Sequence[Pod],
    terms: Terms,
    now: datetime,
    hanging: Collection[str] = (),
) -> tuple[PodRequest, ...]:
    """Decide which requests are due now. `pods` is the list that was observed last, `hanging` are
    the UIDs of the pods whose evictions have not been answered for a while."""
    # A pod that has ended does not need the critical pods, also if finalizers keep its object.
    ordinary_left = any(
        not pod.critical
        and not pod.kept_by
        and drain.pods[pod.uid].stage not in FINAL_STAGES | {Stage.RETURNED}
        for pod in pods
    )
    requests = (
        _next_for(
            pod,
            _unanswered(drain.pods[pod.uid]) if pod.uid in hanging else drain.pods[pod.uid],
            terms,
            now,
            ordinary_left,
        )
        for pod in pods
    )
    return tuple(request for request in requests if request is not None)


def give_up(drain: Drain, pods: Sequence[Pod], terms: Terms, now: datetime) -> Drain:
    """End the pods that the drain cannot remove: under `fail` the blocked pods after their latest
    moment, and without a deadline the pods that came back."""
    result = dict(drain.pods)
    for pod in pods:
        progress = result[pod.uid]
        blocked_late = progress.stage is Stage.BLOCKED and _is_late(pod, terms, now)
        if blocked_late and terms.on_blocked is OnBlocked.FAIL:
            result[pod.uid] = replace(progress, stage=Stage.FAILED)
        elif progress.stage is Stage.RETURNED and terms.deadline is None:
            result[pod.uid] = replace(progress, stage=Stage.LEFT)
    return replace(drain, pods=result)


def next_moment(drain: Drain, pods: Sequence[Pod], terms: Terms, now: datetime) -> datetime:
    """Return when to poll again: after `POLL_EVERY`, or earlier if a retry or a latest moment is
    due."""
    due = next_request(drain, pods, terms, now)
    return now + POLL_EVERY if due is None else min(now + POLL_EVERY, due)


def next_request(drain: Drain, pods: Sequence[Pod], terms: Terms, now: datetime) -> datetime | None:
    """Return when the next retry or latest moment is due after `now`; None if there is none.
    Between these moments only a change of the node's pods leads to a request."""
    moments: list[datetime | None] = []
    for pod in pods:
        progress = drain.pods[pod.uid]
        moments.append(progress.next_try_at)
        if progress.stage in {Stage.BLOCKED, Stage.RETURNED, Stage.PENDING}:
            moments.append(latest_moment(pod, terms))
    return min((at for at in moments if at is not None and at > now), default=None)


def only_waits(drain: Drain) -> bool:
    """Whether no request is left to make: every pod that is still there is terminating."""
    terminating = drain.at(Stage.TERMINATING, Stage.DETACHING)
    others_final = all(
        pod.stage in FINAL_STAGES for pod in drain.pods.values() if pod not in terminating
    )
    no_retry = all(pod.next_try_at is None for pod in terminating)
    return drain.listed and not drain.problem and bool(terminating) and others_final and no_retry


def last_change_at(drain: Drain) -> datetime | None:
    """Return when a pod was last first seen, requested to end, or gone."""
    moments = (
        moment
        for pod in drain.pods.values()
        for moment in (pod.seen_at, pod.requested_at, pod.gone_at)
    )
    return max((moment for moment in moments if moment is not None), default=None)


def _unanswered(progress: PodProgress) -> PodProgress:
    """Count an unanswered eviction as a try, so that the pod is deleted at its latest moment."""
    if progress.attempts:
        return progress
    return replace(
        progress,
        attempts=1,
        reason=EVICTION_FAILED("the API server has not answered the eviction yet"),
    )


def _next_for(
    pod: Pod, progress: PodProgress, terms: Terms, now: datetime, ordinary_left: bool
) -> PodRequest | None:
    late = _is_late(pod, terms, now)
    match progress.stage:
        case Stage.TERMINATING:
            return _shorten(pod, progress, terms, now)
        case Stage.RETURNED if late:
            return _delete(pod, progress, terms, now)
        case Stage.BLOCKED if late and terms.on_blocked is OnBlocked.FAIL:
            return None
        case Stage.PENDING | Stage.BLOCKED if not late and (
            pod.uid in terms.held or terms.keeps(pod, now)
        ):
            return None
        case Stage.PENDING | Stage.BLOCKED if late and progress.attempts > 0:
            # A pod that no eviction has removed by now is deleted, if the policy allows it.
            if terms.on_blocked is OnBlocked.DELETE:
                return _delete(pod, progress, terms, now)
            return _evict(pod, progress, terms, now)
        case Stage.PENDING | Stage.BLOCKED if late or not (pod.critical and ordinary_left):
            return _evict(pod, progress, terms, now)
        case _:
            return None


def _is_late(pod: Pod, terms: Terms, now: datetime) -> bool:
    latest = latest_moment(pod, terms)
    return latest is not None and now >= latest


def _is_due(progress: PodProgress, now: datetime) -> bool:
    return progress.next_try_at is None or now >= progress.next_try_at


def _evict(pod: Pod, progress: PodProgress, terms: Terms, now: datetime) -> PodRequest | None:
    if not _is_due(progress, now):
        return None
    grace = None if pod.phase in FINISHED_PHASES else grace_that_fits(pod, terms, now)
    if terms.bypass_budgets:
        return PodRequest(
            pod,
            RemovalMethod.DELETE,
            grace,
            POD_DELETED("without the Eviction API, as requested"),
        )
    if pod.uid in terms.covered:
        return PodRequest(pod, RemovalMethod.DELETE, grace, SURGE_REPLACES_POD())
    return PodRequest(pod, RemovalMethod.EVICT, grace, POD_EVICTED())


def _delete(pod: Pod, progress: PodProgress, terms: Terms, now: datetime) -> PodRequest | None:
    # The first DELETE does not wait for the pause after an eviction; the next one waits.
    if progress.method is RemovalMethod.DELETE and not _is_due(progress, now):
        return None
    reason = DELETED_AT_LATEST_MOMENT().and_then(progress.reason)
    return PodRequest(pod, RemovalMethod.DELETE, grace_that_fits(pod, terms, now), reason)


def _shorten(pod: Pod, progress: PodProgress, terms: Terms, now: datetime) -> PodRequest | None:
    """Shorten the grace period of a pod that another client deleted, if it ends too late."""
    if terms.deadline is None or pod.deletion is None or progress.requested_at is not None:
        return None
    if pod.deletion - terms.deadline < POLL_EVERY or not _is_due(progress, now):
        return None
    remaining = replace(pod, grace=int((pod.deletion - now).total_seconds()))
    grace = grace_that_fits(remaining, replace(terms, grace=None), now)
    return PodRequest(
        pod,
        RemovalMethod.SHORTEN,
        grace,
        POD_DELETED("again, to meet the deadline, because it was terminating already"),
    )


POLL_AFTER_CHANGE = timedelta(seconds=3)
"""How long after the last change a drain with no request left is polled. A suspension and a new
invocation cost as much as one and a half seconds of a function with 1 GB; most pods end within
three seconds."""

LONGEST_TERMINATION_PAUSE = timedelta(seconds=10)
"""The longest pause between two polls of terminating pods. The instance is kept at most this much
longer than its pods need it."""

NO_PAUSE_BEFORE_DEADLINE = timedelta(seconds=20)
"""How long before its deadline a drain with terminating pods is polled without a pause."""

PAUSE_AFTER_A_DAY = timedelta(minutes=20)
"""The pause between two passes of a drain that has run for a day. With five minutes, an
execution of seven days would need more operations than the 3,000 that it may have."""


def pause_while_terminating(
    drain: Drain, now: datetime, deadline: datetime | None, heartbeat: datetime | None
) -> timedelta:
    """Return how long a drain may be suspended whose pods are all terminating.

    There is no pause in the first POLL_AFTER_CHANGE, in which most pods end. After that the pause
    is as long as the time since the last change, up to LONGEST_TERMINATION_PAUSE. It ends before
    the deadline, so that a pod that comes back is removed at its latest moment, and before the next
    heartbeat of a lifecycle hook.
    """
    changed_at = last_change_at(drain)
    if changed_at is None or not only_waits(drain) or now - changed_at < POLL_AFTER_CHANGE:
        return timedelta(0)
    pause = min(now - changed_at, LONGEST_TERMINATION_PAUSE)
    if deadline is not None:
        pause = min(pause, deadline - NO_PAUSE_BEFORE_DEADLINE - now)
    if heartbeat is not None:
        pause = min(pause, heartbeat - now)
    return pause if pause >= 2 * POLL_EVERY else timedelta(0)


def pause_before_next_pass(
    started_at: datetime,
    now: datetime,
    deadline: datetime | None,
    heartbeat: datetime | None = None,
    retries: bool = False,
) -> timedelta:
    """Return how long a drain that is not over may be suspended, by how long it has run.

    With `retries` of the cordon or the replacement, a pass has twice as many durable operations, so
    that the pauses after the first hour are twice as long. The pause ends two minutes before the
    deadline, when the latest moments of the pods come, and before the next heartbeat of a lifecycle
    hook.
    """
    elapsed = now - started_at
    if elapsed < timedelta(minutes=10):
        pause = timedelta(0)
    elif elapsed < timedelta(hours=1):
        pause = timedelta(seconds=60)
    else:
        first_day = elapsed < timedelta(days=1)
        pause = timedelta(minutes=5) if first_day else PAUSE_AFTER_A_DAY
        pause *= 1 + retries
    if deadline is not None:
        pause = min(pause, deadline - timedelta(minutes=2) - now)
    if heartbeat is not None:
        pause = min(pause, heartbeat - now)
    return pause if pause >= POLL_EVERY else timedelta(0)
