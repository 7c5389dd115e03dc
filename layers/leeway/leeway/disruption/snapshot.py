"""The state of a cluster from which it is decided what is given back, and the decision.

No I/O: it is made of what a run of provision_nodes has read. `leeway explain` makes it here, too.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import isfinite

from leeway.disruption.drift import DRIFTS_AFTER, CurrentLaunch, drift_of, launch_drift_of
from leeway.disruption.rules import Cause, ReturnRules, rules_of
from leeway.instances.facts import InstanceFacts, OwnerKind
from leeway.launch.fleets import Offers
from leeway.launch.images import variant_of
from leeway.launch.intent import LaunchIntent, doubted_pools, nodes_on_the_way
from leeway.launch.prices import PriceCeiling, Prices, SpendingLimit
from leeway.manifests.node_pool import NodePool as PoolManifest
from leeway.manifests.node_pool import pools_of
from leeway.policy.repair import Unhealthy
from leeway.policy.rules import USUAL, Worth
from leeway.pool_pauses import PoolRecord
from leeway.ports.kubernetes_objects import RETIRING
from leeway.provisioning.brakes import workload_of
from leeway.provisioning.cluster_state import NodeDetails, ObservedPod, PodBudget, blocking
from leeway.provisioning.demand import ClusterRead
from leeway.reasons import Reason
from leeway.selection.labels import CAPACITY_TYPE, INITIALIZED, INSTANCE_TYPE, ZONE
from leeway.selection.offers.catalog import Catalog, Unavailable
from leeway.selection.offers.reservations import Reservation
from leeway.selection.packing.pod_groups import tolerating_soft_taints
from leeway.selection.pods import ExistingNode, NodePool, Pod, PodSpec


@dataclass(frozen=True, slots=True)
class MovablePod:
    """A pod that keeps its node from being empty, and needs another place if the node goes.

    `protected_until` is until when an annotation forbids to disrupt it. `blocked_by` are the
    PodDisruptionBudgets that allow no disruption of it now. `bare`: no controller creates it again.
    `deletion_cost` is that of its annotation. `surges`: its workload may get one more pod first, so
    that its budget does not keep the node.
    """

    pod: Pod
    protected_until: datetime | None = None
    blocked_by: tuple[str, ...] = ()
    bare: bool = False
    deletion_cost: int = 0
    surges: bool = False

    @property
    def eviction_cost(self) -> float:
        """What its eviction counts: 1 for most pods, 0 to 10 by its deletion cost and its priority.
        Source: Karpenter, `EvictionCost`, whose negative costs no order uses."""
        cost = 1 + self.deletion_cost / 2**27 + self.pod.spec.priority / 2**25
        return min(max(cost, 0.0), 10.0)


@dataclass(frozen=True, slots=True)
class OwnNode:
    """A node that Leeway launched.

    - `node`: the node with all its pods, as selection sees it.
    - `price`: USD per hour of its offering now, None if it is not known.
    - `quiet_since`: when the last of its pods came or went, or the node became Ready.
    - `staying`: the pods of DaemonSets and static ones that forbid to disrupt it.
    - `ready`: it is initialized, and its condition Ready is True.
    - `protected`: an annotation of the node forbids to disrupt it. Not `consolidated`: one forbids
      that.
    - `busy`: a pod terminates on it, the scheduler preempts others there for a pod, or it is empty
      and was launched for pods that still wait.
    - `going`: it is being retired, or its instance is interrupted. `asleep`: it is going because
      its pool hibernates. `gone`: it was given back empty, and EC2 ends its instance; only its Node
      is left.
    - `drift`: how it differs from what would be launched now; empty if it does not.
    - `unhealthy`: why it is unhealthy by its conditions, None if it is not.
    """

    node: ExistingNode
    instance: str
    pool: str
    instance_type: str
    zone: str
    capacity_type: str
    price: float | None
    created_at: datetime
    quiet_since: datetime
    pods: tuple[MovablePod, ...] = ()
    staying: tuple[MovablePod, ...] = ()
    ready: bool = True
    initialized: bool = True
    protected: bool = False
    consolidated: bool = True
    going: bool = False
    asleep: bool = False
    gone: bool = False
    busy: bool = False
    drift: tuple[str, ...] = ()
    unhealthy: Unhealthy | None = None

    @property
    def name(self) -> str:
        """The name of its Node."""
        return self.node.name

    @property
    def disruption_cost(self) -> float:
        """1 for the node, and the evictions of its pods. Source: Karpenter, `SavingsRatio`."""
        return 1 + sum(movable.eviction_cost for movable in self.pods)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A cluster at the time `now` (aware, UTC).

    - `others`: the nodes that are not Leeway's own, and instances that have not joined yet.
    - `starting`: the names of nodes that are not initialized. They have room for pods that wait.
    - `waiting`: pods without a node, and those that scheduled headroom will create soon: nodes with
      room for them are needed.
    - `pools`, `catalog`, `unavailable`, `daemons`: what could be launched instead; no pool that
      hibernates is among them.
    - `rules`: the rules of each pool by its name; of a pool without rules nothing is given back.
    - `most`: how many nodes the disruption budget of the cluster allows now.
    - `spending_limits`: what nodes of pools cost that have a limit in money, and the limits.
    - `declined`: until when nodes stay that were to go shortly before and were kept, by name.
    - `doubted`: the pools whose last launches have not joined; `awaited` are the names of their
      instances on the way. Neither is a destination.
    """

    now: datetime
    own: tuple[OwnNode, ...]
    pools: Sequence[NodePool]
    catalog: Catalog
    rules: Mapping[str, ReturnRules]
    others: tuple[ExistingNode, ...] = ()
    starting: frozenset[str] = frozenset()
    waiting: tuple[Pod, ...] = ()
    unavailable: frozenset[Unavailable] = frozenset()
    daemons: tuple[PodSpec, ...] = ()
    worth: Worth = USUAL
    most: int | None = None
    spending_limits: tuple[SpendingLimit, ...] = ()
    declined: Mapping[str, datetime] = field(default_factory=dict)
    doubted: frozenset[str] = frozenset()
    awaited: frozenset[str] = frozenset()

    def quiet(self, nodes: Iterable[OwnNode]) -> timedelta:
        """Return for how long no pod has come to any of these nodes or left it."""
        return self.now - max(one.quiet_since for one in nodes)

    def is_full(self, one: OwnNode) -> bool:
        """Whether a node takes no pods of nodes that are consolidated: it starts, its pool
        hibernates, or it is inside the consolidateAfter of its pool. Source: Karpenter,
        `IsUnderConsolidateAfter`."""
        rules = self.rules.get(one.pool)
        after = None if rules is None else rules.after
        return (
            one.name in self.starting
            or (rules is not None and rules.hibernates is not None)
            or (after is not None and self.now - one.quiet_since < after)
        )


