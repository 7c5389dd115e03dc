"""Nodes that come in, hooks that wait, notices that get lost, and what instances leave behind."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import pytest
from leeway.aws.manifests import DynamoManifestWriting
from leeway.reconciliation.findings import EVENT_DELAY
from lightkube import Client
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.models.policy_v1 import PodDisruptionBudgetSpec
from lightkube.resources.core_v1 import Node, Pod
from lightkube.resources.policy_v1 import PodDisruptionBudget
from lightkube.resources.storage_v1 import VolumeAttachment

from sandbox.aws.nodes import RESOURCE_TAG
from sandbox.provisioning import HOOK, IMAGE, client
from sandbox.sandbox import Sandbox
from tests.aws.stored import manifest
from tests.end_to_end.arrivals import (
    ADMIT,
    CLUSTER,
    WORLD,
    admission,
    answers,
    kubernetes,
    launch,
    member,
    members,
    silence,
    told_of,
)
from tests.end_to_end.rehearsal import Aftermath, Entry, Rehearsal, events_about, tick, until
from tests.end_to_end.rights import granted, used


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    """A sandbox in which nothing cleans up by itself, and reconcile runs when it is told to."""
    options = {
        "kubernetes": ["--node-removal", "3600", "--node-join", "1"],
        "aws": ["--schedule-speed", "0"],
        "lambda": ["--retry-delay", "1"],
    }
    state = tmp_path_factory.mktemp("arrivals")
    with Sandbox.start(WORLD, state_dir=state, options=options) as sandbox:
        # Several times what a node takes here, since one test waits for it.
        # Several tests have a node leave by choice, and none is about the churn cap.
        spec = {"notices": {"launch-hook": {"deadline": "16s"}}, "churn": {"percent": 100}}
        assert sandbox.deployed is not None
        (table,) = sandbox.deployed.tables
        DynamoManifestWriting(lambda: client("dynamodb", sandbox.aws_url), table.name).write(
            CLUSTER, manifest(CLUSTER, spec=spec), 0
        )
        yield Rehearsal(sandbox)


def test_an_instance_whose_launch_waits_goes_into_service_when_its_node_is_ready(
    rehearsal: Rehearsal,
) -> None:
    scaling = launch(rehearsal, "arriving")
    instance, state = member(scaling, "arriving")
    assert state.startswith("Pending")
    seen = rehearsal.wait([instance], 0)
    outcome = admission(seen, instance)
    assert (outcome["result"], outcome["hooks"]) == ("admitted", [ADMIT])
    assert answers(rehearsal, instance) == ["begun", "CONTINUE"]
    (ready,) = seen.of("node-ready", node=outcome["node"])
    (answered,) = seen.of("lifecycle-action", instance=instance, outcome="CONTINUE")
    assert answered["at"] >= ready["at"]
    until(lambda: member(scaling, "arriving") == (instance, "InService"))
    (event,) = events_about(rehearsal.sandbox, outcome["node"])
    assert event.reason == "NodeAdmitted"
    lines = [e["line"] for e in seen.of("logs") if isinstance(e["line"], dict)]
    assert [line["NodesAdmitted"] for line in lines if "NodesAdmitted" in line] == [[1.0]]


def test_a_gpu_node_without_a_device_plugin_is_abandoned_with_the_likely_cause(
    rehearsal: Rehearsal,
) -> None:
    scaling = launch(
        rehearsal, "bare-gpu", "g4dn.xlarge", extra={f"{RESOURCE_TAG}nvidia.com/gpu": "0"}
    )
    instance, _ = member(scaling, "bare-gpu")
    # The group would try again, and again.
    scaling.suspend_processes(AutoScalingGroupName="bare-gpu", ScalingProcesses=["Launch"])
    seen = rehearsal.wait([instance], 0)
    outcome = admission(seen, instance)
    assert outcome["result"] == "not-ready"
    assert (
        "nvidia.com/gpu is not allocatable: the NVIDIA device plugin"
        in outcome["reason"]["message"]
    )
    assert answers(rehearsal, instance) == ["begun", "ABANDON"]
    events = events_about(rehearsal.sandbox, outcome["node"])
    assert ("DeviceNotAllocatable", "Warning") in {(e.reason, e.type) for e in events}
    assert "Leeway Node Not Admitted" in {e["detail_type"] for e in seen.of("put-events")}


def test_a_gpu_node_with_its_devices_is_admitted(rehearsal: Rehearsal) -> None:
    scaling = launch(rehearsal, "gpu", "g4dn.xlarge")
    instance, _ = member(scaling, "gpu")
    assert admission(rehearsal.wait([instance], 0), instance)["result"] == "admitted"


def test_an_admission_survives_the_death_of_its_function_at_every_checkpoint(
    rehearsal: Rehearsal,
) -> None:
    points = [(when, step) for step in range(1, 7) for when in ("before", "after")]
    since = time.time()
    with silence(rehearsal):
        scaling = launch(rehearsal, "deadly", size=len(points))
        waiting = ["Pending:Wait"] * len(points)
        until(lambda: list(members(scaling, "deadly").values()) == waiting)
        arriving = list(members(scaling, "deadly"))
    faults = [
        {"function": "*admit*", "execution": f"admit-{i}-*", "kill": when, "step": step}
        for i, (when, step) in zip(arriving, points, strict=True)
    ]
    rehearsal.sandbox.faults("lambda", faults)
    tick(rehearsal)
    seen = rehearsal.wait(arriving, since)
    killed = [e for e in seen.of("invocation") if e["outcome"] == "killed"]
    assert len(killed) >= 8, "the faults must have met the middle of the work"
    for instance in arriving:
        titles = {e["detail_type"] for e in told_of(seen, instance)}
        assert titles == {"Leeway Node Admitted"}
    answered = ["begun", "CONTINUE"]
    until(lambda: all(answers(rehearsal, one) == answered for one in arriving))


def pods_of(kube: Client, app: str, node: str) -> list[str]:
    listed = kube.list(
        Pod, namespace="default", labels={"app": app}, fields={"spec.nodeName": node}
    )
    return [str(pod.metadata.name) for pod in listed if pod.metadata]


def test_a_terminate_hook_outlives_its_timeout_behind_a_budget_and_is_answered_in_the_end(
    rehearsal: Rehearsal,
) -> None:
    sandbox = rehearsal.sandbox
    scaling = client("autoscaling", sandbox.aws_url)
    scaling.put_lifecycle_hook(
        AutoScalingGroupName="hooked",
        LifecycleHookName=HOOK,
        LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING",
        HeartbeatTimeout=30,
        DefaultResult="CONTINUE",
    )
    (instance, node) = rehearsal.take(1, "hooked").popitem()
    rule = PodDisruptionBudgetSpec(
        selector=LabelSelector(matchLabels={"app": "web"}), maxUnavailable=0
    )
    with kubernetes(rehearsal) as kube:
        metadata = ObjectMeta(name="never", namespace="default")
        kube.create(PodDisruptionBudget(metadata=metadata, spec=rule))
        assert pods_of(kube, "web", node)
        since = time.time()
        scaling.terminate_instance_in_auto_scaling_group(
            InstanceId=instance, ShouldDecrementDesiredCapacity=True
        )
        # Its timeout is over, and a heartbeat has followed on another.
        wanted = {"instance": instance, "outcome": "begun"}
        (begun,) = until(lambda: rehearsal.since(since).of("lifecycle-action", **wanted))
        until(lambda: time.time() > begun["at"] + 31)
        until(lambda: answers(rehearsal, instance).count("heartbeat") >= 2)
        assert set(answers(rehearsal, instance)) == {"begun", "heartbeat"}
        assert not rehearsal.since(since).outcomes(instance)
        kube.delete(PodDisruptionBudget, "never", namespace="default")
    seen = rehearsal.wait([instance], since)
    assert [o["result"] for o in seen.outcomes(instance)] == ["drained"]
    outcomes = answers(rehearsal, instance)
    assert (outcomes[0], outcomes[-1]) == ("begun", "CONTINUE")
    assert not seen.died([node])


def test_an_answer_that_is_refused_is_said_and_then_tried_until_it_is_taken(
    rehearsal: Rehearsal,
) -> None:
    (instance,) = rehearsal.take(1, "hooked")
    fault = {"service": "autoscaling", "action": "CompleteLifecycleAction", "count": 2}
    rehearsal.sandbox.faults("aws", [fault | {"error": "AccessDenied", "status": 403}])
    seen = rehearsal.interrupt([instance], late=60)
    (outcome,) = seen.outcomes(instance)
    assert "AccessDenied" in outcome["refused"][0]["message"]
    until(lambda: answers(rehearsal, instance)[-1] == "CONTINUE")


def test_an_interruption_whose_warning_got_lost_is_found_at_the_next_tick(
    rehearsal: Rehearsal,
) -> None:
    (instance, node) = rehearsal.take(1, "plain").popitem()
    since = time.time()
    assert rehearsal.sandbox.interrupt([instance], late=40, copies=0)
    tick(rehearsal)
    seen = rehearsal.wait([instance], since)
    (outcome,) = seen.outcomes(instance)
    assert (outcome["kind"], outcome["result"]) == ("spot-interruption", "drained")
    assert not seen.died([node])
    tick(rehearsal)
    time.sleep(2)
    assert len(rehearsal.since(since).outcomes(instance)) == 1, "and it is retired once"


def test_hooks_whose_notices_got_lost_are_found_at_the_next_tick(rehearsal: Rehearsal) -> None:
    (instance, node) = rehearsal.take(1, "hooked").popitem()
    scaling = client("autoscaling", rehearsal.sandbox.aws_url)
    since = time.time()
    with silence(rehearsal):
        launch(rehearsal, "unheard")
        scaling.terminate_instance_in_auto_scaling_group(
            InstanceId=instance, ShouldDecrementDesiredCapacity=True
        )
        until(lambda: member(scaling, "unheard")[1] == "Pending:Wait")
        arriving, _ = member(scaling, "unheard")
        assert answers(rehearsal, instance) == answers(rehearsal, arriving) == ["begun"]
    tick(rehearsal)
    seen = rehearsal.wait([instance, arriving], since)
    assert [o["result"] for o in seen.outcomes(instance)] == ["drained"]
    assert admission(seen, arriving)["result"] == "admitted"
    until(
        lambda: answers(rehearsal, instance)[-1] == answers(rehearsal, arriving)[-1] == "CONTINUE"
    )
    assert not seen.died([node])


def attached(kube: Client, node: str) -> list[str]:
    listed = kube.list(VolumeAttachment)
    return [str(one.metadata.name) for one in listed if one.metadata and one.spec.nodeName == node]


def vanish(rehearsal: Rehearsal, instance: str) -> None:
    """EC2 terminates the instance without a word to anybody before."""
    ec2 = client("ec2", rehearsal.sandbox.aws_url)
    ec2.terminate_instances(InstanceIds=[instance])
    wanted = {"instance": instance, "state": "terminated"}
    until(lambda: rehearsal.since(0).of("instance-state", **wanted))


def vouched(seen: Aftermath, node: str) -> list[Entry]:
    """When somebody vouched that the node's machine is gone."""
    return [e for e in seen.of("node-tainted", node=node) if "out-of-service" in e["taint"]]


