"""The drills of the runbook: each injects a fault, runs what the page says to run, and reads the
cause in what that prints.

They are in one file because they share a sandbox, and `make test` gives each file to one process.
"""

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from leeway.admission.record import ADMISSION, Launch
from leeway.catalog.stored import SURVEY
from leeway.execution.attempt import Phase
from leeway.launch.fleets import FleetInstance
from leeway.launch.intent import INTENT_BY_HAND, JOIN_WITHIN, LaunchIntent
from leeway.notices import LifecycleHook, NoticeKind
from leeway.reconciliation.lost_events import EVENT_DELAY
from leeway.retirement.record import RETIREMENT, Retirement
from leeway.switched import SWITCH, Buyer, Switch
from leeway_sandbox.provisioning import IMAGE, client

from tests.drills.conftest import InCluster
from tests.drills.night import PAGE, Night, Row, consume_queue, drill, drills
from tests.drills.nodes import (
    BY_DRILL,
    GPU,
    admit,
    create,
    end_instances,
    instances_with_tags,
    nodes_of_groups,
    not_ready,
    table_of_drills,
    without_nodes,
)
from tests.drills.page import commands
from tests.drills.shell import Shell
from tests.end_to_end.environment import Environment, Journal, until
from tests.end_to_end.launch_faults import no_capacity
from tests.end_to_end.launches import answers
from tests.end_to_end.provisioning import (
    CLUSTER,
    end_time_to_join,
    invoke,
    let_launches_age,
    message,
)
from tests.reconciliation.lost_notices import MINUTE, left_running
from tests.retirement.retirements import interrupted, take

WRONG = "wrong-ami"
RUN = "With the next run, within a minute"
AT_ITS_END = "Five minutes after the launch in the status; in the log with the outcome"


def interrupt(night: Night, group: str, late: float = 60) -> str:
    """Interrupt an instance; return its id."""
    (instance,) = night.env.unused_nodes(1, group)
    night.sandbox.interrupt([instance], late=late)
    return instance


@drill("reconcilenotdonealarm")
def test_reconcile_is_not_done(night: Night) -> None:
    night.faults("lambda", {"function": "*reconcile", "timeout": 0.01})
    night.next_run("reconcile")
    said = night.look(RUN)
    assert "Task timed out after 0.01 seconds" in said
    assert '"ENABLED"' in said


@drill("headroomnotkeptalarm")
def test_headroom_is_not_kept(night: Night) -> None:
    night.faults("lambda", {"function": "*headroom", "kill": "before"})
    night.next_run("keep-headroom")
    said = night.look(RUN)
    assert "Runtime exited with error: signal: killed" in said
    assert '"ENABLED"' in said


@drill(
    "minorproblemsalarm", "pods-are-not-watched", codes=["PodWatchFailed", "ManifestWatchFailed"]
)
@pytest.mark.usefixtures("in_cluster")
def test_the_watch_on_pods_and_on_manifests_is_refused(night: Night) -> None:
    """It comes before the next drill, because a run that watches goes on for minutes. It counts
    problems after the first one."""
    watched = ("pods", "nodepools")
    refused = [{"verb": "watch", "resource": one, "status": 403} for one in watched]
    night.faults("kubernetes", *refused)
    night.fire("watch-pods")
    said = night.look(RUN, counted=False)
    assert said.count("403") >= 2


@drill("watchpodsnotdonealarm")
def test_pods_are_not_watched(night: Night) -> None:
    scheduler = client("scheduler", night.sandbox.aws_url)
    schedule = scheduler.get_schedule(Name="leeway-watch-pods")
    kept = ("Name", "GroupName", "ScheduleExpression", "FlexibleTimeWindow", "Target")
    same = {name: schedule[name] for name in kept if name in schedule}
    scheduler.update_schedule(**same, State="DISABLED")
    try:
        assert '"DISABLED"' in night.look(RUN)
    finally:
        scheduler.update_schedule(**same, State="ENABLED")
    night.faults("lambda", {"function": "*watch-pods", "kill": "before"})
    night.next_run("watch-pods")
    assert "Runtime exited with error: signal: killed" in night.look(RUN)


@drill("catalognotrefreshedalarm", codes=["CatalogUnavailable"])
def test_the_catalog_is_not_refreshed(night: Night) -> None:
    denied = {"error": "AccessDeniedException", "message": "denied by an SCP", "status": 403}
    denied["function"] = "leeway-refresh-catalog"
    night.faults("aws", *({"service": service, **denied} for service in ("ec2", "pricing")))
    night.next_run("refresh-catalog")
    said = night.look("With the next refresh")
    assert "denied by an SCP" in said


@drill("catalognotrefreshedalarm", codes=["CatalogPartNotRead"])
def test_a_part_of_the_catalog_is_not_read(night: Night) -> None:
    night.faults("aws", denied("refresh-catalog", "pricing"))
    (refresh,) = commands(PAGE["catalognotrefreshedalarm"].parts["Do"])
    assert "CatalogPartlyRefreshed" in night.type(refresh)
    night.look("With the next refresh")


@drill(
    "clusterproblemsalarm",
    codes=["ReconcileIncomplete", "ProvisioningFailed", "ClusterUnavailable"],
)
def test_a_cluster_does_not_answer(night: Night) -> None:
    night.faults("kubernetes", {"refuse": True})
    night.next_run("reconcile")
    invoke(night.sandbox)
    assert CLUSTER in night.look(RUN)


