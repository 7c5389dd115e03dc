"""Decides which instances a fleet launches: a pure choice among pools by strategy and price.

A pool is an instance type in a zone. Sources: EC2 user guide, "Use allocation strategies to
determine how EC2 Fleet or Spot Fleet fulfills Spot and On-Demand capacity"; EC2 API reference,
CreateFleet. The sandbox knows no depth of capacity: price-capacity-optimized and
capacity-optimized choose by price.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Literal

type Market = Literal["on-demand", "spot"]

PRIORITIZED = {"prioritized", "capacity-optimized-prioritized"}
DIVERSIFIED = "diversified"


@dataclass(frozen=True)
class Pool:
    """One override of a request, with what decides about it.

    `price` is USD per hour in the market that is planned; `weight` the units of capacity of one
    instance; `override` and `template` are what the answer repeats.
    """

    instance_type: str
    zone: str
    subnet: str | None
    price: float
    template: Mapping[str, str]
    override: Mapping[str, Any]
    config: int  # which of the request's launch template configurations it is from
    weight: float = 1.0
    priority: float = float("inf")


@dataclass(frozen=True)
class Refused:
    """Why EC2 launches nothing in a pool, or fewer than it needs."""

    pool: Pool
    code: str
    message: str


@dataclass(frozen=True)
class Room:
    """How many instances a pool can launch now; `refused` says why there are no more."""

    count: int
    refused: Refused | None = None


@dataclass
class Plan:
    """What to launch in a market, and the errors of the answer."""

    market: Market
    launches: list[tuple[Pool, int]] = field(default_factory=list)
    errors: list[Refused] = field(default_factory=list)

    @property
    def capacity(self) -> float:
        """The units of capacity that the launches have."""
        return sum(pool.weight * count for pool, count in self.launches)


def plan(
    market: Market,
    capacity: float,
    pools: Sequence[Pool],
    strategy: str,
    room_of: Callable[[Pool, int], Room],
) -> Plan:
    """Fill the capacity from the pools in the strategy's order.

    `room_of(pool, count)` says how much of a launch of that size succeeds; it is called once for a
    pool. A pool that refuses is left for the next one, and its error is part of the answer.
    """
    result = Plan(market)
    remaining, ordered = capacity, _ordered(pools, strategy)
    for number, pool in enumerate(ordered):
        if remaining <= 0:
            break
        share = remaining / (len(ordered) - number) if strategy == DIVERSIFIED else remaining
        wanted = ceil(share / pool.weight)
        room = room_of(pool, wanted)
        if room.refused:
            result.errors.append(room.refused)
        if count := min(room.count, wanted):
            result.launches.append((pool, count))
            remaining -= count * pool.weight
    return result


def _ordered(pools: Iterable[Pool], strategy: str) -> list[Pool]:
    """The order in which a strategy uses pools; equals keep the order of the request."""
    if strategy in PRIORITIZED:
        return sorted(pools, key=lambda pool: pool.priority)
    return sorted(pools, key=lambda pool: pool.price / pool.weight)


def duplicates(pools: Iterable[Pool]) -> bool:
    """Whether two overrides are the same pool: one type in one zone, even in different subnets."""
    seen = [(pool.instance_type, pool.zone) for pool in pools]
    return len(seen) != len(set(seen))
