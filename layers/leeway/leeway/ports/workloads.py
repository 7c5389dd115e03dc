"""Workloads that may get one more pod before an eviction, as a Protocol."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

SURGE_MANAGER = "leeway-surge"
"""The field manager of the scales that a surge writes."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A Deployment, a StatefulSet or a Rollout of Argo.

    - `version`: its resourceVersion.
    - `surges`: its annotation that asks for a surge, or forbids it; None without one.
    - `settled`: all its pods have its present template.
    - `sizers`: the field managers that own spec.replicas.
    - `controller`: the object that controls it, such as `Prometheus k8s`; empty without one.
    - `claims`: its pods use persistent volume claims, other than ones that many nodes may mount.
    - `failure`: why its controller cannot create pods; empty if it can.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    version: str
    replicas: int
    surges: bool | None = None
    settled: bool = True
    sizers: frozenset[str] = frozenset()
    controller: str = ""
    claims: bool = False
    failure: str = ""

    @property
    def key(self) -> str:
        """`namespace/kind/name`."""
        return f"{self.namespace}/{self.kind}/{self.name}"

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Replica:
    """One pod of a workload that neither terminates nor has finished. `serves`: it is Ready, and
    the EndpointSlices of each Service that selects it have it as ready."""

    name: str
    uid: str
    node: str
    created: datetime
    serves: bool


@dataclass(frozen=True, slots=True)
class Replicas:
    """The pods of a workload. `shared`: a Service with an address of its own selects them, so that
    a client can do with any of them."""

    pods: tuple[Replica, ...]
    shared: bool = False


@dataclass(frozen=True, slots=True)
class BudgetHealth:
    """What the status of a PodDisruptionBudget says: how many disruptions it allows, how many of
    its pods are healthy, and how many it requires."""

    allowed: int
    healthy: int
    required: int


class Workloads(Protocol):
    """The workloads of one cluster whose size a drain may change.

    Every method may raise ClusterUnavailable or ClusterRefused.
    """

    def find(self, namespace: str, kind: str, name: str) -> Workload | None:
        """Read a workload, or that of a ReplicaSet. None if there is none, also if something else
        than a Deployment controls the ReplicaSet."""
        ...

    def scalers(self, workload: Workload) -> tuple[str, ...]:
        """Return the autoscalers of a workload, such as `HorizontalPodAutoscaler web`."""
        ...

    def replicas(self, workload: Workload) -> Replicas:
        """List the pods of a workload."""
        ...

    def budget(self, namespace: str, name: str) -> BudgetHealth | None:
        """Read a budget; None if there is none, or if its status is older than its spec."""
        ...

    def scale(self, workload: Workload, replicas: int) -> bool:
        """Set the size of exactly this version of a workload, as SURGE_MANAGER; False if it has
        changed since it was read."""
        ...
