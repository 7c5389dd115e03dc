"""A pod as packing sees it: what it asks for, and where it may go and beside whom.

Only what decides about its place; two pods whose values are equal are interchangeable.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from leeway.selection.pools import Taint
from leeway.selection.requirements import Requirements
from leeway.selection.resources import Resources


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Which pods are meant. An empty one selects every pod, as in Kubernetes."""

    requirements: Requirements = field(default_factory=Requirements)

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether a pod with these labels is meant."""
        return self.requirements.admits(labels)


@dataclass(frozen=True, slots=True)
class PodTerm:
    """Pods, and the topology (a node label) within which they are near.

    `namespaces` are the names that count; None means all namespaces.
    """

    topology: str
    selector: LabelSelector | None
    namespaces: frozenset[str] | None

    def selects(self, pod: "PodSpec") -> bool:
        """Whether this pod is meant. A selector that is missing selects none."""
        if self.selector is None:
            return False
        if self.namespaces is not None and pod.namespace not in self.namespaces:
            return False
        return self.selector.selects(pod.labels)


@dataclass(frozen=True, slots=True)
class Spread:
    """A topology spread constraint. `required`: DoNotSchedule, else ScheduleAnyway.

    Nodes that the pod's affinity does not meet count in it unless it `heeds_affinity`, those whose
    taints it does not tolerate unless it `heeds_taints`.
    """

    pods: PodTerm
    max_skew: int
    required: bool = True
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False


@dataclass(frozen=True, slots=True)
class Weighted[T]:
    """A preference and how much it weighs, 1 to 100."""

    weight: int
    preference: T


@dataclass(frozen=True, slots=True)
class Toleration:
    """A taint that a pod bears; an empty key or effect matches any."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Whether it bears this taint."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return bool(self.key) and self.value == taint.value


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port of the node that a container takes. An empty address is all of them."""

    port: int
    protocol: str = "TCP"
    address: str = ""


@dataclass(frozen=True, slots=True)
class PodSpec:
    """What decides where a pod may go.

    `requests` hold one of the resource `pods`. `terms`: one of them has to be met by the node
    (node affinity's terms, each together with the nodeSelector and with what volumes need); with
    none any node will do. `affinity` are those of node affinity and nodeSelector alone, where
    `terms` say more. `near` and `apart` are required pod affinity and anti-affinity.
    """

    namespace: str = "default"
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    requests: Resources = field(default_factory=lambda: Resources({"pods": 1}))
    terms: tuple[Requirements, ...] = ()
    preferred_terms: tuple[Weighted[Requirements], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    spreads: tuple[Spread, ...] = ()
    pod_affinity: tuple[PodTerm, ...] = ()
    pod_anti_affinity: tuple[PodTerm, ...] = ()
    preferred_pod_affinity: tuple[Weighted[PodTerm], ...] = ()
    preferred_pod_anti_affinity: tuple[Weighted[PodTerm], ...] = ()
    ports: frozenset[HostPort] = frozenset()
    priority: int = 0
    affinity: tuple[Requirements, ...] | None = None

    @property
    def own_terms(self) -> tuple[Requirements, ...]:
        """What the pod itself asks of nodes: that is what its spreads heed, not its volumes'."""
        return self.terms if self.affinity is None else self.affinity

    @property
    def shape(self) -> tuple[object, ...]:
        """All of it but who else selects it: its namespace and its labels."""
        return (
            self.requests,
            self.terms,
            self.preferred_terms,
            self.tolerations,
            self.spreads,
            self.pod_affinity,
            self.pod_anti_affinity,
            self.preferred_pod_affinity,
            self.preferred_pod_anti_affinity,
            self.ports,
            self.priority,
            self.affinity,
        )

    def tolerates(self, taint: Taint) -> bool:
        """Whether it bears this taint, which keeps others away."""
        return any(toleration.tolerates(taint) for toleration in self.tolerations)

    def untolerated(self, taints: tuple[Taint, ...], soft: bool = False) -> Taint | None:
        """The first taint that keeps the pod away. `soft`: PreferNoSchedule counts too."""
        for taint in taints:
            hard = taint.effect in {"NoSchedule", "NoExecute"}
            if (hard or (soft and taint.effect == "PreferNoSchedule")) and not self.tolerates(
                taint
            ):
                return taint
        return None


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod that waits for a node. `name` is `namespace/name`."""

    name: str
    spec: PodSpec


@dataclass(frozen=True, slots=True)
class ExistingNode:
    """A node that runs or is on its way, with the pods that are bound to it.

    `pool` is its node pool, empty where it has none; `capacity` counts against that pool's limits.
    `leaving` is what pods still take that end, and count for nobody; `daemons` is what of all that
    is taken is daemons'.
    """

    name: str
    labels: Mapping[str, str]
    allocatable: Resources
    capacity: Resources = field(default_factory=Resources)
    taints: tuple[Taint, ...] = ()
    pods: tuple[PodSpec, ...] = ()
    terminating: Resources = field(default_factory=Resources)
    daemons: Resources = field(default_factory=Resources)
    pool: str = ""
