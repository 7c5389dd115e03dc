"""New nodes, lifecycle hooks, lost notices, and the cleanup after instances."""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from leeway.aws.table import DynamoTable
from leeway.catalog.stored import SURVEY
from leeway.costs import COST, CostHour
from leeway.manifests.configuration import StoredManifests
from leeway.reconciliation.lost_events import EVENT_DELAY
from leeway.selection.offers.survey import compressed
from leeway_cli.main import run
from leeway_cli.selection.sources import sandbox_survey
from leeway_sandbox.aws.nodes import RESOURCE_TAG
from leeway_sandbox.provisioning import IMAGE, client
from leeway_sandbox.sandbox import Sandbox
from lightkube import Client
from lightkube.resources.core_v1 import Node, Pod
from lightkube.resources.storage_v1 import VolumeAttachment

from tests.aws.stored import manifest
from tests.end_to_end.environment import (
    PATIENCE,
    Entry,
    Environment,
    Journal,
    events_about,
    kube_client,
    run_reconcile,
    until,
)
from tests.end_to_end.launches import (
    ADMIT,
    CLUSTER,
    WORLD,
    admission,
    answers,
    launch,
    member,
    members,
    without_notices,
)
from tests.end_to_end.provisioning import end_time_to_join
from tests.end_to_end.rights import granted, used


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """A sandbox without cleanup of its own, in which the tests run reconcile."""
    options = {
        "kubernetes": ["--node-removal", "3600", "--node-join", "1"],
        "aws": ["--schedule-speed", "0"],
        "lambda": ["--retry-delay", "1"],
    }
    state = tmp_path_factory.mktemp("launches")
    with Sandbox.start(WORLD, state_dir=state, options=options) as sandbox:
        # Several tests retire nodes voluntarily, and none tests the churn cap.
        spec = {"churn": {"percent": 100}}
        assert sandbox.deployed is not None
        (table,) = sandbox.deployed.tables
        stored = DynamoTable(lambda: client("dynamodb", sandbox.aws_url), table.name)
        StoredManifests(stored).write(CLUSTER, manifest(CLUSTER, spec=spec), 0)
        # As if reconcile had recorded costs ten minutes ago: the first run does it again.
        last = datetime.now(UTC) - timedelta(minutes=10)
        stored.put(SURVEY, compressed(sandbox_survey()), region="us-east-1")
        stored.put(COST, CostHour(CLUSTER, f"{last:%Y-%m-%d}", f"{last:%H}", last))
        yield Environment(sandbox)