@drill("clusterproblemsalarm", codes=["MessageDropped"])
def test_a_message_names_an_unknown_cluster(night: Night) -> None:
    invoke(night.sandbox, message("somebody-elses"))
    assert "somebody-elses" in night.look(RUN)


@drill("receivenoticefailuresalarm", codes=["NoticeRejected"])
def test_a_notice_is_not_received(night: Night) -> None:
    event = {
        "version": "0",
        "id": "9b3f6a52-0d1c-4e7b-a7a4-51c6f2d0e8b3",
        "detail-type": "EC2 Spot Instance Interruption Warning",
        "source": "aws.ec2",
        "account": "123456789012",
        "time": "2026-11-20T09:45:12Z",
        "region": "us-east-1",
        "resources": [],
        "detail": {"instance-action": "terminate"},
    }
    assert night.sandbox.send(event) == ["leeway-receive-notice"]
    night.until(lambda: len(night.seen.of("invocation", function="leeway-receive-notice")) == 3)
    night.until(lambda: night.waiting("ReceiveNoticeFailuresUrl"))
    said = night.look("After the third try")
    assert said.count("MalformedNotice") >= 2, "the queue and the log name the error"
    assert "detail.instance-id: field required" in said


@drill("noticeslatealarm")
def test_notices_are_late(night: Night) -> None:
    night.faults("lambda", {"function": "*receive-notice", "kill": "before"})
    interrupt(night, "plain")
    night.first_run("receive-notice")
    said = night.look("With the first try")
    assert "Runtime exited with error: signal: killed" in said
    assert "1000" in said.splitlines(), "the limit of the account"


@drill("retirementsthrottledalarm")
def test_retirements_are_throttled(night: Night) -> None:
    functions = client("lambda", night.sandbox.lambda_url)
    functions.put_function_concurrency(
        FunctionName="leeway-retire-node", ReservedConcurrentExecutions=0
    )
    try:
        begun = time.time()
        instance = interrupt(night, "plain", late=112)
        (status, *_) = PAGE["retirementsthrottledalarm"].look
        night.until(lambda: instance in night.type(status))
        said = night.look("At once")
    finally:
        functions.delete_function_concurrency(FunctionName="leeway-retire-node")
    assert re.search(rf"{instance} .* spot-interruption, noticed", said)
    assert '"ReservedConcurrentExecutions": 0' in said
    assert "1000" in said.splitlines(), "the limit of the account"
    (outcome,) = night.env.wait([instance], begun).outcomes(instance)
    assert outcome["attempt"] == 1, "Lambda starts the waiting execution"


@drill("nodesnotcordonedalarm", codes=["NodeDrainIncomplete"])
def test_a_node_is_not_cordoned(night: Night) -> None:
    role = night.output("RetireNodeRoleArn")
    night.values["ROLE_ARN"] = role
    entry = {"clusterName": CLUSTER, "principalArn": role}
    eks = client("eks", night.sandbox.aws_url)
    eks.delete_access_entry(**entry)
    try:
        begun = time.time()
        instance = interrupt(night, "plain", late=112)
        (status, *_) = PAGE["nodesnotcordonedalarm"].look
        night.until(lambda: "401" in night.type(status))
        seen = night.env.wait([instance], begun)
        (outcome,) = seen.outcomes(instance)
        said = night.look("With the next try, within a minute")
    finally:
        eks.create_access_entry(**entry, kubernetesGroups=["leeway:drain"])
    assert f"{CLUSTER}/{instance}" in said
    assert "401" in said
    assert "ResourceNotFoundException" in said
    assert outcome["attempt"] == 1, "the first outcome shows it"


@drill("retirementproblemsalarm", codes=["NodeDrained", "RetirementNotReported"])
def test_a_retirement_has_problems(night: Night) -> None:
    refused = {"service": "autoscaling", "action": "CompleteLifecycleAction", "count": 2}
    night.faults("aws", refused | {"error": "AccessDenied", "status": 403})
    night.faults("kubernetes", {"verb": "create", "resource": "events", "status": 403})
    begun = time.time()
    instance = interrupt(night, "hooked")
    seen = night.env.wait([instance], begun)
    said = night.look("With the outcome of the retirement")
    assert f"{CLUSTER}/{instance}" in said
    assert "AccessDenied" in said
    # The answer is repeated, and the group goes on.
    (outcome,) = seen.outcomes(instance)
    assert "AccessDenied" in outcome["refused"][0]["message"]
    night.until(lambda: answers(night.env, instance)[-1] == "CONTINUE")


@drill("retirenodefailuresalarm")
def test_a_retirement_fails(night: Night) -> None:
    fail(night, "retire-node", "RetireNodeFailuresUrl")


@drill("admitnodefailuresalarm")
def test_an_admission_fails(night: Night) -> None:
    fail(night, "admit-node", "AdmitNodeFailuresUrl")


def fail(night: Night, function: str, queue: str) -> None:
    """Start an execution whose input no version of Leeway writes, and see that it is listed."""
    (instance,) = night.env.unused_nodes(1)
    client("lambda", night.sandbox.lambda_url).invoke(
        FunctionName=f"leeway-{function}:live",
        InvocationType="Event",
        Payload=json.dumps({"instance": instance}),
    )
    night.until(lambda: night.waiting(queue))
    night.values["INSTANCE"] = instance
    listed = night.look("When the execution has ended").rpartition("--statuses")[2]
    assert f"leeway-{function}" in listed
    assert '"Status": "FAILED"' in listed


