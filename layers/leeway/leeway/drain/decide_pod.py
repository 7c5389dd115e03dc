"""A pod as a drain sees it, and the decision whether it goes."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from leeway.ports.kubernetes_objects import Controller, Pod

FINISHED_PHASES = frozenset({"Succeeded", "Failed"})
DAEMONSET = "DaemonSet"


class PodAction(StrEnum):
    """What is to become of a pod."""

    LEAVE = "leave"
    EVICT = "evict"
    AWAIT = "await"
    RETURNED = "returned"


class Refusal(StrEnum):
    """Why `kubectl drain` would not touch a pod unless told to; the values are its flags."""

    DAEMONSET = "--ignore-daemonsets"
    EMPTY_DIR = "--delete-emptydir-data"
    UNMANAGED = "--force"


@dataclass(frozen=True, slots=True)
class PodDecision:
    """A pod, what becomes of it, and why.

    `warning` is what its user loses by it, `refusals` what `kubectl drain` would have against it,
    in its order.
    """

    pod: Pod
    verdict: PodAction
    reason: str
    warning: str = ""
    refusals: tuple[Refusal, ...] = ()


SKIP_DELETED_FOR = timedelta(minutes=5)
"""A pod whose deletion time is this long past hangs on something a drain can't speed up."""


def decide_pod(
    pod: Pod,
    now: datetime,
    returned: bool = False,
    skip_deleted_for: timedelta | None = SKIP_DELETED_FOR,
    persists: bool = False,
) -> PodDecision:
    """Decide what becomes of one pod of a node that is drained.

    `returned` says that it came after the cordon, and that the drain has evicted a pod of its
    workload before; `persists` that others of it have come so before, and were evicted as well.
    Source: `kubectl drain`'s filters.
    """
    if pod.mirror:
        return PodDecision(pod, PodAction.LEAVE, "a static pod: it lives and dies with the kubelet")
    if pod.controller is not None and pod.controller.kind == DAEMONSET:
        return _decide_daemon(pod, pod.controller, now, skip_deleted_for)
    warning, refusals = _loss(pod)
    if pod.deletion is not None:
        decision = _decide_terminating(pod, pod.deletion, now, skip_deleted_for)
        return replace(decision, refusals=refusals)
    if pod.phase in FINISHED_PHASES:
        return PodDecision(pod, PodAction.EVICT, f"finished ({pod.phase}): no budget holds it")
    if returned and pod.cordon_toleration is not None:
        reason = f"it came back after the cordon, which its toleration {pod.cordon_toleration}"
        return PodDecision(pod, PodAction.RETURNED, f"{reason} ignores", refusals=refusals)
    if persists:
        reason = "its like came back again and again: whoever makes it names this node in its spec"
        return PodDecision(pod, PodAction.RETURNED, reason, refusals=refusals)
    reason = "it is to run elsewhere"
    if pod.critical:
        reason += f", but as {pod.priority_class} after the ordinary pods"
    return PodDecision(pod, PodAction.EVICT, reason, warning, refusals)


def outlived(pod: Pod, now: datetime, skip_deleted_for: timedelta | None) -> str:
    """Return why a pod that should have ended is not waited for any longer; empty if it is."""
    if pod.deletion is None or skip_deleted_for is None or now - pod.deletion <= skip_deleted_for:
        return ""
    minutes = int((now - pod.deletion).total_seconds() // 60)
    due = f"its deletion was due {minutes} minutes ago: not waited for"
    return f"{due}, {kept(pod)}" if pod.kept_by else due


def kept(pod: Pod) -> str:
    """Say of a pod that has ended what keeps it from being gone."""
    return f"it has ended, but its finalizers keep it: {', '.join(pod.kept_by)}"


def _decide_daemon(
    pod: Pod, controller: Controller, now: datetime, skip_deleted_for: timedelta | None
) -> PodDecision:
    name = f"DaemonSet {pod.namespace}/{controller.name}"
    finished = pod.phase in FINISHED_PHASES
    if controller.exists is not False:
        refusals = () if finished else (Refusal.DAEMONSET,)
        reason = f"{name} would put it back at once"
        if controller.exists is None and controller.problem:
            reason = f"it stays, since {name} could not be looked up: {controller.problem}"
        return PodDecision(pod, PodAction.LEAVE, reason, refusals=refusals)
    refusals = () if finished else (Refusal.UNMANAGED,)
    if pod.deletion is not None:
        decision = _decide_terminating(pod, pod.deletion, now, skip_deleted_for)
        return replace(decision, refusals=refusals)
    reason = f"{name} exists no more: nothing brings it back"
    if controller.problem:
        reason = f"{controller.problem} ({name})"
    return PodDecision(pod, PodAction.EVICT, reason, refusals=refusals)


def _decide_terminating(
    pod: Pod, deletion: datetime, now: datetime, skip_deleted_for: timedelta | None
) -> PodDecision:
    if hopeless := outlived(pod, now, skip_deleted_for):
        return PodDecision(pod, PodAction.LEAVE, hopeless)
    return PodDecision(pod, PodAction.AWAIT, f"terminating already, until {deletion:%H:%M:%S}")


def _loss(pod: Pod) -> tuple[str, tuple[Refusal, ...]]:
    """Return what is lost with a pod, in words, and what kubectl has against that."""
    if pod.phase in FINISHED_PHASES:
        return "", ()
    losses: dict[Refusal, str] = {}
    if pod.empty_dir:
        losses[Refusal.EMPTY_DIR] = "its emptyDir data is lost"
    if pod.controller is None:
        losses[Refusal.UNMANAGED] = "no controller brings it back"
    return "; ".join(losses.values()), tuple(losses)
