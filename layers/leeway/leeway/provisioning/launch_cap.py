"""How much a cluster may still launch: the brakes against faults that cost money."""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from leeway.capacity_requests.request import CapacityRequest
from leeway.launch.intent import LaunchIntent
from leeway.launch.price_ceiling import PriceCeiling, Prices
from leeway.provisioning.cluster_state import ClusterState
from leeway.provisioning.demand import Demand

WINDOW = timedelta(minutes=10)
"""The period in which launches are counted."""


def remaining_launches(intents: Iterable[LaunchIntent], most: int, now: datetime) -> int:
    """Return how many instances may be launched at the time `now`. A request without an answer
    counts with all of its instances."""
    recent = (one for one in intents if now - one.created_at < WINDOW)
    counted = sum(
        len(one.instances) if one.request is None else one.request.count for one in recent
    )
    return max(0, most - counted)


def price_ceiling(
    most: float,
    demand: Demand,
    requests: Iterable[CapacityRequest],
    state: ClusterState,
    intents: Collection[LaunchIntent],
    prices: Prices,
) -> PriceCeiling:
    """Return the ceiling of a run, `most` in USD per hour. A node of a pool that retires may be
    replaced at its price, once: what was launched for its pods before is subtracted."""
    pools = {node.name: node.pool for node in demand.nodes}
    uncounted = {state.joined.get(one.instance, one.instance) for one in state.claimed}
    moving: dict[str, str] = {}
    retiring: dict[str, float] = {}
    for one in requests:
        name = state.joined.get(one.instance, one.instance)
        if pools.get(name) and name not in uncounted:
            moving |= dict.fromkeys((p.name for p in demand.moving[one.instance]), one.instance)
            retiring[one.instance] = prices.of(one.instance_type, one.zone, one.capacity_type)
        uncounted.add(name)
    replaced = (
        prices.of_instance(instance)
        for intent in intents
        if retiring.keys() & set(intent.replaces)
        for instance in intent.instances
    )
    replacing = max(0.0, sum(retiring.values()) - sum(replaced))
    launched = {
        state.joined.get(one.instance, one.instance): prices.of_instance(one)
        for intent in intents
        for one in intent.instances
    }
    return PriceCeiling(most, frozenset(uncounted), moving, replacing, launched)
