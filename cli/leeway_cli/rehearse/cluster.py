"""The cluster of a rehearsal, and how long things take if its objects do not say it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from leeway.ports.kubernetes_objects import Pod
from leeway.provisioning.cluster_state import ClusterState


@dataclass(frozen=True, slots=True)
class Pace:
    """The assumptions of a rehearsal.

    - `late`: from the time in EC2's warning to its arrival.
    - `reaction`: from the arrival of a warning to the first eviction.
    - `node_start`: from the warning until a node that replaces another one is Ready.
    - `pod_start`: from the binding of a pod until it is Ready, if no pod of its workload shows it.
    - `pod_stop`: from a pod's SIGTERM to its end; None: it takes its whole grace period.
    - `detach`: from a pod's end until its volumes are detached.
    - `control_loop`: until a controller sees a change and creates a pod.
    - `node_removal`: from the end of a machine until its pods are created elsewhere.
    """

    late: float = 0.0
    reaction: float = 1.0
    node_start: float = 90.0
    pod_start: float = 10.0
    pod_stop: float | None = None
    detach: float = 5.0
    control_loop: float = 0.05
    node_removal: float = 40.0


@dataclass(frozen=True, slots=True)
class Workload:
    """The object that a user changes to change pods: a Deployment, a StatefulSet, another owner, or
    a Pod without a controller. `template` is the path of its pod template, empty for a Pod.

    `replicas` is what its spec asks for, or the number of its pods if that is not known. `in_order`
    says that its pods start one after the other. `manager` is the field manager or the tool that
    writes the object, empty if that is not known.
    """

    kind: str
    namespace: str
    name: str
    replicas: int
    template: str = "spec.template."
    in_order: bool = False
    manager: str = ""
    known: bool = True

    @property
    def key(self) -> str:
        """`Kind namespace/name`."""
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def keeps_names(self) -> bool:
        """Whether a pod is created again only after the pod of its name is gone."""
        return self.kind == "StatefulSet"


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget: the pods that must stay healthy (`desired`) of those `expected`.

    `problem` is why it allows no eviction at all. `evicts_unready`: pods that are not Ready are
    evicted in any case. `written` is its rule, such as `minAvailable: 2`.
    """

    namespace: str
    name: str
    desired: int
    expected: int
    problem: str = ""
    evicts_unready: bool = False
    written: str = ""
    manager: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A pod on a node, as a drain reads it (`pod`), and what a rehearsal needs besides.

    - `workload`: the key of its workload. `budgets`: the keys of the budgets that select it.
    - `starts_in`: until a pod in its place is Ready on a node. `stops_in`: from its SIGTERM to its
      end; None: it takes its whole grace period.
    - `returns`: it tolerates the taints of a retiring node, and its successor may come back.
    - `finalizers`: those that keep its object after its end.
    - `ordinal`: its number in a StatefulSet.
    """

    pod: Pod
    node: str
    workload: str
    ready: bool
    starts_in: float
    stops_in: float | None = None
    budgets: tuple[str, ...] = ()
    returns: bool = False
    finalizers: tuple[str, ...] = ()
    ordinal: int = 0


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node. `groups` are the names of its node group and pool; `retires_itself` names the
    controller that drains it without Leeway, empty if there is none."""

    name: str
    zone: str = ""
    instance_type: str = ""
    capacity_type: str = ""
    instance: str = ""
    groups: tuple[str, ...] = ()
    pool: str = ""
    retires_itself: str = ""


@dataclass(frozen=True)
class Cluster:
    """A cluster at `read_at`. `state` is what selection plans with: nodes, the pods on them and
    those that wait. `unread` are sentences about objects that could not be read. `kubectl` are the
    options of kubectl that a user gave to select the cluster."""

    read_at: datetime
    nodes: Mapping[str, NodeFacts]
    pods: tuple[RunningPod, ...]
    workloads: Mapping[str, Workload]
    budgets: Mapping[str, Budget]
    state: ClusterState
    unread: tuple[str, ...] = field(default=())
    kubectl: tuple[str, ...] = ()