@dataclass(frozen=True, slots=True)
class NodeReturn:
    """Nodes that are given back together.

    - `nodes`: their names. Several nodes are given back together only for one that replaces them.
    - `replaced`: their pods need a new node, which is requested before the first of them goes.
    - `saving`: USD per hour. `moves`: how many pods move. `loose`: those of them that lose
      preferences which hold where they are.
    - `in_place`: a static pool launches a node in the place of this one before it goes.
    """

    nodes: tuple[str, ...]
    cause: Cause
    reason: Reason
    saving: float = 0.0
    moves: int = 0
    replaced: bool = False
    loose: frozenset[str] = frozenset()
    in_place: bool = False


@dataclass(frozen=True, slots=True)
class ReturnDecision:
    """What is given back now; `kept` has the reason for each other node of Leeway's own.

    `waiting` would be given back now if a budget allowed it. `due_at` is when the next empty node
    has been quiet for long enough, None if there is none.
    """

    returns: tuple[NodeReturn, ...] = ()
    waiting: tuple[NodeReturn, ...] = ()
    due_at: datetime | None = None
    kept: Mapping[str, Reason] = field(default_factory=dict)


def own_instances(
    instances: Mapping[str, InstanceFacts], foreign: Collection[str] = ()
) -> Mapping[str, InstanceFacts]:
    """Return the instances that Leeway may have launched: by their tags, those that only EC2 and
    EKS can write among them. `foreign` are those for which no launch is recorded."""
    return {
        name: facts
        for name, facts in instances.items()
        if facts.owner.kind is OwnerKind.LEEWAY
        and facts.joined
        and facts.from_fleet
        and name not in foreign
    }