@drill("provisioninglatealarm")
def test_provisioning_is_late(night: Night) -> None:
    night.waiting("ProvisionQueueUrl")
    queue = night.values["URL"]
    sqs = client("sqs", night.sandbox.aws_url)
    sqs.purge_queue(QueueUrl=queue)
    body = json.dumps({"cluster": CLUSTER, "why": "drill"})
    group = {"MessageGroupId": "drill", "MessageDeduplicationId": "drill"}
    sqs.send_message(QueueUrl=queue, MessageBody=body, **group)
    assert '"Disabled"' in night.look("With the first try")
    night.faults("lambda", {"function": "*provision-nodes", "kill": "before"})
    try:
        consume_queue(night.sandbox, enabled=True)
        killed = {"function": "leeway-provision-nodes", "outcome": "killed"}
        night.until(lambda: night.seen.of("invocation", **killed))
        said = night.look("With the first try")
    finally:
        consume_queue(night.sandbox, enabled=False)
    assert "Runtime exited with error: signal: killed" in said
    assert '"Enabled"' in said


@drill("minorproblemsalarm", "headroom-is-not-applied", codes=["HeadroomRightMissing"])
def test_a_namespace_has_not_adopted_leeway(night: Night) -> None:
    night.next_run("keep-headroom")
    said = night.look(RUN)
    assert "StatefulSet default/nobody" in said
    granting = set(re.findall(r"`(kubectl create rolebinding [^`]+)`", said))
    assert len(granting) == 2, "one for targets, one for buffers"
    assert night.type(*granting).count("created") == 2


@drill(
    "minorproblemsalarm",
    "headroom-is-not-applied",
    codes=["BufferWithoutSize", "DeploymentNotOwned", "ScaleConflict", "TargetNotFound"],
)
def test_headroom_fits_no_object(night: Night) -> None:
    """The namespace has adopted Leeway in the drill before."""
    night.next_run("keep-headroom")
    said = night.look(RUN)
    for about in ("capacitybuffer default/sizeless", "default/mine-warm", "default/twin-b"):
        assert about in said


@drill("minorproblemsalarm", "a-stored-manifest-has-errors", codes=["ManifestInvalid"])
def test_a_stored_manifest_cannot_be_read(night: Night) -> None:
    night.end_warm("keep-headroom")
    night.next_run("keep-headroom")
    assert "broken" in night.look(RUN)


def denied(function: str, service: str, action: str = "*") -> dict[str, Any]:
    """AWS refuses calls of a function."""
    error = {"error": "AccessDeniedException", "message": "denied by an SCP", "status": 400}
    return {"service": service, "action": action, "function": f"leeway-{function}", **error}


WATCHED = ("minorproblemsalarm", "pods-are-not-watched")
APPLIED = ("minorproblemsalarm", "headroom-is-not-applied")
CLUSTERS = ("clusterproblemsalarm",)


@drills(
    Row("watch-pods", WATCHED, ("PoolsNotRead",), "aws", [denied("watch-pods", "dynamodb")]),
    Row(
        "watch-pods",
        WATCHED,
        ("ProvisioningNotWoken", "WatchLeaseUnavailable"),
        "aws",
        [denied("watch-pods", "sqs"), denied("watch-pods", "dynamodb", "GetItem")],
    ),
    Row(
        "keep-headroom",
        APPLIED,
        ("HeadroomNotReconciled",),
        "aws",
        [denied("keep-headroom", "dynamodb")],
    ),
    Row(
        "keep-headroom",
        APPLIED,
        ("HeadroomObjectRefused", "HeadroomObjectUnavailable"),
        "kubernetes",
        [
            {"resource": "deployments", "status": 422},
            {"resource": "statefulsets/scale", "status": 500},
        ],
    ),
    Row("reconcile", CLUSTERS, ("ManifestsNotRead",), "aws", [denied("reconcile", "dynamodb")]),
)
def test_a_run_meets_a_fault(night: Night, row: Row) -> None:
    night.end_warm(row.function)
    night.faults(row.part, *row.faults)
    night.next_run(row.function)
    night.look("With the next")


@drill("minorproblemsalarm", "eventbridge-delivers-no-notices", codes=["EventLost"])
def test_eventbridge_loses_a_notice(night: Night) -> None:
    (instance, node) = night.env.unused_nodes(1, "plain").popitem()
    assert night.sandbox.interrupt([instance], late=40, copies=0)
    night.next_run("reconcile")
    said = night.look(RUN)
    assert f"{CLUSTER}/{instance}" in said
    assert "ENABLED" in said
    seen = night.env.wait([instance], night.begun)
    (outcome,) = seen.outcomes(instance)
    assert (outcome["kind"], outcome["result"]) == ("spot-interruption", "drained")
    assert not seen.died([node])
    night.next_run("reconcile")
    assert len(night.seen.outcomes(instance)) == 1, "it is retired once"


