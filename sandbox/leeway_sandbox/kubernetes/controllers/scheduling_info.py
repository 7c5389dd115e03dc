"""The scheduler's view of pods and nodes, in integers, parsed once per pod and node."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from leeway_sandbox.kubernetes.objects import (
    Object,
    encode,
    is_ready,
    is_terminating,
    labels_of,
    name_of,
    namespace_of,
    taints_of,
    uid_of,
)
from leeway_sandbox.kubernetes.quantities import milli
from leeway_sandbox.kubernetes.selectors import LabelTest, label_selector, requirements

# Protocol, port and address of a host port.
type HostPort = tuple[str, int, str]
EVERY_ADDRESS = "0.0.0.0"

_BLOCKING = ("NoSchedule", "NoExecute")
_UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


@dataclasses.dataclass(frozen=True, slots=True)
class Spread:
    """A topology spread constraint, or one term of pod affinity: pods are counted by a node label.

    Terminating pods count for affinity but not for spread. `scope` identifies the nodes that count:
    by the node affinity of the pod and, with nodeTaintsPolicy Honor, by its tolerations; it is
    empty if all nodes count.
    """

    topology_key: str
    selector: Object | None
    namespace: str
    max_skew: int = 1
    min_domains: int = 1
    counts_terminating: bool = True
    scope: bytes = b""
    honors_affinity: bool = False
    honors_taints: bool = False


@dataclasses.dataclass(slots=True, eq=False)
class PodInfo:
    """The scheduler's view of a pod. Resources are in thousandths of their units."""

    uid: str
    namespace: str
    name: str
    labels: dict[str, str]
    owner: str
    priority: int
    preempts: bool
    requests: dict[str, int]
    tolerations: list[Object]
    node_terms: list[list[LabelTest]]
    pinned_to: str | None
    spreads: list[Spread]
    soft_spreads: list[Spread]
    affinity: list[Spread]
    anti_affinity: list[Spread]
    claims: list[str]
    ports: frozenset[HostPort] = frozenset()
    terminating: bool = False
    volume_terms: list[LabelTest] = dataclasses.field(default_factory=list)

    @property
    def shape(self) -> str:
        """Return a key that is equal for pods with the same requirements: owner or uid."""
        alone = not self.owner or self.pinned_to or self.claims
        return self.uid if alone else self.owner

    def counts(self, spread: Spread, node_info: NodeInfo) -> bool:
        """Whether a node and its pods count for a spread constraint of this pod."""
        if spread.honors_affinity and not node_info.matches(self):
            return False
        return not spread.honors_taints or node_info.taint_reason(self) is None


def read_pod_info(pod: Object) -> PodInfo:
    """Parse the requirements of a pod."""
    spec = pod["spec"]
    affinity = spec.get("affinity") or {}
    node_terms, pinned_to = _node_terms(spec, affinity.get("nodeAffinity") or {})
    namespace = namespace_of(pod)
    hard: list[Spread] = []
    soft: list[Spread] = []
    for one in spec.get("topologySpreadConstraints") or ():
        is_hard = one.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"
        (hard if is_hard else soft).append(_spread(one, pod, bool(node_terms or pinned_to)))
    references = pod["metadata"].get("ownerReferences") or ()
    return PodInfo(
        uid=uid_of(pod),
        namespace=namespace,
        name=name_of(pod),
        labels=labels_of(pod),
        owner=references[0]["uid"] if references else "",
        priority=spec.get("priority", 0),
        preempts=spec.get("preemptionPolicy") != "Never",
        requests=_requests(spec),
        tolerations=spec.get("tolerations") or [],
        node_terms=node_terms,
        pinned_to=pinned_to,
        spreads=hard,
        soft_spreads=soft,
        affinity=_pod_terms(affinity.get("podAffinity"), namespace),
        anti_affinity=_pod_terms(affinity.get("podAntiAffinity"), namespace),
        claims=claims_of(pod),
        ports=_host_ports(spec),
        terminating=is_terminating(pod),
    )


