"""What a pod needs of a node and what a node has left, in integers, read once per pod and node."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from sandbox.kubernetes.objects import (
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
from sandbox.kubernetes.quantities import milli
from sandbox.kubernetes.selectors import LabelTest, label_selector, requirements

# Protocol, port and address of a port of a node that a pod takes.
type HostPort = tuple[str, int, str]
EVERY_ADDRESS = "0.0.0.0"

_BLOCKING = ("NoSchedule", "NoExecute")
_UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


@dataclasses.dataclass(frozen=True, slots=True)
class Spread:
    """A topology spread constraint, or one term of pod affinity: pods counted by a node label.

    Pods that are being deleted count for affinity and not for spread. `scope` names the nodes
    that count: those of a pod's node affinity and, where the constraint asks, without taints that
    it does not tolerate; empty for all nodes.
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
    """One pod as the scheduler sees it. Resources are in thousandths of their units."""

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
        """Return what pods have in common that fit alike: their owner, or themselves."""
        alone = not self.owner or self.pinned_to or self.claims
        return self.uid if alone else self.owner

    def counts(self, spread: Spread, node_info: NodeInfo) -> bool:
        """Say whether a node and its pods count for a spread constraint of this pod."""
        if spread.honors_affinity and not node_info.matches(self):
            return False
        return not spread.honors_taints or node_info.taint_reason(self) is None


def read_pod_info(pod: Object) -> PodInfo:
    """Read a pod's needs."""
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
    """Read a topology spread constraint."""
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
    """Return the ports of its node that a pod takes: its containers' and its sidecars'."""
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
    """Return the names of the volume claims a pod mounts."""
    volumes = pod["spec"].get("volumes") or ()
    sources = [one.get("persistentVolumeClaim") for one in volumes]
    return [source["claimName"] for source in sources if source]


def _requests(spec: Object) -> dict[str, int]:
    """Add up a pod's requests: containers together, or the largest init container."""
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
    """Return alternatives, each a list of tests that must all pass, and the one node named."""
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
    """One node: what it offers, what is taken, and by whom."""

    def __init__(self, node: Object) -> None:
        self.pods: dict[str, PodInfo] = {}
        self.nominated: dict[str, PodInfo] = {}
        self.used: dict[str, int] = {}
        self.owners: dict[str, int] = {}
        self.refresh(node)

    def refresh(self, node: Object) -> None:
        """Take over the node's present labels, taints and resources."""
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
        """Count a pod in."""
        self.nominated.pop(info.uid, None)
        if info.uid in self.pods:
            return
        self.pods[info.uid] = info
        self.owners[info.owner] = self.owners.get(info.owner, 0) + 1
        for name, value in info.requests.items():
            self.used[name] = self.used.get(name, 0) + value

    def remove_pod(self, uid: str) -> None:
        """Count a pod out."""
        info = self.pods.pop(uid, None)
        if info is None:
            return
        self.owners[info.owner] -= 1
        for name, value in info.requests.items():
            self.used[name] -= value

    def taint_reason(self, info: PodInfo) -> str | None:
        """Say why the pod may not be put here, by cordon and taints; None when it may."""
        if self.cordoned and not _tolerates(info.tolerations, _UNSCHEDULABLE):
            return "node(s) were unschedulable"
        for taint in self.taints:
            if not _tolerates(info.tolerations, taint):
                return "node(s) had untolerated taint(s)"
        return None

    def matches(self, info: PodInfo) -> bool:
        """Say whether the pod's node selector and affinity accept this node."""
        if info.pinned_to is not None and info.pinned_to != self.name:
            return False
        return not info.node_terms or any(
            all(test(self.labels) for test in tests) for tests in info.node_terms
        )

    def can_hold(self, info: PodInfo) -> bool:
        """Say whether the pod fits when nothing else is here."""
        return all(value <= self.allocatable.get(name, 0) for name, value in info.requests.items())

    def port_holders(self, ports: Iterable[HostPort]) -> list[PodInfo]:
        """Return the pods here that hold one of these ports."""
        wanted = list(ports)
        return [
            other
            for other in (self.pods.values() if wanted else ())
            if any(_collide(one, taken) for one in wanted for taken in other.ports)
        ]

    def insufficient(self, info: PodInfo, *, freed: dict[str, int] | None = None) -> list[str]:
        """Return the resources that do not suffice, as the scheduler names them."""
        held = self.reserved_by_nominated(info)
        short = []
        for name, value in info.requests.items():
            left = self.allocatable.get(name, 0) - self.used.get(name, 0)
            left += (freed or {}).get(name, 0) - held.get(name, 0)
            if value > left:
                short.append("Too many pods" if name == "pods" else f"Insufficient {name}")
        return short

    def reserved_by_nominated(self, info: PodInfo) -> dict[str, int]:
        """Add up what preempting pods of at least this priority are promised here."""
        held: dict[str, int] = {}
        for other in self.nominated.values():
            if other.uid != info.uid and other.priority >= info.priority:
                for name, value in other.requests.items():
                    held[name] = held.get(name, 0) + value
        return held

    def load(self) -> float:
        """Return the larger share of CPU or memory that is taken, 0 to 1."""
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
    """Say whether one toleration covers a taint."""
    effect, key = toleration.get("effect"), toleration.get("key")
    if effect and effect != taint["effect"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return not key or bool(key == taint["key"])
    value: str = toleration.get("value", "")
    return bool(key == taint["key"] and value == taint.get("value", ""))
