"""Notices with lead time: replacement first, schedules, takeover and dry run."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from leeway import __version__
from leeway.aws.table import DynamoTable
from leeway.manifests.configuration import StoredManifest, StoredManifests
from leeway_sandbox.provisioning import client
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import Group, Scenario
from lightkube import Client, KubeConfig
from lightkube.resources.core_v1 import Node

from tests.end_to_end.conftest import deployment
from tests.end_to_end.environment import Entry, Environment

EVENTS = Path(__file__).parents[2] / "events"
LEAD = timedelta(hours=4)
SMALL = 8
EKS_GROUP = "eks-general-0ac1b6a3-4d3e-9f0b-6c56-3f1c2e9a7b10"
"""The name of the Auto Scaling group of a managed node group, as EKS forms it."""


def say(sandbox: Sandbox, **spec: Any) -> None:
    """Write the Cluster manifest, over the one that there is. A function that has read that one
    keeps it for half a minute."""
    cluster = sandbox.endpoints.cluster
    kind = {"apiVersion": "leeway.sh/v1", "kind": "Cluster"}
    body = json.dumps({**kind, "metadata": {"name": cluster}, "spec": spec})
    table = sandbox.environment()["LEEWAY_TABLE"]
    stored = StoredManifests(DynamoTable(lambda: client("dynamodb", sandbox.aws_url), table))
    before = next((one.version for one in stored.of(cluster, "cluster.leeway.sh")), 0)
    manifest = StoredManifest(
        "cluster.leeway.sh", "", cluster, body, before + 1, __version__, datetime.now(UTC)
    )
    stored.write(cluster, manifest, before)


def lines_about(seen: Any, instance: str) -> list[dict[str, Any]]:
    lines = [entry["line"] for entry in seen.of("logs")]
    return [x for x in lines if isinstance(x, dict) and x.get("instance") == instance]


def first(entries: list[Entry]) -> float:
    return min(float(entry["at"]) for entry in entries)


@pytest.fixture(autouse=True)
def with_capacity(env: Environment) -> None:
    """Remove what interruptions in other tests say about the offerings of the groups."""
    env.forget_unavailable_offerings()


@pytest.mark.parametrize("group", ["hooked", "plain"])
def test_a_rebalance_evicts_no_pod_before_the_replacement_is_ready(
    env: Environment, group: str
) -> None:
    (instance, node) = env.unused_nodes(1, group).popitem()
    since = time.time()
    env.sandbox.interrupt([instance], copies=2, rebalance=True, warning=False)
    seen = env.wait([instance], since)
    (outcome,) = seen.outcomes(instance)
    assert (outcome["result"], outcome["replacement"]) == ("drained", "launch-successor")
    (launched,) = seen.of("instance-state", state="pending", group=group)
    (joined,) = seen.of("node-joined", instance=launched["instance"])
    ready = first(seen.of("node-ready", node=joined["node"]))
    assert first(seen.of("node-cordoned", node=node)) < ready
    assert ready <= first(seen.of("eviction", node=node))
    (replacement,) = outcome["successors"]
    assert replacement["instance"] == launched["instance"]
    ec2 = client("ec2", env.sandbox.aws_url)
    (reservation,) = ec2.describe_instances(InstanceIds=[launched["instance"]])["Reservations"]
    zone = reservation["Instances"][0]["Placement"]["AvailabilityZone"]
    assert (replacement["zone"], replacement["instance_type"]) == (zone, "m5.large")
    message = outcome["replacement_reason"]["message"]
    assert f"Successor {launched['instance']} is Ready" in message
    assert not seen.died([node])


def test_an_interruption_takes_over_a_rebalance_immediately_with_one_replacement(
    env: Environment,
) -> None:
    (instance, node) = env.unused_nodes(1, "hooked").popitem()
    since = time.time()
    env.sandbox.interrupt([instance], rebalance=True, warning=False)
    env.until(since, lambda seen: seen.of("instance-state", state="pending"))
    env.sandbox.interrupt([instance], late=60)
    seen = env.wait([instance], since)
    (outcome,) = seen.outcomes(instance)
    assert (outcome["kind"], outcome["attempt"]) == ("spot-interruption", 2)
    assert outcome["result"] == "drained"
    assert seen.of("eviction", node=node)
    assert "is Ready" not in outcome["replacement_reason"]["message"], "it did not wait"
    assert len(seen.of("instance-state", state="pending", group="hooked")) == 1
    assert not seen.died([node])
    answers = [e["outcome"] for e in seen.of("lifecycle-action", instance=instance)]
    assert answers == ["begun", "CONTINUE"]


def scheduled(instances: list[str], at: datetime, status: str = "upcoming") -> dict[str, Any]:
    event: dict[str, Any] = json.loads((EVENTS / "scheduled-change.json").read_text())
    now = datetime.now(UTC)
    event |= {
        "id": f"00000000-0000-4000-8000-{now:%H%M%S%f}",
        "time": f"{now:%Y-%m-%dT%H:%M:%SZ}",
        "resources": instances,
    }
    event["detail"] |= {
        "eventArn": f"{event['detail']['eventArn']}-{instances[0]}",
        "startTime": format_datetime(at, usegmt=True),
        "statusCode": status,
        "affectedEntities": [{"entityValue": i, "status": "PENDING"} for i in instances],
    }
    return event


def names(sandbox: Sandbox, instance: str) -> list[str]:
    return [s["name"] for s in sandbox.schedules() if s["name"].startswith(instance)]


def test_a_scheduled_change_starts_on_schedule_with_the_replacement_first(
    env: Environment,
) -> None:
    nodes = env.unused_nodes(2, "hooked")
    since, sandbox = time.time(), env.sandbox
    weeks = datetime.now(UTC) + timedelta(days=14)
    sandbox.send(scheduled(list(nodes), weeks))
    env.until(since, lambda _: all(names(sandbox, instance) for instance in nodes))
    # An update of the same change: it starts earlier, and so do its schedules.
    soon = datetime.now(UTC) + LEAD + timedelta(seconds=20)
    sandbox.send(scheduled(list(nodes), soon))
    seen = env.wait(nodes, since)
    fired = [str(entry["schedule"]) for entry in seen.of("schedule-fired")]
    for instance, node in nodes.items():
        assert [name.startswith(instance) for name in fired].count(True) == 1
        (outcome,) = seen.outcomes(instance)
        assert (outcome["kind"], outcome["result"]) == ("scheduled-change", "drained")
        assert "is Ready" in outcome["replacement_reason"]["message"]
        assert not seen.died([node])
        assert names(sandbox, instance) == [], "one that has fired deletes itself"
    assert len(seen.of("instance-state", state="pending", group="hooked")) == 2


def test_a_cancelled_scheduled_change_leaves_no_schedule(env: Environment) -> None:
    (instance, node) = env.unused_nodes(1).popitem()
    since, sandbox = time.time(), env.sandbox
    weeks = datetime.now(UTC) + timedelta(days=14)
    sandbox.send(scheduled([instance], weeks))
    env.until(since, lambda _: names(sandbox, instance))
    sandbox.send(scheduled([instance], weeks, "closed"))
    env.until(since, lambda _: not names(sandbox, instance))
    # Another change, whose lead time has begun. Only EC2 reports its cancellation.
    again, ahead = time.time(), timedelta(hours=3)
    event = sandbox.maintain(instance, within=ahead.total_seconds())
    sandbox.maintain(instance, within=ahead.total_seconds(), event=event, over="[Canceled]")
    sandbox.send(scheduled([instance], datetime.now(UTC) + ahead))
    lines = env.until(
        again, lambda s: [x for x in lines_about(s, instance) if x.get("result") == "ignored"]
    )
    assert lines[0]["code"] == "NoticeIgnored"
    assert not env.since(since).of("node-cordoned", node=node)


def test_a_stopped_node_that_runs_again_is_restored_and_can_be_retired_again(
    env: Environment,
) -> None:
    (instance, node) = env.unused_nodes(1, "plain").popitem()
    sandbox = env.sandbox
    client("autoscaling", sandbox.aws_url).detach_instances(
        AutoScalingGroupName="plain", InstanceIds=[instance], ShouldDecrementDesiredCapacity=True
    )
    ec2 = client("ec2", sandbox.aws_url)
    ec2.delete_tags(Resources=[instance], Tags=[{"Key": "aws:autoscaling:groupName"}])
    since = time.time()
    sandbox.interrupt([instance], late=110, action="stop")
    stopped = env.until(since, lambda s: s.of("instance-state", instance=instance, state="stopped"))
    env.wait([instance], since)
    assert stopped
    ec2.start_instances(InstanceIds=[instance])
    (undone,) = env.until(
        since, lambda s: [o for o in s.outcomes(instance) if o["result"] == "undone"]
    )
    with Client(KubeConfig.from_file(sandbox.kubeconfig), trust_env=False) as kube:
        found = kube.get(Node, node)
        assert found.spec is not None
        assert not found.spec.unschedulable
        assert not [t for t in found.spec.taints or [] if t.key.startswith("leeway.sh/")]
        assert found.metadata is not None
        assert not [a for a in found.metadata.annotations or {} if a.startswith("leeway.sh/")]
    attempt = undone["attempt"]
    again = time.time()
    sandbox.interrupt([instance], action="stop")
    (later,) = env.wait([instance], again).outcomes(instance)
    assert (later["kind"], later["result"]) == ("spot-interruption", "drained")
    assert later["attempt"] == attempt + 1
    # For two minutes it would be a node that runs and is cordoned, for the tests that follow.
    ec2.terminate_instances(InstanceIds=[instance])
    env.until(again, lambda s: s.of("instance-state", instance=instance, state="terminated"))


@pytest.fixture
def small(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Environment]:
    """A small cluster with the Cluster manifest of the test's parameter. Its functions use the
    address that the sandbox advertises for containers."""
    world = Scenario(
        cluster="small",
        groups=(Group(EKS_GROUP, SMALL, terminate_hook=True),),
        workloads=(deployment("web", 2 * SMALL, 5),),
    )
    options = {"lambda": ["--retry-delay", "1"]}
    address = "127.0.0.2"
    with Sandbox.start(
        world, state_dir=tmp_path, options=options, host=address, advertise=address
    ) as sandbox:
        say(sandbox, **request.param)
        yield Environment(sandbox)


@pytest.mark.parametrize("small", [{"dryRun": True}], indirect=True)
def test_a_dry_run_reports_actions_and_makes_none(small: Environment) -> None:
    (instance, node) = small.unused_nodes(1).popitem()
    since = time.time()
    small.sandbox.interrupt([instance], late=60)
    seen = small.wait([instance], since)
    (outcome,) = seen.outcomes(instance)
    assert (outcome["result"], outcome["replacement"]) == ("dry-run", "terminate-in-group")
    assert outcome["node"] == node
    assert outcome["pods"]
    assert seen.of("put-events")[0]["detail_type"] == "Leeway Node Retirement Dry Run"
    for kind in ("node-cordoned", "node-tainted", "eviction", "lifecycle-action"):
        assert not seen.of(kind), kind


@pytest.mark.parametrize("small", [{"churn": {"percent": 100}}], indirect=True)
def test_rebalances_survive_crashes_of_their_functions_with_one_replacement_each(
    small: Environment,
) -> None:
    nodes = small.unused_nodes(SMALL)
    points = [(when, step) for step in range(1, SMALL // 2 + 1) for when in ("before", "after")]
    faults = [
        {"function": "*retire*", "execution": f"retire-{i}-*", "kill": when, "step": step}
        for i, (when, step) in zip(nodes, points, strict=True)
    ]
    small.sandbox.faults("lambda", faults)
    since = time.time()
    small.sandbox.interrupt(list(nodes), rebalance=True, warning=False)
    seen = small.wait(nodes, since)
    killed = [e for e in seen.of("invocation") if e["outcome"] == "killed"]
    assert len(killed) == SMALL
    for instance in nodes:
        assert {o["result"] for o in seen.outcomes(instance)} == {"drained"}
    assert not seen.died(nodes.values())
    # Each of the concurrent rebalances raised the desired capacity of the group exactly once.
    assert len(seen.of("instance-state", state="pending", group=EKS_GROUP)) == SMALL
    (group,) = client("autoscaling", small.sandbox.aws_url).describe_auto_scaling_groups()[
        "AutoScalingGroups"
    ]
    assert group["DesiredCapacity"] == SMALL
    accepted = [e["uid"] for e in seen.of("eviction") if e["status"] == 201]
    assert len(accepted) == len(set(accepted))
