"""Snapshots of small clusters."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from leeway.disruption.rules import ReturnRules
from leeway.disruption.snapshot import MovablePod, OwnNode, Snapshot
from leeway.selection.labels import ARCH, CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from leeway.selection.pods import ExistingNode, NodePool, Pod, PodSpec
from leeway.selection.requirements import Requirement, Requirements

from tests.selection.workloads import catalog

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
POOL = NodePool("plain")
ON_DEMAND = NodePool("plain", Requirements([Requirement.of(CAPACITY_TYPE, "In", ["on-demand"])]))
CATALOG = catalog()


def own_node(
    name: str,
    *running: PodSpec,
    kind: str = "medium",
    capacity_type: str = "on-demand",
    zone: str = "a",
    quiet: timedelta = timedelta(hours=1),
    age: timedelta = timedelta(days=1),
) -> OwnNode:
    """A node of pool `plain`, of one of the usual types, whose pods are named after it."""
    table = CATALOG.for_node_class(POOL.node_class)
    made = table.type(CATALOG.index[kind])
    price = next(
        o.price for o in made.offerings if (o.zone, o.capacity_type) == (zone, capacity_type)
    )
    labels = {ZONE: zone, ARCH: "amd64", CAPACITY_TYPE: capacity_type, INSTANCE_TYPE: kind}
    node = ExistingNode(name, labels, made.allocatable, made.capacity, pods=running, pool="plain")
    pods = tuple(
        MovablePod(Pod(f"default/{name}-{number}", each)) for number, each in enumerate(running)
    )
    return OwnNode(
        node=node,
        instance=f"i-{name}",
        pool="plain",
        instance_type=kind,
        zone=zone,
        capacity_type=capacity_type,
        price=price,
        created_at=NOW - age,
        quiet_since=NOW - quiet,
        pods=pods,
    )


def snapshot(*own: OwnNode, rules: ReturnRules | None = None, **fields: object) -> Snapshot:
    """A cluster of these nodes, whose pool launches on demand and has no budget."""
    plain = rules or ReturnRules(budgets=())
    made = Snapshot(NOW, own, (ON_DEMAND,), CATALOG, {"plain": plain})
    return replace(made, **fields)  # type: ignore[arg-type]


def with_pods(one: OwnNode, pods: Sequence[MovablePod]) -> OwnNode:
    """The node with other facts about its pods."""
    return replace(one, pods=tuple(pods))