@drill(
    "minorproblemsalarm",
    "eventbridge-delivers-no-notices",
    codes=["StartLost", "ExecutionOverdue", "RetiredInstanceRuns", "HookAnswerLost"],
)
def test_reconcile_finds_lost_work(night: Night) -> None:
    """Records as they are if a start was lost, an execution died, the termination of a detached
    instance had no effect, and the answer to a hook was lost."""
    night.faults("aws", {"service": "events", "action": "Deliver", "drop": True})
    now, (detached,) = datetime.now(UTC), night.env.unused_nodes(1, "plain")
    (waits,) = night.env.unused_nodes(1, "hooked")
    scaling = client("autoscaling", night.sandbox.aws_url)
    scaling.detach_instances(
        InstanceIds=[detached], AutoScalingGroupName="plain", ShouldDecrementDesiredCapacity=False
    )
    until(lambda: not group_of(night, detached))
    scaling.terminate_instance_in_auto_scaling_group(
        InstanceId=waits, ShouldDecrementDesiredCapacity=False
    )
    hooks = scaling.describe_lifecycle_hooks(AutoScalingGroupName="hooked")["LifecycleHooks"]
    (hook,) = [one for one in hooks if "TERMINATING" in one["LifecycleTransition"]]
    answered = (LifecycleHook("hooked", hook["LifecycleHookName"]),)
    kept = left_running()
    assert kept.replacement_intent is not None
    intent = kept.replacement_intent.model_copy(update={"group": "plain"})
    coming = {"noticed_at": now - 2 * MINUTE, "deadline": now + 60 * MINUTE}
    store_retirements(
        night,
        (LOST, take(None, NoticeKind.REBALANCE, "n-1").record, coming),
        (DEAD, interrupted(), {"noticed_at": now - 60 * MINUTE, "deadline": now - 58 * MINUTE}),
        (detached, kept, {"ended_at": now - 3 * MINUTE, "replacement_intent": intent}),
        (waits, interrupted(Phase.FINISHED), {"ended_at": now - EVENT_DELAY, "hooks": answered}),
    )
    night.next_run("reconcile")
    said = night.look(RUN)
    assert all(instance in said for instance in (LOST, DEAD, detached, waits))
    night.until(lambda: answers(night.env, waits))
    # Each run would find the records of these two again.
    for instance in (LOST, DEAD):
        table_of_drills(night).delete(RETIREMENT, cluster=CLUSTER, instance=instance)


def group_of(night: Night, instance: str) -> str:
    """Return the Auto Scaling group that an instance's tag names, empty if there is none."""
    ec2 = client("ec2", night.sandbox.aws_url)
    (found,) = ec2.describe_instances(InstanceIds=[instance])["Reservations"]
    tags = {one["Key"]: one["Value"] for one in found["Instances"][0].get("Tags", [])}
    return str(tags.get("aws:autoscaling:groupName", ""))


LOST, DEAD = "i-0d0000000000000a1", "i-0d0000000000000a2"


def store_retirements(night: Night, *records: tuple[str, Retirement, dict[str, Any]]) -> None:
    """Store records of retirements of instances, with changes."""
    table = table_of_drills(night)
    for instance, record, changes in records:
        facts = record.facts.model_copy(update={"instance": instance, "cluster": CLUSTER})
        table.put(RETIREMENT, record.model_copy(update={"facts": facts, "version": 1, **changes}))


@drill("a-nodeoverlay-is-not-applied", codes=["OverlayConflict"])
def test_two_overlays_conflict(night: Night) -> None:
    invoke(night.sandbox)
    assert "overlaid" in night.look(RUN)


@drill("ec2-has-no-capacity", codes=["OfferingsRefused"])
def test_ec2_has_no_capacity(night: Night) -> None:
    night.faults("aws", no_capacity())
    try:
        assert "CapacityUnavailable" in refused(night, "healthy")
    finally:
        night.end()
        night.env.forget_unavailable_offerings()


@drill("a-launch-is-refused", codes=["LaunchRefused"])
def test_a_setting_of_a_launch_is_wrong(night: Night) -> None:
    assert "blockDeviceMappings[0].ebs.volumeSize" in refused(night, "small-disk")


@drill("a-node-pool-launches-no-nodes", codes=["PoolSettingWrong"])
def test_an_ami_does_not_exist(night: Night) -> None:
    assert "EC2 knows no image ami-0123456789abcdef0" in refused(night, "gone-image")


def refused(night: Night, pool: str) -> str:
    """Let a pod wait for a node of a pool that launches none; return what the section shows."""
    night.create(waiting(f"needs-{pool}", pool))
    invoke(night.sandbox)
    said = night.look("With")
    assert f"default/needs-{pool}" in said
    return said


@drill("nodes-are-not-ready", codes=["NodesJoinLate"])
def test_nodes_join_late(night: Night) -> None:
    launched = launch_wrong(night)
    refused = night.env.until(0, lambda seen: seen.of("boot-refused"))
    assert "starts no kubelet" in refused[0]["reason"]
    night.values["INSTANCE"] = launched[0]
    let_launches_age(night.sandbox, 6)
    invoke(night.sandbox)
    said = night.look("Five minutes after the launch")
    assert all(instance in said for instance in launched)


@drill("launchproblemsalarm", "a-pool-is-paused", codes=["NodesNeverJoined"])
def test_a_wrong_ami_pauses_its_pool_and_resume_goes_on(night: Night) -> None:
    launched = launch_wrong(night)
    night.values |= {"INSTANCE": launched[0], "POOL": WRONG}
    end_time_to_join(night.sandbox, launched)
    until(lambda: not instances_of(night, WRONG))
    let_launches_age(night.sandbox, 2)  # After a minute the buyer sees that they have ended.
    invoke(night.sandbox)
    said = night.look(RUN)
    assert all(instance in said for instance in launched)
    (paused,) = [e for e in night.seen.of("put-events") if e["detail_type"] == "Leeway Pool Paused"]
    assert paused["detail"]["pool"] == WRONG
    assert "Leeway paused pool wrong-ami" in night.type("kubectl get events")
    assert "InstanceNeverJoined" in night.type("leeway logs admit-node --level warning")
    let_launches_age(night.sandbox, 10)
    invoke(night.sandbox)
    assert not instances_of(night, WRONG), "a paused pool launches nothing"
    # What the section says to do.
    ec2 = client("ec2", night.sandbox.aws_url)
    (image,) = ec2.describe_images(Filters=[{"Name": "name", "Values": ["own"]}])["Images"]
    correct = [{"Key": "sandbox.leeway.sh/ami-family", "Value": "AL2023"}]
    ec2.create_tags(Resources=[image["ImageId"]], Tags=correct)
    try:
        (resume,) = commands(PAGE["a-pool-is-paused"].parts["Do"])
        night.type(resume)
        invoke(night.sandbox)
        assert len(instances_of(night, WRONG)) == 3
        night.until(lambda: night.type("kubectl get pods").count("Running") >= 3)
    finally:
        ec2.delete_tags(Resources=[image["ImageId"]], Tags=correct)
        end_instances(night, instances_of(night, WRONG))