def test_costs_are_those_of_the_instances_in_the_journal(
    env: Environment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first test: no instance comes or goes while reconcile looks at them."""
    run_reconcile(env)
    for name, value in env.sandbox.environment().items():
        monkeypatch.setenv(name, value)

    def recorded() -> dict[str, Any]:
        assert run(["cost", "--cluster", CLUSTER, "--days", "1", "-o", "json"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found if found["instanceHours"] else {}

    found = until(recorded)
    stored = DynamoTable(
        lambda: client("dynamodb", env.sandbox.aws_url), os.environ["LEEWAY_TABLE"]
    )
    hour = stored.list(COST, cluster=CLUSTER)[-1]
    ((begin, end),) = hour.covered
    states = {one["instance"]: one["state"] for one in env.since(0).of("instance-state")}
    running = [name for name, state in states.items() if state == "running"]
    hours = len(running) * (end - begin).total_seconds() / 3600
    assert running
    assert found["instanceHours"] == pytest.approx(hours, abs=1e-5)
    assert sum(one["usd"] for one in found["owners"]) == pytest.approx(found["usd"], abs=1e-5)
    split = [one["usd"] for one in found["namespaces"]]
    parts = sum(split) + found["idleUsd"] + found["notSplitUsd"]
    assert parts == pytest.approx(found["usd"], abs=1e-5)
    assert split, "the pods have their shares of the nodes"
    assert (found["gaps"], found["instanceHoursWithoutPrice"]) == ([], 0)


def test_a_launching_instance_goes_into_service_when_its_node_is_ready(
    env: Environment,
) -> None:
    scaling = launch(env, "arriving")
    instance, state = member(scaling, "arriving")
    assert state.startswith("Pending")
    seen = env.wait([instance], 0, Journal.admissions)
    outcome = admission(seen, instance)
    assert (outcome["result"], outcome["hooks"]) == ("admitted", [ADMIT])
    assert answers(env, instance) == ["begun", "CONTINUE"]
    (ready,) = seen.of("node-ready", node=outcome["node"])
    (answered,) = seen.of("lifecycle-action", instance=instance, outcome="CONTINUE")
    assert answered["at"] >= ready["at"]
    until(lambda: member(scaling, "arriving") == (instance, "InService"))
    (event,) = events_about(env.sandbox, outcome["node"])
    assert event.reason == "NodeAdmitted"
    lines = [e["line"] for e in seen.of("logs") if isinstance(e["line"], dict)]
    (line,) = [line for line in lines if line.get("code") == "NodeAdmitted"]
    assert line["instance"] == instance
    assert line["seconds"] >= 0


def test_a_gpu_node_without_a_device_plugin_is_abandoned_with_the_likely_cause(
    env: Environment,
) -> None:
    scaling = launch(env, "bare-gpu", "g4dn.xlarge", extra={f"{RESOURCE_TAG}nvidia.com/gpu": "0"})
    instance, _ = member(scaling, "bare-gpu")
    # Otherwise the group launches again and again.
    scaling.suspend_processes(AutoScalingGroupName="bare-gpu", ScalingProcesses=["Launch"])
    (joined, *_) = env.until(0, lambda seen: seen.of("node-joined", instance=instance))
    env.until(0, lambda seen: seen.of("node-ready", node=joined["node"]))
    end_time_to_join(env.sandbox, [instance], CLUSTER)
    seen = env.wait([instance], 0, Journal.admissions)
    outcome = admission(seen, instance)
    assert outcome["result"] == "not-ready"
    assert (
        "nvidia.com/gpu is not allocatable: the NVIDIA device plugin"
        in outcome["reason"]["message"]
    )
    assert answers(env, instance) == ["begun", "ABANDON"]
    events = events_about(env.sandbox, outcome["node"])
    assert ("DeviceNotAllocatable", "Warning") in {(e.reason, e.type) for e in events}
    assert "Leeway Node Not Admitted" in {e["detail_type"] for e in seen.of("put-events")}


def test_an_admission_survives_a_crash_of_its_function_at_every_checkpoint(
    env: Environment,
) -> None:
    points = [(when, step) for step in range(1, 7) for when in ("before", "after")]
    since = time.time()
    with without_notices(env):
        scaling = launch(env, "deadly", size=len(points))
        waiting = ["Pending:Wait"] * len(points)
        until(lambda: list(members(scaling, "deadly").values()) == waiting)
        arriving = list(members(scaling, "deadly"))
    faults = [
        {"function": "*admit*", "execution": f"admit-{i}-*", "kill": when, "step": step}
        for i, (when, step) in zip(arriving, points, strict=True)
    ]
    env.sandbox.faults("lambda", faults)
    run_reconcile(env)
    seen = env.wait(arriving, since, Journal.admissions)
    killed = [e for e in seen.of("invocation") if e["outcome"] == "killed"]
    assert len(killed) >= 8, "the faults must have met the middle of the work"
    for instance in arriving:
        titles = {e["detail_type"] for e in seen.admissions(instance)}
        assert titles == {"Leeway Node Admitted"}
    answered = ["begun", "CONTINUE"]
    until(lambda: all(answers(env, one) == answered for one in arriving))


def test_reconcile_finds_hooks_without_a_notice(env: Environment) -> None:
    (instance, node) = env.unused_nodes(1, "hooked").popitem()
    scaling = client("autoscaling", env.sandbox.aws_url)
    since = time.time()
    with without_notices(env):
        launch(env, "unheard")
        scaling.terminate_instance_in_auto_scaling_group(
            InstanceId=instance, ShouldDecrementDesiredCapacity=True
        )
        until(lambda: member(scaling, "unheard")[1] == "Pending:Wait")
        arriving, _ = member(scaling, "unheard")
        assert answers(env, instance) == answers(env, arriving) == ["begun"]
    run_reconcile(env)
    seen = env.wait([instance], since)
    assert [o["result"] for o in seen.outcomes(instance)] == ["drained"]
    seen = env.wait([arriving], since, Journal.admissions)
    assert admission(seen, arriving)["result"] == "admitted"
    until(lambda: answers(env, instance)[-1] == answers(env, arriving)[-1] == "CONTINUE")
    assert not seen.died([node])


def attached(kube: Client, node: str) -> list[str]:
    listed = kube.list(VolumeAttachment)
    return [str(one.metadata.name) for one in listed if one.metadata and one.spec.nodeName == node]


def vanish(env: Environment, instance: str) -> None:
    """Terminate the instance without a notice."""
    ec2 = client("ec2", env.sandbox.aws_url)
    ec2.terminate_instances(InstanceIds=[instance])
    wanted = {"instance": instance, "state": "terminated"}
    until(lambda: env.since(0).of("instance-state", **wanted))


def vouched(seen: Journal, node: str) -> list[Entry]:
    """Return when the node was confirmed as out of service."""
    return [e for e in seen.of("node-tainted", node=node) if "out-of-service" in e["taint"]]


def tick_until(env: Environment, condition: Callable[[], object]) -> None:
    """Run reconcile until a condition holds. One run releases volumes, and a later one detects
    it."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "runs of reconcile did not do it"
        reconcile(env)
        with suppress(AssertionError):
            until(condition, timeout=8)


@pytest.mark.parametrize("delivered", [True, False], ids=["at once", "by the next ticks"])
def test_the_volumes_of_a_terminated_instance_are_released_and_its_node_is_removed(
    env: Environment, delivered: bool
) -> None:
    reconcile(env)  # which puts all instances into the index
    (instance, node) = env.unused_nodes(1, "plain").popitem()
    since = time.time()
    with kube_client(env.sandbox) as kube:
        assert attached(kube, node), "a pod with a volume runs there"
        if delivered:
            vanish(env, instance)
        else:
            with without_notices(env):
                vanish(env, instance)
                time.sleep(3)
                assert node in {n.metadata.name for n in kube.list(Node) if n.metadata}
            tick_until(env, lambda: env.since(since).of("node-deleted", node=node))
        until(lambda: env.since(since).of("node-deleted", node=node))
        assert attached(kube, node) == []
        until(lambda: all_run(kube, 12))
    seen = env.since(since)
    tainted = vouched(seen, node)
    (gone,) = seen.of("node-deleted", node=node)
    (ended,) = seen.of("instance-state", instance=instance, state="terminated")
    assert ended["at"] <= tainted[0]["at"] <= gone["at"]


def all_run(kube: Client, replicas: int) -> bool:
    pods = list(kube.list(Pod, namespace="default", labels={"app": "database"}))
    return sum(p.status is not None and p.status.phase == "Running" for p in pods) == replicas


def test_a_stopped_instance_keeps_its_node_which_is_restored_when_it_runs_again(
    env: Environment,
) -> None:
    (instance, node) = env.unused_nodes(1, "plain").popitem()
    ec2 = client("ec2", env.sandbox.aws_url)
    scaling = client("autoscaling", env.sandbox.aws_url)
    # Otherwise the group detects it as unhealthy and terminates it.
    scaling.suspend_processes(AutoScalingGroupName="plain", ScalingProcesses=["HealthCheck"])
    since = time.time()
    with without_notices(env):
        ec2.stop_instances(InstanceIds=[instance])
        until(lambda: env.since(since).of("instance-state", state="stopped"))
        run_reconcile(env)
        seen = env.wait([instance], since)
        assert [o["kind"] for o in seen.outcomes(instance)] == ["state-change"]
        assert is_cordoned(env, node)
        until(lambda: not is_ready(env, node))
        reconcile(env)
        time.sleep(3)
        seen = env.since(since)
        assert vouched(seen, node) == []
        assert not seen.of("node-deleted", node=node)
        ec2.start_instances(InstanceIds=[instance])
        until(lambda: is_ready(env, node))
        time.sleep(EVENT_DELAY.total_seconds())
        run_reconcile(env)
        until(lambda: not is_cordoned(env, node))


def test_reconcile_finds_a_scheduled_change_without_a_notice(
    env: Environment,
) -> None:
    (instance, node) = env.unused_nodes(1, "hooked").popitem()
    since = time.time()
    env.sandbox.maintain(instance, "instance-retirement", within=3 * 3600)
    run_reconcile(env)
    seen = env.wait([instance], since)
    (outcome,) = seen.outcomes(instance)
    assert (outcome["kind"], outcome["result"]) == ("scheduled-change", "drained")
    assert not seen.died([node])


def test_reconcile_replaces_an_instance_with_failing_status_checks(
    env: Environment,
) -> None:
    (instance, node) = env.unused_nodes(1, "hooked").popitem()
    since = time.time()
    env.sandbox.impair(instance, "system", lasts=60)
    run_reconcile(env)
    assert not is_cordoned(env, node), "two minutes are tolerated"
    env.sandbox.impair(instance, "system", lasts=130)
    run_reconcile(env)
    seen = env.wait([instance], since)
    (outcome,) = seen.outcomes(instance)
    assert (outcome["kind"], outcome["result"]) == ("impaired-status", "drained")
    assert not seen.died([node])


def is_cordoned(env: Environment, node: str) -> bool:
    with kube_client(env.sandbox) as kube:
        found = kube.get(Node, node)
    return bool(found.spec and found.spec.unschedulable)


def is_ready(env: Environment, node: str) -> bool:
    with kube_client(env.sandbox) as kube:
        found = kube.get(Node, node)
    conditions = (found.status.conditions if found.status else None) or []
    return any(c.type == "Ready" and c.status == "True" for c in conditions)


def test_a_tag_alone_does_not_let_reconcile_terminate_an_instance_without_a_group(
    env: Environment,
) -> None:
    """A user who may tag instances can give a database the tag of a detached node."""
    ec2 = client("ec2", env.sandbox.aws_url)
    started = ec2.run_instances(ImageId=IMAGE, InstanceType="m5.large", MinCount=1, MaxCount=1)
    instance = started["Instances"][0]["InstanceId"]
    until(lambda: env.since(0).of("instance-state", instance=instance, state="running"))
    tags = {"eks:cluster-name": CLUSTER, "leeway.sh/detached-from": "plain"}
    ec2_tags = [{"Key": key, "Value": value} for key, value in tags.items()]
    ec2.create_tags(Resources=[instance], Tags=ec2_tags)
    for _ in range(2):
        reconcile(env)
    time.sleep(3)
    seen = env.since(0)
    assert not seen.outcomes(instance)
    states = {e["state"] for e in seen.of("instance-state", instance=instance)}
    assert states == {"pending", "running"}


def reconcile(env: Environment) -> None:
    """Run reconcile to its end."""
    since = time.time()
    run_reconcile(env)
    env.until(since, lambda seen: seen.of("invocation", function="leeway-reconcile"))


def test_reconcile_updates_the_index_and_reports_nothing_without_problems(env: Environment) -> None:
    run_reconcile(env)
    assert env.sandbox.deployed is not None
    (table,) = env.sandbox.deployed.tables
    dynamodb = client("dynamodb", env.sandbox.aws_url)

    def indexed() -> set[str]:
        answer = dynamodb.query(
            TableName=table.name,
            IndexName="by-cluster",
            KeyConditionExpression="#cluster = :cluster AND sk = :sk",
            ExpressionAttributeNames={"#cluster": "cluster"},
            ExpressionAttributeValues={":cluster": {"S": CLUSTER}, ":sk": {"S": "FACTS"}},
        )
        return {json.loads(item["record"]["S"])["instance"] for item in answer["Items"]}

    described = client("ec2", env.sandbox.aws_url).describe_instances(
        Filters=[{"Name": "tag:eks:cluster-name", "Values": [CLUSTER]}]
    )
    there = {i["InstanceId"] for r in described["Reservations"] for i in r["Instances"]}
    until(lambda: indexed() == there)
    since = time.time()
    reconcile(env)
    lines = [e["line"] for e in env.since(since).of("logs", function="leeway-reconcile")]
    counted = {"ClusterProblems", "LaunchProblems", "MinorProblems"}
    assert not any(isinstance(line, dict) and counted & line.keys() for line in lines)


def test_the_role_grants_only_the_calls_of_admissions_and_reconcile(
    env: Environment,
) -> None:
    rights = used(env.sandbox, "AdmitNodeRole") | used(env.sandbox, "ReconcileRole")
    # No node of this cluster was Karpenter's: conformance/test_rights.py uses these.
    switched = {f"{verb} nodeclaims.karpenter.sh" for verb in ("get", "patch", "delete")}
    assert rights | switched == granted("leeway-capacity")
    assert not rights & switched
