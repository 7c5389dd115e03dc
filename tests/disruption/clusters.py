"""Small clusters of the pool `web`, as a run of provision_nodes reads them."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from leeway.capacity_requests import CapacityRequest
from leeway.disruption.snapshot import Snapshot, snapshot_of
from leeway.hibernation import Sleeping
from leeway.instances.facts import InstanceFacts, Owner, OwnerKind
from leeway.launch.intent import LaunchIntent
from leeway.manifests.node_pool import NodePool as PoolManifest
from leeway.provisioning.cluster_state import (
    ClusterState,
    NodeDetails,
    ObservedPod,
    PodBudget,
)
from leeway.provisioning.demand import ClusterRead, demand_of
from leeway.selection.labels import INSTANCE_TYPE, NODE_CLASS
from leeway.selection.offers.catalog import Catalog
from leeway.selection.pods import ExistingNode, Pod

from tests.launch.launching import NOW
from tests.launch.pools import node_class, pool
from tests.manifests.texts import manifests
from tests.provisioning.buying import node

DAY = timedelta(days=1)


def facts(instance: str, **more: Any) -> InstanceFacts:
    """An instance that Leeway launched."""
    known = InstanceFacts(
        instance=instance,
        cluster="prod",
        private_dns_name="",
        zone="us-east-1a",
        instance_type="m5.large",
        capacity_type="on-demand",
        owner=Owner(OwnerKind.LEEWAY, "web"),
        joined=True,
        from_fleet=True,
    )
    return known.model_copy(update=more)


def running(*some: Pod) -> tuple[ObservedPod, ...]:
    """Pods of controllers on a node."""
    return tuple(ObservedPod(one, f"uid-{one.name}", NOW, "replica-set") for one in some)


def details(instance: str, *some: Pod, **more: Any) -> NodeDetails:
    """A Ready node that is a day old."""
    plain = NodeDetails(instance, NOW - DAY, True, NOW - DAY, pods=running(*some))
    return replace(plain, **more)


class Cluster:
    """A cluster of the pool `web` with nodes of one instance each."""

    def __init__(self, catalog: Catalog, **spec: Any) -> None:
        self.manifests = manifests(pool(**spec), node_class())
        self.catalog = catalog
        self.nodes: dict[str, tuple[ExistingNode, NodeDetails]] = {}
        self.waiting: list[ObservedPod] = []
        self.requests: list[CapacityRequest] = []
        self.budgets: list[PodBudget] = []
        self.intents: list[LaunchIntent] = []
        self.own: dict[str, InstanceFacts] = {}
        self.sleeping: Sleeping = {}

    def add(self, name: str, *some: Pod, foreign: bool = False, **more: Any) -> None:
        """Add a Node with pods, of an instance of Leeway unless it is foreign."""
        instance = f"i-{name}"
        labels = {**node(name).labels, NODE_CLASS: "default", INSTANCE_TYPE: "m5.large"}
        given = replace(node(name, *some), labels=labels)
        for field in ("labels", "taints"):
            if field in more:
                given = replace(given, **{field: more.pop(field)})
        self.nodes[name] = given, details(instance, *some, **more)
        if not foreign:
            self.own[instance] = facts(instance)

    def annotate(self, annotations: Mapping[str, str]) -> None:
        """Set the annotations of the pool."""
        self.manifests = [
            one.model_copy(
                update={"metadata": one.metadata.model_copy(update={"annotations": annotations})}
            )
            if isinstance(one, PoolManifest)
            else one
            for one in self.manifests
        ]

    def read(self, at: datetime = NOW) -> ClusterRead:
        """What a run reads at a time."""
        state = ClusterState(
            at,
            nodes=[each for each, _ in self.nodes.values()],
            joined={one.instance: name for name, (_, one) in self.nodes.items()},
            waiting=self.waiting,
            movable={n: tuple(p.pod for p in d.pods) for n, (_, d) in self.nodes.items()},
            details={name: one for name, (_, one) in self.nodes.items()},
            budgets=self.budgets,
        )
        demand = demand_of(state, self.requests, {}, {})
        return ClusterRead(
            "prod",
            self.manifests,
            self.catalog,
            state,
            self.intents,
            self.requests,
            {},
            demand,
            sleeping=self.sleeping,
        )

    def snapshot(
        self, quiet: Mapping[str, datetime] | None = None, retiring: Collection[str] = ()
    ) -> Snapshot:
        """The snapshot at NOW."""
        return snapshot_of(self.read(), self.own, quiet or {}, retiring)