def launch_wrong(night: Night) -> list[str]:
    """Let pods wait for nodes of the pool whose AMI is wrong; return its three instances."""
    night.create(*(waiting(f"{WRONG}-{number}", WRONG) for number in range(3)))
    if not instances_of(night, WRONG):
        let_launches_age(night.sandbox, 11)
    invoke(night.sandbox)
    launched = instances_of(night, WRONG)
    assert len(launched) == 3
    return launched


def instances_of(night: Night, name: str) -> list[str]:
    """Return the instances of a pool that start or run."""
    running = {"Name": "instance-state-name", "Values": ["pending", "running"]}
    of_pool = {"Name": "tag:leeway.sh/nodepool", "Values": [name]}
    ec2 = client("ec2", night.sandbox.aws_url)
    found = ec2.describe_instances(Filters=[running, of_pool])["Reservations"]
    return [one["InstanceId"] for each in found for one in each["Instances"]]


@drill(
    "nodes-are-not-ready",
    codes=["StartupTaintPresent", "InstanceNeverJoined", "UnjoinedInstanceNotTerminated"],
)
def test_new_nodes_are_not_admitted(night: Night) -> None:
    """One has a taint for ever, and two never join: EC2 terminates one of these."""
    let_launches_age(night.sandbox, 11)
    night.faults("aws", denied("admit-node", "ec2", "TerminateInstances") | {"count": 1})
    night.create(waiting("gated", "gated"), waiting("lost-a", "lost"), waiting("lost-b", "lost"))
    invoke(night.sandbox)
    (gated,), lost = instances_of(night, "gated"), instances_of(night, "lost")
    night.until(lambda: night.seen.of("node-joined", instance=gated))
    night.values["INSTANCE"] = lost[0]
    end_time_to_join(night.sandbox, [gated, *lost])
    night.env.wait([gated, *lost], night.begun, Journal.admissions)
    said = night.look(RUN, AT_ITS_END)
    assert all(instance in said for instance in (gated, *lost))
    assert "denied by an SCP" in said
    client("ec2", night.sandbox.aws_url).terminate_instances(InstanceIds=[gated, *lost])


NOT_ADMITTED = ("launchproblemsalarm", "nodes-are-not-ready")
MISSING: dict[str, Any] = {"promised": ("example.com/fpga",)}
"""What no node of the sandbox has."""


@drill(
    *NOT_ADMITTED,
    codes=[
        "AdmissionNotReported",
        "DeviceNotAllocatable",
        "InstanceInOtherCluster",
        "NodeLabelsRefused",
        "NodeNotJoined",
        "NodeStaysNotReady",
        "PromisedResourceMissing",
    ],
)
def test_nodes_lack_what_they_need(night: Night) -> None:
    """Three of them joined, one is not Ready, and two instances have no Node: one of these has
    joined another cluster."""
    now = datetime.now(UTC)
    (elsewhere,) = instances_with_tags(night, 1, more={"aws:eks:cluster-name": "dev"})
    gpu, huge, refused, late = nodes_of_groups(night, 4).items()
    with not_ready(night, late[1]):
        night.faults(
            "kubernetes",
            {"verb": "patch", "resource": "nodes", "status": 403},
            {"verb": "create", "resource": "events", "status": 403},
        )
        admit(night, *gpu, instance_type=GPU)
        admit(night, *huge, **MISSING)
        admit(night, *refused, launch=Launch(intent=BY_DRILL, pool="drilled", at=now))
        admit(night, *late)
        admit(night, LOST, "")
        admit(night, elsewhere["InstanceId"], elsewhere["PrivateDnsName"])
        night.values["INSTANCE"] = LOST
        admitted = [gpu[0], huge[0], refused[0], late[0], LOST, elsewhere["InstanceId"]]
        night.env.wait(admitted, night.begun, Journal.admissions)
        said = night.look(RUN, AT_ITS_END)
    assert "the NVIDIA device plugin does not run on the node" in said
    end_instances(night, [elsewhere["InstanceId"]])


@drill(*NOT_ADMITTED, codes=["NodeNotObserved"])
def test_an_admission_cannot_read_its_node(night: Night) -> None:
    night.faults("kubernetes", {"resource": "nodes", "status": 403})
    admit(night, LOST, "")
    night.values["INSTANCE"] = LOST
    night.env.wait([LOST], night.begun, Journal.admissions)
    night.look(RUN, AT_ITS_END)


