"""The instance types of a simulated day, their prices by the hour, and the node pools."""

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache

from leeway.selection.labels import ARCH, CAPACITY_TYPE, INSTANCE, ON_DEMAND, SPOT
from leeway.selection.offers.allocatable import NodeClass
from leeway.selection.offers.catalog import Catalog, InstanceType
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import NodePool, Taint
from leeway.selection.requirements import Requirement, Requirements

STEADY = {"example.com/steady": "true"}
STEADY_TAINT = Taint("example.com/steady", "true")

SIZES = [
    Requirement.of(ARCH, "In", ["amd64"]),
    Requirement.of(f"{INSTANCE}category", "In", ["c", "m", "r"]),
    Requirement.of(f"{INSTANCE}generation", "Gt", ["4"]),
    Requirement.of(f"{INSTANCE}cpu", "Gt", ["1"]),
    Requirement.of(f"{INSTANCE}cpu", "Lt", ["9"]),
]
"""Types of two to eight processors, so that a small cluster has many nodes."""

PRICE_CHANGE = 0.04
"""By which part Spot prices change in an hour at most."""


def pools() -> tuple[NodePool, NodePool]:
    """Return a pool that uses Spot and On-Demand capacity, and one of On-Demand nodes that only
    pods for it use. Each pod can use one of them, so that their bounds can be added."""
    either = Requirement.of(CAPACITY_TYPE, "In", [SPOT, ON_DEMAND])
    own = Requirement.of(CAPACITY_TYPE, "In", [ON_DEMAND])
    steady = Requirements([own, *SIZES]).intersection(Requirements.from_labels(STEADY))
    return (
        NodePool("general", Requirements([either, *SIZES])),
        NodePool("steady", steady, labels=STEADY, taints=(STEADY_TAINT,)),
    )


@cache
def catalog(seed: int, hour: int) -> Catalog:
    """Return the sandbox's offerings in an hour, with Spot prices of that hour."""
    dice = random.Random(f"{seed} {hour}")  # noqa: S311
    return Catalog.of("simulated", _with_prices(_types(), dice))


@cache
def _types() -> tuple[InstanceType, ...]:
    from leeway_cli.selection.sources import sandbox_catalog

    table = sandbox_catalog().for_node_class(NodeClass())
    return tuple(table.types(table.matching(Requirements(SIZES))))


def _with_prices(types: Iterable[InstanceType], dice: random.Random) -> Iterable[InstanceType]:
    for one in types:
        change = dice.uniform(1 - PRICE_CHANGE, 1 + PRICE_CHANGE)
        offerings = tuple(
            replace(each, price=each.price * change)
            if each.capacity_type == SPOT and each.price
            else each
            for each in one.offerings
        )
        yield replace(one, offerings=offerings)


@cache
def prices(seed: int, hour: int) -> Mapping[tuple[str, str, str], float]:
    """Return USD per hour by type, zone and capacity type."""
    return {
        (each.type.name, each.offering.zone, each.offering.capacity_type): each.price
        for each in supply(seed, hour).candidates
    }


@cache
def supply(seed: int, hour: int) -> Supply:
    """Return all offerings of both pools in an hour."""
    return Supply(pools(), catalog(seed, hour))