def _spread(constraint: Object, pod: Object, has_terms: bool) -> Spread:
    """Parse a topology spread constraint."""
    spec, labels = pod["spec"], labels_of(pod)
    selector = constraint.get("labelSelector")
    same = [key for key in constraint.get("matchLabelKeys") or () if key in labels]
    if same and selector is not None:
        equal = [{"key": key, "operator": "In", "values": [labels[key]]} for key in same]
        expressions = [*(selector.get("matchExpressions") or ()), *equal]
        selector = {**selector, "matchExpressions": expressions}
    honors_affinity = has_terms and constraint.get("nodeAffinityPolicy", "Honor") == "Honor"
    honors_taints = constraint.get("nodeTaintsPolicy", "Ignore") == "Honor"
    scope: list[Any] = []
    if honors_affinity:
        scope = [spec.get("nodeSelector"), (spec.get("affinity") or {}).get("nodeAffinity")]
    if honors_taints:
        scope.append(spec.get("tolerations") or [])
    return Spread(
        constraint["topologyKey"],
        selector,
        namespace_of(pod),
        max_skew=constraint.get("maxSkew", 1),
        min_domains=constraint.get("minDomains") or 1,
        counts_terminating=False,
        scope=encode(scope) if scope else b"",
        honors_affinity=honors_affinity,
        honors_taints=honors_taints,
    )


def _host_ports(spec: Object) -> frozenset[HostPort]:
    """Return the host ports of a pod: those of its containers and sidecars."""
    sidecars = [
        one for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"
    ]
    return frozenset(
        (port.get("protocol", "TCP"), int(taken), port.get("hostIP") or EVERY_ADDRESS)
        for container in (*(spec.get("containers") or ()), *sidecars)
        for port in container.get("ports") or ()
        if (taken := port.get("hostPort") or (spec.get("hostNetwork") and port["containerPort"]))
    )


def claims_of(pod: Object) -> list[str]:
    """Return the names of the volume claims of a pod."""
    volumes = pod["spec"].get("volumes") or ()
    sources = [one.get("persistentVolumeClaim") for one in volumes]
    return [source["claimName"] for source in sources if source]


def _requests(spec: Object) -> dict[str, int]:
    """Return the requests of a pod: the sum of its containers, or its largest init container."""
    total: dict[str, int] = {"pods": 1000}
    for container in spec.get("containers") or ():
        for name, value in ((container.get("resources") or {}).get("requests") or {}).items():
            total[name] = total.get(name, 0) + milli(value)
    for container in spec.get("initContainers") or ():
        for name, value in ((container.get("resources") or {}).get("requests") or {}).items():
            total[name] = max(total.get(name, 0), milli(value))
    for name, value in (spec.get("overhead") or {}).items():
        total[name] = total.get(name, 0) + milli(value)
    return total


def _node_terms(spec: Object, affinity: Object) -> tuple[list[list[LabelTest]], str | None]:
    """Return alternative lists of tests, and the node name that the affinity requires."""
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    pinned_to = None
    alternatives = []
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field["key"] == "metadata.name" and field["operator"] == "In":
                pinned_to = field["values"][0]
        alternatives.append(requirements(term.get("matchExpressions")))
    selector = spec.get("nodeSelector")
    if selector:
        plain = label_selector({"matchLabels": selector})
        alternatives = [[plain, *tests] for tests in alternatives or [[]]]
    return alternatives, pinned_to


