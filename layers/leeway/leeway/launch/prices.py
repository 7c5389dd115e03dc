"""The ceiling of what Leeway's nodes of a cluster cost per hour: `spec.launches.usdPerHour`.

A user who may create pods may spend without bound where pools have no limits. Pure.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, isfinite, nextafter

from leeway.capacity_requests import PriceLimit
from leeway.launch.fleets import FleetInstance, Offers
from leeway.reasons import ReasonCode
from leeway.selection.labels import CAPACITY_TYPE, INSTANCE_TYPE, ON_DEMAND, RESERVED, ZONE
from leeway.selection.offers.allocatable import NodeClass
from leeway.selection.offers.catalog import Catalog
from leeway.selection.packing.plan import Plan, PlannedNode
from leeway.selection.pods import ExistingNode

PRICE_CEILING_REACHED = ReasonCode(
    "PriceCeilingReached",
    "Leeway's nodes of cluster {cluster} would cost more than {most:.2f} USD per hour: the node is "
    "launched when others have gone; spec.launches.usdPerHour of the Cluster manifest changes the "
    "maximum.",
    "launchproblemsalarm",
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
        """Return USD per hour of the cheapest offering of a planned node."""
        cheapest = node.cheapest
        offering, kind = cheapest.offering, cheapest.type
        if offering.price is not None and offering.reservation is None:
            return offering.price
        vcpus = kind.capacity.of("cpu") / _MILLI
        return self.of(kind.name, offering.zone, offering.capacity_type, vcpus)

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
class PriceCeiling:
    """The ceiling of a cluster, in USD per hour.

    - `most`: what the nodes of Leeway's pools may cost together.
    - `uncounted`: the names of nodes that do not count: Karpenter's, and those that retire, of
      which the replacements count.
    - `moving`: the pods of the nodes that retire, each with the instance that it leaves. For them,
      nodes of `replacing` USD per hour may be launched in any case: as much as the nodes cost that
      retire, without what was launched in their place.
    - `launched`: what nodes cost whose launch is known, by name: a node gets the label of its type
      seconds after it has joined.
    """

    most: float
    uncounted: frozenset[str] = frozenset()
    moving: Mapping[str, str] = field(default_factory=dict)
    replacing: float = 0.0
    launched: Mapping[str, float] = field(default_factory=dict)

    def left(self, nodes: Iterable[ExistingNode], prices: Prices) -> float:
        """Return what further nodes may cost besides these, at least 0."""
        counted = (one for one in nodes if one.pool and one.name not in self.uncounted)
        spent = (self.launched.get(one.name) or prices.of_node(one) for one in counted)
        return max(0.0, self.most - sum(spent))


@dataclass(frozen=True, slots=True)
class Affordable:
    """The planned nodes that the ceiling allows. What EC2 launches for one of them costs less than
    its value in `below`, in USD per hour, so that all together keep the ceiling."""

    below: Mapping[tuple[str, ...], float] = field(default_factory=dict)

    def keep(self, nodes: Sequence[PlannedNode]) -> tuple[PlannedNode, ...]:
        """Return those of some nodes that are allowed."""
        return tuple(one for one in nodes if one.pods in self.below)


def affordable(
    nodes: Iterable[PlannedNode],
    left: float,
    replacing: float,
    moving: Collection[str],
    prices: Prices,
) -> Affordable:
    """Return which planned nodes may be launched. `left` is what further nodes may cost, in USD per
    hour; nodes for `moving` pods may cost `replacing` in any case.

    Nodes for moving pods come first. A node that is too dear does not keep others from being
    launched.
    """
    planned = [(one, prices.of_planned(one)) for one in nodes]
    replacements = [each for each in planned if any(pod in moving for pod in each[0].pods)]
    others = [each for each in planned if each not in replacements]
    kept, spent = [], 0.0
    for candidates, most in ((replacements, max(left, replacing)), (others, left)):
        for node, price in candidates:
            if spent + price <= most + ROUNDING:
                spent += price
                kept.append((node, price))
    if not kept:
        return Affordable()
    spare = max(0.0, (left if spent <= left else max(left, replacing)) - spent) / len(kept)
    return Affordable({node.pods: _below(node, price + spare) for node, price in kept})


def _below(node: PlannedNode, most: float) -> float:
    """Without a price, the offering itself must not be excluded: its estimate is within the
    ceiling."""
    return inf if node.cheapest.offering.price is None else nextafter(most + ROUNDING, inf)


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