@drill(*NOT_ADMITTED, codes=["InstanceNotOfLaunch", "NodeNameTaken"])
def test_instances_that_never_join_are_somebody_elses(night: Night) -> None:
    """One has the tags of another pool, and a Node of another instance has the name of the other
    one."""
    other, taken = instances_with_tags(night, 2)
    now, name = datetime.now(UTC), taken["PrivateDnsName"]
    ids = [one["InstanceId"] for one in (other, taken)]
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {"providerID": f"aws:///us-east-1a/{DEAD}"},
    }
    create(night, node)
    try:
        for one, pool in ((other, "somebody-elses"), (taken, "lost")):
            launch = Launch(intent=BY_DRILL, pool=pool, at=now)
            admit(night, one["InstanceId"], one["PrivateDnsName"], launch=launch)
        night.values["INSTANCE"] = ids[0]
        night.env.wait(ids, night.begun, Journal.admissions)
        said = night.look(RUN, AT_ITS_END)
        assert "its tags name the pool lost, not somebody-elses" in said
        assert f"Node {name} has the name of the instance" in said
        running = {"Name": "instance-state-name", "Values": ["pending", "running"]}
        left = client("ec2", night.sandbox.aws_url).describe_instances(
            InstanceIds=ids, Filters=[running]
        )
        assert sum(len(one["Instances"]) for one in left["Reservations"]) == 2, "none is terminated"
    finally:
        night.type(f"kubectl delete node {name}")
        end_instances(night, ids)


@drill("minorproblemsalarm", "nodes-are-not-ready", codes=["LaunchNotAdmitted"])
def test_nobody_admits_a_launched_instance(night: Night) -> None:
    """Somebody launched it by hand, and the command was killed. It never joins."""
    (one,) = instances_with_tags(night, 1)
    instance, created = one["InstanceId"], datetime.now(UTC) - JOIN_WITHIN
    intent = LaunchIntent(
        id=BY_DRILL, cluster=CLUSTER, pool="lost", token="t", created_at=created, request=None
    ).answered([FleetInstance(instance, "m5.large", "us-east-1a", "on-demand")])
    table = table_of_drills(night)
    table.put(INTENT_BY_HAND, intent.model_copy(update={"version": 1}))
    try:
        night.next_run("reconcile")
        night.values["INSTANCE"] = instance
        night.env.wait([instance], night.begun, Journal.admissions)
        said = night.look(RUN, AT_ITS_END)
        assert f"Launched instance {instance} of pool lost has not been admitted" in said
    finally:
        table.delete(INTENT_BY_HAND, cluster=CLUSTER, created_at=created, id=BY_DRILL)
        end_instances(night, [instance])


@drill("launchproblemsalarm", "a-pool-is-paused", codes=["NodesNeverReady"])
def test_three_nodes_in_a_row_are_never_ready_for_pods(night: Night) -> None:
    night.faults("kubernetes", {"verb": "patch", "resource": "nodes", "status": 403})
    now, failed = datetime.now(UTC), nodes_of_groups(night, 3)
    for instance, node in failed.items():
        launch = Launch(intent=BY_DRILL, pool="never-ready", at=now)
        admit(night, instance, node, launch=launch, **MISSING)
    night.env.wait(failed, night.begun, Journal.admissions)
    night.values |= {"INSTANCE": min(failed), "POOL": "never-ready"}
    try:
        night.next_run("reconcile")
        said = night.look(RUN)
        assert all(instance in said for instance in failed)
        assert "example.com/fpga is not allocatable" in said
    finally:
        (resume,) = commands(PAGE["a-pool-is-paused"].parts["Do"])
        night.type(resume)
    assert "never-ready" not in night.type("leeway status")


@pytest.fixture(scope="class")
def nodes(env: Environment, shell: Shell) -> Iterator[dict[str, str]]:
    """Nodes of a pool, by instance, with a pod each, of one workload."""
    night = Night(env, shell, (), ())
    let_launches_age(env.sandbox, 11)
    night.create(*(waiting(f"vain-{end}", "healthy") for end in ("2b4c5", "6d7f8", "9g2h4")))
    invoke(env.sandbox)
    launched = instances_of(night, "healthy")
    night.env.wait(launched, night.begun, Journal.admissions)
    joined = {one["instance"]: str(one["node"]) for one in night.seen.of("node-joined")}
    yield {one: joined[one] for one in launched}
    night.end()
    end_instances(night, launched)


