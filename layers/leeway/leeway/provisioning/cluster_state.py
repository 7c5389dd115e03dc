"""The state of a cluster as provision_nodes reads it, its Protocol, and how objects are read."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from leeway.policy.repair import Unhealthy, why_unhealthy
from leeway.ports.kubernetes_objects import (
    DO_NOT_CONSOLIDATE,
    DO_NOT_DISRUPT,
    FOREVER,
    RETIRING,
    protected_until,
)
from leeway.ports.kubernetes_objects import Condition as NodeCondition
from leeway.reasons import Reason
from leeway.selection.labels import NODEPOOL
from leeway.selection.pods import ExistingNode, LabelSelector, Pod, PodSpec, Taint
from leeway.selection.reading.claims import has_claim
from leeway.selection.reading.cluster_objects import node_without_pods
from leeway.selection.reading.objects import (
    Document,
    bound_node,
    controller_of,
    creation_time,
    daemon_of,
    instance_of,
    is_finished,
    is_terminating,
    name_of,
    namespace_of,
    needs_node,
    node_of,
)
from leeway.selection.reading.pod_objects import (
    requests_of,
    resizing,
    selector_of,
    spec_without_volumes,
)
from leeway.selection.reading.schemas import check
from leeway.selection.resources import Resources


@dataclass(frozen=True, slots=True)
class ObservedPod:
    """A pod that waits for a node, or runs on one.

    `controller` is the uid of its controller, such as a ReplicaSet, which creates it again; empty
    without one. `protected_until` is until when an annotation forbids to disrupt it. `ready`: its
    condition Ready is True. `deletion_cost` is that of its annotation.
    """

    pod: Pod
    uid: str
    created_at: datetime
    controller: str = ""
    protected_until: datetime | None = None
    ready: bool = True
    deletion_cost: int = 0


@dataclass(frozen=True, slots=True)
class BoundPod:
    """A pod that the scheduler bound to a node, by the clock of the API server. `name` is
    `namespace/name`."""

    name: str
    uid: str
    node: str
    created_at: datetime
    bound_at: datetime

    @property
    def seconds(self) -> int:
        """The whole seconds from its creation to its node: the API server writes no fractions."""
        return max(0, int((self.bound_at - self.created_at).total_seconds()))


@dataclass(frozen=True, slots=True)
class NodeDetails:
    """A Node besides its resources.

    - `instance`: the id of its instance, empty without one.
    - `ready`: its condition Ready is True, since `ready_since` if the Node says that.
    - `unhealthy`: why it is unhealthy by its conditions, None if it is not.
    - `protected`: an annotation forbids to disrupt it. Not `consolidated`: one forbids that.
    - `pods`: the pods that keep it from being empty. `staying`: other pods on it that may forbid to
      disrupt it: those of DaemonSets and static ones.
    - `busy_until`: until when pods terminate on it, or the scheduler preempts others there for a
      pod; None if none does.
    - `changed_at`: when the last of its pods came or went, or when a read found that; None if none
      has since the first read.
    """

    instance: str
    created_at: datetime
    ready: bool = False
    ready_since: datetime | None = None
    unhealthy: Unhealthy | None = None
    protected: bool = False
    consolidated: bool = True
    staying: tuple[ObservedPod, ...] = ()
    pods: tuple[ObservedPod, ...] = ()
    busy_until: datetime | None = None
    changed_at: datetime | None = field(default=None, compare=False)

    def is_busy(self, now: datetime) -> bool:
        """Whether the pods that a drain would wait for, or that come, keep it from being quiet."""
        return self.busy_until is not None and now < self.busy_until


@dataclass(frozen=True, slots=True)
class PodBudget:
    """A PodDisruptionBudget, and how many of its pods may be disrupted now. `only_ready`: it keeps
    only pods that are Ready."""

    namespace: str
    name: str
    selector: LabelSelector | None
    allowed: int
    only_ready: bool = False

    def selects(self, pod: Pod) -> bool:
        """Whether it selects a pod. A missing selector selects nothing. Source: Kubernetes API,
        `PodDisruptionBudgetSpec.selector`."""
        of_namespace = self.selector is not None and pod.spec.namespace == self.namespace
        return of_namespace and self.selector is not None and self.selector.selects(pod.spec.labels)


def blocking(budgets: Iterable[PodBudget], pod: Pod, ready: bool = True) -> tuple[str, ...]:
    """Return the names of the budgets that let the API server refuse the eviction of a pod now. It
    evicts no pod that several budgets select. Source: Kubernetes, eviction subresource."""
    selecting = [one for one in budgets if one.selects(pod)]
    if len(selecting) > 1:
        return tuple(one.name for one in selecting)
    return tuple(one.name for one in selecting if one.allowed < 1 and (ready or not one.only_ready))


@dataclass(frozen=True, slots=True)
class ClaimedNode:
    """The node of an instance that Karpenter has launched, as its NodeClaim describes it. `node` is
    without pods; `startup_taints` are the keys of the taints that it has until it is ready."""

    instance: str
    created_at: datetime
    node: ExistingNode
    startup_taints: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class UnreadableObject:
    """An object that the API server returned and that Leeway can't read. `name` is
    `namespace/name`, or the name of an object without a namespace."""

    kind: str
    name: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The state of a cluster at the time `read_at`.

    - `nodes`: all other Nodes, with the pods that are bound to them.
    - `unusable`: Nodes that are being deleted or can't be read. They take no pods, and count
      against the limits of their pools.
    - `joined`: the ids of the instances that have a Node, and the names of these Nodes.
    - `waiting`: the pods that the scheduler has not bound, the oldest first.
    - `bound`: the pods that it bound in the last hour, also those that have gone since.
    - `daemons`: the pods of DaemonSets that a new node gets.
    - `movable`: by the name of a node, the pods on it that need another place when it is drained,
      as if they were pending.
    - `leaving`: by the name of a node, the uids of the controllers of the pods that terminate on
      it, one for each pod. A controller creates another pod in its place.
    - `details`: by the name of a node, what decides whether it may be given back.
    - `budgets`: the PodDisruptionBudgets.
    - `claimed`: the nodes that Karpenter has launched, whether they have joined or not.
    - `unreadable`: objects that are not in the state, or only with their requests.
    """

    read_at: datetime
    nodes: Sequence[ExistingNode] = ()
    joined: Mapping[str, str] = field(default_factory=dict)
    waiting: Sequence[ObservedPod] = ()
    bound: Sequence[BoundPod] = ()
    daemons: Sequence[PodSpec] = ()
    movable: Mapping[str, Sequence[Pod]] = field(default_factory=dict)
    leaving: Mapping[str, Sequence[str]] = field(default_factory=dict)
    details: Mapping[str, NodeDetails] = field(default_factory=dict)
    budgets: Sequence[PodBudget] = ()
    claimed: Sequence[ClaimedNode] = ()
    unreadable: Sequence[UnreadableObject] = ()
    unusable: Sequence[ExistingNode] = ()

    def uncordoned(self, instances: Collection[str]) -> "ClusterState":
        """Return the state as it will be when the nodes of these instances take pods again."""
        names = {self.joined.get(one) for one in instances}
        nodes = (
            replace(one, taints=tuple(t for t in one.taints if t.key not in {CORDONED, RETIRING}))
            if one.name in names
            else one
            for one in self.nodes
        )
        return replace(self, nodes=tuple(nodes)) if names else self