def tick_until(rehearsal: Rehearsal, condition: Callable[[], object]) -> None:
    """Let minutes pass until it is so: one run has volumes freed, and the next sees that they are,
    as long as detaching them takes."""
    for _ in range(4):
        tick(rehearsal)
        with suppress(AssertionError):
            until(condition, patience=8)
            return
    assert condition(), "four runs did not do it"


@pytest.mark.parametrize("heard", [True, False], ids=["at once", "by the next ticks"])
def test_a_terminated_instances_volumes_are_freed_and_its_node_is_removed(
    rehearsal: Rehearsal, heard: bool
) -> None:
    tick(rehearsal)  # which puts all instances into the index
    time.sleep(2)
    (instance, node) = rehearsal.take(1, "plain").popitem()
    since = time.time()
    with kubernetes(rehearsal) as kube:
        assert attached(kube, node), "a pod with a volume runs there"
        if heard:
            vanish(rehearsal, instance)
        else:
            with silence(rehearsal):
                vanish(rehearsal, instance)
                time.sleep(3)
                assert node in {n.metadata.name for n in kube.list(Node) if n.metadata}
            tick_until(rehearsal, lambda: rehearsal.since(since).of("node-deleted", node=node))
        until(lambda: rehearsal.since(since).of("node-deleted", node=node))
        assert attached(kube, node) == []
        until(lambda: all_run(kube, 12), patience=60)
    seen = rehearsal.since(since)
    tainted = vouched(seen, node)
    (gone,) = seen.of("node-deleted", node=node)
    (ended,) = seen.of("instance-state", instance=instance, state="terminated")
    assert ended["at"] <= tainted[0]["at"] <= gone["at"]


