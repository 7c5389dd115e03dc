"""Kubernetes objects as Leeway reads them: nodes, pods, volume attachments, answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

CRITICAL_CLASSES = frozenset({"system-node-critical", "system-cluster-critical"})


@dataclass(frozen=True, slots=True)
class Controller:
    """The owner that would bring a pod back. `exists` is None where nobody looked, or could see it:
    then, and where it was not looked for, `said` is why."""

    kind: str
    name: str
    exists: bool | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod on the node.

    `grace` is its terminationGracePeriodSeconds, `claims` are the `namespace/name` of the volume
    claims that it uses, `deletion` is its deletionTimestamp: when its grace ends. Until
    `protected_until` it asks not to be disrupted by what could as well wait. `kept_by` are the
    finalizers of one that has ended, and would be gone but for them. `bound_to_zone` says by what
    its spec keeps it in the zone where it runs, empty where nothing does. `created` is by the API
    server's own clock.
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


RETIRING = "leeway.sh/retiring"
"""The taint of a node on its way out, and the label by which such nodes can be listed."""


@dataclass(frozen=True, slots=True)
class Taint:
    """What keeps pods off a node that do not tolerate it."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Node:
    """One Node object. `ready` is its Ready condition, `version` its resource version.

    `devices` are the allocatable extended resources, as `nvidia.com/gpu`, each with its count; one
    that is present with a count of zero is not usable yet.
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

    @property
    def marked(self) -> bool:
        """Whether a retirement has cordoned it."""
        return RETIRING in self.labels

    def runs_on(self, instance: str) -> bool:
        """Whether this is an instance's node: names alone do not tell."""
        return self.provider_id.rsplit("/", 1)[-1] == instance


@dataclass(frozen=True, slots=True)
class Attachment:
    """A volume that is attached to a node, or on its way from it. `claim` is the
    `namespace/name` of the claim that it is bound to, empty where there is none."""

    volume: str
    claim: str


@dataclass(frozen=True, slots=True)
class Response:
    """An answer of the API server. `status` 0 says that none came: the connection was lost.

    `causes` are (reason, message) of `details.causes`; `retry_after` is in seconds.
    """

    status: int
    message: str = ""
    reason: str = ""
    causes: tuple[tuple[str, str], ...] = ()
    retry_after: int | None = None
