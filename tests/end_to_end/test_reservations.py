"""Capacity reservations, deployed: nodes are launched into them first, move into them when there is
room, stay when they end, and leave a Capacity Block before EC2 ends it."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from leeway.aws.table import DynamoTable
from leeway.instances.facts import InstanceIndex
from leeway_sandbox.provisioning import client
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import Scenario
from lightkube import Client, KubeConfig
from lightkube.resources.core_v1 import Node

from tests.end_to_end.conftest import daemonset
from tests.end_to_end.environment import run_reconcile, until
from tests.end_to_end.provisioning import CLUSTER, PARAMETERS, prepare, store, table_of
from tests.end_to_end.replacing import TEAM, Replacing, workload
from tests.end_to_end.rights import check_calls_are_granted
from tests.launch.pools import pool, with_class

ID = "karpenter.k8s.aws/capacity-reservation-id"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
ZONE, TYPE = "us-east-1a", "m6i.xlarge"
WORLD = Scenario(cluster=CLUSTER, groups=(), workloads=(daemonset("cni"),))
QUICK = {"consolidateAfter": "1s", "budgets": [{"nodes": "100%"}]}


def reserving(name: str, capacity: list[str], tag: str = "", **spec: Any) -> list[dict[str, Any]]:
    """A pool of one team that selects the reservations with its tag."""
    own = pool(name, capacity, labels={TEAM: name}, only={"cpu": ["4"]}, **spec)
    terms = [{"tags": {"for": tag or name}}]
    return [*with_class(own, capacityReservationSelectorTerms=terms)]


def reserve(sandbox: Sandbox, tag: str, **given: Any) -> str:
    """A reservation of the sandbox; its id."""
    return sandbox.reserve(TYPE, ZONE, tags={"for": tag}, **given)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replacing]:
    state = tmp_path_factory.mktemp("reserving")
    options = {
        "aws": ["--schedule-speed", "0"],
        "kubernetes": ["--node-join", "1"],
        "lambda": ["--retry-delay", "1"],
    }
    with (
        Sandbox.start(WORLD, state_dir=state, parameters=PARAMETERS, options=options) as sandbox,
        Client(KubeConfig.from_file(sandbox.kubeconfig), trust_env=False) as kube,
    ):
        prepare(sandbox)
        store(
            sandbox,
            *reserving("first", ["reserved", "on-demand"]),
            *reserving("block", ["reserved", "on-demand"]),
            *reserving("into", ["reserved", "on-demand"], disruption=QUICK),
        )
        env = Replacing(sandbox, kube)
        env.policy(giveBack={"usdPerPodMoved": 0, "leastAge": "1s"})
        yield env
        check_calls_are_granted(sandbox)


def table(sandbox: Sandbox) -> DynamoTable:
    """The table of the stack."""
    dynamodb = client("dynamodb", sandbox.aws_url)
    return DynamoTable(lambda: dynamodb, table_of(sandbox))


def labels(world: Replacing, team: str) -> dict[str, dict[str, str]]:
    """The labels of the Nodes of a team, by the id of the instance."""
    return {
        str(one.spec.providerID).rpartition("/")[2]: dict(one.metadata.labels or {})
        for one in world.kube.list(Node, labels={TEAM: team})
        if one.spec and one.metadata
    }


def reserved(world: Replacing, team: str) -> list[str]:
    """The reservation of each Node of a team; `-` for one without."""
    return sorted(one.get(ID, "-") for one in labels(world, team).values())


def test_nodes_are_launched_into_a_reservation_and_stay_when_it_ends(world: Replacing) -> None:
    name = reserve(world.sandbox, "first", count=2)
    world.create(workload("first", 3, "3"))
    until(lambda: reserved(world, "first") == sorted(["-", name, name]))

    def kinds() -> list[str]:
        return sorted(one.get(CAPACITY_TYPE, "") for one in labels(world, "first").values())

    until(lambda: kinds() == ["on-demand", "reserved", "reserved"])
    index = InstanceIndex(table(world.sandbox))

    def known() -> int:
        """The nodes that reconcile knows as reserved."""
        run_reconcile(world)
        found = index.of_cluster(CLUSTER).values()
        return sum(one.reservation is not None for one in found)

    until(lambda: known() == 2)
    ec2 = client("ec2", world.sandbox.aws_url)
    ec2.cancel_capacity_reservation(CapacityReservationId=name)
    until(lambda: known() == 0)
    assert reserved(world, "first") == ["-"] * 3
    assert {one[CAPACITY_TYPE] for one in labels(world, "first").values()} == {"on-demand"}
    assert len(world.running("first")) == 3


def test_the_nodes_of_a_capacity_block_are_drained_before_it_ends(world: Replacing) -> None:
    """The warning of EC2 is lost: reconcile knows the end of the block."""
    name = reserve(world.sandbox, "block", kind="capacity-block", ends_in=2 * 3600)
    world.create(workload("block", 1, "3"))
    until(lambda: reserved(world, "block") == [name])
    ((instance, found),) = labels(world, "block").items()
    assert found["karpenter.k8s.aws/capacity-reservation-type"] == "capacity-block"
    since = time.time()
    run_reconcile(world)
    assert not world.since(since).of("execution-started", function="leeway-retire-node")
    world.sandbox.end_reservation(name, 39 * 60, warns=False)
    run_reconcile(world)
    seen = world.wait([instance], since)
    (outcome,) = seen.outcomes(instance)
    assert (outcome["kind"], outcome["result"]) == ("capacity-reservation", "drained")
    (other,) = set(world.nodes("block")) - {instance}
    assert ID not in labels(world, "block")[other]
    assert seen.died([str(outcome["node"])]) == []


def test_pods_move_from_on_demand_nodes_into_reserved_capacity(world: Replacing) -> None:
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