def snapshot_of(
    read: ClusterRead,
    own: Mapping[str, InstanceFacts],
    quiet: Mapping[str, datetime],
    retiring: Collection[str] = (),
    unavailable: Collection[Unavailable] = (),
    most: int | None = None,
    worth: Worth = USUAL,
    launches: Mapping[str, CurrentLaunch] | None = None,
    gone: Collection[str] = (),
    deleted: Mapping[str, datetime] | None = None,
    index: Mapping[str, InstanceFacts] | None = None,
    reservations: Mapping[str, tuple[Reservation, ...]] | None = None,
    records: Iterable[PoolRecord] = (),
    surges: bool = False,
    asleep: Collection[str] = (),
) -> Snapshot:
    """Make the snapshot of a cluster.

    `own` are Leeway's instances, by id; `quiet` is since when each node is quiet, by its name; a
    node that is not in it counts as quiet from now on. `retiring` are instances with an open
    retirement besides those that the cluster shows, `unavailable` offerings without capacity,
    `most` how many nodes the disruption budget of the cluster allows now, `worth` what a move of
    pods is worth. `launches` is what each pool would launch with now, by its name. `gone` are
    instances that were given back empty and that EC2 ends; `deleted` is when pools were deleted
    whose nodes are given back. `index` are all instances of the cluster by id, as of a few minutes
    ago: launched instances that are not in it, or have joined before, come no more. `reservations`
    are those that each pool may launch into, by its name. `records` are those of the pools.
    `surges`: workloads get one more pod before an eviction that their budgets refuse. `asleep` are
    the instances that are being retired because their pool hibernates.
    """
    reserved = reservations or {}
    pools = tuple(
        replace(one, reservations=reserved[one.name]) if one.name in reserved else one
        for one in pools_of(read.manifests)
    )
    by_name = {one.name: one for one in pools}
    making = _Nodes(
        read, own, quiet, frozenset(retiring), asleep, gone, by_name, launches or {}, surges
    )
    nodes = {node.name: node for node in read.demand.nodes}
    own_nodes = tuple(making.own_nodes(nodes))
    names = {one.name for one in own_nodes}
    moving = {m.pod.name for one in own_nodes if one.going for m in one.pods}
    now = read.state.read_at
    absent = () if index is None else ended(read.intents, index, now)
    known = read.state.joined.keys() | set(absent)
    coming = nodes_on_the_way(read.intents, known, pools, read.catalog, now)
    doubted = doubted_pools(records, read.intents, known, now)
    return Snapshot(
        now=now,
        own=own_nodes,
        pools=tuple(one for one in pools if one.name not in read.sleeping),
        catalog=read.catalog,
        rules={
            **{
                name: ReturnRules(after=None, deleted_at=at) for name, at in (deleted or {}).items()
            },
            **{
                m.metadata.name: rules_of(m, read.sleeping.get(m.metadata.name))
                for m in read.manifests
                if isinstance(m, PoolManifest)
            },
        },
        others=(*(node for name, node in nodes.items() if name not in names), *coming),
        starting=frozenset(
            [
                *(name for name in nodes if name not in read.state.details),
                *(one.name for one in own_nodes if not one.ready),
                *(one.name for one in coming),
                *(read.starting.keys() - making.initialized),
            ]
        ),
        waiting=tuple(pod for pod in read.demand.pods if pod.name not in moving),
        unavailable=frozenset(unavailable),
        daemons=tuple(read.state.daemons),
        worth=worth,
        most=most,
        spending_limits=_spending_limits(read, pools, own_nodes, (*nodes.values(), *coming)),
        doubted=doubted,
        awaited=frozenset(one.name for one in coming if one.pool in doubted),
    )


