"""What is seen on the node, taken into a drain: its pods, and the volumes still attached to it."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from leeway.drain.deadline import Terms
from leeway.drain.decide_pod import PodAction, decide_pod, kept, outlived
from leeway.drain.progress import AWAY, ENDS, Drain, PodProgress, RemovalMethod, Stage, ended
from leeway.drain.record_answers import pause_after
from leeway.ports.kubernetes_objects import Pod

_STAGES = {
    PodAction.LEAVE: Stage.LEFT,
    PodAction.EVICT: Stage.PENDING,
    PodAction.AWAIT: Stage.TERMINATING,
    PodAction.RETURNED: Stage.RETURNED,
}


RACES, RACING = 2, timedelta(seconds=5)
"""How many pods of a workload, and for how long after the first list, the scheduler may still have
put on a node that was cordoned meanwhile. What comes after them, and does not tolerate the cordon,
did not come by the scheduler."""


def observe(
    drain: Drain,
    pods: Sequence[Pod],
    terms: Terms,
    now: datetime,
    awaited: Collection[str] = (),
) -> Drain:
    """Take in a complete list of the node's pods as they are now.

    `awaited` are the UIDs of those that were asked to go by requests that are not answered yet.
    What came of these is seen sooner, at times: the pods go, and others come back in their place.
    """
    listed = {pod.uid for pod in pods}
    going = {pod.uid for pod in pods if pod.deletion is not None}
    seen = dict(drain.pods)
    for uid, known in drain.pods.items():
        if uid not in listed and known.stage not in ENDS and known.stage is not Stage.DETACHING:
            seen[uid] = ended(known, terms, now)
    sent_away = {
        known.workload
        for uid, known in drain.pods.items()
        if _was_sent_away(known) or (uid in awaited and (uid in going or uid not in listed))
    }
    for pod in pods:
        known_pod = seen.get(pod.uid)
        if known_pod is None:
            returned = drain.listed and pod.workload in sent_away
            seen[pod.uid] = _first_sight(pod, drain, terms, now, returned)
        else:
            seen[pod.uid] = _seen_again(known_pod, pod, terms, now)
    return replace(drain, listed=True, problem="", pods=seen)


def observe_volumes(
    drain: Drain, pods: Sequence[Pod], attached: Collection[str], now: datetime
) -> Drain:
    """Take in the claims whose volumes are attached to the node now.

    A volume that a pod uses which stays is not waited for: nothing will detach it.
    """
    staying = {
        claim for pod in pods if drain.pods[pod.uid].stage is Stage.LEFT for claim in pod.claims
    }
    seen = dict(drain.pods)
    for uid, progress in drain.pods.items():
        if progress.stage is not Stage.DETACHING:
            continue
        left = tuple(c for c in progress.claims if c in attached and c not in staying)
        if left:
            seen[uid] = replace(progress, attached=left)
        else:
            seen[uid] = replace(progress, stage=Stage.GONE, attached=(), detached_at=now)
    return replace(drain, pods=seen)


def without_volumes(drain: Drain, why: str) -> Drain:
    """Wait for no volume, since nobody may see which are attached."""
    seen = {
        uid: replace(pod, stage=Stage.GONE, reason=f"{pod.reason}; {why}")
        if pod.stage is Stage.DETACHING
        else pod
        for uid, pod in drain.pods.items()
    }
    return replace(drain, pods=seen)


def _first_sight(
    pod: Pod, drain: Drain, terms: Terms, now: datetime, returned: bool
) -> PodProgress:
    persists = returned and _passes_by_the_scheduler(pod.workload, drain, now)
    decision = decide_pod(pod, now, returned, terms.skip_deleted_for, persists)
    stage, reason = _STAGES[decision.verdict], decision.reason
    if stage is Stage.RETURNED and _returned_before(pod, drain):
        stage = Stage.LEFT
    if lacking := [one.value for one in decision.refusals if one in terms.refused]:
        stage = Stage.FAILED
        reason = f"it appeared after the drain was decided, and needs {' and '.join(lacking)}"
    seen = PodProgress(
        pod.key,
        pod.uid,
        pod.workload,
        stage,
        reason,
        warning=decision.warning,
        claims=pod.claims,
        seen_at=now,
    )
    return _ended_though_kept(seen, pod, terms, now) if _needs_nobody(pod, terms) else seen


def _needs_nobody(pod: Pod, terms: Terms) -> bool:
    """Whether a pod has ended but for its object, which finalizers keep. `kubectl drain` waits for
    that; who has a deadline waits for what its machine is needed for."""
    return bool(pod.kept_by) and terms.deadline is not None


def _ended_though_kept(known: PodProgress, pod: Pod, terms: Terms, now: datetime) -> PodProgress:
    if known.stage in ENDS | AWAY:
        return known
    kept_by = replace(known, kept_by=pod.kept_by)
    return ended(kept_by, terms, now, f"{known.reason}; {kept(pod)}")


def _seen_again(known: PodProgress, pod: Pod, terms: Terms, now: datetime) -> PodProgress:
    if _needs_nobody(pod, terms):
        return _ended_though_kept(known, pod, terms, now)
    if known.stage in AWAY:
        # An answer was misread, or what is listed lags behind it: it is asked again in a while.
        due = now + pause_after(pod.uid, known.attempts, terms)
        return replace(known, stage=Stage.PENDING, attached=(), gone_at=None, next_try_at=due)
    if pod.deletion is not None and known.stage in {Stage.PENDING, Stage.BLOCKED}:
        known = replace(known, stage=Stage.TERMINATING, reason="somebody else had it go")
    if pod.kept_by and known.stage is Stage.TERMINATING and kept(pod) not in known.reason:
        known = replace(known, reason=f"{known.reason}; {kept(pod)}")
    if known.stage is Stage.TERMINATING and (why := outlived(pod, now, terms.skip_deleted_for)):
        return replace(known, stage=Stage.LEFT, reason=why)
    return known


def _passes_by_the_scheduler(workload: str, drain: Drain, now: datetime) -> bool:
    """Whether so many of its pods have come after the first list, and been sent away, that more of
    them are there because they name the node."""
    first = min((known.seen_at for known in drain.pods.values() if known.seen_at), default=now)
    came_and_went = sum(
        known.workload == workload and known.seen_at != first and _was_sent_away(known)
        for known in drain.pods.values()
    )
    return came_and_went >= RACES and now - first >= RACING


def _was_sent_away(known: PodProgress) -> bool:
    """Whether this drain has had it go; one that was going already was only hurried."""
    return known.asked_at is not None and known.way is not RemovalMethod.SHORTEN


def _returned_before(pod: Pod, drain: Drain) -> bool:
    """Whether this workload was sent away a second time already; a third would not help."""
    return any(
        known.workload == pod.workload
        and known.way is RemovalMethod.DELETE
        and known.asked_at is not None
        for known in drain.pods.values()
    )
