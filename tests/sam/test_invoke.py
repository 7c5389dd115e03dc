"""The functions in Lambda's container with `sam local invoke`, against a sandbox."""

import json
import time
import uuid
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import pytest
from leeway.aws.ec2 import Ec2Instances
from leeway.aws.table import DynamoTable
from leeway.clock import SystemClock
from leeway.interruption.receive_notice import ReceiveNotice
from leeway.manifests.configuration import StoredManifest, StoredManifests
from leeway.manifests.reading import read_manifests
from leeway.notices.parse import EventOrigin
from leeway_sandbox.aws.cloud import ACCOUNT
from leeway_sandbox.sandbox import Sandbox

from tests.fakes.offerings import OfferingsInMemory
from tests.fakes.policies import OnePolicy
from tests.fakes.schedules import SchedulesInMemory
from tests.sam.invocation import Invoke

EVENTS = Path(__file__).parents[2] / "events"
TIMEOUT_SECONDS = 60.0
"""Seconds within which a retirement in the sandbox must end."""

pytestmark = pytest.mark.sam


def event_of(name: str) -> dict[str, Any]:
    event: dict[str, Any] = json.loads((EVENTS / f"{name}.json").read_text())
    return event


def warning_for(instance: str) -> dict[str, Any]:
    """Return the Spot interruption of events/ for this instance with the current time."""
    event = event_of("spot-interruption")
    detail = {**event["detail"], "instance-id": instance}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {**event, "id": str(uuid.uuid4()), "time": now, "detail": detail}


def nodes(sandbox: Sandbox) -> list[tuple[str, str]]:
    """Return the instance and node of every joined node."""
    joined = [e for e in sandbox.journal() if e["kind"] == "node-joined"]
    return [(entry["instance"], entry["node"]) for entry in joined]


def client_of(sandbox: Sandbox, service: str) -> Any:
    """Return a boto3 client of the sandbox, independent of the environment of this process."""
    environment = sandbox.environment()
    return boto3.client(
        service,
        endpoint_url=environment[
            "AWS_ENDPOINT_URL_LAMBDA" if service == "lambda" else "AWS_ENDPOINT_URL"
        ],
        region_name=environment["AWS_REGION"],
        aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
    )


def executions(sandbox: Sandbox) -> set[str]:
    """Return the names of the started executions of retire_node."""
    arn = sandbox.sam_environment()["ReceiveNoticeFunction"]["LEEWAY_RETIRE_NODE"]
    name, _, alias = arn.rpartition(":")
    listed = client_of(sandbox, "lambda").list_durable_executions_by_function(
        FunctionName=name, Qualifier=alias
    )
    return {execution["DurableExecutionName"] for execution in listed["DurableExecutions"]}


class HeldBack:
    """A `retire_node` that is not started, because the test starts it with SAM."""

    def start(self, instance: str, cluster: str, attempt: int) -> None:
        """Store the order."""
        self.order = {"instance": instance, "cluster": cluster, "attempt": attempt}


class NothingToClean:
    """A `reconcile` that a warning does not start."""

    def start(self, instance: str, cluster: str) -> None:
        """Fail: the instance runs."""
        raise AssertionError(f"{instance} is not terminated")


def order_for(sandbox: Sandbox, instance: str) -> dict[str, Any]:
    """Write the retirement record of an instance. Returns the payload of retire_node."""
    table = sandbox.sam_environment()["RetireNodeFunction"]["LEEWAY_TABLE"]
    held_back = HeldBack()
    ReceiveNotice(
        table=DynamoTable(partial(client_of, sandbox, "dynamodb"), table),
        origin=EventOrigin(ACCOUNT, sandbox.environment()["AWS_REGION"]),
        instances=Ec2Instances(partial(client_of, sandbox, "ec2")),
        policies=OnePolicy(),
        retire_node=held_back,
        schedules=SchedulesInMemory(),
        offerings=OfferingsInMemory(),
        clusters=frozenset({sandbox.endpoints.cluster}),
        clock=SystemClock(),
        admit_node=held_back,
        clean_up=NothingToClean(),
    ).receive(warning_for(instance))
    return held_back.order


