"""Retirements, from EventBridge to the last Kubernetes Event. Spot interruptions: what happens to a
node, with which calls to AWS, and with which rights in the cluster. Notices with lead time:
replacement first, schedules, takeover and dry run."""

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from leeway.execution.shared_cache import FRESH_FOR
from leeway.selection.labels import HOSTNAME
from leeway_sandbox.access_entries import access_key
from leeway_sandbox.provisioning import client
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import Group, Scenario
from lightkube import Client
from lightkube.models.core_v1 import (
    Container,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimVolumeSource,
    PodSpec,
    Volume,
    VolumeResourceRequirements,
)
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.models.policy_v1 import PodDisruptionBudgetSpec
from lightkube.resources.core_v1 import Node, PersistentVolumeClaim, Pod
from lightkube.resources.policy_v1 import PodDisruptionBudget

from tests.end_to_end.conftest import deployment
from tests.end_to_end.environment import Environment, Journal, events_about, first, kube_client, say
from tests.end_to_end.rights import granted, used

EVENTS = Path(__file__).parents[2] / "events"
LEAD = timedelta(hours=4)
SMALL = 8
EKS_GROUP = "eks-general-0ac1b6a3-4d3e-9f0b-6c56-3f1c2e9a7b10"
"""The name of the Auto Scaling group of a managed node group, as EKS forms it."""
REPLACED = {"hooked": "terminate-in-group", "plain": "detach"}


@dataclass(frozen=True)
class Interrupted:
    """The instance and the node of each group, and what happened until both had ended."""

    nodes: dict[str, tuple[str, str]]
    seen: Journal


@pytest.fixture(scope="module")
def interrupted(env: Environment) -> Interrupted:
    """Interrupt a node of each group."""
    nodes = {group: env.unused_nodes(1, group).popitem() for group in REPLACED}
    instances = {instance for instance, _ in nodes.values()}
    since = time.time()
    env.interrupt([*instances])

    def ended(seen: Journal) -> bool:
        states = seen.of("instance-state", state="terminated")
        return instances <= {entry["instance"] for entry in states}

    env.until(since, ended)
    env.until(since, lambda seen: not seen.running(instances))
    return Interrupted(nodes, env.since(since))


@pytest.mark.parametrize("group", REPLACED)
def test_a_node_is_cordoned_replaced_and_drained_before_ec2_reclaims_it(
    interrupted: Interrupted, group: str
) -> None:
    (instance, node), seen = interrupted.nodes[group], interrupted.seen
    (outcome,) = seen.outcomes(instance)
    assert (outcome["result"], outcome["replacement"]) == ("drained", REPLACED[group])
    assert seen.of("node-tainted", node=node)
    assert not seen.died([node])
    launched = seen.of("instance-state", state="pending", group=group)
    assert len(launched) == 1
    cordoned = seen.of("node-cordoned", node=node)[0]["at"]
    evicted = [e["at"] for e in seen.of("eviction", node=node)]
    assert evicted
    assert min(evicted) >= cordoned


def test_the_terminate_hook_is_answered_with_continue(interrupted: Interrupted) -> None:
    (instance, _), seen = interrupted.nodes["hooked"], interrupted.seen
    answers = [e["outcome"] for e in seen.of("lifecycle-action", instance=instance)]
    assert answers == ["begun", "CONTINUE"]
    # A hook that begins after the outcome is answered too, and the outcome does not name it.
    assert {hook for one in seen.outcomes(instance) for hook in one["hooks"]} <= {"leeway-drain"}


def test_a_detached_instance_is_terminated_after_its_drain(interrupted: Interrupted) -> None:
    (instance, _), seen = interrupted.nodes["plain"], interrupted.seen
    assert seen.outcomes(instance)[0]["terminated"] is True
    assert seen.of("instance-state", instance=instance, state="shutting-down")
    assert not seen.of("reclaimed", instance=instance)


@pytest.mark.parametrize("group", REPLACED)
def test_the_outcome_is_a_log_line_a_leeway_event_and_a_kubernetes_event(
    env: Environment, interrupted: Interrupted, group: str
) -> None:
    (instance, node), seen = interrupted.nodes[group], interrupted.seen
    logs = [e["line"] for e in seen.of("logs") if isinstance(e["line"], dict)]
    (line,) = (x for x in logs if x.get("instance") == instance and "replacement" in x)
    assert (line["result"], line["kind"]) == ("drained", "spot-interruption")
    assert 0 <= line["seconds_to_cordon"] <= line["seconds_to_end"]
    events = [e for e in seen.of("put-events") if e["detail"].get("instance") == instance]
    assert [e["detail_type"] for e in events] == ["Leeway Node Retired"]
    (event,) = events_about(env.sandbox, node)
    assert event.reason == "NodeDrained"
    assert "pods evicted" in (event.message or "")


def test_events_that_a_retirement_causes_start_no_other_retirement(
    interrupted: Interrupted,
) -> None:
    for instance, _ in interrupted.nodes.values():
        assert len(interrupted.seen.outcomes(instance)) == 1
        assert interrupted.seen.attempts(instance) == [1]


def test_an_instance_of_another_cluster_is_ignored_with_a_log_line(env: Environment) -> None:
    (other,) = env.sandbox.endpoints.foreign_instances
    since = time.time()
    env.sandbox.interrupt([other], late=60)

    def about_it(seen: Journal) -> list[dict[str, object]]:
        logs = [e["line"] for e in seen.of("logs")]
        return [x for x in logs if isinstance(x, dict) and x.get("instance") == other]

    lines = env.until(since, about_it)
    assert lines[0]["result"] == "not-ours"
    assert "does not name its cluster somebody-elses" in str(lines[0]["message"])
    assert not env.since(since).executions(other)


