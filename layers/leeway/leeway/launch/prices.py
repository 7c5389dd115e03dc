"""Limits in money: what the nodes of Leeway's pools in a cluster cost per hour at most
(`spec.launches.usdPerHour`), and those of one pool (`leeway.sh/usd-per-hour` in its limits).

They count the prices of AWS, not those of overlays: an overlay that makes a type look cheap must
not release a brake. A user who may create pods may spend without bound otherwise. Pure.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, isfinite, nextafter

from leeway.capacity_requests import PriceLimit
from leeway.launch.fleets import FleetInstance, Offers
from leeway.reasons import Reason, ReasonCode
from leeway.selection.labels import CAPACITY_TYPE, INSTANCE_TYPE, ON_DEMAND, RESERVED, ZONE
from leeway.selection.offers.allocatable import NodeClass
from leeway.selection.offers.catalog import Catalog, bits
from leeway.selection.packing.plan import Plan, PlannedNode
from leeway.selection.pods import ExistingNode, NodePool
from leeway.selection.requirements import Requirement, Requirements

PRICE_CEILING_REACHED = ReasonCode(
    "PriceCeilingReached",
    "Leeway's nodes of cluster {cluster} cost {used:.2f} of at most {most:.2f} USD per hour, and a "
    "node costs {price:.4f} more: it is launched when others have gone; spec.launches.usdPerHour "
    "of the Cluster manifest changes the maximum.",
    "launchproblemsalarm",
)
POOL_PRICE_LIMIT_REACHED = ReasonCode(
    "PoolPriceLimitReached",
    "The nodes of pool {pool} cost {used:.2f} of at most {most:.2f} USD per hour, and a node costs "
    "{price:.4f} more: it is launched when others have gone; leeway.sh/usd-per-hour in spec.limits "
    "of the NodePool changes the maximum.",
    "a-pod-gets-no-node",
)

ROUNDING = 1e-9
"""USD per hour, by which sums of prices may differ."""

_MILLI = 1000


class Prices:
    """What nodes cost per hour, by the prices of a catalog. A price that is not known is estimated
    by the dearest vCPU of the catalog: a type without a price must not escape the ceiling."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._offers = Offers(catalog)

    def of(self, instance_type: str, zone: str, capacity_type: str, vcpus: float = 0.0) -> float:
        """Return USD per hour of an offering, of reserved capacity what it would cost on demand.
        `vcpus` counts for a type that is not in the catalog."""
        paid = ON_DEMAND if capacity_type == RESERVED else capacity_type
        price = self._offers.price(instance_type, zone, paid)
        if price is not None and isfinite(price):
            return price
        known = self._of_types.get(instance_type)
        return known if known is not None else self._vcpus(instance_type, vcpus) * self._per_vcpu

    def of_node(self, node: ExistingNode) -> float:
        """Return USD per hour of a node, by its labels."""
        label = node.labels.get
        vcpus = (node.capacity or node.allocatable).of("cpu") / _MILLI
        capacity_type = label(CAPACITY_TYPE, ON_DEMAND)
        return self.of(label(INSTANCE_TYPE, ""), label(ZONE, ""), capacity_type, vcpus)

    def of_instance(self, one: FleetInstance) -> float:
        """Return USD per hour of a launched instance."""
        return self.of(one.instance_type, one.zone, one.capacity_type)

    def of_planned(self, node: PlannedNode) -> float:
        """Return USD per hour of the cheapest offering of a planned node, without overlays."""
        offering, kind = node.cheapest.offering, node.cheapest.type
        if (published := self.published(node)) is not None:
            return published
        vcpus = kind.capacity.of("cpu") / _MILLI
        return self.of(kind.name, offering.zone, offering.capacity_type, vcpus)

    def published(self, node: PlannedNode) -> float | None:
        """Return the price that AWS publishes of that offering, None if it publishes none; of
        reserved capacity, what it would cost on demand."""
        offering, kind = node.cheapest.offering, node.cheapest.type
        reserved = offering.reservation is not None
        if not reserved and not node.cheapest.pool.node_class.overlays:
            return offering.price
        paid = ON_DEMAND if reserved else offering.capacity_type
        price = self._offers.price(kind.name, offering.zone, paid)
        return price if price is not None and isfinite(price) else None

    def dearer_than(self, most: float, requirements: Requirements) -> tuple[str, ...]:
        """Return the types of which every offering that matches has a known price above `most`."""
        table = self._catalog.for_node_class(NodeClass(), ())
        priced, cheap = 0, 0
        for market, available in table.markets_of(requirements):
            known = [(i, market.prices[i]) for i in bits(available)]
            priced |= available
            cheap |= sum(1 << i for i, price in known if not price > most)
        return tuple(table.catalog.names[i] for i in bits(priced & ~cheap))

    def _vcpus(self, instance_type: str, vcpus: float) -> float:
        machine = self._catalog.machine(instance_type)
        return vcpus if machine is None else float(machine.vcpus)

    @cached_property
    def _of_types(self) -> Mapping[str, float]:
        """The highest known price of each type."""
        markets = self._catalog.for_node_class(NodeClass(), ()).markets
        found: dict[str, float] = {}
        for name, index in self._catalog.index.items():
            prices = (market.prices[index] for market, _ in markets)
            known = [price for price in prices if isfinite(price)]
            if known:
                found[name] = max(known)
        return found

    @cached_property
    def _per_vcpu(self) -> float:
        """The highest known price of a vCPU; 0 if no price is known."""
        priced = ((price, self._vcpus(name, 0.0)) for name, price in self._of_types.items())
        return max((price / vcpus for price, vcpus in priced if vcpus), default=0.0)