def all_run(kube: Client, replicas: int) -> bool:
    pods = list(kube.list(Pod, namespace="default", labels={"app": "database"}))
    return sum(p.status is not None and p.status.phase == "Running" for p in pods) == replicas


def test_a_stopped_instance_keeps_its_node_and_its_volumes(rehearsal: Rehearsal) -> None:
    (instance, node) = rehearsal.take(1, "plain").popitem()
    ec2 = client("ec2", rehearsal.sandbox.aws_url)
    scaling = client("autoscaling", rehearsal.sandbox.aws_url)
    # Else the group would find it unhealthy, and end it.
    scaling.suspend_processes(AutoScalingGroupName="plain", ScalingProcesses=["HealthCheck"])
    since = time.time()
    ec2.stop_instances(InstanceIds=[instance])
    until(lambda: rehearsal.since(since).of("instance-state", instance=instance, state="stopped"))
    until(lambda: not is_ready(rehearsal, node))
    tick(rehearsal)
    time.sleep(3)
    seen = rehearsal.since(since)
    assert vouched(seen, node) == []
    assert not seen.of("node-deleted", node=node)


def test_a_stopped_instance_that_runs_again_unheard_has_its_node_freed_at_the_next_tick(
    rehearsal: Rehearsal,
) -> None:
    (instance, node) = rehearsal.take(1, "plain").popitem()
    ec2 = client("ec2", rehearsal.sandbox.aws_url)
    scaling = client("autoscaling", rehearsal.sandbox.aws_url)
    scaling.suspend_processes(AutoScalingGroupName="plain", ScalingProcesses=["HealthCheck"])
    since = time.time()
    with silence(rehearsal):
        ec2.stop_instances(InstanceIds=[instance])
        until(lambda: rehearsal.since(since).of("instance-state", state="stopped"))
        tick(rehearsal)
        seen = rehearsal.wait([instance], since)
        assert [o["kind"] for o in seen.outcomes(instance)] == ["state-change"]
        assert is_cordoned(rehearsal, node)
        ec2.start_instances(InstanceIds=[instance])
        until(lambda: is_ready(rehearsal, node))
        time.sleep(EVENT_DELAY.total_seconds())
        tick(rehearsal)
        until(lambda: not is_cordoned(rehearsal, node), patience=90)


