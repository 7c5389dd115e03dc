"""The state of a cluster as provision_nodes reads it, and its Protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from leeway.provisioning.node_details import NodeDetails, PodBudget
from leeway.reasons import Reason
from leeway.selection.pods import ExistingNode, Pod, PodSpec


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