READS_OF_A_GROUP = 3
"""The calls about the group, its hooks and its refreshes."""

IN_TROUBLE = 2
"""How many of ten instances may be read alone after a timeout on a busy machine. Each of them takes
one more call than its group."""


def calls_of(env: Environment, function: str) -> Counter[str]:
    """Return how often a function has made each AWS call."""
    assert env.sandbox.deployed is not None
    (name,) = (f.name for f in env.sandbox.deployed.functions if f.name.endswith(function))
    by_key = env.sandbox.status()["aws"]["calls_by_access_key"]
    return Counter(by_key.get(access_key(name), {}))


def test_a_storm_reads_each_group_and_not_each_of_its_instances(env: Environment) -> None:
    storm = [*env.unused_nodes(5, "hooked"), *env.unused_nodes(5, "plain")]
    before, began, started = calls_of(env, "retire-node"), time.monotonic(), time.time()
    seen = env.interrupt(storm)
    lasted = time.monotonic() - began
    calls = calls_of(env, "retire-node") - before
    replacements = {outcome["replacement"] for i in storm for outcome in seen.outcomes(i)}
    assert replacements == {"terminate-in-group", "detach"}
    assert calls["autoscaling:TerminateInstanceInAutoScalingGroup"] == 5
    assert calls["autoscaling:DetachInstances"] == 5
    assert calls["autoscaling:DescribeAutoScalingInstances"] <= IN_TROUBLE
    reads = {call: n for call, n in calls.items() if call.startswith("autoscaling:Describe")}
    times = 1 + lasted // FRESH_FOR.total_seconds()
    alone = IN_TROUBLE * (READS_OF_A_GROUP + 1)
    # None, if the storm of another test has read both groups a moment before.
    assert sum(reads.values()) <= READS_OF_A_GROUP * 2 * times + alone, reads
    runs_of_reconcile_are_the_minutes(env, storm, started)


def runs_of_reconcile_are_the_minutes(
    env: Environment, storm: Sequence[str], started: float
) -> None:
    """The cleanup of drained nodes every minute handles all nodes together."""

    def ended(seen: Journal) -> bool:
        states = seen.of("instance-state", state="terminated")
        return set(storm) <= {entry["instance"] for entry in states}

    env.until(started, ended)
    time.sleep(3)
    runs = env.since(started).of("invocation", function="leeway-reconcile")
    minutes = 2 + (time.time() - started) // 60
    assert len(runs) <= minutes + IN_TROUBLE


def start(kube: Client, node: str, name: str, budgets: int, *claims: str) -> None:
    """Create a pod on the node and a number of budgets that always block its eviction."""
    labels = {"app": name}
    for number in range(budgets):
        rule = PodDisruptionBudgetSpec(selector=LabelSelector(matchLabels=labels), maxUnavailable=0)
        budget = ObjectMeta(name=f"{name}-{number}", namespace="default")
        kube.create(PodDisruptionBudget(metadata=budget, spec=rule))
    for claim in claims:
        kube.create(
            PersistentVolumeClaim(
                metadata=ObjectMeta(name=claim, namespace="default"),
                spec=PersistentVolumeClaimSpec(
                    accessModes=["ReadWriteOnce"],
                    resources=VolumeResourceRequirements(requests={"storage": "1Gi"}),
                ),
            )
        )
    spec = PodSpec(
        containers=[Container(name="c", image="pause")],
        # The scheduler binds the claims too, which wait for the first pod that it places.
        nodeSelector={HOSTNAME: node},
        terminationGracePeriodSeconds=5,
        volumes=[
            Volume(c, persistentVolumeClaim=PersistentVolumeClaimVolumeSource(c)) for c in claims
        ],
    )
    metadata = ObjectMeta(name=name, namespace="default", labels=labels)
    kube.create(Pod(metadata=metadata, spec=spec))
    # A budget does not block a pod that is not Ready.
    kube.wait(Pod, name, namespace="default", for_conditions=["Ready"])


def test_the_role_grants_only_the_calls_of_retirements(env: Environment) -> None:
    (blocked, busy), (bare, unregistered) = env.unused_nodes(2, "hooked").items()
    with kube_client(env.sandbox) as kube:
        start(kube, busy, "blocked", 1)
        start(kube, busy, "guarded-twice", 2)
        start(kube, busy, "stateful", 0, "data")
        # It is read by its name, which fails, and then searched among all nodes.
        kube.delete(Node, unregistered)
    seen = env.interrupt([blocked, bare], late=90)
    for name in ("blocked", "guarded-twice"):
        assert [e["via"] for e in seen.of("pod-deletion", pod=f"default/{name}")] == ["delete"]
    (outcome,) = seen.outcomes(blocked)
    pods = {pod["pod"]: pod for pod in outcome["pods"]}
    assert sorted(pods["default/guarded-twice"]["budgets"]) == [
        "guarded-twice-0",
        "guarded-twice-1",
    ]
    assert pods["default/stateful"]["detached_at"]
    # Its end may cause a notice too, at which it has no node either.
    assert {o["result"] for o in seen.outcomes(bare)} == {"no-node"}
    assert used(env.sandbox, "RetireNodeRole") == granted("leeway-drain")


def lines_about(seen: Any, instance: str) -> list[dict[str, Any]]:
    lines = [entry["line"] for entry in seen.of("logs")]
    return [x for x in lines if isinstance(x, dict) and x.get("instance") == instance]


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
    assert f"Successor {launched['instance']} is ready for pods" in message
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
    assert "is ready for pods" not in outcome["replacement_reason"]["message"], "it did not wait"
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
        assert "is ready for pods" in outcome["replacement_reason"]["message"]
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
    with kube_client(sandbox) as kube:
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