@dataclass(frozen=True, slots=True)
class SpendingLimit:
    """What the nodes of a pool, or of a cluster, may cost in USD per hour at most.

    `pool` is the name of the pool, empty for all nodes of Leeway's pools in the `cluster`. Nodes
    cost `used` of `most`. Nodes for pods that move may cost `replacing` in any case: as much as the
    nodes cost that retire, without what was launched in their place.
    """

    cluster: str
    pool: str
    most: float
    used: float = 0.0
    replacing: float = 0.0

    @property
    def left(self) -> float:
        """What further nodes may cost, at least 0."""
        return max(0.0, self.most - self.used)

    @property
    def widest(self) -> float:
        """What further nodes for pods that move may cost."""
        return max(self.left, self.replacing)

    def covers(self, pool: str) -> bool:
        """Whether nodes of a pool count."""
        return self.pool in {"", pool}

    def after(self, launched: Mapping[str, float]) -> "SpendingLimit":
        """Return the limit after nodes were launched for these prices, by pool."""
        price = sum(each for pool, each in launched.items() if self.covers(pool))
        return replace(self, used=self.used + price, replacing=max(0.0, self.replacing - price))

    def reached(self, price: float) -> Reason:
        """Return why a node of this price is not launched."""
        if self.pool:
            return POOL_PRICE_LIMIT_REACHED(
                pool=self.pool, used=self.used, most=self.most, price=price
            )
        return PRICE_CEILING_REACHED(
            cluster=self.cluster, used=self.used, most=self.most, price=price
        )


def within_limit(pool: NodePool, limits: Iterable[SpendingLimit], prices: Prices) -> NodePool:
    """Return the pool with the types of which one node is within its limit in money: a smaller node
    may fit where a larger one is cheaper for each pod."""
    for limit in limits:
        if limit.pool == pool.name:
            dear = prices.dearer_than(limit.widest + ROUNDING, pool.requirements)
            if dear:
                asked = Requirements([Requirement.of(INSTANCE_TYPE, "NotIn", dear)])
                return replace(pool, requirements=pool.requirements.intersection(asked))
    return pool


@dataclass(frozen=True, slots=True)
class PriceCeiling:
    """The ceiling of a cluster and what counts, in USD per hour.

    - `most`: what the nodes of Leeway's pools may cost together.
    - `uncounted`: the names of nodes that do not count: Karpenter's, and those that retire, of
      which the replacements count.
    - `moving`: the pods of the nodes that retire, each with the instance that it leaves.
    - `replacing`: what the nodes cost that retire, by pool, without what was launched in their
      place.
    - `launched`: what nodes cost whose launch is known, by name: a node gets the label of its type
      seconds after it has joined.
    """

    most: float = inf
    uncounted: frozenset[str] = frozenset()
    moving: Mapping[str, str] = field(default_factory=dict)
    replacing: Mapping[str, float] = field(default_factory=dict)
    launched: Mapping[str, float] = field(default_factory=dict)

    def spending_limits(
        self,
        cluster: str,
        pools: Iterable[NodePool],
        nodes: Iterable[ExistingNode],
        prices: Prices,
    ) -> tuple[SpendingLimit, ...]:
        """Return the limit of the cluster and of each pool that has one, with what these nodes
        cost."""
        used: dict[str, float] = defaultdict(float)
        for one in nodes:
            if one.pool and one.name not in self.uncounted:
                used[one.pool] += self.launched.get(one.name) or prices.of_node(one)
        total, replacing = sum(used.values()), sum(self.replacing.values())
        return (
            SpendingLimit(cluster, "", self.most, total, replacing),
            *(
                SpendingLimit(
                    cluster, one.name, most, used[one.name], self.replacing.get(one.name, 0.0)
                )
                for one in pools
                if (most := one.usd_per_hour) is not None
            ),
        )


