"""Kubernetes objects as Leeway reads them: nodes, pods, volume attachments, responses."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from leeway.durations import parse_duration

DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
"""The annotation of a pod or a node that forbids voluntary disruption. Source: Karpenter
documentation, "Disruption"."""

DO_NOT_EVICT = "karpenter.sh/do-not-evict"
"""The same on a pod, of Karpenter's v1alpha5: only `true` has a meaning."""
DO_NOT_CONSOLIDATE = "karpenter.sh/do-not-consolidate"
"""The annotation of a node that keeps it from being consolidated, of Karpenter's v1alpha5."""
PROTECTS_POD = f"{DO_NOT_DISRUPT} or {DO_NOT_EVICT}"

FOREVER = datetime.max.replace(tzinfo=UTC)


def protected_until(
    annotations: Mapping[str, str] | None, started: datetime | None
) -> datetime | None:
    """Return the end of a pod's protection by its annotations: `true` has no end, and a duration in
    do-not-disrupt counts from the pod's start. None without protection."""
    given = annotations or {}
    annotation = str(given.get(DO_NOT_DISRUPT) or "")
    if "true" in {annotation, given.get(DO_NOT_EVICT)}:
        return FOREVER
    try:
        return started + parse_duration(annotation) if annotation and started else None
    except ValueError:
        return None
    except OverflowError:
        return FOREVER


CRITICAL_CLASSES = frozenset({"system-node-critical", "system-cluster-critical"})


@dataclass(frozen=True, slots=True)
class Controller:
    """The owner of a pod, which creates the pod again.

    `exists` is None if Leeway did not look it up or could not read it. `problem` says why it could
    not be read, or why it cannot exist."""

    kind: str
    name: str
    exists: bool | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod on the node.

    - `grace`: its terminationGracePeriodSeconds.
    - `controller`: the controller that creates it again, None for a bare pod.
    - `mirror`: it is the mirror pod of a static pod. `empty_dir`: it has an emptyDir volume.
    - `claims`: `namespace/name` of its PersistentVolumeClaims.
    - `deletion`: its deletionTimestamp, which is the end of its grace period.
    - `cordon_toleration`: the toleration that lets it run on a cordoned node, None if it has none.
    - `protected_until`: until when an annotation forbids voluntary disruption.
    - `kept_by`: its finalizers, if it has ended and only they keep the object.
    - `bound_to_zone`: the part of its spec that binds it to its zone, empty if there is none.
    - `created`: its creationTimestamp, by the clock of the API server.
    """

    namespace: str
    name: str
    uid: str
    phase: str
    grace: int
    controller: Controller | None
    priority_class: str = ""
    mirror: bool = False
    empty_dir: bool = False
    claims: tuple[str, ...] = ()
    deletion: datetime | None = None
    cordon_toleration: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    protected_until: datetime | None = None
    kept_by: tuple[str, ...] = ()
    bound_to_zone: str = ""
    created: datetime | None = None

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def workload(self) -> str:
        """`namespace/kind/name` of its controller, or its own `namespace/name` without one."""
        if self.controller is None:
            return f"{self.namespace}/{self.name}"
        return f"{self.namespace}/{self.controller.kind}/{self.controller.name}"

    @property
    def critical(self) -> bool:
        """Whether other pods need it until they end, as DNS and CNI pods."""
        return self.priority_class in CRITICAL_CLASSES


RETIRING = "leeway.sh/retiring"
"""The taint and the label of a retiring node."""


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a node. `since` is when its status changed last (UTC), None if the Node does
    not say it."""

    type: str
    status: str
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One Node object.

    - `provider_id`: ends in the id of the instance, as in `aws:///eu-west-1a/i-0abc1234`.
    - `ready`: its Ready condition is True.
    - `devices`: allocatable extended resources → count, as `nvidia.com/gpu`, and huge pages in
      bytes. A count of 0 says that the device is not usable yet.
    - `version`: its resourceVersion.
    """

    name: str
    uid: str
    provider_id: str
    unschedulable: bool
    ready: bool
    labels: dict[str, str]
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    devices: Mapping[str, int] = field(default_factory=dict)
    version: str = ""
    conditions: tuple[Condition, ...] = ()

    @property
    def marked(self) -> bool:
        """Whether a retirement has marked it."""
        return RETIRING in self.labels

    def runs_on(self, instance: str) -> bool:
        """Return whether this is the node of an instance. Names are not enough to decide that."""
        return self.provider_id.rsplit("/", 1)[-1] == instance


@dataclass(frozen=True, slots=True)
class Attachment:
    """A volume that is attached to a node or being detached from it. `volume` is the name of the
    PersistentVolume; `claim` is `namespace/name` of its claim, empty if there is none."""

    volume: str
    claim: str


@dataclass(frozen=True, slots=True)
class Response:
    """A response of the API server.

    `status` is the HTTP status, 0 if the connection was lost before a response. `causes` are the
    (reason, message) pairs of `details.causes`; `retry_after` are the seconds after which the
    request may be repeated.
    """

    status: int
    message: str = ""
    reason: str = ""
    causes: tuple[tuple[str, str], ...] = ()
    retry_after: int | None = None
