"""Whether the rest of the cluster has room for the pods of lost nodes, and what is launched.

Selection plans it, as for `leeway select`: first on the nodes that stay, then with the nodes that
replace the lost ones, at last on nodes of Leeway's pools.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from leeway.reasons import Reason
from leeway.selection.labels import HOSTNAME
from leeway.selection.offers.allocatable import NodeClass
from leeway.selection.offers.catalog import Catalog
from leeway.selection.packing.plan import Plan, PlannedNode
from leeway.selection.packing.planning import LAUNCHES, pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import ExistingNode, NodePool, Pod
from leeway.selection.resources import Resources

from leeway_cli.rehearse.cluster import Cluster, NodeFacts, Pace


@dataclass(frozen=True, slots=True)
class Place:
    """The node for a pod. `ready_in` are the seconds from the notice until it is Ready, 0 for a
    node of the cluster."""

    node: str
    ready_in: float = 0.0


@dataclass(frozen=True, slots=True)
class Launch:
    """A node that is launched: for a `pool`, or in place of the node `instead_of`. `price_per_hour`
    is None if it is not known."""

    pool: str
    instead_of: str
    instance_types: tuple[str, ...]
    zones: tuple[str, ...]
    capacity_type: str
    price_per_hour: float | None
    pods: tuple[str, ...] = ()


@dataclass(frozen=True)
class Placements:
    """The places of the pods of lost nodes by `namespace/name`, the nodes that are launched, and
    why a pod has no place."""

    places: Mapping[str, Place] = field(default_factory=dict)
    launches: tuple[Launch, ...] = ()
    without: Mapping[str, Reason] = field(default_factory=dict)

    @property
    def on_existing(self) -> int:
        """How many pods get a place on a node that the cluster has."""
        return sum(not place.ready_in for place in self.places.values())

    @property
    def price(self) -> float | None:
        """The price of the launched nodes in USD per hour; None if one of them is not known."""
        prices = [launch.price_per_hour for launch in self.launches]
        known = [price for price in prices if price is not None]
        return sum(known) if len(known) == len(prices) else None


_EFFORT = replace(LAUNCHES, improvements=20)
"""Less than for real launches: a rehearsal plans hundreds of times."""

_PREFIX = "replacement-of-"


@dataclass(frozen=True)
class Market:
    """What may be launched. `pools` are Leeway's own. Without known prices (`priced`), the types
    are those of the catalog, and their prices are left out."""

    pools: tuple[NodePool, ...]
    catalog: Catalog
    priced: bool


class Room:
    """Plans places in one cluster. Build it once, plan many times."""

    def __init__(self, cluster: Cluster, market: Market, pace: Pace) -> None:
        self._cluster, self._market, self._pace = cluster, market, pace
        self._nothing = Supply((), market.catalog, daemons=cluster.state.daemons)
        self._supply = Supply(market.pools, market.catalog, daemons=cluster.state.daemons)
        self._prices: dict[tuple[str, str, str], float | None] = {}

    def plan(self, lost: frozenset[str]) -> Placements:
        """Plan a place for every pod of the lost nodes that is created again."""
        state = self._cluster.state
        moving = [pod for name in sorted(lost) for pod in state.movable.get(name, ())]
        waiting = [one.pod for one in state.waiting]
        nodes = [node.closed() if node.name in lost else node for node in state.nodes]
        first = pack([*waiting, *moving], self._nothing, nodes, _EFFORT)
        places = {pod: Place(one.node) for one in first.existing for pod in one.pods}
        left = {one.pod for one in first.unschedulable}
        names = {pod.name for pod in moving}
        joining = self._replacements(lost)
        launches = [self._in_place_of(self._cluster.nodes[name]) for name in sorted(joining)]
        without = {one.pod: one.reason for one in first.unschedulable}
        if left and (joining or self._market.pools):
            taken = _with_placed(nodes, first, [*waiting, *moving])
            rest = [pod for pod in [*waiting, *moving] if pod.name in left]
            second = pack(rest, self._supply, [*taken, *joining.values()], _EFFORT)
            places |= self._later(second)
            launches += [self._of_pool(node) for node in second.launches]
            without = {one.pod: one.reason for one in second.unschedulable}
        return Placements(
            {pod: place for pod, place in places.items() if pod in names},
            tuple(launches),
            {pod: reason for pod, reason in without.items() if pod in names},
        )

    def _replacements(self, lost: frozenset[str]) -> dict[str, ExistingNode]:
        """Return the nodes that replace lost nodes one by one, by the name of the lost node: the
        group or the other controller of a node launches another one of its shape."""
        found = {}
        for node in self._cluster.state.nodes:
            if node.name in lost and not self._cluster.nodes[node.name].pool:
                name = f"{_PREFIX}{node.name}"
                labels = {**node.labels, HOSTNAME: name}
                nothing = Resources()
                found[node.name] = replace(
                    node,
                    name=name,
                    labels=labels,
                    pods=(),
                    terminating=nothing,
                    daemons=nothing,
                    terminating_pods=(),
                )
        return found

    def _later(self, plan: Plan) -> dict[str, Place]:
        """Return the places on nodes of the cluster, which later pods have room on too, and on
        nodes that are launched."""
        ready_in = self._pace.node_start
        places: dict[str, Place] = {}
        for one in plan.existing:
            late = ready_in if one.node.startswith(_PREFIX) else 0.0
            places |= {pod: Place(one.node, late) for pod in one.pods}
        for number, launched in enumerate(plan.launches, 1):
            name = f"{launched.pool}-new-{number}"
            places |= {pod: Place(name, ready_in) for pod in launched.pods}
        return places

    def _of_pool(self, node: PlannedNode) -> Launch:
        choice = node.choices[0]
        return Launch(
            node.pool,
            "",
            choice.instance_types,
            choice.zones,
            choice.capacity_type,
            choice.price if self._market.priced else None,
            node.pods,
        )

    def _in_place_of(self, node: NodeFacts) -> Launch:
        price = self._price(node) if self._market.priced else None
        owner = node.groups[0] if node.groups else ""
        types = (node.instance_type,) if node.instance_type else ()
        zones = (node.zone,) if node.zone else ()
        return Launch(owner, node.name, types, zones, node.capacity_type, price)

    def _price(self, node: NodeFacts) -> float | None:
        """Return what the catalog says about the price of a node in USD per hour."""
        key = (node.instance_type, node.zone, node.capacity_type)
        if key not in self._prices:
            self._prices[key] = self._read_price(*key)
        return self._prices[key]

    def _read_price(self, name: str, zone: str, capacity_type: str) -> float | None:
        catalog = self._market.catalog
        if name not in catalog.index:
            return None
        kind = catalog.for_node_class(NodeClass()).type(catalog.index[name])
        for offering in kind.offerings:
            if (offering.zone, offering.capacity_type) == (zone, capacity_type):
                return offering.price
        return None


def _with_placed(
    nodes: Sequence[ExistingNode], plan: Plan, pods: Sequence[Pod]
) -> list[ExistingNode]:
    """Return the nodes with the pods that a plan has placed on them."""
    specs = {pod.name: pod.spec for pod in pods}
    placed = {one.node: tuple(specs[name] for name in one.pods) for one in plan.existing}
    return [replace(node, pods=(*node.pods, *placed.get(node.name, ()))) for node in nodes]