@dataclass(frozen=True, slots=True)
class Affordable:
    """The planned nodes that limits in money allow. What EC2 launches for one of them is billed
    with less than its value in `below`, in USD per hour, so that all together keep the limits.
    `refused` has the reason for each limit that has no room for a node."""

    below: Mapping[tuple[str, ...], float] = field(default_factory=dict)
    refused: Mapping[SpendingLimit, Reason] = field(default_factory=dict)

    def keep(self, nodes: Sequence[PlannedNode]) -> tuple[PlannedNode, ...]:
        """Return those of some nodes that are allowed."""
        return tuple(one for one in nodes if one.pods in self.below)


def affordable(
    nodes: Iterable[PlannedNode],
    limits: Sequence[SpendingLimit],
    moving: Collection[str],
    prices: Prices,
) -> Affordable:
    """Return which planned nodes may be launched within all limits that cover their pools.

    Nodes for `moving` pods come first. A node that is too dear does not keep others from being
    launched.
    """
    planned = [(one, prices.of_planned(one)) for one in nodes]
    replacements = [each for each in planned if any(pod in moving for pod in each[0].pods)]
    others = [each for each in planned if each not in replacements]
    spent, counts = dict.fromkeys(limits, 0.0), dict.fromkeys(limits, 0)
    kept: list[tuple[PlannedNode, float]] = []
    refused: dict[SpendingLimit, float] = {}
    for candidates, replaces in ((replacements, True), (others, False)):
        for node, price in candidates:
            own = [limit for limit in limits if limit.covers(node.pool)]
            most = {limit: limit.widest if replaces else limit.left for limit in own}
            full = next((r for r in own if spent[r] + price > most[r] + ROUNDING), None)
            if full is not None:
                refused[full] = min(price, refused.get(full, inf))
                continue
            kept.append((node, price))
            for limit in own:
                spent[limit] += price
                counts[limit] += 1
    spare = {
        limit: max(0.0, (limit.left if spent[limit] <= limit.left else limit.widest) - spent[limit])
        / max(counts[limit], 1)
        for limit in limits
    }
    below = {
        node.pods: _below(
            node,
            price + min((spare[r] for r in limits if r.covers(node.pool)), default=inf),
            prices,
        )
        for node, price in kept
    }
    return Affordable(below, {limit: limit.reached(price) for limit, price in refused.items()})


def _below(node: PlannedNode, most: float, prices: Prices) -> float:
    """Without a price, the offering itself must not be excluded: its estimate is within the
    limit."""
    return inf if prices.published(node) is None else nextafter(most + ROUNDING, inf)


@dataclass
class _Spent:
    """The new nodes of a decision, and their price in USD per hour."""

    nodes: int = 0
    price: float = 0.0


def too_dear(plan: Plan, limits: Mapping[str, PriceLimit]) -> frozenset[str]:
    """Return the pods that a plan moves to new nodes above their limits: all pods of each decision
    whose new nodes together do not cost less. `limits` are by pod. A node that also takes a pod
    without a limit is needed anyway."""
    spent = _spent(plan, limits)
    return frozenset(
        pod for pod, limit in limits.items() if limit in spent and spent[limit].price >= limit.below
    )


def ceilings(plan: Plan, limits: Mapping[str, PriceLimit]) -> Mapping[tuple[str, ...], float]:
    """Return for new nodes, by their pods, the price in USD per hour that what is launched has to
    be below. Nodes that nothing limits are left out. The new nodes of a decision share what remains
    of its limit."""
    spent = _spent(plan, limits)
    return {
        node.pods: min(
            node.cheapest.price + (one.below - spent[one].price) / spent[one].nodes for one in found
        )
        for node in plan.launches
        if (found := _limits_of(node, limits))
    }


def lowest(by_pods: Mapping[tuple[str, ...], float], nodes: tuple[PlannedNode, ...]) -> float:
    """Return the lowest ceiling of some new nodes; infinity if nothing limits them."""
    return min((by_pods.get(node.pods, inf) for node in nodes), default=inf)


def _spent(plan: Plan, limits: Mapping[str, PriceLimit]) -> Mapping[PriceLimit, _Spent]:
    found: dict[PriceLimit, _Spent] = {}
    for node in plan.launches:
        for limit in _limits_of(node, limits):
            spent = found.setdefault(limit, _Spent())
            spent.nodes += 1
            spent.price += node.cheapest.price
    return found


def _limits_of(node: PlannedNode, limits: Mapping[str, PriceLimit]) -> frozenset[PriceLimit]:
    if all(pod in limits for pod in node.pods):
        return frozenset(limits[pod] for pod in node.pods)
    return frozenset()
