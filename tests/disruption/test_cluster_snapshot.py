"""What a run has read becomes a snapshot: which nodes are Leeway's, what holds them, what goes."""

from dataclasses import replace
from datetime import timedelta

import pytest
from leeway.disruption.decide import decide_returns
from leeway.disruption.snapshot import OwnNode, Snapshot, own_instances, snapshot_of
from leeway.instances.facts import InstanceFacts, Owner, OwnerKind
from leeway.launch.fleets import FleetInstance
from leeway.launch.intent import LaunchIntent
from leeway.ports.kubernetes_objects import RETIRING
from leeway.provisioning.cluster_state import ObservedPod, PodBudget
from leeway.provisioning.demand import StartingNode
from leeway.selection.labels import JOINED, NODE_CLASS, NODEPOOL
from leeway.selection.offers.catalog import Catalog
from leeway.selection.pods import LabelSelector, Taint
from leeway.selection.requirements import Requirements

from tests.capacity_requests.requests import capacity_request
from tests.disruption.clusters import DAY, Cluster, facts
from tests.launch.conftest import catalog
from tests.launch.launching import NOW
from tests.launch.pools import pods

__all__ = ["catalog"]


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


def test_a_pod_that_runs_in_spite_of_a_soft_taint_may_move_to_another_one(
    catalog: Catalog,
) -> None:
    cluster = Cluster(catalog, disruption={"consolidateAfter": "0s"})
    one, other = pods(2, cpu=300)
    taints = (Taint("spare", "true", "PreferNoSchedule"),)
    cluster.add("a", one, taints=taints)
    cluster.add("b", other, taints=taints)
    quiet = {"a": NOW - DAY, "b": NOW - DAY}
    (found,) = decide_returns(cluster.snapshot(quiet)).returns
    assert (found.cause, found.replaced) == ("Underutilized", False)
    cluster.add("b", other)
    (found,) = decide_returns(cluster.snapshot(quiet)).returns
    assert found.nodes == ("a",), "no pod moves to a soft taint that it has avoided"


def test_a_node_that_nobody_has_watched_is_quiet_from_now_on(cluster: Cluster) -> None:
    cluster.add("new")
    cluster.add("busy", busy_until=NOW + timedelta(minutes=1))
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
    cluster.requests = [capacity_request("i-requested", node="requested", ends_at=NOW + DAY)]
    found = cluster.snapshot(retiring={"i-recorded"})
    assert {one.name for one in found.own if one.going} == {"marked", "requested", "recorded"}
    assert not found.waiting


def test_pods_that_wait_and_pods_of_other_nodes_that_go_need_a_place(cluster: Cluster) -> None:
    web, db = pods(1)[0], pods(1, name="db")[0]
    cluster.add("theirs", db, foreign=True)
    cluster.waiting = [ObservedPod(web, "uid", NOW)]
    cluster.requests = [capacity_request("i-theirs", node="theirs", ends_at=NOW + DAY)]
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
    assert not only(cluster.snapshot()).pods[0].surges
    (found,) = snapshot_of(cluster.read(), cluster.own, {}, surges=True).own
    assert (found.pods[0].blocked_by, found.pods[0].surges) == (("shut",), True)
    cluster.budgets = [PodBudget("default", "nothing", None, 0)]
    assert only(cluster.snapshot()).pods[0].blocked_by == ()


def test_a_node_drifts_if_its_pool_requires_something_else(catalog: Catalog) -> None:
    cluster = Cluster(catalog, capacity=["spot"])
    cluster.add("old")
    cluster.add("young", created_at=NOW - timedelta(minutes=59))
    drift = {one.name: [each[:9] for each in one.drift] for one in cluster.snapshot().own}
    assert drift == {"old": ["Its label"], "young": []}


def test_a_node_that_is_as_its_pool_does_not_drift(cluster: Cluster) -> None:
    cluster.add("mine", taints=(Taint("example.com/added"),))
    assert not only(cluster.snapshot()).drift


def test_an_empty_node_stays_while_pods_that_it_was_launched_for_wait(cluster: Cluster) -> None:
    web, db = pods(1)[0], pods(1, name="db")[0]
    cluster.add("empty")
    cluster.add("filled", db)
    launched = tuple(
        FleetInstance(f"i-{n}", "m5.large", "us-east-1a", "spot") for n in cluster.nodes
    )
    intent = LaunchIntent(
        id="one",
        cluster="prod",
        pool="web",
        pods=(web.name,),
        token="t",
        created_at=NOW,
        request=None,
        instances=launched,
    )
    cluster.intents = [intent]
    assert not any(one.busy for one in cluster.snapshot().own)
    cluster.waiting = [ObservedPod(web, "uid", NOW)]
    assert {one.name for one in cluster.snapshot().own if one.busy} == {"empty"}


def test_a_node_starts_until_its_admission_has_initialized_it(cluster: Cluster) -> None:
    labels = {NODEPOOL: "web", NODE_CLASS: "default"}
    cluster.add("new", labels=labels)
    cluster.add("unready", ready=False)
    cluster.add("admitted", labels={**labels, **JOINED})
    ready = {one.name for one in cluster.snapshot().own if one.ready}
    assert ready == {"admitted"}


@pytest.mark.parametrize(
    ("age", "indexed", "comes"),
    [
        (timedelta(minutes=1), {}, True),
        (timedelta(minutes=5), {"i-new": facts("i-new", joined=False)}, True),
        (timedelta(minutes=5), {"i-new": facts("i-new")}, False),
        (timedelta(minutes=5), {}, False),
    ],
    ids=["just launched", "starts", "Node is gone", "ended"],
)
def test_an_instance_that_was_given_back_does_not_come_again(
    cluster: Cluster, age: timedelta, indexed: dict[str, InstanceFacts], comes: bool
) -> None:
    """Otherwise other nodes would be emptied onto it for 15 minutes."""
    launched = FleetInstance("i-new", "m5.large", "us-east-1a", "spot")
    cluster.intents = [
        LaunchIntent(
            id="one",
            cluster="prod",
            pool="web",
            token="t",
            created_at=NOW - age,
            request=None,
            instances=(launched,),
        )
    ]
    found = snapshot_of(cluster.read(), {}, {}, index=indexed)
    assert [one.name for one in found.others] == (["i-new"] if comes else [])


def test_nodes_that_are_not_initialized_are_known_as_starting(cluster: Cluster) -> None:
    (web,) = pods(1)
    cluster.add("settled", web)
    cluster.add("new", labels={NODEPOOL: "web", NODE_CLASS: "default"})
    cluster.add("theirs", foreign=True, labels={})
    read = cluster.read()
    starting = {
        name: StartingNode(f"i-{name}", cluster.nodes[name][0]) for name in ("settled", "theirs")
    }
    coming = replace(cluster.nodes["theirs"][0], name="i-coming")
    read = replace(
        read,
        starting=starting,
        demand=replace(read.demand, nodes=(*read.demand.nodes, coming)),
    )
    found = snapshot_of(read, cluster.own, {})
    assert found.starting == {"new", "theirs", "i-coming"}, "a device may come late, or never"
