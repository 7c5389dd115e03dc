"""What a run has read becomes a snapshot: which nodes are Leeway's, what holds them, what goes."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import yaml
from leeway.capacity_requests.request import CapacityRequest
from leeway.capacity_return.cluster_snapshot import own_instances, snapshot_of
from leeway.capacity_return.snapshot import OwnNode, Snapshot
from leeway.instances.facts import InstanceFacts
from leeway.instances.owners import Owner, OwnerKind
from leeway.manifests.reading import read_manifests
from leeway.ports.kubernetes_objects import RETIRING
from leeway.provisioning.cluster_read import ClusterRead
from leeway.provisioning.cluster_state import ClusterState, WaitingPod
from leeway.provisioning.demand import demand_of
from leeway.provisioning.node_details import NodeDetails, PodBudget, PodOnNode
from leeway.selection.labels import INSTANCE_TYPE, NODE_CLASS
from leeway.selection.offers.catalog import Catalog
from leeway.selection.pods import ExistingNode, LabelSelector, Pod
from leeway.selection.pools import Taint
from leeway.selection.requirements import Requirements

from tests.launch.conftest import catalog
from tests.launch.launching import NOW
from tests.launch.pools import node_class, pods, pool
from tests.provisioning.buying import node

__all__ = ["catalog"]

DAY = timedelta(days=1)


def facts(instance: str, **more: Any) -> InstanceFacts:
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


def running(*some: Pod) -> tuple[PodOnNode, ...]:
    return tuple(PodOnNode(one, f"uid-{one.name}", controlled=True) for one in some)


def details(instance: str, *some: Pod, **more: Any) -> NodeDetails:
    plain = NodeDetails(instance, NOW - DAY, True, NOW - DAY, pods=running(*some))
    return replace(plain, **more)


class Cluster:
    """A cluster of the pool `web` with nodes of one instance each."""

    def __init__(self, catalog: Catalog, **spec: Any) -> None:
        documents = [pool(**spec), node_class()]
        reading = read_manifests(yaml.safe_dump_all(map(dict, documents)), "test.yaml")
        self.manifests = [one.meant for one in reading.written]
        self.catalog = catalog
        self.nodes: dict[str, tuple[ExistingNode, NodeDetails]] = {}
        self.waiting: list[WaitingPod] = []
        self.requests: list[CapacityRequest] = []
        self.budgets: list[PodBudget] = []
        self.own: dict[str, InstanceFacts] = {}

    def add(self, name: str, *some: Pod, foreign: bool = False, **more: Any) -> None:
        instance = f"i-{name}"
        labels = {**node(name).labels, NODE_CLASS: "default", INSTANCE_TYPE: "m5.large"}
        given = replace(node(name, *some), labels=labels)
        for field in ("labels", "taints"):
            if field in more:
                given = replace(given, **{field: more.pop(field)})
        self.nodes[name] = given, details(instance, *some, **more)
        if not foreign:
            self.own[instance] = facts(instance)

    def snapshot(self, quiet: dict[str, Any] | None = None, retiring: set[str] = set()) -> Snapshot:  # noqa: B006
        state = ClusterState(
            NOW,
            nodes=[each for each, _ in self.nodes.values()],
            joined={one.instance: name for name, (_, one) in self.nodes.items()},
            waiting=self.waiting,
            movable={n: tuple(p.pod for p in d.pods) for n, (_, d) in self.nodes.items()},
            details={name: one for name, (_, one) in self.nodes.items()},
            budgets=self.budgets,
        )
        demand = demand_of(state, self.requests, {})
        read = ClusterRead(
            "prod", self.manifests, self.catalog, state, (), self.requests, {}, demand
        )
        return snapshot_of(read, self.own, quiet or {}, retiring)


@pytest.fixture
def cluster(catalog: Catalog) -> Cluster:
    return Cluster(catalog)


def only(found: Snapshot) -> OwnNode:
    (one,) = found.own
    return one


def test_a_node_has_the_price_of_its_offering_and_the_pods_that_hold_it(cluster: Cluster) -> None:
    (web,) = pods(1)
    cluster.add("mine", web)
    cluster.add("theirs", foreign=True)
    found = cluster.snapshot({"mine": NOW - DAY})
    one = only(found)
    assert (one.name, one.instance, one.pool) == ("mine", "i-mine", "web")
    assert one.price == pytest.approx(0.097)
    assert [each.pod for each in one.pods] == [web]
    assert one.quiet_since == NOW - DAY
    assert [each.name for each in found.others] == ["theirs"]
    assert found.rules.keys() == {"web"}


def test_a_node_that_nobody_has_watched_is_quiet_from_now_on(cluster: Cluster) -> None:
    cluster.add("new")
    cluster.add("busy", busy=True)
    quiet = {one.name: one.quiet_since for one in cluster.snapshot({"busy": NOW - DAY}).own}
    assert quiet == {"new": NOW, "busy": NOW}


def test_a_tag_alone_makes_no_instance_ours() -> None:
    tagged = facts("i-1", from_fleet=False)
    outside = facts("i-2", joined=False)
    karpenter = facts("i-3", owner=Owner(OwnerKind.KARPENTER, "web"))
    known = {one.instance: one for one in (tagged, outside, karpenter, facts("i-4"), facts("i-5"))}
    assert own_instances(known, foreign={"i-5"}).keys() == {"i-4"}


def test_nodes_go_that_are_marked_requested_or_recorded(cluster: Cluster) -> None:
    (web,) = pods(1)
    cluster.add("marked", taints=(Taint(RETIRING, "rebalance", "NoSchedule"),))
    cluster.add("requested", web)
    cluster.add("recorded")
    cluster.add("stays")
    cluster.requests = [
        CapacityRequest(
            cluster="prod",
            instance="i-requested",
            node="requested",
            instance_type="m5.large",
            zone="us-east-1a",
            capacity_type="on-demand",
            attempt=1,
            requested_at=NOW,
            ends_at=NOW + DAY,
        )
    ]
    found = cluster.snapshot(retiring={"i-recorded"})
    assert {one.name for one in found.own if one.going} == {"marked", "requested", "recorded"}
    assert not found.waiting


def test_pods_that_wait_and_pods_of_other_nodes_that_go_need_a_place(cluster: Cluster) -> None:
    web, db = pods(1)[0], pods(1, name="db")[0]
    cluster.add("theirs", db, foreign=True)
    cluster.waiting = [WaitingPod(web, "uid", NOW)]
    cluster.requests = [
        CapacityRequest(
            cluster="prod",
            instance="i-theirs",
            node="theirs",
            instance_type="m5.large",
            zone="us-east-1a",
            capacity_type="on-demand",
            attempt=1,
            requested_at=NOW,
            ends_at=NOW + DAY,
        )
    ]
    assert {one.name for one in cluster.snapshot().waiting} == {web.name, db.name}


def test_budgets_that_allow_no_disruption_block_their_pods(cluster: Cluster) -> None:
    (web,) = pods(1)
    cluster.add("mine", web)
    everything = LabelSelector(Requirements())
    cluster.budgets = [
        PodBudget("default", "open", everything, 1),
        PodBudget("other", "elsewhere", everything, 0),
    ]
    assert only(cluster.snapshot()).pods[0].blocked_by == ()
    cluster.budgets.append(PodBudget("default", "second", everything, 1))
    assert only(cluster.snapshot()).pods[0].blocked_by == ("open", "second")
    cluster.budgets = [PodBudget("default", "shut", everything, 0)]
    assert only(cluster.snapshot()).pods[0].blocked_by == ("shut",)
    cluster.budgets = [PodBudget("default", "nothing", None, 0)]
    assert only(cluster.snapshot()).pods[0].blocked_by == ()


def test_a_node_drifts_if_its_pool_requires_something_else(catalog: Catalog) -> None:
    cluster = Cluster(catalog, capacity=["spot"])
    cluster.add("old")
    cluster.add("young", created_at=NOW - timedelta(minutes=59))
    drift = {one.name: [each.code for each in one.drift] for one in cluster.snapshot().own}
    assert drift == {"old": ["LabelDrifted"], "young": []}


def test_a_node_that_is_as_its_pool_does_not_drift(cluster: Cluster) -> None:
    cluster.add("mine", taints=(Taint("example.com/added"),))
    assert not only(cluster.snapshot()).drift
