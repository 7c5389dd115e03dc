"""A deployed Leeway ends an instance only after its load balancers have drained it."""

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from leeway_sandbox.access_entries import access_key
from leeway_sandbox.provisioning import client
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import Group, Scenario
from lightkube import Client, KubeConfig
from lightkube.resources.core_v1 import Node

from tests.aws.test_target_contract import balanced
from tests.end_to_end.environment import Environment, events_about, say, until
from tests.end_to_end.rights import check_calls_are_granted
from tests.template.granted import granted_to

LOOK = "elasticloadbalancing:DescribeTargetHealth"
EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"


class Balanced(Environment):
    """A cluster whose nodes a load balancer has as targets; the tests are its controller."""

    def __init__(self, sandbox: Sandbox, kube: Client) -> None:
        super().__init__(sandbox)
        self.kube = kube
        self.balancers: Any = client("elbv2", sandbox.aws_url)

    def client(self, service: str) -> Any:
        """Return a client of the account, for `balanced`."""
        return client(service, self.sandbox.aws_url)

    def states(self, group: str, instance: str) -> list[str]:
        """Return the states of an instance in a target group."""
        answer = self.balancers.describe_target_health(TargetGroupArn=group)
        return [
            one["TargetHealth"]["State"]
            for one in answer["TargetHealthDescriptions"]
            if one["Target"]["Id"] == instance
        ]

    def deregister(self, group: str, instance: str, delay: int) -> None:
        """Deregister an instance, which then drains for `delay` seconds."""
        attribute = {"Key": "deregistration_delay.timeout_seconds", "Value": str(delay)}
        self.balancers.modify_target_group_attributes(TargetGroupArn=group, Attributes=[attribute])
        self.balancers.deregister_targets(TargetGroupArn=group, Targets=[{"Id": instance}])

    def is_excluded(self, name: str) -> bool:
        """Whether a node has the label by which a controller deregisters it."""
        node: Any = self.kube.get(Node, name)
        return EXCLUDED in (node.metadata.labels or {})

    def looks(self) -> int:
        """Return how often retire_node has looked at a target group."""
        assert self.sandbox.deployed
        calls = self.sandbox.status()["aws"]["calls_by_access_key"]
        return sum(
            calls.get(access_key(function.name), {}).get(LOOK, 0)
            for function in self.sandbox.deployed.functions
        )

    def state_of(self, instance: str) -> str:
        """Return the state of an instance."""
        found = self.client("ec2").describe_instances(InstanceIds=[instance])
        return str(found["Reservations"][0]["Instances"][0]["State"]["Name"])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Balanced]:
    """The cluster, whose manifest asks for the wait."""
    world = Scenario(cluster="balanced", groups=(Group("plain", 6),))
    options = {"kubernetes": ["--node-join", "1"], "lambda": ["--retry-delay", "1"]}
    state = tmp_path_factory.mktemp("balanced")
    with (
        Sandbox.start(world, state_dir=state, options=options) as sandbox,
        Client(KubeConfig.from_file(sandbox.kubeconfig), trust_env=False) as kube,
    ):
        say(sandbox, waitForTargets=True, churn={"percent": 100})
        yield Balanced(sandbox, kube)
        check_calls_are_granted(sandbox)


def test_an_instance_ends_only_after_its_targets_are_unused(cluster: Balanced) -> None:
    ((instance, node),) = cluster.unused_nodes(1).items()
    group = balanced(cluster.client, "patient", [instance], 3000)
    since, looked = time.time(), cluster.looks()
    cluster.sandbox.interrupt([instance], rebalance=True, warning=False)
    until(lambda: cluster.is_excluded(node))
    cluster.deregister(group, instance, delay=3000)
    # The load balancer drains for as long as the test says: an early end is no matter of time.
    until(lambda: cluster.looks() > looked + 1)
    assert (cluster.states(group, instance), cluster.state_of(instance)) == (
        ["draining"],
        "running",
    )
    assert not cluster.since(since).outcomes(instance)
    cluster.balancers.register_targets(TargetGroupArn=group, Targets=[{"Id": instance}])
    cluster.deregister(group, instance, delay=0)
    (outcome,) = cluster.wait([instance], since).outcomes(instance)
    assert outcome["result"] == "drained"
    assert "TargetsLeft" not in str(outcome["load_balancers"])
    assert cluster.states(group, instance) == []


def test_a_two_minute_notice_waits_for_no_target_and_says_what_it_cuts(
    cluster: Balanced,
) -> None:
    ((instance, node),) = cluster.unused_nodes(1).items()
    group = balanced(cluster.client, "hasty", [instance], 3000)
    cluster.deregister(group, instance, delay=3000)
    since, looked = time.time(), cluster.looks()
    cluster.sandbox.interrupt([instance])
    (outcome,) = cluster.wait([instance], since).outcomes(instance)
    assert outcome["result"] == "drained"
    assert outcome["load_balancers"]["code"] == "TargetsCut"
    said = r"target group hasty lacks at least 2[89]\d\d s of its deregistration delay of 3000 s"
    assert re.search(said, outcome["message"])
    (event,) = events_about(cluster.sandbox, node)
    assert re.search(said, str(event.message))
    assert cluster.states(group, instance) == ["draining"]
    groups = cluster.balancers.describe_target_groups()["TargetGroups"]
    assert cluster.looks() - looked == len(groups)


def test_the_role_may_read_targets_and_change_none() -> None:
    rights = {one for one in granted_to("RetireNodeRole") if one.startswith("elasticload")}
    assert rights == {
        "elasticloadbalancing:DescribeTargetGroupAttributes",
        "elasticloadbalancing:DescribeTargetGroups",
        "elasticloadbalancing:DescribeTargetHealth",
    }