def outcome_of(sandbox: Sandbox, instance: str) -> dict[str, Any]:
    """Return the result that Leeway published for the instance."""
    until = time.monotonic() + TIMEOUT_SECONDS
    while True:
        for entry in sandbox.journal():
            if entry["kind"] == "put-events" and entry["detail"]["instance"] == instance:
                detail: dict[str, Any] = entry["detail"]
                return detail
        assert time.monotonic() < until, f"the retirement of {instance} has not ended"
        time.sleep(0.3)


def test_receive_notice_starts_the_retirement_that_drains_a_nodes_instance(
    invoke: Invoke, sandbox: Sandbox
) -> None:
    instance, node = nodes(sandbox)[0]
    (received,) = invoke("ReceiveNoticeFunction", warning_for(instance)).answer["instances"]
    assert (received["instance"], received["result"]) == (instance, "started")
    assert any(name.startswith(f"retire-{instance}-1-") for name in executions(sandbox))
    outcome = outcome_of(sandbox, instance)
    assert (outcome["node"], outcome["result"]) == (node, "drained")


def test_receive_notice_ignores_an_instance_outside_of_managed_clusters(
    invoke: Invoke,
) -> None:
    (received,) = invoke("ReceiveNoticeFunction", event_of("spot-interruption")).answer["instances"]
    assert received["result"] == "not-ours"


def test_receive_notice_reports_the_error_of_a_malformed_notice(invoke: Invoke) -> None:
    answer = invoke("ReceiveNoticeFunction", {"version": "0"}).answer
    assert answer["errorType"] == "MalformedNotice"


def test_retire_node_drains_a_node_and_returns_the_result_of_each_pod(
    invoke: Invoke, sandbox: Sandbox
) -> None:
    instance, node = nodes(sandbox)[1]
    invocation = invoke("RetireNodeFunction", order_for(sandbox, instance))
    assert (invocation.answer["node"], invocation.answer["result"]) == (node, "drained")
    assert "forbidden" not in (invocation.stdout + invocation.stderr).lower()
    cordoned = {e["node"] for e in sandbox.journal() if e["kind"] == "node-cordoned"}
    assert node in cordoned


def test_retire_node_ends_without_a_record_of_the_instance(invoke: Invoke) -> None:
    answer = invoke("RetireNodeFunction", event_of("retire-node")).answer
    assert answer["result"] == "superseded"


def test_keep_headroom_applies_the_stored_manifests_of_a_cluster(
    invoke: Invoke, sandbox: Sandbox
) -> None:
    spec = {"buffers": [{"name": "warm", "pod": {"requests": {"cpu": "10m"}}, "replicas": 1}]}
    about = {"apiVersion": "leeway.sh/v1", "kind": "Headroom", "metadata": {"name": "sam"}}
    (written,) = read_manifests(json.dumps({**about, "spec": spec}), "sam").written
    stored = StoredManifest(
        written.kind.resource, "", written.name, written.body, 1, "test", datetime.now(UTC)
    )
    table = sandbox.sam_environment()["KeepHeadroomFunction"]["LEEWAY_TABLE"]
    writing = StoredManifests(DynamoTable(partial(client_of, sandbox, "dynamodb"), table))
    writing.write(sandbox.endpoints.cluster, stored, replaces=0)
    (report,) = invoke("KeepHeadroomFunction", event_of("keep-headroom")).answer["clusters"]
    assert report["problem"] is None
    subjects = [changed["subject"] for changed in report["changed"]]
    # The schedule of the sandbox may have run first.
    assert subjects in ([], ["buffer leeway-headroom/sam-warm"])
    assert report["pauseReplicas"] == 1