def _spending_limits(
    read: ClusterRead,
    pools: Sequence[NodePool],
    own: Iterable[OwnNode],
    nodes: Sequence[ExistingNode],
) -> tuple[SpendingLimit, ...]:
    """What the nodes of pools cost that have a limit in money, and the limits."""
    limited = [one for one in pools if one.usd_per_hour is not None]
    if not limited:
        return ()
    going = frozenset(one.name for one in own if one.going)
    limits = PriceCeiling(uncounted=going).spending_limits(
        read.cluster, limited, nodes, Prices(read.catalog)
    )
    return tuple(one for one in limits if one.pool)


INDEXED_WITHIN = timedelta(minutes=3)
"""How long after its launch an instance is in the index: `reconcile` looks each minute."""


def ended(
    intents: Iterable[LaunchIntent], index: Mapping[str, InstanceFacts], now: datetime
) -> Iterator[str]:
    """Yield the launched instances that have ended, or whose Nodes were deleted, if they have no
    Node."""
    for intent in intents:
        for one in intent.instances:
            facts = index.get(one.instance)
            if facts.joined if facts else now - intent.created_at > INDEXED_WITHIN:
                yield one.instance


def is_marked(node: ExistingNode) -> bool:
    """Whether a retirement has cordoned a node."""
    return any(taint.key == RETIRING for taint in node.taints)


def _awaited(read: ClusterRead) -> Iterator[str]:
    """The instances that were launched in the last hour for workloads whose pods still wait."""
    waiting = {workload_of(one.pod.name) for one in read.state.waiting}
    for intent in read.intents:
        if any(workload_of(pod) in waiting for pod in intent.pods):
            yield from (one.instance for one in intent.instances)


def _forbids(one: MovablePod) -> bool:
    return one.protected_until is not None or bool(one.blocked_by)


def _may_surge(one: ObservedPod, blocked_by: tuple[str, ...]) -> bool:
    """Whether the workload of a blocked pod may get one more pod first; retire_node, which may read
    the workload, decides it after the cordon. A volume that binds a pod to a zone keeps it."""
    moves = one.ready and bool(one.controller) and one.pod.spec.affinity is None
    return moves and len(blocked_by) == 1


