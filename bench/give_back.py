"""Measures the decision which nodes are given back, for clusters of ten pods for each node."""

import random
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from leeway.disruption.decide import decide_returns
from leeway.disruption.rules import Budget, ReturnRules
from leeway.disruption.snapshot import MovablePod, OwnNode, Snapshot
from leeway.selection.labels import CAPACITY_TYPE, INSTANCE, INSTANCE_TYPE, ON_DEMAND, ZONE
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import ExistingNode, NodePool, Pod
from leeway.selection.requirements import Requirement, Requirements
from leeway_cli.selection.sources import sandbox_catalog

from bench.workloads import existing_nodes

SIZES = (100, 500, 1_000, 2_000)
BUDGETS = ("10%", "100%")
ROOMS = ("much", "some", "none")
"""With none, every node is full: replacements are simulated, and none is found."""
RUNS = 3
NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
POOL = NodePool(
    "default",
    Requirements(
        [
            Requirement.of(CAPACITY_TYPE, "In", [ON_DEMAND]),
            Requirement.of(f"{INSTANCE}category", "In", ["c", "m", "r"]),
            Requirement.of(f"{INSTANCE}generation", "Gt", ["2"]),
        ]
    ),
)


def main() -> None:
    """Print a line for each size, fullness and budget."""
    catalog = sandbox_catalog()
    supply = Supply([POOL], catalog)
    sys.stdout.write("Seconds of one processor for a decision, ten pods for each node\n")
    sys.stdout.write("nodes   room  budget   first   again   given back  replaced\n")
    for size in SIZES:
        for room in ROOMS:
            own = own_nodes(supply, existing_nodes(supply, size, room == "much"), room != "none")
            for budget in BUDGETS:
                rules = ReturnRules(budgets=(Budget(budget),))
                given = Snapshot(NOW, own, (POOL,), catalog, {POOL.name: rules})
                sys.stdout.write(_line(size, room, budget, given))
                sys.stdout.flush()


def own_nodes(supply: Supply, nodes: Sequence[ExistingNode], halved: bool) -> tuple[OwnNode, ...]:
    """Return nodes as give-back sees them. `halved`: half of them have half of their pods."""
    dice = random.Random(5)
    prices = {(each.type.name, each.offering.zone): each.price for each in supply.candidates}
    found = []
    for node in nodes:
        kept = node.pods[::2] if halved and dice.random() < 0.5 else node.pods
        there = replace(node, pods=kept)
        pods = (MovablePod(Pod(f"default/{node.name}-{at}", spec)) for at, spec in enumerate(kept))
        kind, zone = node.labels[INSTANCE_TYPE], node.labels[ZONE]
        found.append(
            OwnNode(
                there,
                f"i-{node.name}",
                POOL.name,
                kind,
                zone,
                ON_DEMAND,
                prices[kind, zone],
                created_at=NOW - timedelta(days=1),
                quiet_since=NOW - timedelta(hours=6),
                pods=tuple(pods),
            )
        )
    return tuple(found)


def _line(size: int, room: str, budget: str, given: Snapshot) -> str:
    seconds = []
    for _ in range(RUNS):
        started = time.process_time()
        found = decide_returns(given)
        seconds.append(time.process_time() - started)
    nodes = sum(len(one.nodes) for one in found.returns)
    replaced = sum(len(one.nodes) for one in found.returns if one.replaced)
    return (
        f"{size:5,} {room:>6} {budget:>7} {seconds[0]:7.2f}"
        f" {min(seconds):7.2f} {nodes:12} {replaced:9}\n"
    )


if __name__ == "__main__":
    main()
