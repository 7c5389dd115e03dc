"""A deployed Leeway rolls the nodes of a group to its launch template: always, if the Cluster
manifest says so, and else when a person asks."""

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from leeway.aws.table import DynamoTable
from leeway.reconciliation.decide_roll import GROUP_ROLL, GroupRoll
from leeway_cli import main
from leeway_sandbox.provisioning import client
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import Group, Manifest, Scenario, deployment, pod_spec
from lightkube.codecs import from_dict

from tests.cli.conftest import drop_clients
from tests.end_to_end.environment import Environment, first, kube_client, say, until
from tests.end_to_end.rights import check_calls_are_granted

CLUSTER, GROUP = "rolling", "web"
SINGLE: Manifest = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "single", "namespace": "default"},
    "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "single"}}},
}


class Rolling(Environment):
    """A cluster with one group. Its reconcile runs when a test says so."""

    def launches(self) -> str:
        """Give the group another version of its launch template; return its number."""
        created = client("ec2", self.sandbox.aws_url).create_launch_template_version(
            LaunchTemplateName=f"{CLUSTER}-{GROUP}",
            SourceVersion="1",
            LaunchTemplateData={"Monitoring": {"Enabled": True}},
        )
        return str(created["LaunchTemplateVersion"]["VersionNumber"])

    def versions(self) -> list[str]:
        """Return the launch template version of each instance in service."""
        scaling = client("autoscaling", self.sandbox.aws_url)
        (group,) = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[GROUP])[
            "AutoScalingGroups"
        ]
        return sorted(
            one["LaunchTemplate"]["Version"]
            for one in group["Instances"]
            if one["LifecycleState"] == "InService"
        )

    @property
    def roll(self) -> GroupRoll:
        """The record of the roll."""
        name = self.sandbox.environment()["LEEWAY_TABLE"]
        table = DynamoTable(partial(client, "dynamodb", self.sandbox.aws_url), name)
        found = table.get(GROUP_ROLL, cluster=CLUSTER, group=GROUP)
        assert found is not None
        return found

    def reconcile(self) -> GroupRoll:
        """Run reconcile once, and return the record after it."""
        self.run()
        return self.roll

    def run(self) -> None:
        """Run reconcile once. A roll takes its next step some seconds after a run."""
        time.sleep(1.5)
        since = time.time()
        self.sandbox.fire("leeway-reconcile")

        def ran(journal: Any) -> bool:
            runs = [e for e in journal.of("invocation") if "reconcile" in e["function"]]
            return any("milliseconds" in one for one in runs)

        self.until(since, ran)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rolling]:
    """Three nodes with seven pods."""
    template = pod_spec(grace=5, ends_after=0.5)
    workloads = (
        deployment("default", "web", 6, template),
        deployment("default", "single", 1, template),
    )
    world = Scenario(cluster=CLUSTER, groups=(Group(GROUP, 3),), workloads=workloads)
    options = {
        "aws": ["--schedule-speed", "0"],
        "kubernetes": ["--node-join", "1"],
        "lambda": ["--retry-delay", "1"],
    }
    state = tmp_path_factory.mktemp("rolling")
    with (
        Sandbox.start(world, state_dir=state, options=options) as sandbox,
        pytest.MonkeyPatch.context() as patch,
    ):
        say(sandbox, churn={"atLeast": 20})
        for name, value in sandbox.environment().items():
            patch.setenv(name, value)
        drop_clients()
        yield Rolling(sandbox)
        drop_clients()
        check_calls_are_granted(sandbox)


def ask(*options: str) -> None:
    assert main.run(["roll", GROUP, *options, "--no-wait", "--cluster", CLUSTER]) == 0


def test_nodes_follow_their_group_without_a_request_and_each_successor_is_first(
    cluster: Rolling,
) -> None:
    since, old = time.time(), set(cluster.free_nodes(3))
    say(cluster.sandbox, churn={"atLeast": 20}, groups={"drift": True})
    new = cluster.launches()

    def rolled() -> bool:
        cluster.run()
        return cluster.versions() == [new] * 3

    until(rolled)
    until(lambda: cluster.reconcile().is_over)
    roll = cluster.roll
    assert (roll.replaced, roll.asked_by, roll.kept) == (3, "", {})
    journal = cluster.since(since)
    outcomes = [one for instance in old for one in journal.outcomes(instance)]
    assert [one["result"] for one in outcomes] == ["drained"] * 3
    assert {one["reason"]["code"] for one in outcomes} == {"GroupNodeDrifted"}
    ready = sorted(first([one]) for one in journal.of("node-ready"))
    gone = sorted(
        first([e for e in journal.of("pod-ended") if e["node"] == one["node"]]) for one in outcomes
    )
    assert all(begin < end for begin, end in zip(ready, gone, strict=True))
    assert not journal.of("pod-ended", how="died-with-node")
    say(cluster.sandbox, churn={"atLeast": 20})


def test_a_roll_is_stopped_taken_up_again_and_keeps_the_node_that_a_budget_holds(
    cluster: Rolling,
) -> None:
    with kube_client(cluster.sandbox) as kube:
        kube.create(from_dict(dict(SINGLE)))
    since, (old, *_) = time.time(), cluster.versions()
    new = cluster.launches()
    ask()
    until(lambda: cluster.reconcile().moving)
    assert main.run(["roll", GROUP, "--stop", "--cluster", CLUSTER]) == 0
    until(lambda: not cluster.reconcile().moving)
    stopped = cluster.reconcile()
    assert stopped.stopped_at is not None
    assert len(stopped.kept) + stopped.replaced == 1
    assert cluster.versions().count(new) == stopped.replaced
    ask()
    until(lambda: cluster.reconcile().replaced == 2)
    kept = until(lambda: list(cluster.reconcile().kept.values()))
    assert "single" in kept[0].reason.message
    assert cluster.versions() == [old, new, new]
    journal = cluster.since(since)
    assert not journal.of("pod-ended", how="died-with-node")
    assert not [one for one in journal.of("pod-ended") if "single" in one["owner"]]