class _Nodes:
    """Makes the nodes of Leeway's own."""

    def __init__(
        self,
        read: ClusterRead,
        own: Mapping[str, InstanceFacts],
        quiet: Mapping[str, datetime],
        retiring: frozenset[str],
        asleep: Collection[str],
        gone: Collection[str],
        pools: Mapping[str, NodePool],
        launches: Mapping[str, CurrentLaunch],
        surges: bool,
    ) -> None:
        self._read = read
        self._own = own
        self._quiet = quiet
        self._asleep = asleep
        self._gone = gone
        self._pools = pools
        self._launches = launches
        self._retiring = retiring | {one.instance for one in read.requests}
        self._offers = {
            name: Offers(read.catalog, node_class=pool.node_class) for name, pool in pools.items()
        }
        self._plain = Offers(read.catalog)
        self._budgets: dict[str, list[PodBudget]] = defaultdict(list)
        for budget in read.state.budgets:
            self._budgets[budget.namespace].append(budget)
        self._surges = surges
        self._blocked: dict[tuple[int, bool], tuple[str, ...]] = {}
        self._awaited = frozenset(_awaited(read))
        # By the Nodes themselves: those of the demand have the labels that were promised.
        self.initialized = frozenset(
            one.name for one in read.state.nodes if one.labels.get(INITIALIZED) == "true"
        )

    def own_nodes(self, nodes: Mapping[str, ExistingNode]) -> Iterator[OwnNode]:
        """Yield the nodes of instances that are Leeway's. If several Nodes name an instance, the
        oldest one counts."""
        for instance, name in sorted(self._read.state.joined.items()):
            facts, details = self._own.get(instance), self._read.state.details.get(name)
            if facts is not None and details is not None and name in nodes:
                yield self._own_node(nodes[name], facts, details)

    def _own_node(self, node: ExistingNode, facts: InstanceFacts, details: NodeDetails) -> OwnNode:
        now = self._read.state.read_at
        offers = self._offers.get(facts.owner.name, self._plain)
        price = offers.price(facts.instance_type, facts.zone, facts.capacity_type)
        # Without this, nodes that their pods can't use would go and be launched again for ever.
        awaited = not details.pods and facts.instance in self._awaited
        return OwnNode(
            node=node,
            instance=facts.instance,
            pool=facts.owner.name,
            instance_type=facts.instance_type,
            zone=facts.zone,
            capacity_type=facts.capacity_type,
            price=price if price is not None and isfinite(price) else None,
            created_at=details.created_at,
            quiet_since=now if details.is_busy(now) else self._quiet.get(node.name, now),
            pods=tuple(self._movable(one, node) for one in details.pods),
            staying=tuple(
                replace(pod, surges=False)
                for pod in (self._movable(one, node) for one in details.staying)
                if _forbids(pod)
            ),
            ready=details.ready and node.name in self.initialized,
            initialized=node.name in self.initialized,
            protected=details.protected,
            consolidated=details.consolidated,
            going=is_marked(node) or facts.instance in self._retiring,
            asleep=facts.instance in self._asleep,
            gone=facts.instance in self._gone,
            busy=details.is_busy(now) or awaited,
            drift=self._drift(node, facts, details),
            unhealthy=details.unhealthy,
        )

    def _movable(self, one: ObservedPod, node: ExistingNode) -> MovablePod:
        blocked_by, pod = self._blocked_by(one), one.pod
        soft = (one for one in node.taints if one.effect == "PreferNoSchedule")
        if not all(map(pod.spec.tolerates, soft)):
            # It runs in spite of a soft taint, so another one keeps it from no other node.
            pod = replace(pod, spec=tolerating_soft_taints(pod.spec))
        return MovablePod(
            pod,
            one.protected_until,
            blocked_by,
            surges=self._surges and _may_surge(one, blocked_by),
            bare=not one.controller,
            deletion_cost=one.deletion_cost,
        )

    def _blocked_by(self, one: ObservedPod) -> tuple[str, ...]:
        """The budgets that block a pod. Equal pods, as of a DaemonSet, have one PodSpec."""
        spec = one.pod.spec
        budgets = self._budgets.get(spec.namespace)
        if not budgets:
            return ()
        key = id(spec), one.ready
        if key not in self._blocked:
            self._blocked[key] = blocking(budgets, one.pod, one.ready)
        return self._blocked[key]

    def _drift(
        self, node: ExistingNode, facts: InstanceFacts, details: NodeDetails
    ) -> tuple[str, ...]:
        pool = self._pools.get(facts.owner.name)
        # A group may have the name of a pool.
        if pool is None or facts.owner.kind is not OwnerKind.LEEWAY:
            return ()
        if self._read.state.read_at - details.created_at < DRIFTS_AFTER:
            return ()
        offering = {
            INSTANCE_TYPE: facts.instance_type,
            ZONE: facts.zone,
            CAPACITY_TYPE: facts.capacity_type,
            **(facts.reservation.labels if facts.reservation else {}),
        }
        machine = self._read.catalog.machine(facts.instance_type)
        variant = None if machine is None else variant_of(machine)
        launch = self._launches.get(pool.name, CurrentLaunch())
        startup = [one.key for one in pool.startup_taints]
        return (
            *drift_of(node, offering, pool, startup),
            *launch_drift_of(facts, variant, launch),
        )
