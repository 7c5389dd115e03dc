"""The drills of the alarms: what the runbook says to run shows the cause."""

import json
import time

from leeway_sandbox.provisioning import client

from tests.drills.night import Night, drill
from tests.end_to_end.launches import answers
from tests.end_to_end.provisioning import CLUSTER

RUN = "With the next run, within a minute"


def interrupt(night: Night, group: str, late: float = 60) -> str:
    """Interrupt an instance; return its id."""
    (instance,) = night.env.unused_nodes(1, group)
    night.sandbox.interrupt([instance], late=late)
    return instance


@drill("reconcilenotdonealarm")
def test_reconcile_is_not_done(night: Night) -> None:
    night.faults("lambda", {"function": "*reconcile", "timeout": 0.2})
    night.next_run("reconcile")
    said = night.look(RUN)
    assert "Task timed out after 0.20 seconds" in said
    assert '"ENABLED"' in said


@drill("headroomnotkeptalarm")
def test_headroom_is_not_kept(night: Night) -> None:
    night.faults("lambda", {"function": "*headroom", "kill": "before"})
    night.next_run("keep-headroom")
    said = night.look(RUN)
    assert "Runtime exited with error: signal: killed" in said
    assert '"ENABLED"' in said


@drill("minorproblemsalarm", "pods-are-not-watched", codes=["PodWatchFailed"])
def test_the_watch_on_pods_is_refused(night: Night) -> None:
    """It comes before the next drill, because a run that watches goes on for minutes."""
    night.faults("kubernetes", {"verb": "watch", "resource": "pods", "status": 403})
    night.fire("watch-pods")
    night.until(lambda: "PodWatchFailed" in night.type("leeway logs watch-pods --level error"))
    assert "403" in night.look(RUN)


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


@drill("clusterproblemsalarm", codes=["ReconcileIncomplete"])
def test_a_cluster_does_not_answer(night: Night) -> None:
    night.faults("kubernetes", {"refuse": True})
    night.next_run("reconcile")
    said = night.look(RUN)
    assert "ClusterUnavailable" in said
    assert CLUSTER in said


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
    night.faults("lambda", {"function": "*receive-notice", "timeout": 0.05})
    interrupt(night, "plain")
    night.first_run("receive-notice")
    said = night.look("With the first try")
    assert "Task timed out after 0.05 seconds" in said
    assert "1000" in said.splitlines(), "the limit of the account"


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
        seen = night.env.wait([instance], begun)
        (outcome,) = seen.outcomes(instance)
        said = night.look("With the outcome of the retirement")
    finally:
        eks.create_access_entry(**entry, kubernetesGroups=["leeway:drain"])
    assert f"{CLUSTER}/{instance}" in said
    assert "401" in said
    assert "ResourceNotFoundException" in said
    assert outcome["attempt"] == 1, "the first outcome shows it"


@drill("retirementproblemsalarm", codes=["NodeDrained"])
def test_a_retirement_has_problems(night: Night) -> None:
    refused = {"service": "autoscaling", "action": "CompleteLifecycleAction", "count": 2}
    night.faults("aws", refused | {"error": "AccessDenied", "status": 403})
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
    said = fail(night, "retire-node", "RetireNodeFailuresUrl")
    assert "[]" not in said.partition("--statuses")[2], "the execution is listed"


@drill("admitnodefailuresalarm")
def test_an_admission_fails(night: Night) -> None:
    fail(night, "admit-node", "AdmitNodeFailuresUrl")


def fail(night: Night, function: str, queue: str) -> str:
    """Start an execution whose input no version of Leeway writes, and look at it."""
    (instance,) = night.env.unused_nodes(1)
    client("lambda", night.sandbox.lambda_url).invoke(
        FunctionName=f"leeway-{function}:live",
        InvocationType="Event",
        Payload=json.dumps({"instance": instance}),
    )
    night.until(lambda: night.waiting(queue))
    night.values["INSTANCE"] = instance
    return night.look("When the execution has ended")


@drill("provisioninglatealarm")
def test_provisioning_is_late(night: Night) -> None:
    night.faults("lambda", {"function": "*provision-nodes", "timeout": 0.05})
    queue = night.output("ProvisionQueueUrl")
    body = json.dumps({"cluster": CLUSTER, "why": "drill"})
    sqs = client("sqs", night.sandbox.aws_url)
    group = {"MessageGroupId": "drill", "MessageDeduplicationId": "drill"}
    sqs.send_message(QueueUrl=queue, MessageBody=body, **group)
    timed_out = {"function": "leeway-provision-nodes", "outcome": "timeout"}
    night.until(lambda: night.seen.of("invocation", **timed_out))
    said = night.look("With the first try")
    assert "Task timed out after 0.05 seconds" in said
    assert '"Enabled"' in said
