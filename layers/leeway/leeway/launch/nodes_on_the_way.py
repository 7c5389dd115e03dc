"""The nodes that were launched, as selection counts them: those that have not joined yet, and what
was promised of the others."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime

from leeway.bootstrap.node import split
from leeway.launch.intent import FleetInstance, LaunchIntent
from leeway.selection.labels import CAPACITY_TYPE, JOINED, NODEPOOL, ZONE, ZONE_ID
from leeway.selection.offers.catalog import Catalog, InstanceType
from leeway.selection.offers.machines import EFA
from leeway.selection.pods import ExistingNode
from leeway.selection.pools import NodePool
from leeway.selection.resources import Resources


def nodes_on_the_way(
    intents: Iterable[LaunchIntent],
    joined: Collection[str],
    pools: Iterable[NodePool],
    catalog: Catalog,
    now: datetime,
) -> tuple[ExistingNode, ...]:
    """Return the instances of intents that have no Node yet, each by its id. `joined` are the
    instances that have a Node. They count for pods, and against the limits of their pools."""
    promised = _promised(intents, pools, catalog)
    return tuple(
        node for intent, node in promised if node.name not in joined and intent.may_join(now)
    )


def overdue_nodes(
    intents: Iterable[LaunchIntent],
    joined: Collection[str],
    pools: Iterable[NodePool],
    catalog: Catalog,
    now: datetime,
) -> tuple[ExistingNode, ...]:
    """Return the instances of pools with limits that have no Node, and are too old to join. They
    take no pods, and count against the limits until they have ended."""
    limited = [pool for pool in pools if pool.limits is not None]
    return tuple(
        node.closed()
        for intent, node in _promised(intents, limited, catalog)
        if node.name not in joined and not intent.may_join(now)
    )


def promised_nodes(
    intents: Iterable[LaunchIntent], pools: Iterable[NodePool], catalog: Catalog
) -> Mapping[str, ExistingNode]:
    """Return what was promised of each launched instance, joined or not, by its id."""
    return {node.name: node for _, node in _promised(intents, pools, catalog)}


def _promised(
    intents: Iterable[LaunchIntent], pools: Iterable[NodePool], catalog: Catalog
) -> Iterator[tuple[LaunchIntent, ExistingNode]]:
    by_name = {pool.name: pool for pool in pools}
    for intent in intents:
        if intent.pool in by_name:
            for instance in intent.instances:
                for node in _node(intent, instance, by_name[intent.pool], catalog):
                    yield intent, node


def labels_for_admission(
    intent: LaunchIntent, instance: FleetInstance, pool: NodePool, catalog: Catalog
) -> Mapping[str, str]:
    """Return the labels that admission puts on the node of an instance, so that it has all that
    selection counted on. The labels of its state (`JOINED`) are not among them."""
    kind = _type_of(instance, pool, catalog)
    promised = split(_labels(intent, instance, kind, catalog)).admission if kind else {}
    found = {**intent.labels_for_admission, **promised}
    return {key: value for key, value in sorted(found.items()) if key not in JOINED}


def _node(
    intent: LaunchIntent, instance: FleetInstance, pool: NodePool, catalog: Catalog
) -> Iterator[ExistingNode]:
    kind = _type_of(instance, pool, catalog)
    if kind is not None:
        yield ExistingNode(
            name=instance.instance,
            labels={**_labels(intent, instance, kind, catalog), **JOINED},
            allocatable=_present(kind.allocatable, intent),
            capacity=_present(kind.capacity, intent),
            taints=pool.taints,
            pool=pool.name,
        )


def _present(resources: Resources, intent: LaunchIntent) -> Resources:
    """A node has EFAs only if it was launched for pods that request them."""
    if intent.efa:
        return resources
    return Resources({name: amount for name, amount in resources.items() if name != EFA})


def _type_of(instance: FleetInstance, pool: NodePool, catalog: Catalog) -> InstanceType | None:
    index = catalog.index.get(instance.instance_type)
    return None if index is None else catalog.for_node_class(pool.node_class).type(index)


def _labels(
    intent: LaunchIntent, instance: FleetInstance, kind: InstanceType, catalog: Catalog
) -> dict[str, str]:
    zone_id = catalog.zone_ids.get(instance.zone, "")
    return {
        **kind.labels,
        **intent.labels,
        ZONE: instance.zone,
        **({ZONE_ID: zone_id} if zone_id else {}),
        CAPACITY_TYPE: instance.capacity_type,
        NODEPOOL: intent.pool,
    }
