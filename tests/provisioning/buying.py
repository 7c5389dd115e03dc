"""A cluster in memory whose pods need nodes, and the use case on it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from leeway.capacity_requests import CAPACITY_REQUEST, CapacityRequest
from leeway.disruption.return_capacity import Dependencies as ReturnDependencies
from leeway.disruption.return_capacity import ReturnCapacity
from leeway.instances.facts import FACTS, InstanceFacts
from leeway.launch.fleets import FleetInstance
from leeway.provision_run import Dependencies, NodeProvisioning
from leeway.provisioning.cluster_state import ClusterState, ObservedPod
from leeway.provisioning.report import STATUS, ProvisioningReport, ProvisioningStatus
from leeway.provisioning.upcoming import UpcomingPods
from leeway.reasons import Reason
from leeway.selection.labels import INSTANCE_TYPE, JOINED, NODEPOOL, ZONE
from leeway.selection.offers.catalog import Catalog
from leeway.selection.pods import ExistingNode, Pod, Taint
from leeway.selection.resources import Resources

from tests.capacity_requests.requests import capacity_request
from tests.fakes.functions import Starts
from tests.fakes.provision_queue import ProvisionQueueInMemory
from tests.fakes.provisioning import (
    GroupInstancesInMemory,
    ManifestsInMemory,
    OneCatalog,
    OneClusterState,
    PodEventsInMemory,
    PodTemplatesInMemory,
)
from tests.fakes.table import Stored
from tests.launch.launching import NOW, World
from tests.launch.pools import ONE_POD_EACH, node_class, pods, pool
from tests.manifests.texts import written

NOT_READY = Taint("node.kubernetes.io/not-ready", "", "NoSchedule")
RETIRING = "i-0aaaaaaaaaaaaaaaa"


def big_pods(count: int, name: str = "web") -> list[Pod]:
    """Pods that need a node each."""
    return pods(count, cpu=90_000, name=name)


def waiting(some: Sequence[Pod]) -> list[ObservedPod]:
    """Pods without a node."""
    return [ObservedPod(pod, f"uid-{pod.name}", NOW) for pod in some]


def node(name: str, *bound: Pod, cpu: int = 96_000, **more: Any) -> ExistingNode:
    """A Ready node of the pool `web`."""
    amounts = Resources({"cpu": cpu, "memory": 2**38, "pods": 110})
    fields: dict[str, Any] = {
        "labels": {NODEPOOL: "web", ZONE: "us-east-1a", **JOINED},
        "allocatable": amounts,
        "capacity": amounts,
        "pods": tuple(pod.spec for pod in bound),
        "pool": "web",
    }
    return ExistingNode(name=name, **(fields | more))


def labels_of(one: FleetInstance) -> dict[str, str]:
    """The labels that each node of EKS gets."""
    return {INSTANCE_TYPE: one.instance_type, ZONE: one.zone}


class Buying(World):
    """A cluster with the pool `web`, and the ports of provisioning."""

    def __init__(self, catalog: Catalog, *documents: Mapping[str, Any]) -> None:
        super().__init__()
        given = documents or (pool(only=ONE_POD_EACH), node_class())
        self.manifests = ManifestsInMemory(written(*given))
        self.states = OneClusterState(ClusterState(NOW))
        self.groups = GroupInstancesInMemory()
        self.pod_templates = PodTemplatesInMemory()
        self.events = PodEventsInMemory()
        self.catalog = OneCatalog(catalog)
        self.own: dict[str, InstanceFacts] = {}
        self.launch_block: Reason | None = None

    @property
    def requests(self) -> Stored[CapacityRequest]:
        """The capacity requests, by instance."""
        return self.table.records(CAPACITY_REQUEST)

    @property
    def statuses(self) -> Stored[ProvisioningStatus]:
        """The statuses of provisioning, by cluster."""
        return self.table.records(STATUS, by="cluster")

    def dependencies(self) -> Dependencies:
        """The ports of a run."""
        return Dependencies(
            manifests=self.manifests,
            catalog=self.catalog,
            states=self.states,
            launch_nodes=self.launch_nodes,
            table=self.table,
            groups=self.groups,
            lifecycle_states=self.groups.lifecycle_states,
            upcoming=UpcomingPods(self.manifests, self.table, lambda _: self.pod_templates),
            returns=self._return_capacity(),
            events_in=lambda _: self.events.write,
            launch_block=lambda _cluster, _now: self.launch_block,
            clock=self,
        )

    def _return_capacity(self) -> ReturnCapacity:
        self.table.records(FACTS).update(self.own)
        return ReturnCapacity(
            ReturnDependencies(
                offerings=self.offerings,
                table=self.table,
                retire_node=Starts(),
                provision_nodes=ProvisionQueueInMemory(),
                sources=self.deps.sources,
                clock=self,
            )
        )

    def wait_for_nodes(self, *some: Pod) -> None:
        """Have these pods wait."""
        self.states.state = replace(self.states.state, waiting=waiting(some))

    def run(self, why: str = "pods are pending", seconds: float = 58) -> ProvisioningReport:
        """Run once."""
        until = self.time + timedelta(seconds=seconds)
        return NodeProvisioning(self.dependencies()).run("prod", why, until)

    def join(self, ready: bool = True, labelled: bool = True) -> None:
        """Have all launched instances join, as kubelets register."""
        state = self.states.state
        known = {one.name for one in state.nodes}
        found = [
            node(
                f"ip-{name}",
                labels={**labels_of(one), **({NODEPOOL: "web", **JOINED} if labelled else {})},
                pool="web" if labelled else "",
                taints=() if ready else (NOT_READY,),
            )
            for name, one in self.fleets.running.items()
            if name not in self.fleets.ended
        ]
        joined = {name: f"ip-{name}" for name in self.fleets.running}
        kept = [one for one in state.nodes if one.name not in {f.name for f in found}]
        assert known or found
        self.states.state = replace(state, nodes=(*kept, *found), joined={**state.joined, **joined})

    def retire(self, *moving: Pod, name: str = "ip-retiring") -> CapacityRequest:
        """Have a node with these pods retire."""
        state = self.states.state
        self.states.state = replace(
            state,
            nodes=(*state.nodes, node(name, *moving)),
            joined={**state.joined, RETIRING: name},
            movable={**state.movable, name: moving},
        )
        ends = self.time + timedelta(minutes=10)
        request = capacity_request(
            RETIRING,
            node=name,
            instance_type="m5.24xlarge",
            requested_at=self.time,
            ends_at=ends,
        )
        self.table.put(CAPACITY_REQUEST, request)
        return request


def request_of(
    launched: FleetInstance, node: str, at: datetime, lasts: timedelta
) -> CapacityRequest:
    """The request of a retirement of an instance of a fleet."""
    return capacity_request(
        launched.instance,
        node=node,
        instance_type=launched.instance_type,
        zone=launched.zone,
        capacity_type=launched.capacity_type,
        requested_at=at,
        ends_at=at + lasts,
    )


def event(*bodies: Any) -> dict[str, Any]:
    """A batch as Lambda delivers it; the ids are m0, m1, …"""
    return {
        "Records": [
            {
                "messageId": f"m{number}",
                "receiptHandle": f"r{number}",
                "body": body if isinstance(body, str) else json.dumps(body),
            }
            for number, body in enumerate(bodies)
        ]
    }