def _pod_terms(affinity: Object | None, namespace: str) -> list[Spread]:
    terms = (affinity or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or ()
    return [
        Spread(
            term["topologyKey"],
            term.get("labelSelector"),
            (term.get("namespaces") or [namespace])[0],
        )
        for term in terms
    ]


class NodeInfo:
    """The scheduler's view of a node: allocatable resources, used resources, pods."""

    def __init__(self, node: Object) -> None:
        self.pods: dict[str, PodInfo] = {}
        self.nominated: dict[str, PodInfo] = {}
        self.used: dict[str, int] = {}
        self.owners: dict[str, int] = {}
        self.refresh(node)

    def refresh(self, node: Object) -> None:
        """Update labels, taints and resources from the Node."""
        self.name = name_of(node)
        self.labels = labels_of(node)
        self.cordoned = bool(node["spec"].get("unschedulable"))
        self.taints = [one for one in taints_of(node) if one["effect"] in _BLOCKING]
        self.ready = is_ready(node)
        status = node.get("status") or {}
        self.allocatable = {
            name: milli(value) for name, value in status.get("allocatable", {}).items()
        }

    def add_pod(self, info: PodInfo) -> None:
        """Add a pod."""
        self.nominated.pop(info.uid, None)
        if info.uid in self.pods:
            return
        self.pods[info.uid] = info
        self.owners[info.owner] = self.owners.get(info.owner, 0) + 1
        for name, value in info.requests.items():
            self.used[name] = self.used.get(name, 0) + value

    def remove_pod(self, uid: str) -> None:
        """Remove a pod."""
        info = self.pods.pop(uid, None)
        if info is None:
            return
        self.owners[info.owner] -= 1
        for name, value in info.requests.items():
            self.used[name] -= value

    def taint_reason(self, info: PodInfo) -> str | None:
        """Return why cordon or taints refuse the pod, or None."""
        if self.cordoned and not _tolerates(info.tolerations, _UNSCHEDULABLE):
            return "node(s) were unschedulable"
        for taint in self.taints:
            if not _tolerates(info.tolerations, taint):
                return "node(s) had untolerated taint(s)"
        return None

    def matches(self, info: PodInfo) -> bool:
        """Whether the node selector and affinity of the pod match this node."""
        if info.pinned_to is not None and info.pinned_to != self.name:
            return False
        return not info.node_terms or any(
            all(test(self.labels) for test in tests) for tests in info.node_terms
        )

    def can_hold(self, info: PodInfo) -> bool:
        """Whether the pod fits the empty node."""
        return all(value <= self.allocatable.get(name, 0) for name, value in info.requests.items())

    def port_holders(self, ports: Iterable[HostPort]) -> list[PodInfo]:
        """Return the pods that use one of these host ports."""
        wanted = list(ports)
        return [
            other
            for other in (self.pods.values() if wanted else ())
            if any(_collide(one, taken) for one in wanted for taken in other.ports)
        ]

    def insufficient(self, info: PodInfo, *, freed: dict[str, int] | None = None) -> list[str]:
        """Return the insufficient resources in kube-scheduler's words."""
        held = self.reserved_by_nominated(info)
        short = []
        for name, value in info.requests.items():
            left = self.allocatable.get(name, 0) - self.used.get(name, 0)
            left += (freed or {}).get(name, 0) - held.get(name, 0)
            if value > left:
                short.append("Too many pods" if name == "pods" else f"Insufficient {name}")
        return short

    def reserved_by_nominated(self, info: PodInfo) -> dict[str, int]:
        """Return the resources of nominated pods with at least this priority."""
        held: dict[str, int] = {}
        for other in self.nominated.values():
            if other.uid != info.uid and other.priority >= info.priority:
                for name, value in other.requests.items():
                    held[name] = held.get(name, 0) + value
        return held

    def load(self) -> float:
        """Return the larger of the used shares of CPU and memory, 0 to 1."""
        return max(
            self.used.get(name, 0) / self.allocatable[name] if self.allocatable.get(name) else 0.0
            for name in ("cpu", "memory")
        )


def _collide(one: HostPort, other: HostPort) -> bool:
    alike = one[:2] == other[:2]
    return alike and (one[2] == other[2] or EVERY_ADDRESS in (one[2], other[2]))


def _tolerates(tolerations: list[Object], taint: Object) -> bool:
    return any(tolerates(one, taint) for one in tolerations)


def tolerates(toleration: Object, taint: Object) -> bool:
    """Whether a toleration matches a taint."""
    effect, key = toleration.get("effect"), toleration.get("key")
    if effect and effect != taint["effect"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return not key or bool(key == taint["key"])
    value: str = toleration.get("value", "")
    return bool(key == taint["key"] and value == taint.get("value", ""))