def test_a_scheduled_change_that_nobody_told_of_is_found_at_the_next_tick(
    rehearsal: Rehearsal,
) -> None:
    (instance, node) = rehearsal.take(1, "hooked").popitem()
    since = time.time()
    rehearsal.sandbox.maintain(instance, "instance-retirement", within=3 * 3600)
    tick(rehearsal)
    seen = rehearsal.wait([instance], since)
    (outcome,) = seen.outcomes(instance)
    assert (outcome["kind"], outcome["result"]) == ("scheduled-change", "drained")
    assert not seen.died([node])


def test_an_instance_whose_status_checks_fail_is_drained_and_replaced_at_the_next_tick(
    rehearsal: Rehearsal,
) -> None:
    (instance, node) = rehearsal.take(1, "hooked").popitem()
    since = time.time()
    rehearsal.sandbox.impair(instance, "system", lasts=60)
    tick(rehearsal)
    assert not is_cordoned(rehearsal, node), "two minutes are tolerated"
    rehearsal.sandbox.impair(instance, "system", lasts=130)
    tick(rehearsal)
    seen = rehearsal.wait([instance], since)
    (outcome,) = seen.outcomes(instance)
    assert (outcome["kind"], outcome["result"]) == ("impaired-status", "drained")
    assert not seen.died([node])


