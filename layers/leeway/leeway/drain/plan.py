"""What to ask for now, pod by pod, and when to look again."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from leeway.drain.deadline import Terms, grace_that_fits, latest_moment
from leeway.drain.decide_pod import FINISHED_PHASES
from leeway.drain.progress import ENDS, Drain, PodProgress, RemovalMethod, Stage
from leeway.policy.rules import OnBlocked
from leeway.ports.kubernetes_objects import Pod

POLL = timedelta(seconds=1)
"""How long a drain that is under way rests at most before it looks around again."""


@dataclass(frozen=True, slots=True)
class PodRequest:
    """One request to make now: have this pod go this way, with this grace, for this reason."""

    pod: Pod
    way: RemovalMethod
    grace: int | None
    reason: str


def plan(
    drain: Drain,
    pods: Sequence[Pod],
    terms: Terms,
    now: datetime,
    hanging: Collection[str] = (),
) -> tuple[PodRequest, ...]:
    """Decide what to ask for now. `pods` is the list that was last observed, `hanging` are the UIDs
    of those whose evictions have not been answered for a while."""
    # A pod that has ended needs nobody any more, whatever keeps its object.
    ordinary_left = any(
        not pod.critical
        and not pod.kept_by
        and drain.pods[pod.uid].stage not in ENDS | {Stage.RETURNED}
        for pod in pods
    )
    asks = (
        _next_for(
            pod,
            _unanswered(drain.pods[pod.uid]) if pod.uid in hanging else drain.pods[pod.uid],
            terms,
            now,
            ordinary_left,
        )
        for pod in pods
    )
    return tuple(ask for ask in asks if ask is not None)


def give_up(drain: Drain, pods: Sequence[Pod], terms: Terms, now: datetime) -> Drain:
    """End what can't go on: blocked pods under `fail` past their moment, and without a deadline
    those that came back."""
    ended = dict(drain.pods)
    for pod in pods:
        progress = ended[pod.uid]
        blocked_late = progress.stage is Stage.BLOCKED and _is_late(pod, terms, now)
        if blocked_late and terms.on_blocked is OnBlocked.FAIL:
            ended[pod.uid] = replace(progress, stage=Stage.FAILED)
        elif progress.stage is Stage.RETURNED and terms.deadline is None:
            ended[pod.uid] = replace(progress, stage=Stage.LEFT)
    return replace(drain, pods=ended)


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


def only_waits(drain: Drain) -> bool:
    """Whether nothing is left to ask for: every pod that is still there is on its way out."""
    going = drain.at(Stage.TERMINATING, Stage.DETACHING)
    settled = all(pod.stage in ENDS for pod in drain.pods.values() if pod not in going)
    asked = all(pod.next_try_at is None for pod in going)
    return drain.listed and not drain.problem and bool(going) and settled and asked


def moved_at(drain: Drain) -> datetime | None:
    """Return when a pod was last asked to go, was seen going, or went."""
    moments = (m for pod in drain.pods.values() for m in (pod.seen_at, pod.asked_at, pod.gone_at))
    return max((moment for moment in moments if moment is not None), default=None)


def _unanswered(progress: PodProgress) -> PodProgress:
    """Count an eviction that hangs as a try: at the pod's latest moment it is not waited for."""
    if progress.attempts:
        return progress
    return replace(progress, attempts=1, reason="its eviction was not answered")


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
        case Stage.PENDING | Stage.BLOCKED if late and _was_refused(progress):
            # What no eviction has moved by now, whoever refuses it, goes by DELETE if it may.
            if terms.on_blocked is OnBlocked.DELETE:
                return _delete(pod, progress, terms, now)
            return _send_away(pod, progress, terms, now)
        case Stage.PENDING | Stage.BLOCKED if late or not (pod.critical and ordinary_left):
            return _send_away(pod, progress, terms, now)
        case _:
            return None


def _is_late(pod: Pod, terms: Terms, now: datetime) -> bool:
    latest = latest_moment(pod, terms)
    return latest is not None and now >= latest


def _is_due(progress: PodProgress, now: datetime) -> bool:
    return progress.next_try_at is None or now >= progress.next_try_at


def _was_refused(progress: PodProgress) -> bool:
    return progress.attempts > 0


def _send_away(pod: Pod, progress: PodProgress, terms: Terms, now: datetime) -> PodRequest | None:
    if not _is_due(progress, now):
        return None
    grace = None if pod.phase in FINISHED_PHASES else grace_that_fits(pod, terms, now)
    if terms.bypass_budgets:
        return PodRequest(pod, RemovalMethod.DELETE, grace, "deleted past any budget, as asked")
    return PodRequest(pod, RemovalMethod.EVICT, grace, "evicted")


def _delete(pod: Pod, progress: PodProgress, terms: Terms, now: datetime) -> PodRequest | None:
    # A first DELETE does not wait for the pause after an eviction; one that failed does.
    if progress.way is RemovalMethod.DELETE and not _is_due(progress, now):
        return None
    reason = f"deleted at its latest moment ({progress.reason})"
    return PodRequest(pod, RemovalMethod.DELETE, grace_that_fits(pod, terms, now), reason)


def _shorten(pod: Pod, progress: PodProgress, terms: Terms, now: datetime) -> PodRequest | None:
    """Cut the grace of a pod that somebody sent away on longer terms than there are now."""
    if terms.deadline is None or pod.deletion is None or progress.asked_at is not None:
        return None
    if pod.deletion - terms.deadline < POLL or not _is_due(progress, now):
        return None
    in_full = replace(pod, grace=int((pod.deletion - now).total_seconds()))
    grace = grace_that_fits(in_full, replace(terms, grace=None), now)
    return PodRequest(pod, RemovalMethod.SHORTEN, grace, "terminating already")