class ClusterStates(Protocol):
    """Reads of clusters."""

    def read(self, cluster: str) -> ClusterState:
        """Read the current state of a cluster.

        Raises:
            ClusterUnavailable, ClusterRefused: the API server did not answer, or refused.
        """
        ...


CORDONED = "node.kubernetes.io/unschedulable"
"""The key of the taint of a cordoned node. Source: Kubernetes, "Well-Known Labels, Annotations and
Taints"."""

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
DISRUPTED = Taint("karpenter.sh/disrupted")
"""Source: Karpenter documentation, "Disruption"."""

_NOT_IN_SPEC = frozenset({"nodeName", "schedulerName", "schedulingGates", "volumes"})
"""Fields of a pod's spec that its PodSpec without volumes does not depend on."""


@dataclass(frozen=True, slots=True)
class KeptPod:
    """A pod. `node` is the node that it is bound to or nominated for. `spec` is without the needs
    of its volumes; `volumes` is the part of the Pod's spec with its volumes, None without needs.
    `ends_at`: when the grace period of a terminating pod ends, None if it says nothing readable.
    `stays_with_node`: it is a DaemonSet's or a static pod, so that its node may be empty. `ready`:
    its condition Ready is True. `bound_at`: when it was bound, None if the API server does not say
    that."""

    key: str
    uid: str
    created_at: datetime
    node: str
    bound: bool
    spec: PodSpec
    volumes: Document | None
    daemon: bool
    finished: bool
    terminating: bool
    waits: bool
    movable: bool
    ends_at: datetime | None = None
    controller: str = ""
    stays_with_node: bool = False
    protected_until: datetime | None = None
    ready: bool = True
    deletion_cost: int = 0
    bound_at: datetime | None = None

    @property
    def may_forbid(self) -> bool:
        """Whether it may forbid to disrupt its node, though it stays there until the instance ends.
        A pod that tolerates the taint of Karpenter's drains is not evicted by them, so that no
        budget is asked about it. Source: Karpenter, `ValidatePodsDisruptable`."""
        if self.finished or self.terminating:
            return False
        evicted = self.daemon and not self.spec.tolerates(DISRUPTED)
        return evicted or self.protected_until is not None


