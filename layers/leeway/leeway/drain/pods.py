"""A pod as a drain sees it, and the decision whether it goes."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

CRITICAL_CLASSES = frozenset({"system-node-critical", "system-cluster-critical"})
FINISHED_PHASES = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class Controller:
    """The owner that would bring a pod back. `exists` is None where nobody looked."""

    kind: str
    name: str
    exists: bool | None = None


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod on the node. `grace` is its terminationGracePeriodSeconds; until `protected_until`
    it asks not to be disrupted by what could as well wait."""

    namespace: str
    name: str
    uid: str
    phase: str
    grace: int
    controller: Controller | None
    priority_class: str = ""
    mirror: bool = False
    empty_dir: bool = False
    volumes: bool = False
    deletion: datetime | None = None
    cordon_toleration: str | None = None
    protected_until: datetime | None = None

    @property
    def key(self) -> str:
        """`namespace/name`, as people write it."""
        return f"{self.namespace}/{self.name}"

    @property
    def workload(self) -> str:
        """What the pod is one of: its controller, or itself where it has none."""
        if self.controller is None:
            return f"{self.namespace}/{self.name}"
        return f"{self.namespace}/{self.controller.kind}/{self.controller.name}"

    @property
    def critical(self) -> bool:
        """Whether what it does is needed by the other pods to the end: DNS, CNI and the like."""
        return self.priority_class in CRITICAL_CLASSES


class Verdict(StrEnum):
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
    """A pod, what becomes of it, and why. `warning` is what its user loses by it."""

    pod: Pod
    verdict: Verdict
    reason: str
    warning: str = ""
    refusal: Refusal | None = None


SKIP_DELETED_FOR = timedelta(minutes=5)
"""A pod whose deletion time is this long past hangs on something a drain can't speed up."""


def decide_pod(pod: Pod, now: datetime, returned: bool = False) -> PodDecision:
    """Decide what becomes of one pod of a node that is drained.

    `returned` says that it came after the cordon, and that the drain has evicted a pod of its
    workload before. Source: `kubectl drain`'s filters, in its order.
    """
    if pod.mirror:
        return PodDecision(pod, Verdict.LEAVE, "a static pod: it lives and dies with the kubelet")
    if left := _daemon(pod):
        return left
    if pod.deletion is not None:
        return _deleting(pod, pod.deletion, now)
    if pod.phase in FINISHED_PHASES:
        return PodDecision(pod, Verdict.EVICT, f"finished ({pod.phase}): no budget holds it")
    if returned and pod.cordon_toleration is not None:
        return PodDecision(
            pod,
            Verdict.RETURNED,
            f"it came back after the cordon, which its toleration {pod.cordon_toleration} ignores",
        )
    warning, refusal = _loss(pod)
    return PodDecision(pod, Verdict.EVICT, "it is to run elsewhere", warning, refusal)


def _daemon(pod: Pod) -> PodDecision | None:
    if pod.controller is None or pod.controller.kind != "DaemonSet":
        return None
    daemon = f"DaemonSet {pod.namespace}/{pod.controller.name}"
    if pod.controller.exists is False and pod.deletion is None:
        return PodDecision(
            pod, Verdict.EVICT, f"{daemon} exists no more: nothing brings it back", "", None
        )
    return PodDecision(
        pod,
        Verdict.LEAVE,
        f"{daemon} would put it back at once",
        refusal=None if pod.phase in FINISHED_PHASES else Refusal.DAEMONSET,
    )


def _deleting(pod: Pod, deletion: datetime, now: datetime) -> PodDecision:
    if now - deletion > SKIP_DELETED_FOR:
        minutes = int((now - deletion).total_seconds() // 60)
        return PodDecision(
            pod, Verdict.LEAVE, f"its deletion was due {minutes} minutes ago: not waited for"
        )
    return PodDecision(pod, Verdict.AWAIT, "already terminating")


def _loss(pod: Pod) -> tuple[str, Refusal | None]:
    if pod.controller is None:
        return "no controller brings it back", Refusal.UNMANAGED
    if pod.controller.exists is False:
        return f"its {pod.controller.kind} {pod.controller.name} is gone", Refusal.UNMANAGED
    if pod.empty_dir:
        return "its emptyDir data is lost", Refusal.EMPTY_DIR
    return "", None
