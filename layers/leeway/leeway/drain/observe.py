"""Updates a drain from what is observed on the node: its pods, and the volumes attached to it."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from leeway.drain.deadline import Terms
from leeway.drain.decide_pod import PodAction, decide_pod, kept_by_finalizers, overdue_deletion
from leeway.drain.progress import (
    FINAL_STAGES,
    OFF_NODE,
    Drain,
    PodProgress,
    RemovalMethod,
    Stage,
    ended,
)
from leeway.drain.reasons import DELETED_BY_OTHERS, NEEDS_OPTION
from leeway.drain.record_answers import retry_delay
from leeway.ports.kubernetes_objects import Pod
from leeway.reasons import Reason

_STAGES = {
    PodAction.LEAVE: Stage.LEFT,
    PodAction.EVICT: Stage.PENDING,
    PodAction.AWAIT: Stage.TERMINATING,
    PodAction.RETURNED: Stage.RETURNED,
}


MOST_BINDING_RACES, BINDING_RACE_WINDOW = 2, timedelta(seconds=5)
"""The scheduler may still bind this many pods of a workload to a node, for this long after the
first list, because it did not yet see the cordon. The scheduler did not bind later pods that do not
tolerate the cordon."""


def observe(
    drain: Drain,
    pods: Sequence[Pod],
    terms: Terms,
    now: datetime,
    awaited: Collection[str] = (),
) -> Drain:
    """Update a drain from a complete list of the node's pods.

    `awaited` are the UIDs of the pods whose eviction or deletion is not answered yet. The list may
    show the effect before the answer arrives: the pods terminate, and others replace them.
    """
    listed = {pod.uid for pod in pods}
    terminating = {pod.uid for pod in pods if pod.deletion is not None}
    seen = dict(drain.pods)
    for uid, known in drain.pods.items():
        final = known.stage in FINAL_STAGES or known.stage is Stage.DETACHING
        if uid not in listed and not final:
            seen[uid] = ended(known, terms, now)
    removed_workloads = {
        known.workload
        for uid, known in drain.pods.items()
        if _was_removed(known) or (uid in awaited and (uid in terminating or uid not in listed))
    }
    for pod in pods:
        known_pod = seen.get(pod.uid)
        if known_pod is None:
            returned = drain.listed and pod.workload in removed_workloads
            seen[pod.uid] = _new_pod(pod, drain, terms, now, returned)
        else:
            seen[pod.uid] = _known_pod(known_pod, pod, terms, now)
    return replace(drain, listed=True, problem=None, pods=seen)


def observe_volumes(
    drain: Drain, pods: Sequence[Pod], attached: Collection[str], now: datetime
) -> Drain:
    """Update a drain from the claims whose volumes are attached to the node.

    The drain does not wait for a volume that a pod uses which stays: nothing detaches it.
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


def without_volumes(drain: Drain, why: Reason) -> Drain:
    """Stop waiting for volumes, because the API server refuses to list what is attached."""
    seen = {
        uid: replace(pod, stage=Stage.GONE, reason=pod.reason.and_then(why))
        if pod.stage is Stage.DETACHING
        else pod
        for uid, pod in drain.pods.items()
    }
    return replace(drain, pods=seen)


def _new_pod(pod: Pod, drain: Drain, terms: Terms, now: datetime, returned: bool) -> PodProgress:
    persists = returned and _bypasses_scheduler(pod.workload, drain, now)
    decision = decide_pod(pod, now, returned, terms.skip_deleted_for, persists)
    stage, reason = _STAGES[decision.action], decision.reason
    if stage is Stage.RETURNED and _returned_before(pod, drain):
        stage = Stage.LEFT
    if lacking := [one.value for one in decision.refusals if one in terms.refused]:
        stage, reason = Stage.FAILED, NEEDS_OPTION(options=" and ".join(lacking))
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
    return _ended_with_finalizers(seen, pod, terms, now) if _has_ended(pod, terms) else seen


def _has_ended(pod: Pod, terms: Terms) -> bool:
    """Whether only finalizers keep the pod's object. `kubectl drain` waits for the object; a drain
    with a deadline waits for as long as the pod needs its machine."""
    return bool(pod.kept_by) and terms.deadline is not None


def _ended_with_finalizers(
    known: PodProgress, pod: Pod, terms: Terms, now: datetime
) -> PodProgress:
    if known.stage in FINAL_STAGES | OFF_NODE:
        return known
    kept_by = replace(known, kept_by=pod.kept_by)
    return ended(kept_by, terms, now, known.reason.and_then(kept_by_finalizers(pod)))


def _known_pod(known: PodProgress, pod: Pod, terms: Terms, now: datetime) -> PodProgress:
    if _has_ended(pod, terms):
        return _ended_with_finalizers(known, pod, terms, now)
    if known.stage in OFF_NODE:
        # The answer was misread, or the list is older than the answer: retry after a pause.
        due = now + retry_delay(pod.uid, known.attempts, terms)
        return replace(known, stage=Stage.PENDING, attached=(), gone_at=None, next_try_at=due)
    if pod.deletion is not None and known.stage in {Stage.PENDING, Stage.BLOCKED}:
        known = replace(known, stage=Stage.TERMINATING, reason=DELETED_BY_OTHERS())
    if pod.kept_by and known.stage is Stage.TERMINATING:
        finalizers = kept_by_finalizers(pod)
        if finalizers.message not in known.reason.message:
            known = replace(known, reason=known.reason.and_then(finalizers))
    if known.stage is Stage.TERMINATING and (
        overdue := overdue_deletion(pod, now, terms.skip_deleted_for)
    ):
        return replace(known, stage=Stage.LEFT, reason=overdue)
    return known


def _bypasses_scheduler(workload: str, drain: Drain, now: datetime) -> bool:
    """Whether the drain removed so many pods of a workload which appeared after the first list that
    further ones can only be there because their spec names the node."""
    first = min((known.seen_at for known in drain.pods.values() if known.seen_at), default=now)
    removed = sum(
        known.workload == workload and known.seen_at != first and _was_removed(known)
        for known in drain.pods.values()
    )
    return removed >= MOST_BINDING_RACES and now - first >= BINDING_RACE_WINDOW


def _was_removed(known: PodProgress) -> bool:
    """Whether this drain removed the pod. A shortened grace period does not count: another client
    had deleted the pod before."""
    return known.requested_at is not None and known.method is not RemovalMethod.SHORTEN


def _returned_before(pod: Pod, drain: Drain) -> bool:
    """Whether the drain removed a returned pod of this workload before; a third time is no use."""
    return any(
        known.workload == pod.workload
        and known.method is RemovalMethod.DELETE
        and known.requested_at is not None
        for known in drain.pods.values()
    )