@dataclass(slots=True)
class PodSpecs:
    """PodSpecs by the content that they are read from: most pods of a workload have equal ones, and
    reading one takes longer than everything else that is done with a pod."""

    known: dict[tuple[str, bytes], PodSpec] = field(default_factory=dict)

    def of(self, pod: Document) -> PodSpec:
        """Read a pod without its volumes.

        Raises:
            BadObject: the pod is invalid.
        """
        spec = pod.get("spec") or {}
        content = {name: value for name, value in spec.items() if name not in _NOT_IN_SPEC}
        labels = (pod.get("metadata") or {}).get("labels")
        key = (namespace_of(pod), msgspec.json.encode((labels, content, resizing(pod))))
        found = self.known.get(key)
        if found is None:
            check(pod, "Pod")
            # The API server has written the priority of a stored pod as a number.
            found = self.known[key] = spec_without_volumes(pod, {})
        return found

    def limit(self, pods: int) -> None:
        """Forget all if most are of pods that are gone."""
        if len(self.known) > 2 * pods + 1000:
            self.known.clear()


def read_pod(key: str, document: Document, specs: PodSpecs) -> KeptPod:
    """Read a Pod.

    Raises:
        BadObject: it is invalid.
    """
    metadata = document.get("metadata") or {}
    volumes = [
        each
        for each in (document.get("spec") or {}).get("volumes") or ()
        if has_claim(each) or each.get("awsElasticBlockStore")
    ]
    return KeptPod(
        key=key,
        uid=str(metadata.get("uid") or ""),
        created_at=creation_time(document),
        node=node_of(document),
        bound=bool(bound_node(document)),
        spec=specs.of(document),
        volumes={"volumes": volumes} if volumes else None,
        daemon=bool(daemon_of(document)),
        finished=is_finished(document),
        terminating=is_terminating(document),
        waits=waits_for_node(document),
        movable=needs_another_place(document),
        ends_at=read_time(metadata.get("deletionTimestamp")),
        controller=controller_of(document),
        stays_with_node=bool(daemon_of(document)) or is_mirror(document),
        protected_until=_protected_until(document),
        ready=_condition(document, "Ready").get("status") == "True",
        deletion_cost=_deletion_cost(document),
        bound_at=_bound_at(document),
    )


def reduced_pod(key: str, document: Document) -> KeptPod:
    """Return a bound pod that can't be read, with its requests if these can be read."""
    pods = Resources({"pods": 1})
    try:
        requests = requests_of(document.get("spec") or {}) + pods
    except (AttributeError, KeyError, TypeError, ValueError):
        requests = pods
    return KeptPod(
        key=key,
        uid="",
        created_at=FOREVER,
        node=bound_node(document),
        bound=True,
        spec=PodSpec(namespace_of(document), requests=requests),
        volumes=None,
        daemon=False,
        finished=is_finished(document),
        terminating=is_terminating(document),
        waits=False,
        movable=False,
    )


@dataclass(frozen=True, slots=True)
class KeptNode:
    """A Node without its pods. `created` is its time of creation as the API server writes it, empty
    without one."""

    node: ExistingNode
    instance: str
    created: str
    terminating: bool
    details: NodeDetails


def read_node(document: Document) -> KeptNode:
    """Read a validated Node.

    Raises:
        ValueError: an amount is invalid.
    """
    metadata, instance = document.get("metadata") or {}, instance_of(document)
    return KeptNode(
        node_without_pods(document),
        instance,
        str(metadata.get("creationTimestamp") or ""),
        is_terminating(document),
        details_of(document, instance),
    )


def read_claimed(document: Document) -> ClaimedNode | None:
    """Read a validated NodeClaim; None before its instance is launched, and while it is deleted.
    Karpenter writes the labels and amounts of the node when it has launched the instance.

    Raises:
        ValueError: its time of creation or an amount is invalid.
    """
    spec, instance = document.get("spec") or {}, instance_of(document, "status")
    if not instance or is_terminating(document):
        return None
    return ClaimedNode(
        instance,
        creation_time(document),
        node_without_pods(document),
        frozenset(one["key"] for one in spec.get("startupTaints") or ()),
    )


def reduced_node(document: Document) -> KeptNode:
    """Return a Node that can't be read: it counts as terminating, which no pod is planned for. Its
    names are valid, and its other fields may be of any shape."""
    metadata, instance = document.get("metadata") or {}, instance_of(document)
    labels = metadata.get("labels")
    named = labels.get(NODEPOOL) if isinstance(labels, Mapping) else None
    pool = named if isinstance(named, str) else ""
    return KeptNode(
        ExistingNode(name_of(document), {}, Resources(), pool=pool),
        instance,
        str(metadata.get("creationTimestamp") or ""),
        terminating=True,
        details=NodeDetails(instance, FOREVER),
    )