class TestThreeNodesOfAPool:
    """Each test leaves the nodes as they were."""

    @drill("clusterproblemsalarm", "many-nodes-are-unhealthy", codes=["RepairsHeld"])
    def test_more_than_a_fifth_is_not_ready(self, night: Night, nodes: dict[str, str]) -> None:
        names = sorted(nodes.values())
        night.values["NODE"] = names[0]
        with not_ready(night, *names[1:], minutes=31):
            night.next_run("reconcile")
            said = night.look(RUN)
        assert "2 of 3 nodes of pool healthy are unhealthy" in said
        assert not [e for e in night.seen.of("execution-started") if "retire" in e["execution"]]

    @drill("clusterproblemsalarm", "an-instance-is-tagged-as-leeways", codes=["LaunchUnknown"])
    def test_the_table_does_not_know_an_instance(self, night: Night, nodes: dict[str, str]) -> None:
        """It has its tags, and its Node was deleted."""
        instance, name = min(nodes.items())
        table = table_of_drills(night)
        kept = table.get(ADMISSION, cluster=CLUSTER, instance=instance)
        assert kept is not None
        table.delete(ADMISSION, cluster=CLUSTER, instance=instance)
        night.values["INSTANCE"] = instance
        try:
            with without_nodes(night, name):
                night.next_run("reconcile")
                assert instance in night.look(RUN)
        finally:
            table.put(ADMISSION, kept.model_copy(update={"version": 1}))

    @drill("minorproblemsalarm", "the-node-of-an-instance-was-deleted", codes=["NodeDeleted"])
    def test_the_node_of_an_instance_is_deleted(self, night: Night, nodes: dict[str, str]) -> None:
        instance, name = max(nodes.items())
        with without_nodes(night, name):
            night.next_run("reconcile")
            assert instance in night.look(RUN)

    @drill("clusterproblemsalarm", "the-node-of-an-instance-was-deleted", codes=["NodesVanished"])
    def test_the_nodes_of_most_instances_are_gone(
        self, night: Night, nodes: dict[str, str]
    ) -> None:
        every = night.type("kubectl get nodes -l karpenter.sh/nodepool -o name")
        names = [one.removeprefix("node/") for one in every.split()]
        assert {*nodes.values()} <= {*names}
        with without_nodes(night, *names):
            night.next_run("reconcile")
            said = night.look(RUN)
        assert f"{len(names)} of " in said

    @drill("launchproblemsalarm", "launches-are-held-back", codes=["LaunchesInVain"])
    def test_no_pod_gets_a_place_on_the_nodes(self, night: Night, nodes: dict[str, str]) -> None:
        """A controller deletes its pods, and another one taints the nodes."""
        night.type("kubectl delete pods vain-2b4c5 vain-6d7f8 vain-9g2h4 --now")
        names = " ".join(nodes.values())
        night.type(f"kubectl taint node {names} example.com/gate=:NoSchedule")
        let_launches_age(night.sandbox, 4)
        late = waiting("vain-j5k6l", "healthy")
        late["spec"]["tolerations"] = [{"key": "example.com/drill", "operator": "Exists"}]
        night.create(late)
        invoke(night.sandbox)
        said = night.look(RUN)
        assert "for them in the last hour joined and stayed empty" in said


@drill("launchproblemsalarm", "a-group-launches-nodes-that-do-not-join", codes=["GroupRollHalted"])
def test_a_new_launch_template_starts_no_kubelet(night: Night) -> None:
    """Its first instance ends soon after its launch."""
    ec2 = client("ec2", night.sandbox.aws_url)
    template = {"LaunchTemplateName": f"{CLUSTER}-plain"}
    (image,) = ec2.describe_images(Filters=[{"Name": "name", "Values": ["lost"]}])["Images"]
    data = {"ImageId": image["ImageId"]}
    ec2.create_launch_template_version(**template, SourceVersion="1", LaunchTemplateData=data)
    try:
        night.type("leeway roll plain --cluster CLUSTER --no-wait")
        before = set(of_group(night, "plain"))
        night.next_run("reconcile")
        (successor,) = night.until(lambda: set(of_group(night, "plain")) - before)
        end_instances(night, [successor])
        kept = night.until(lambda: [one for one in before if night.seen.outcomes(one)])
        night.env.wait(kept, night.begun)
        night.next_run("reconcile")
        night.values |= {"INSTANCE": successor, "GROUP": "plain"}
        said = night.look(RUN, "Within 11 minutes after the launch of the successor")
        (outcome,) = night.seen.outcomes(kept[0])
        assert "SuccessorNotReady" in str(outcome)
        assert not outcome["needs_attention"], "the roll is what wakes people"
        assert "plain" in said
    finally:
        data = {"ImageId": IMAGE}
        ec2.create_launch_template_version(**template, SourceVersion="1", LaunchTemplateData=data)
        night.type("leeway roll plain --cluster CLUSTER --stop")


def of_group(night: Night, group: str) -> list[str]:
    """Return the instances of an Auto Scaling group."""
    scaling = client("autoscaling", night.sandbox.aws_url)
    (found,) = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group])[
        "AutoScalingGroups"
    ]
    return [one["InstanceId"] for one in found["Instances"]]


@drill("clusterproblemsalarm", "manifests-are-held", codes=["ManifestsHeld"])
def test_all_pools_of_the_api_server_are_gone(night: Night, in_cluster: InCluster) -> None:
    in_cluster.create_pool("kept")
    night.next_run("reconcile")
    assert "kept" in night.type("leeway get nodepools --cluster CLUSTER")
    night.type("kubectl delete nodepool kept")
    night.next_run("reconcile")
    said = night.look(RUN, "By the next run")
    assert f"leeway delete nodepool.karpenter.sh/kept --cluster {CLUSTER}" in said
    assert "nodepools.karpenter.sh" in said, "the kind exists"


NO_ACTION = ("a-change-of-a-manifest-in-the-cluster-does-not-act",)


@drills(
    Row(
        "provision-nodes",
        NO_ACTION,
        ("ManifestsNotCopied",),
        "kubernetes",
        [{"verb": "list", "resource": "nodepools", "status": 403}],
    ),
    Row(
        "provision-nodes",
        NO_ACTION,
        ("StatusNotWritten",),
        "kubernetes",
        [{"verb": "patch", "resource": "nodepools/status", "status": 403}],
    ),
)
def test_a_manifest_of_the_api_server_does_not_act(
    night: Night, in_cluster: InCluster, row: Row
) -> None:
    in_cluster.create_pool("refused")
    night.values["NAME"] = "refused"
    night.faults(row.part, *row.faults)
    invoke(night.sandbox)
    assert "403" in night.look("By the next run")


@drill("karpenter-runs-beside-leeway", codes=["KarpenterIsRunning"])
@pytest.mark.usefixtures("in_cluster")
def test_karpenter_runs(night: Night) -> None:
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "karpenter-leader-election", "namespace": "kube-system"},
        "spec": {"holderIdentity": "karpenter_1", "leaseDurationSeconds": 15, "renewTime": now},
    }
    create(night, lease)
    try:
        invoke(night.sandbox)
        said = night.look("By the next run")
        assert "holderIdentity: karpenter_1" in said
    finally:
        night.type("kubectl delete lease karpenter-leader-election -n kube-system")


