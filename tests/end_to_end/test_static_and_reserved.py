"""Static pools and capacity reservations, deployed.

Nodes of static pools come without pods, are replaced, and follow spec.replicas. Other nodes are
launched into reservations first, move into them when there is room, stay when they end, and leave
a Capacity Block before EC2 ends it.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from leeway.aws.table import DynamoTable
from leeway.instances.facts import facts_in
from leeway_cli import main
from leeway_sandbox.provisioning import client
from leeway_sandbox.sandbox import Sandbox
from lightkube.resources.core_v1 import Node

from tests.end_to_end.environment import first, run_reconcile, until
from tests.end_to_end.provisioning import CLUSTER, FUNCTION, sandbox_with, table_of
from tests.end_to_end.replacing import TEAM, launched, workload
from tests.end_to_end.test_giving_back import (
    CHURN,
    EVERY_SAVING,
    NEVER,
    QUICK,
    GivingBack,
    team,
    team_pool,
)
from tests.launch.pools import document, node_class, pool, with_class

ID = "karpenter.k8s.aws/capacity-reservation-id"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
ZONE, TYPE = "us-east-1a", "m6i.xlarge"


def reserving(name: str, capacity: list[str], tag: str = "", **spec: Any) -> list[dict[str, Any]]:
    """A pool of one team that selects the reservations with its tag."""
    own = pool(name, capacity, labels={TEAM: name}, only={"cpu": ["4"]}, **spec)
    terms = [{"tags": {"for": tag or name}}]
    return [*with_class(own, capacityReservationSelectorTerms=terms)]


def reserve(sandbox: Sandbox, tag: str, **given: Any) -> str:
    """A reservation of the sandbox; its id."""
    return sandbox.reserve(TYPE, ZONE, tags={"for": tag}, **given)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GivingBack]:
    with sandbox_with(
        tmp_path_factory.mktemp("static-and-reserved"),
        node_class(),
        team_pool("fixed", replicas=2, disruption=NEVER),
        team_pool("aged", expires="60s", replicas=1),
        *reserving("first", ["reserved", "on-demand"]),
        *reserving("block", ["reserved", "on-demand"]),
        *reserving("into", ["reserved", "on-demand"], disruption=QUICK),
        document("Cluster", CLUSTER, {"churn": CHURN, "giveBack": EVERY_SAVING}),
        functions=["--retry-delay", "1"],
    ) as (sandbox, kube):
        yield GivingBack(sandbox, kube)


def ready(world: GivingBack, name: str) -> dict[str, str]:
    """The nodes of a pool that are Ready and not cordoned."""
    nodes = world.nodes(name)
    cordoned = {e["node"] for e in world.since(0).of("node-cordoned")}
    return {instance: node for instance, node in nodes.items() if node not in cordoned}


def has(world: GivingBack, name: str, count: int) -> bool:
    """Whether a pool has this number of nodes, and no other one goes."""
    return len(ready(world, name)) == len(world.nodes(name)) == count


def scale_pool(world: GivingBack, replicas: int) -> None:
    """Scale the pool as users do. A warm function would keep the former size for 45 seconds."""
    with pytest.MonkeyPatch.context() as patch:
        for key, value in world.sandbox.environment().items():
            patch.setenv(key, value)
        assert (
            main.run(["scale", "nodepool/fixed", f"--replicas={replicas}", "--cluster", CLUSTER])
            == 0
        )
    world.end_warm(FUNCTION)


def test_a_static_pool_keeps_its_number_of_nodes(world: GivingBack) -> None:
    world.runs_until(lambda: has(world, "fixed", 2) and has(world, "aged", 1))
    assert len(launched(world.since(0), "fixed")) == 2, "no node was launched twice"

    since = time.time()
    (interrupted, *_) = world.nodes("fixed")
    world.interrupt([interrupted], late=90)
    world.runs_until(lambda: interrupted not in world.nodes("fixed") and has(world, "fixed", 2))
    assert len(launched(world.since(0), "fixed")) == 3

    world.create(team("fixed", 1))
    (busy,) = world.running("fixed").values()
    assert len(launched(world.since(0), "fixed")) == 3, "the pod has its place on a static node"

    scale_pool(world, 3)
    world.runs_until(lambda: has(world, "fixed", 3))
    assert len(launched(world.since(0), "fixed")) == 4

    run_reconcile(world)  # the index of instances
    scale_pool(world, 1)
    world.runs_until(lambda: has(world, "fixed", 1))
    assert list(world.nodes("fixed").values()) == [busy], "empty nodes go first"
    assert len(launched(world.since(0), "fixed")) == 4
    assert not [e for e in world.since(since).of("eviction") if e.get("node") == busy]


def test_an_expired_node_of_a_static_pool_goes_after_another_is_in_its_place(
    world: GivingBack,
) -> None:
    (old, *_) = launched(world.since(0), "aged")
    outcome = world.runs_until(lambda: world.outcome(old))
    assert (outcome["result"], outcome["terminated"]) == ("drained", True)
    seen = world.since(0)
    joined = [e for e in seen.of("node-joined") if e["instance"] in launched(seen, "aged")]
    successor = next(e for e in joined if e["instance"] != old)
    states = seen.of("instance-state", instance=old)
    assert successor["at"] < first([e for e in states if e["state"] == "shutting-down"])
    assert str(successor["instance"]) in str(outcome)


def table(sandbox: Sandbox) -> DynamoTable:
    """The table of the stack."""
    dynamodb = client("dynamodb", sandbox.aws_url)
    return DynamoTable(lambda: dynamodb, table_of(sandbox))


def labels(world: GivingBack, team: str) -> dict[str, dict[str, str]]:
    """The labels of the Nodes of a team, by the id of the instance."""
    return {
        str(one.spec.providerID).rpartition("/")[2]: dict(one.metadata.labels or {})
        for one in world.kube.list(Node, labels={TEAM: team})
        if one.spec and one.metadata
    }


def reserved(world: GivingBack, team: str) -> list[str]:
    """The reservation of each Node of a team; `-` for one without."""
    return sorted(one.get(ID, "-") for one in labels(world, team).values())


def test_nodes_are_launched_into_a_reservation_and_stay_when_it_ends(world: GivingBack) -> None:
    name = reserve(world.sandbox, "first", count=2)
    world.create(workload("first", 3, "3"))
    until(lambda: reserved(world, "first") == sorted(["-", name, name]))

    def kinds() -> list[str]:
        return sorted(one.get(CAPACITY_TYPE, "") for one in labels(world, "first").values())

    until(lambda: kinds() == ["on-demand", "reserved", "reserved"])
    stored = table(world.sandbox)

    def known() -> int:
        """The nodes that reconcile knows as reserved."""
        run_reconcile(world)
        found = facts_in(stored, CLUSTER).values()
        return sum(one.reservation is not None for one in found)

    until(lambda: known() == 2)
    ec2 = client("ec2", world.sandbox.aws_url)
    ec2.cancel_capacity_reservation(CapacityReservationId=name)
    until(lambda: known() == 0)
    assert reserved(world, "first") == ["-"] * 3
    assert {one[CAPACITY_TYPE] for one in labels(world, "first").values()} == {"on-demand"}
    assert len(world.running("first")) == 3


def test_the_nodes_of_a_capacity_block_are_drained_before_it_ends(world: GivingBack) -> None:
    """The warning of EC2 is lost: reconcile knows the end of the block."""
    name = reserve(world.sandbox, "block", kind="capacity-block", ends_in=2 * 3600)
    world.create(workload("block", 1, "3"))
    until(lambda: reserved(world, "block") == [name])
    ((instance, found),) = labels(world, "block").items()
    assert found["karpenter.k8s.aws/capacity-reservation-type"] == "capacity-block"
    since = time.time()
    run_reconcile(world)
    assert not world.since(since).executions(instance)
    world.sandbox.end_reservation(name, 39 * 60, warns=False)
    run_reconcile(world)
    seen = world.wait([instance], since)
    (outcome,) = seen.outcomes(instance)
    assert (outcome["kind"], outcome["result"]) == ("capacity-reservation", "drained")
    (other,) = set(world.nodes("block")) - {instance}
    assert ID not in labels(world, "block")[other]
    assert seen.died([str(outcome["node"])]) == []


def test_pods_move_from_on_demand_nodes_into_reserved_capacity(world: GivingBack) -> None:
    world.create(workload("into", 1, "3"))
    until(lambda: "karpenter.sh/initialized" in str(labels(world, "into")))
    assert reserved(world, "into") == ["-"]
    (before,) = world.nodes("into").values()
    name = reserve(world.sandbox, "into")
    deadline = time.time() + 150
    while time.time() < deadline and name not in reserved(world, "into"):
        world.run_again()
        run_reconcile(world)
        time.sleep(2)
    world.moved("into", 1, [before])
    assert name in reserved(world, "into")
