"""The decision whether a drain evicts a pod."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from leeway.drain.reasons import (
    CRITICAL_POD_TO_EVICT,
    DAEMONSET_MISSING,
    DAEMONSET_NOT_READABLE,
    DAEMONSET_POD,
    DELETION_OVERDUE,
    KEPT_BY_FINALIZERS,
    NAMES_NODE,
    POD_FINISHED,
    POD_TERMINATING,
    POD_TO_EVICT,
    STATIC_POD,
    TOLERATES_CORDON,
)
from leeway.ports.kubernetes_objects import Controller, Pod
from leeway.reasons import Reason

FINISHED_PHASES = frozenset({"Succeeded", "Failed"})
DAEMONSET = "DaemonSet"


class PodAction(StrEnum):
    """What the drain does with a pod."""

    LEAVE = "leave"
    EVICT = "evict"
    AWAIT = "await"
    RETURNED = "returned"


class Refusal(StrEnum):
    """Why `kubectl drain` refuses a pod; the values are the flags that allow it."""

    DAEMONSET = "--ignore-daemonsets"
    EMPTY_DIR = "--delete-emptydir-data"
    UNMANAGED = "--force"


@dataclass(frozen=True, slots=True)
class PodDecision:
    """A pod, what the drain does with it, and why.

    `warning` is the loss that the eviction causes, in words; `refusals` are why `kubectl drain`
    would refuse the pod, in its order.
    """

    pod: Pod
    action: PodAction
    reason: Reason
    warning: str = ""
    refusals: tuple[Refusal, ...] = ()


SKIP_DELETED_FOR = timedelta(minutes=5)
"""A drain does not wait for a pod whose deletion was due longer ago than this: it cannot make the
pod end sooner."""


def decide_pod(
    pod: Pod,
    now: datetime,
    returned: bool = False,
    skip_deleted_for: timedelta | None = SKIP_DELETED_FOR,
    persists: bool = False,
) -> PodDecision:
    """Decide what a drain does with one pod of its node.

    `returned` says that the pod appeared after the cordon, and that the drain has evicted a pod of
    its workload before. `persists` says that several pods of the workload did so, and that the
    drain evicted them. Source: `kubectl drain`'s filters.
    """
    if pod.mirror:
        return PodDecision(pod, PodAction.LEAVE, STATIC_POD())
    if pod.controller is not None and pod.controller.kind == DAEMONSET:
        return _decide_daemon(pod, pod.controller, now, skip_deleted_for)
    warning, refusals = _loss(pod)
    if pod.deletion is not None:
        decision = _decide_terminating(pod, pod.deletion, now, skip_deleted_for)
        return replace(decision, refusals=refusals)
    if pod.phase in FINISHED_PHASES:
        return PodDecision(pod, PodAction.EVICT, POD_FINISHED(phase=pod.phase))
    if returned and pod.cordon_toleration is not None:
        reason = TOLERATES_CORDON(toleration=pod.cordon_toleration)
        return PodDecision(pod, PodAction.RETURNED, reason, refusals=refusals)
    if persists:
        reason = NAMES_NODE(workload=pod.workload)
        return PodDecision(pod, PodAction.RETURNED, reason, refusals=refusals)
    reason = POD_TO_EVICT()
    if pod.critical:
        reason = CRITICAL_POD_TO_EVICT(priority_class=pod.priority_class)
    return PodDecision(pod, PodAction.EVICT, reason, warning, refusals)


def overdue_deletion(pod: Pod, now: datetime, skip_deleted_for: timedelta | None) -> Reason | None:
    """Return why the drain does not wait for a terminating pod any longer; None if it waits."""
    if pod.deletion is None or skip_deleted_for is None or now - pod.deletion <= skip_deleted_for:
        return None
    minutes = int((now - pod.deletion).total_seconds() // 60)
    reason = DELETION_OVERDUE(minutes=minutes)
    return reason.and_then(kept_by_finalizers(pod)) if pod.kept_by else reason


def kept_by_finalizers(pod: Pod) -> Reason:
    """Return the reason that names the finalizers of a pod that has ended."""
    return KEPT_BY_FINALIZERS(finalizers=", ".join(pod.kept_by))


def _decide_daemon(
    pod: Pod, controller: Controller, now: datetime, skip_deleted_for: timedelta | None
) -> PodDecision:
    name = f"DaemonSet {pod.namespace}/{controller.name}"
    finished = pod.phase in FINISHED_PHASES
    if controller.exists is not False:
        refusals = () if finished else (Refusal.DAEMONSET,)
        reason = DAEMONSET_POD(daemonset=name)
        if controller.exists is None and controller.problem:
            reason = DAEMONSET_NOT_READABLE(daemonset=name, error=controller.problem)
        return PodDecision(pod, PodAction.LEAVE, reason, refusals=refusals)
    refusals = () if finished else (Refusal.UNMANAGED,)
    if pod.deletion is not None:
        decision = _decide_terminating(pod, pod.deletion, now, skip_deleted_for)
        return replace(decision, refusals=refusals)
    detail = f" ({controller.problem})" if controller.problem else ""
    reason = DAEMONSET_MISSING(daemonset=name, detail=detail)
    return PodDecision(pod, PodAction.EVICT, reason, refusals=refusals)


def _decide_terminating(
    pod: Pod, deletion: datetime, now: datetime, skip_deleted_for: timedelta | None
) -> PodDecision:
    if overdue := overdue_deletion(pod, now, skip_deleted_for):
        return PodDecision(pod, PodAction.LEAVE, overdue)
    return PodDecision(pod, PodAction.AWAIT, POD_TERMINATING(ends=deletion))


def _loss(pod: Pod) -> tuple[str, tuple[Refusal, ...]]:
    """Return what an eviction loses, in words, and why `kubectl drain` would refuse it."""
    if pod.phase in FINISHED_PHASES:
        return "", ()
    losses: dict[Refusal, str] = {}
    if pod.empty_dir:
        losses[Refusal.EMPTY_DIR] = "its emptyDir data is lost"
    if pod.controller is None:
        losses[Refusal.UNMANAGED] = "no controller creates it again"
    return "; ".join(losses.values()), tuple(losses)