@drill("karpenter-runs-beside-leeway", codes=["SwitchedToKarpenter"])
def test_karpenter_is_to_launch_and_is_down(night: Night) -> None:
    table = table_of_drills(night)
    table.put(SWITCH, Switch(CLUSTER, 1, Buyer.KARPENTER, datetime.now(UTC)))
    try:
        invoke(night.sandbox)
        night.look("By the next run")
    finally:
        table.delete(SWITCH, cluster=CLUSTER)


@drill("launchproblemsalarm", "launches-are-held-back", codes=["PriceCeilingReached"])
def test_a_node_costs_more_than_the_cluster_may_spend(night: Night) -> None:
    let_launches_age(night.sandbox, 11)
    night.create(waiting("costs", "dear", cpu="90"))
    invoke(night.sandbox)
    assert "at most 2.00 USD per hour" in night.look(RUN)


@drill("clusterproblemsalarm", codes=["CatalogMissing", "ProvisioningNotWritten"])
def test_there_is_no_catalog_and_the_status_is_not_written(night: Night) -> None:
    table = table_of_drills(night)
    catalog = table.get(SURVEY, region="us-east-1")
    assert catalog is not None
    table.delete(SURVEY, region="us-east-1")
    try:
        night.end_warm("provision-nodes")
        night.faults("aws", denied("provision-nodes", "dynamodb", "PutItem"))
        invoke(night.sandbox)
        night.look(RUN)
    finally:
        table.put(SURVEY, catalog, region="us-east-1")


@drill("launchproblemsalarm", "launches-are-held-back", codes=["LaunchesCapped"])
def test_the_maximum_of_launches_is_reached(night: Night) -> None:
    night.create(*(waiting(f"waits-{number}", "healthy") for number in range(5)))
    invoke(night.sandbox)
    assert "waits-" in night.look(RUN)


def waiting(name: str, in_pool: str, cpu: str = "1500m") -> dict[str, Any]:
    """A pod that needs a node of a pool."""
    requests = {"cpu": cpu}
    spec = {
        "containers": [{"name": "c", "image": "pause", "resources": {"requests": requests}}],
        "nodeSelector": {"karpenter.sh/nodepool": in_pool},
        "tolerations": [{"operator": "Exists"}],
    }
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@drill("where-to-look")
def test_the_log_of_an_instance_is_in_the_order_of_time(night: Night) -> None:
    (instance,) = night.env.unused_nodes(1, "hooked")
    night.values["INSTANCE"] = instance
    night.env.interrupt([instance])
    first, *others = commands(PAGE["where-to-look"].text)[:5]
    said = night.of_this_night(night.type(*others))
    everything = night.type(first).splitlines()
    times = [line[:20] for line in everything]
    assert times == sorted(times)
    of_instance = [line for line in said.splitlines() if f"/{instance}: " in line]
    functions = [line.split()[2] for line in of_instance]
    assert (functions[0], set(functions)) == ("receive-notice", {"receive-notice", "retire-node"})
    assert all(line in everything for line in of_instance)


@drill("where-to-look")
def test_the_log_groups_are_those_of_the_template(night: Night) -> None:
    logs = client("logs", night.sandbox.aws_url)
    groups = logs.describe_log_groups()["logGroups"]
    assert night.sandbox.deployed is not None
    functions = night.sandbox.deployed.functions
    assert {one["logGroupName"] for one in groups} == {one.logs_to for one in functions}
    assert {one["retentionInDays"] for one in groups} == {30}
    night.next_run("reconcile")
    place = {"logGroupName": "/aws/lambda/leeway-reconcile"}
    lines = [
        event["message"]
        for page in logs.get_paginator("filter_log_events").paginate(**place)
        for event in page["events"]
    ]
    kinds = [line.split(" RequestId: ")[0] for line in lines if " RequestId: " in line]
    assert {"START", "END", "REPORT"} <= set(kinds)
    assert any(re.search(r"\tMax Memory Used: \d+ MB\t", line) for line in lines)
    for one in logs.describe_log_streams(**place)["logStreams"]:
        stream = one["logStreamName"]
        assert re.fullmatch(r"\d{4}/\d\d/\d\d/\[\$LATEST\][0-9a-f]{32}", stream)


@drill("where-to-look")
def test_a_role_without_the_right_to_write_its_log_loses_its_lines(night: Night) -> None:
    iam = client("iam", night.sandbox.aws_url)
    assert night.sandbox.deployed is not None
    role = night.sandbox.deployed.stack.roles["ReconcileRole"].name
    (name,) = iam.list_role_policies(RoleName=role)["PolicyNames"]
    kept = iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
    without = [one for one in kept["Statement"] if one["Sid"] != "WriteLogs"]
    night.type("leeway logs reconcile")

    def grant(statements: object) -> None:
        document = json.dumps({**kept, "Statement": statements})
        iam.put_role_policy(RoleName=role, PolicyName=name, PolicyDocument=document)

    night.faults("lambda", {"function": "*reconcile", "timeout": 0.02})
    grant(without)
    night.next_run("reconcile")
    assert "after 0.02 seconds" not in night.type("leeway logs reconcile")
    (refused, *_) = night.seen.of("logs-refused")
    assert "logs:PutLogEvents" in refused["problem"]
    grant(kept["Statement"])
