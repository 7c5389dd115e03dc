"""Limits of the price of what is launched for pods that move to save money.

Since the decision to move them, a cheap offering may have run out of capacity.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from leeway.capacity_requests.request import PriceLimit
from leeway.selection.packing.plan import Plan, PlannedNode


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
