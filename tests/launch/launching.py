"""An AWS in memory with all that launches need, and the use case on it."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any

from leeway.admission.record import ADMISSION, Admission
from leeway.bootstrap.node import ClusterDetails
from leeway.instances.facts import InstanceFacts, Owner, OwnerKind
from leeway.launch.belonging import Network, Subnet
from leeway.launch.images import ImageVariant, parameters_of
from leeway.launch.intent import INTENT, LaunchOutcome
from leeway.launch.launch_nodes import LaunchNodes
from leeway.launch.launch_run import LaunchDependencies, LaunchOrder
from leeway.launch.resolve_pools import NodeCluster, NodeSources
from leeway.pool_pauses import POOL, PoolRecord
from leeway.ports.aws import CloudUnavailable
from leeway.selection.offers.catalog import Catalog
from leeway.selection.pods import Pod

from tests.fakes.capacity_reservations import CapacityReservationsInMemory
from tests.fakes.clock import StillClock
from tests.fakes.fleets import FleetsInMemory
from tests.fakes.functions import Starts
from tests.fakes.images import ImagesInMemory
from tests.fakes.launch_templates import LaunchTemplatesInMemory
from tests.fakes.networks import NetworksInMemory
from tests.fakes.node_clusters import InstanceProfilesInMemory, NodeClustersInMemory
from tests.fakes.offerings import OfferingsInMemory
from tests.fakes.table import Stored, TableInMemory
from tests.launch.pools import ONE_POD_EACH, node_class, pods, pool, settings
from tests.manifests.texts import manifests

NOW = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")


class World(StillClock):
    """Every port in memory, and a clock that tests move."""

    def __init__(self, cluster: str = "prod") -> None:
        super().__init__(NOW)
        self.cluster = cluster
        numbers = count(1)
        self.templates = LaunchTemplatesInMemory()
        self.fleets = FleetsInMemory(self.templates.existing.__contains__)
        self.table = TableInMemory(self)
        self.offerings = OfferingsInMemory()
        self.reservations = CapacityReservationsInMemory()
        self.starts = Starts()
        self.descriptions: list[frozenset[str]] = []
        self.undescribed = False
        subnets = {
            f"subnet-{zone[-1]}": Subnet(f"subnet-{zone[-1]}", zone, 900, "vpc-1") for zone in ZONES
        }
        tags = {name: {"discovery": "prod"} for name in subnets}
        tags["sg-1"] = {"discovery": "prod", f"kubernetes.io/cluster/{cluster}": "owned"}
        self.networks = NetworksInMemory(subnets, tags, {"sg-1": "nodes"})
        self.images = ImagesInMemory({})
        self.offer_images(ImageVariant("x86_64"), ImageVariant("arm64"))
        self.profiles = InstanceProfilesInMemory({"prod-nodes": ["prod-nodes"]})
        server = f"https://{cluster}.example.com"
        details = ClusterDetails(cluster, server, "Q0E=", "10.0.0.0/16")
        arn = f"arn:aws:eks:us-east-1:123456789012:cluster/{cluster}"
        known = {cluster: NodeCluster(details, "1.34", arn, Network("vpc-1"))}
        self.clusters = NodeClustersInMemory(known, {cluster: {"prod-nodes"}})
        self.deps = LaunchDependencies(
            sources=NodeSources(
                self.networks, self.images, self.profiles, self.clusters, self.reservations
            ),
            templates=self.templates,
            fleets=self.fleets,
            table=self.table,
            intents=INTENT,
            offerings=self.offerings,
            admit_node=self.starts,
            instances=self,
            clock=self,
            new_id=lambda: f"intent-{next(numbers)}",
        )

    def describe_all(self, instances: Collection[str]) -> Mapping[str, InstanceFacts]:
        """The InstanceDescriptions Protocol; EC2 does not describe the first instance yet."""
        if self.undescribed:
            raise CloudUnavailable("EC2 does not answer")
        first = next(iter(self.fleets.running))
        self.descriptions.append(frozenset(instances))
        return {name: self._facts(name) for name in instances if name != first}

    def _facts(self, instance: str) -> InstanceFacts:
        launched = self.fleets.running[instance]
        return InstanceFacts(
            instance=instance,
            cluster=self.cluster,
            private_dns_name=f"{instance}.internal",
            zone=launched.zone,
            instance_type=launched.instance_type,
            capacity_type=launched.capacity_type,
            owner=Owner(OwnerKind.NONE),
        )

    def offer_images(self, *variants: ImageVariant) -> None:
        """Name AMIs for these variants by parameters."""
        parameters = parameters_of(settings(node_class()), "1.34", variants)
        self.images.values |= {name: f"ami-{n}" for n, name in enumerate(parameters.values())}

    @property
    def pools(self) -> Stored[PoolRecord]:
        """The records of pools."""
        return self.table.records(POOL, by="pool")

    @property
    def admissions(self) -> Stored[Admission]:
        """The admissions, by instance."""
        return self.table.records(ADMISSION)

    @property
    def launch_nodes(self) -> LaunchNodes:
        """The use case."""
        return LaunchNodes(self.deps)

    def admitted(self) -> list[str]:
        """The instances whose admission was started."""
        return [instance for instance, _, _ in self.starts.started]


def order(
    catalog: Catalog,
    *documents: Mapping[str, Any],
    waiting: Sequence[Pod] | None = None,
    **more: Any,
) -> LaunchOrder:
    """An order for three pods that need a node each; a pool is added if there is none."""
    given = documents or (pool(only=ONE_POD_EACH), node_class())
    found = pods(3, cpu=90_000) if waiting is None else waiting
    return LaunchOrder("prod", manifests(*given), catalog, found, **more)


def codes(outcome: LaunchOutcome) -> set[str]:
    """The reasons of an outcome."""
    return {one.code for one in outcome.reasons}
