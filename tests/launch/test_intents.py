"""A launch intent keeps its request until it is answered, and its instances until they join."""

from datetime import UTC, datetime, timedelta

import pytest
from leeway.launch.fleets import FleetInstance, FleetRequest, Override, TemplateOverrides
from leeway.launch.intent import (
    JOIN_WITHIN,
    REPEAT_WITHIN,
    LaunchIntent,
    labels_for_admission,
    nodes_on_the_way,
)
from leeway.manifests.node_pool import pools_of
from leeway.selection.offers.catalog import Catalog
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import NodePool

from tests.launch.pools import node_class, pods, pool
from tests.manifests.texts import manifests

NOW = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)
REQUEST = FleetRequest(
    "spot",
    1,
    (TemplateOverrides("t", (Override("m5.large", "us-east-1a", "subnet-a"),)),),
    {"k": "v"},
)
INSTANCE = FleetInstance("i-1", "m5.large", "us-east-1a", "spot")


@pytest.fixture(scope="module")
def web() -> NodePool:
    (found,) = pools_of(manifests(pool(labels={"team": "a"}, limits={"nodes": 1}), node_class()))
    return found


@pytest.fixture
def intent(web: NodePool) -> LaunchIntent:
    return LaunchIntent(
        id="one",
        cluster="prod",
        pool="web",
        labels=web.labels,
        labels_for_admission={"example.com/own": "x"},
        token="t",
        created_at=NOW,
        request=REQUEST,
    )


def test_an_intent_is_read_as_it_was_written(intent: LaunchIntent) -> None:
    for one in (intent, intent.answered([INSTANCE]).with_admissions(["i-1"])):
        assert LaunchIntent.model_validate_json(one.model_dump_json()) == one


def test_an_answer_replaces_the_request_and_counts_a_version(intent: LaunchIntent) -> None:
    answered = intent.answered([INSTANCE])
    assert (intent.is_answered, answered.is_answered) == (False, True)
    assert (answered.version, answered.to_admit) == (2, (INSTANCE,))
    assert answered.with_admissions(["i-1"]).to_admit == ()


def test_a_request_is_repeated_for_some_minutes(intent: LaunchIntent) -> None:
    assert intent.may_repeat(NOW + REPEAT_WITHIN - timedelta(seconds=1))
    assert not intent.may_repeat(NOW + REPEAT_WITHIN)


def test_a_launched_node_takes_pods_and_counts_against_the_limits_of_its_pool(
    intent: LaunchIntent, web: NodePool, catalog: Catalog
) -> None:
    launched = intent.answered([INSTANCE])
    nodes = nodes_on_the_way([launched], (), [web], catalog, NOW)
    assert [node.name for node in nodes] == ["i-1"]
    plan = pack(pods(2, cpu=1500), Supply([web], catalog), nodes)
    assert [placed.node for placed in plan.existing] == ["i-1"]
    assert plan.launches == ()
    assert len(plan.unschedulable) == 1, "the pool has a limit of one node"


def test_a_node_has_the_labels_of_its_pool_type_and_zone(
    intent: LaunchIntent, web: NodePool, catalog: Catalog
) -> None:
    (node,) = nodes_on_the_way([intent.answered([INSTANCE])], (), [web], catalog, NOW)
    expected = {
        "team": "a",
        "node.kubernetes.io/instance-type": "m5.large",
        "topology.kubernetes.io/zone": "us-east-1a",
        "karpenter.sh/capacity-type": "spot",
        "karpenter.sh/nodepool": "web",
        "kubernetes.io/arch": "amd64",
    }
    assert expected.items() <= node.labels.items()


def test_an_instance_that_has_a_node_or_never_joined_is_not_on_the_way(
    intent: LaunchIntent, web: NodePool, catalog: Catalog
) -> None:
    launched = [intent.answered([INSTANCE])]
    late = NOW + JOIN_WITHIN
    assert nodes_on_the_way(launched, {"i-1"}, [web], catalog, NOW) == ()
    assert nodes_on_the_way(launched, (), [web], catalog, late) == ()
    assert nodes_on_the_way(launched, (), [], catalog, NOW) == ()


def test_admission_puts_on_the_labels_that_a_kubelet_does_not(
    intent: LaunchIntent, web: NodePool, catalog: Catalog
) -> None:
    labels = labels_for_admission(intent, INSTANCE, web, catalog)
    assert labels["karpenter.sh/capacity-type"] == "spot"
    assert labels["karpenter.sh/nodepool"] == "web"
    assert labels["karpenter.k8s.aws/instance-family"] == "m5"
    assert labels["example.com/own"] == "x"
    absent = {"team", "kubernetes.io/arch", "topology.kubernetes.io/zone"}
    assert not absent & labels.keys(), "the kubelet sets them"
    assert "karpenter.sh/initialized" not in labels, "the node is not Ready yet"