def is_cordoned(rehearsal: Rehearsal, node: str) -> bool:
    with kubernetes(rehearsal) as kube:
        found = kube.get(Node, node)
    return bool(found.spec and found.spec.unschedulable)


def is_ready(rehearsal: Rehearsal, node: str) -> bool:
    with kubernetes(rehearsal) as kube:
        found = kube.get(Node, node)
    conditions = (found.status.conditions if found.status else None) or []
    return any(c.type == "Ready" and c.status == "True" for c in conditions)


def test_no_tag_has_an_instance_outside_of_any_group_terminated(rehearsal: Rehearsal) -> None:
    """Whoever may tag instances can say of a database that it is a node that was detached."""
    ec2 = client("ec2", rehearsal.sandbox.aws_url)
    started = ec2.run_instances(ImageId=IMAGE, InstanceType="m5.large", MinCount=1, MaxCount=1)
    instance = started["Instances"][0]["InstanceId"]
    until(lambda: rehearsal.since(0).of("instance-state", instance=instance, state="running"))
    tags = {"eks:cluster-name": CLUSTER, "leeway.sh/detached-from": "plain"}
    told = [{"Key": key, "Value": value} for key, value in tags.items()]
    ec2.create_tags(Resources=[instance], Tags=told)
    for _ in range(2):
        since = time.time()
        tick(rehearsal)
        until(partial(_reconciled, rehearsal, since))
    time.sleep(3)
    seen = rehearsal.since(0)
    assert not seen.outcomes(instance)
    states = {e["state"] for e in seen.of("instance-state", instance=instance)}
    assert states == {"pending", "running"}


def _reconciled(rehearsal: Rehearsal, since: float) -> bool:
    """Whether a run of reconcile has come to its end."""
    logs = (e["line"] for e in rehearsal.since(since).of("logs"))
    return any(isinstance(line, dict) and "NoticesFound" in line for line in logs)


def test_a_tick_keeps_the_index_and_finds_nothing_when_all_is_well(rehearsal: Rehearsal) -> None:
    tick(rehearsal)
    assert rehearsal.sandbox.deployed is not None
    (table,) = rehearsal.sandbox.deployed.tables
    dynamodb = client("dynamodb", rehearsal.sandbox.aws_url)

    def indexed() -> set[str]:
        answer = dynamodb.query(
            TableName=table.name,
            IndexName="by-cluster",
            KeyConditionExpression="#cluster = :cluster AND sk = :sk",
            ExpressionAttributeNames={"#cluster": "cluster"},
            ExpressionAttributeValues={":cluster": {"S": CLUSTER}, ":sk": {"S": "FACTS"}},
        )
        return {json.loads(item["record"]["S"])["instance"] for item in answer["Items"]}

    described = client("ec2", rehearsal.sandbox.aws_url).describe_instances(
        Filters=[{"Name": "tag:eks:cluster-name", "Values": [CLUSTER]}]
    )
    there = {i["InstanceId"] for r in described["Reservations"] for i in r["Instances"]}
    until(lambda: indexed() == there)
    since = time.time()
    tick(rehearsal)

    def counted(metric: str) -> list[float]:
        logs = (e["line"] for e in rehearsal.since(since).of("logs"))
        lines = [line for line in logs if isinstance(line, dict) and metric in line]
        return [line[metric][0] for line in lines]

    assert set(until(lambda: counted("ReconcileProblems"))) == {0.0}
    assert set(counted("NoticesFound")) == {0.0}


def test_the_role_grants_what_admissions_and_reconciling_use_and_no_more(
    rehearsal: Rehearsal,
) -> None:
    rights = used(rehearsal.sandbox, "AdmitNodeRole") | used(rehearsal.sandbox, "ReconcileRole")
    assert rights == granted("leeway-capacity")
