"""The values that packing reads: pods with their constraints, node pools, existing nodes.

Two pods with equal values are interchangeable.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from leeway.reasons import Reason
from leeway.selection.offers.allocatable import NodeClass
from leeway.selection.offers.reservations import Reservation
from leeway.selection.requirements import Requirements
from leeway.selection.resources import Resources


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node, as in Kubernetes."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"

    def __str__(self) -> str:
        """As kubectl writes it: `key=value:effect`, or `key:effect` without a value."""
        value = f"={self.value}" if self.value else ""
        return f"{self.key}{value}:{self.effect}"


@dataclass(frozen=True, slots=True)
class OnDemandShare:
    """How much of a pool's capacity is on-demand: the first `base` millicores, and this percentage
    of all above. Source: OnDemandBaseCapacity and OnDemandPercentageAboveBaseCapacity of Auto
    Scaling groups."""

    base: int = 0
    percent: int = 0

    def least(self, total: int) -> int:
        """Return the millicores of a total that have to be on-demand."""
        return min(self.base, total) - (-max(total - self.base, 0) * self.percent // 100)


@dataclass(frozen=True, slots=True)
class NodePool:
    """A node pool as selection uses it.

    `requirements` include the labels of its nodes. Among pools that fit, the one with the larger
    `weight` is used. `limits` apply to all its nodes together: a resource that is not named is
    unlimited, "nodes" is the number of nodes. `usd_per_hour` is what they may cost together. A pool
    with `replicas` is static: it has this number of nodes, and launches none for pods. `on_demand`
    is the share of its capacity that has to be on-demand, None without a rule. `reservations` are
    those that its nodes may be launched into.
    """

    name: str
    requirements: Requirements = field(default_factory=Requirements)
    weight: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    limits: Mapping[str, int] | None = None
    node_class: NodeClass = field(default_factory=NodeClass)
    replicas: int | None = None
    reservations: tuple[Reservation, ...] = ()
    usd_per_hour: float | None = None
    on_demand: OnDemandShare | None = None

    def __hash__(self) -> int:
        return hash((self.name, self.requirements))

    @property
    def is_limited(self) -> bool:
        """Whether it has limits, in resources or in money."""
        return self.limits is not None or self.usd_per_hour is not None

    @property
    def has_min_values(self) -> bool:
        """Whether a launch request of the pool needs several values of a label."""
        return any(requirement.min_values for requirement in self.requirements.values())

    def left(self, used: Resources) -> Mapping[str, int] | None:
        """Return its limits less the used resources; None if it has no limits."""
        if self.limits is None:
            return None
        return {name: limit - used.of(name) for name, limit in self.limits.items()}


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Selects pods by labels. An empty selector selects every pod, as in Kubernetes."""

    requirements: Requirements = field(default_factory=Requirements)

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether it selects a pod with these labels."""
        return self.requirements.admits(labels)


@dataclass(frozen=True, slots=True)
class PodTerm:
    """Selected pods, and the topology (a node label) of the term.

    `namespaces` are the names of the namespaces; None means all namespaces.
    """

    topology: str
    selector: LabelSelector | None
    namespaces: frozenset[str] | None

    def selects(self, pod: "PodSpec") -> bool:
        """Whether it selects this pod. Without a selector it selects no pod."""
        if self.selector is None:
            return False
        if self.namespaces is not None and pod.namespace not in self.namespaces:
            return False
        return self.selector.selects(pod.labels)


@dataclass(frozen=True, slots=True)
class Spread:
    """A topology spread constraint. `required`: DoNotSchedule, otherwise ScheduleAnyway.

    It ignores nodes that do not match the pod's affinity if `honors_affinity`, and nodes with
    taints that the pod does not tolerate if `honors_taints`.
    """

    pods: PodTerm
    max_skew: int
    required: bool = True
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False


@dataclass(frozen=True, slots=True)
class Weighted[T]:
    """A preference and its weight, 1 to 100."""

    weight: int
    preference: T


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration. An empty key or effect matches any."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Whether it tolerates this taint."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return bool(self.key) and self.value == taint.value


@dataclass(frozen=True, slots=True)
class HostPort:
    """A host port of a container. An empty address means all addresses."""

    port: int
    protocol: str = "TCP"
    address: str = ""


@dataclass(frozen=True, slots=True)
class PodSpec:
    """The constraints on the node of a pod.

    `requests` include one of the resource `pods`. The node must match one of `terms` (the terms of
    node affinity, each combined with the nodeSelector and the requirements of volumes); without
    terms, any node matches. `affinity` are the terms without those of volumes, if they differ.
    `pod_affinity` and `pod_anti_affinity` are the required ones. `unmet` is why no node at all can
    take the pod, whatever room it has; None if one can.
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
    unmet: Reason | None = None

    @property
    def own_terms(self) -> tuple[Requirements, ...]:
        """The pod's own node requirements without those of its volumes. Spreads honor only
        these."""
        return self.terms if self.affinity is None else self.affinity

    @property
    def shape(self) -> tuple[object, ...]:
        """All values except the namespace and the labels, which matter only to selectors."""
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

    @property
    def held(self) -> "PodSpec":
        """What the pod holds while it terminates: its host ports, and by its anti-affinity the
        domains where it is. No term selects what is left, and its requests are summed elsewhere.

        Source: the plugins NodePorts and InterPodAffinity of kube-scheduler, and Karpenter's
        StateNode, count a pod until it has ended; PodTopologySpread ignores terminating ones.
        """
        return PodSpec(
            "", requests=Resources(), pod_anti_affinity=self.pod_anti_affinity, ports=self.ports
        )

    def tolerates(self, taint: Taint) -> bool:
        """Whether it tolerates this taint."""
        return any(toleration.tolerates(taint) for toleration in self.tolerations)

    def untolerated(self, taints: tuple[Taint, ...], soft: bool = False) -> Taint | None:
        """The first taint that the pod does not tolerate. `soft`: including PreferNoSchedule."""
        for taint in taints:
            hard = taint.effect in {"NoSchedule", "NoExecute"}
            if (hard or (soft and taint.effect == "PreferNoSchedule")) and not self.tolerates(
                taint
            ):
                return taint
        return None


@dataclass(frozen=True, slots=True)
class Pod:
    """A pending pod. `name` is `namespace/name`."""

    name: str
    spec: PodSpec


@dataclass(frozen=True, slots=True)
class ExistingNode:
    """A node that exists or is being launched, with the pods that are bound to it.

    `pool` is its node pool, empty without one; `capacity` counts against the limits of that pool.
    `terminating` are the requests of terminating pods, and `terminating_pods` what these hold: they
    use resources, but no topology term counts them. `daemons` is the part of all requests that
    DaemonSet pods use.
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
    terminating_pods: tuple[PodSpec, ...] = ()

    @property
    def present(self) -> tuple[PodSpec, ...]:
        """Its pods, and what its terminating pods hold."""
        return (*self.pods, *self.terminating_pods)

    def closed(self) -> "ExistingNode":
        """Return the node as it is while it retires: it takes no pods, even pods that tolerate
        every taint, and counts against the limits of its pool."""
        return replace(
            self, allocatable=Resources(), pods=(), daemons=Resources(), terminating_pods=()
        )

    def full(self, pods: Iterable[PodSpec] = ()) -> "ExistingNode":
        """Return the node with these pods besides its own, without room for others."""
        return replace(self, allocatable=Resources(), pods=(*self.pods, *pods))
