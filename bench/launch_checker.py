"""Checks launch requests: each node that EC2 may launch holds the pods, at the right price.

It reads prices, overlays, reservations and minValues itself, and shares no code with packing.
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isclose

from leeway.selection.labels import (
    ARCH,
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    ON_DEMAND,
    OS,
    RESERVED,
    TENANCY,
    ZONE,
)
from leeway.selection.offers.catalog import Catalog, InstanceType, Offering, Unavailable
from leeway.selection.offers.overlays import Overlay
from leeway.selection.offers.reservations import CHEAPER
from leeway.selection.packing.plan import Choice, Plan, PlannedNode
from leeway.selection.packing.supply import Candidate, Supply
from leeway.selection.pods import ExistingNode, NodePool, Pod, PodSpec
from leeway.selection.resources import Resources

from bench.plan_checker import violations

REALIZATIONS = 2
"""How many answers of EC2 to a plan are tried, besides the one that the plan expects."""


@dataclass(frozen=True)
class Batch:
    """All that a plan depends on: pending pods, existing nodes, pools, DaemonSets, instance types,
    and offerings that are unavailable."""

    pods: Sequence[Pod]
    nodes: Sequence[ExistingNode]
    pools: Sequence[NodePool]
    daemons: Sequence[PodSpec]
    types: Sequence[InstanceType]
    unavailable: Sequence[Unavailable] = ()

    @cached_property
    def supply(self) -> Supply:
        """The supply of its pools."""
        return Supply(self.pools, Catalog.of("test", self.types), self.unavailable, self.daemons)

    def faults(self, plan: Plan, seed: int = 0) -> list[str]:
        """Return a line for every fault of a plan and of its launch requests. The plan is checked
        as it expects its nodes, and as EC2 may launch them instead."""
        found = violations(plan, self.pods, self.pools, self.nodes, self.daemons)
        found += [line for node in plan.launches for line in self._misstated(node)]
        found += self._overused(plan)
        price = sum(node.cheapest.price for node in plan.launches)
        if not isclose(plan.price, price, abs_tol=1e-9):
            found.append(f"the plan states {plan.price}, its nodes cost {price}")
        dice = random.Random(seed)
        for _ in range(REALIZATIONS if not found else 0):
            nodes = tuple(self._launched(node, dice) for node in plan.launches)
            other = replace(plan, launches=nodes)
            lines = violations(other, self.pods, self.pools, self.nodes, self.daemons)
            launched = [f"{n.cheapest.type.name}/{n.cheapest.offering.zone}" for n in nodes]
            # A node with a further capacity type or architecture is one domain more for spreads, as
            # any node that joins later.
            others = (f" by {CAPACITY_TYPE}", f" by {ARCH}")
            lines = [line for line in lines if not line.endswith(others)]
            found += [f"{line}, if EC2 launches {launched}" for line in lines]
        return found

    def _misstated(self, node: PlannedNode) -> Iterator[str]:
        """Yield the faults of one launch request: its prices, and the minValues of its pool."""
        if not node.choices:
            yield f"{node.pods} have no choices"
            return
        for choice in node.choices:
            prices = [c.price for c in self._asked(node, choice)]
            if not prices:
                yield f"{choice} offers nothing"
            elif choice.price is None or not isclose(choice.price, min(prices), abs_tol=1e-12):
                yield f"{choice} costs {min(prices)}"
        first = node.choices[0].price
        if first is not None and not isclose(first, node.cheapest.price, abs_tol=1e-12):
            yield f"{node.pods}: the plan counts {node.cheapest.price}, the request {first}"
        asked = [c for choice in node.choices for c in self._asked(node, choice)]
        # Those of other reservations count, though a request names one reservation.
        asked += [c for c in self._offered(self._pool(node)) if c.offering.reservation]
        for key, requirement in self._pool(node).requirements.items():
            values = {_labels(c.type, c.offering).get(key) for c in asked} - {None}
            if len(values) < (requirement.min_values or 0):
                yield f"{node.pods}: {len(values)} of {requirement.min_values} values of {key}"

    def _overused(self, plan: Plan) -> Iterator[str]:
        """Yield the reservations that a plan uses more often than they are free."""
        used = Counter(
            choice.reservation.id
            for node in plan.launches
            for choice in node.choices
            if choice.reservation
        )
        free = {one.id: one.free for pool in self.pools for one in pool.reservations}
        for name, count in used.items():
            if count > free.get(name, 0):
                yield f"reservation {name} is used {count} times, {free.get(name, 0)} are free"

    def _launched(self, node: PlannedNode, dice: random.Random) -> PlannedNode:
        """The node as EC2 may launch it."""
        choice = dice.choice(node.choices)
        pool = node.cheapest.pool  # with the value of a label that the plan has chosen
        asked = [replace(each, pool=pool) for each in self._asked(node, choice)]
        return replace(node, cheapest=dice.choice(asked))

    def _pool(self, node: PlannedNode) -> NodePool:
        return next(pool for pool in self.pools if pool.name == node.pool)

    def _asked(self, node: PlannedNode, choice: Choice) -> list[Candidate]:
        """The offerings that a request names: each of its types in each of its zones, as far as
        EC2 has it and the request does not exclude it."""
        return [
            candidate
            for candidate in self._offered(self._pool(node))
            if candidate.type.name in choice.instance_types
            and candidate.offering.zone in choice.zones
            and (candidate.type.name, candidate.offering.zone) not in choice.unusable
            and candidate.offering.capacity_type == choice.capacity_type
            and candidate.offering.reservation == choice.reservation
        ]

    def _offered(self, pool: NodePool) -> Iterator[Candidate]:
        """Yield what EC2 has for the nodes of a pool at the prices and with the capacity of its
        overlays, available or not for its requirements."""
        overlays = sorted(pool.node_class.overlays, key=lambda o: (o.weight, o.name), reverse=True)
        for each in self.types:
            kind = _promised(each, overlays)
            for offering in each.offerings:
                if self._available(each, offering):
                    yield Candidate(pool, kind, _priced(kind, offering, overlays))
            for one in pool.reservations:
                full = Unavailable(one.id, one.zone, RESERVED) in self.unavailable
                if one.instance_type == each.name and one.free and not full:
                    usual = max(
                        o.price or 0 for o in each.offerings if o.capacity_type == ON_DEMAND
                    )
                    price = usual / CHEAPER
                    yield Candidate(
                        pool, kind, Offering(one.zone, RESERVED, price, reservation=one.capacity)
                    )

    def _available(self, each: InstanceType, offering: Offering) -> bool:
        return Unavailable(each.name, offering.zone, offering.capacity_type) not in self.unavailable


def _labels(each: InstanceType, offering: Offering) -> Mapping[str, str]:
    own = {INSTANCE_TYPE: each.name, OS: "linux", TENANCY: "default", **each.labels}
    return {**own, ZONE: offering.zone, CAPACITY_TYPE: offering.capacity_type}


def _reaches(overlay: Overlay, each: InstanceType, offering: Offering) -> bool:
    labels = _labels(each, offering)
    return all(need.admits(labels.get(key)) for key, need in overlay.requirements.items())


def _priced(each: InstanceType, offering: Offering, overlays: Sequence[Overlay]) -> Offering:
    for overlay in overlays:
        if overlay.price and offering.price is not None and _reaches(overlay, each, offering):
            return replace(offering, price=overlay.priced(offering.price))
    return offering


def _promised(each: InstanceType, overlays: Sequence[Overlay]) -> InstanceType:
    amounts: dict[str, int] = {}
    for overlay in overlays:
        if any(_reaches(overlay, each, offering) for offering in each.offerings):
            amounts = {**overlay.capacity, **amounts}
    capacity = Resources({**each.capacity, **amounts})
    allocatable = Resources({**each.allocatable, **amounts})
    labels = {INSTANCE_TYPE: each.name, OS: "linux", TENANCY: "default", **each.labels}
    return replace(each, labels=labels, capacity=capacity, allocatable=allocatable)