DEFAULT_SCHEDULER = "default-scheduler"

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"


def waits_for_node(pod: Document) -> bool:
    """Whether a node may be launched for a pod, unless the scheduler preempts others for it.

    kube-scheduler binds a pod of the default scheduler as soon as a node holds it. Another
    scheduler may hold pods back on purpose, for example until all pods of a job fit. Its pods count
    only after it has set the condition PodScheduled to False with the reason Unschedulable.
    """
    if not needs_node(pod):
        return False
    scheduler = (pod.get("spec") or {}).get("schedulerName") or DEFAULT_SCHEDULER
    return scheduler == DEFAULT_SCHEDULER or _was_unschedulable(pod)


def _was_unschedulable(pod: Document) -> bool:
    scheduled = _condition(pod, "PodScheduled")
    return scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"


def _bound_at(pod: Document) -> datetime | None:
    """Return when a pod was bound: the API server sets the condition then, by its own clock."""
    scheduled = _condition(pod, "PodScheduled")
    is_bound = bound_node(pod) and scheduled.get("status") == "True"
    return read_time(scheduled.get("lastTransitionTime")) if is_bound else None


def _condition(document: Document, kind: str) -> Document:
    """Return a condition; empty without it."""
    conditions = (document.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == kind), {})


def is_mirror(pod: Document) -> bool:
    """Whether a pod is the mirror pod of a static pod."""
    metadata = pod.get("metadata") or {}
    return MIRROR_ANNOTATION in (metadata.get("annotations") or {})


def needs_another_place(pod: Document) -> bool:
    """Whether a pod will be pending after a drain of its node, by the rules of the drain.

    The drain leaves pods of DaemonSets and static pods. Nothing creates a pod without a controller
    again. The successor of a terminating pod exists already, except in a StatefulSet, which creates
    it after the pod has ended.
    """
    metadata = pod.get("metadata") or {}
    if not bound_node(pod) or is_finished(pod) or daemon_of(pod):
        return False
    if is_mirror(pod):
        return False
    owners = metadata.get("ownerReferences") or ()
    kinds = {owner["kind"] for owner in owners if owner.get("controller")}
    return "StatefulSet" in kinds if is_terminating(pod) else bool(kinds)


def budget_of(document: Document) -> PodBudget:
    """Read a validated PodDisruptionBudget. Without a status it allows no disruption.

    Source: Kubernetes documentation, "Unhealthy Pod Eviction Policy".
    """
    spec, status = document.get("spec") or {}, document.get("status") or {}
    healthy, desired = status.get("currentHealthy") or 0, status.get("desiredHealthy") or 0
    return PodBudget(
        namespace_of(document),
        name_of(document),
        selector_of(spec.get("selector")),
        int(status.get("disruptionsAllowed") or 0),
        only_ready=spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
        or healthy >= desired > 0,
    )


def details_of(document: Document, instance: str) -> NodeDetails:
    """Read a validated Node without its pods."""
    metadata, ready = document.get("metadata") or {}, _condition(document, "Ready")
    annotations = metadata.get("annotations") or {}
    return NodeDetails(
        instance=instance,
        created_at=read_time(metadata.get("creationTimestamp")) or FOREVER,
        ready=ready.get("status") == "True",
        ready_since=read_time(ready.get("lastTransitionTime")),
        unhealthy=why_unhealthy(_conditions(document)),
        protected=annotations.get(DO_NOT_DISRUPT) == "true",
        consolidated=annotations.get(DO_NOT_CONSOLIDATE) != "true",
    )


def _conditions(document: Document) -> Iterator[NodeCondition]:
    for one in (document.get("status") or {}).get("conditions") or ():
        kind, status = str(one.get("type")), str(one.get("status"))
        yield NodeCondition(kind, status, read_time(one.get("lastTransitionTime")))


def _protected_until(pod: Document) -> datetime | None:
    metadata, status = pod.get("metadata") or {}, pod.get("status") or {}
    started = read_time(status.get("startTime") or metadata.get("creationTimestamp"))
    return protected_until(metadata.get("annotations"), started)


def _deletion_cost(pod: Document) -> int:
    """Read the cost of deleting a pod; 0 without one. Source: Kubernetes documentation, "Pod
    deletion cost"."""
    metadata = pod.get("metadata") or {}
    try:
        return int((metadata.get("annotations") or {}).get(DELETION_COST) or 0)
    except ValueError:
        return 0


def read_time(text: Any) -> datetime | None:
    """Read a time of Kubernetes; None if it is missing or invalid."""
    try:
        time = datetime.fromisoformat(str(text or ""))
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
