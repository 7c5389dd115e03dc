"""The state of a cluster as provision_nodes reads it, and its Protocol."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from leeway.reasons import Reason
from leeway.selection.pods import ExistingNode, LabelSelector, Pod, PodSpec

FOREVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PodOnNode:
    """A pod that runs on a node, and is neither a DaemonSet's nor a static pod.

    `controlled`: a controller creates it again. `protected_until` is until when an annotation
    forbids to disrupt it. `created_at` is None if it is not known. `ready`: its condition Ready is
    True.
    """

    pod: Pod
    uid: str
    controlled: bool
    protected_until: datetime | None = None
    created_at: datetime | None = None
    ready: bool = True


@dataclass(frozen=True, slots=True)
class NodeDetails:
    """A Node besides its resources.

    - `instance`: the id of its instance, empty without one.
    - `ready`: its condition Ready is True, since `ready_since` if the Node says that.
    - `protected`: an annotation forbids to disrupt it.
    - `pods`: the pods that keep it from being empty.
    - `busy`: a pod terminates on it, or the scheduler preempts others there for a pod.
    - `changed_at`: when the last of its pods came or went, or when a read found that; None if none
      has since the first read.
    """

    instance: str
    created_at: datetime
    ready: bool = False
    ready_since: datetime | None = None
    protected: bool = False
    pods: tuple[PodOnNode, ...] = ()
    busy: bool = False
    changed_at: datetime | None = field(default=None, compare=False)


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
class WaitingPod:
    """A pod without a node. Its name is in `pod`, as `namespace/name`; `controller` is the uid of
    its controller, such as a ReplicaSet, empty without one."""

    pod: Pod
    uid: str
    created_at: datetime
    controller: str = ""


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
    waiting: Sequence[WaitingPod] = ()
    daemons: Sequence[PodSpec] = ()
    movable: Mapping[str, Sequence[Pod]] = field(default_factory=dict)
    leaving: Mapping[str, Sequence[str]] = field(default_factory=dict)
    details: Mapping[str, NodeDetails] = field(default_factory=dict)
    budgets: Sequence[PodBudget] = ()
    claimed: Sequence[ClaimedNode] = ()
    unreadable: Sequence[UnreadableObject] = ()
    unusable: Sequence[ExistingNode] = ()


class ClusterStates(Protocol):
    """Reads of clusters."""

    def read(self, cluster: str) -> ClusterState:
        """Read the current state of a cluster.

        Raises:
            ClusterUnavailable, ClusterRefused: the API server did not answer, or refused.
        """
        ...
