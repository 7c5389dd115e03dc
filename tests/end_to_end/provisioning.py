"""A cluster without any node whose pools launch nodes, and runs of provision_nodes on it."""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4
from weakref import WeakKeyDictionary

import boto3
from leeway.admission.record import ADMISSION
from leeway.aws.table import DynamoTable
from leeway.catalog.stored import SURVEY
from leeway.clock import SystemClock
from leeway.execution.retrying import Conflicts
from leeway.launch.intent import INTENT, LaunchIntent
from leeway.manifests.configuration import StoredManifests
from leeway.manifests.reading import find_kind, interpret
from leeway.selection.offers.survey import compressed
from leeway_cli.selection.sources import sandbox_survey
from leeway_sandbox.provisioning import client
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import Scenario
from lightkube import Client
from lightkube.resources.core_v1 import Node, Pod

from tests.aws.stored import manifest
from tests.end_to_end.conftest import daemonset
from tests.end_to_end.environment import Environment, Journal, kube_client, until
from tests.end_to_end.rights import check_calls_are_granted

CLUSTER = "provisioned"
ROLE = "prod-nodes"
PARAMETERS = {"NodeRoleArns": f"arn:aws:iam::123456789012:role/{ROLE}"}
FUNCTION = "leeway-provision-nodes"
NO_NODES = Scenario(cluster=CLUSTER, groups=(), workloads=(daemonset("cni"),))


@contextmanager
def sandbox_with(
    state: Path,
    *manifests: dict[str, Any],
    scenario: Scenario = NO_NODES,
    kubernetes: Sequence[str] = (),
    functions: Sequence[str] = (),
) -> Iterator[tuple[Sandbox, Client]]:
    """A cluster whose pools launch nodes, and its client. Schedules run if a test fires them. At
    the end, every call of a function must be granted to its role."""
    options = {
        "aws": ["--schedule-speed", "0"],
        "kubernetes": ["--node-join", "1", *kubernetes],
        "lambda": functions,
    }
    with (
        Sandbox.start(scenario, state_dir=state, parameters=PARAMETERS, options=options) as sandbox,
        kube_client(sandbox) as kube,
    ):
        prepare(sandbox)
        store(sandbox, *manifests)
        yield sandbox, kube
        check_calls_are_granted(sandbox)


def prepare(sandbox: Sandbox) -> None:
    """Create a network that node classes select, a node role, and the catalog."""
    cluster = sandbox.endpoints.cluster
    ec2, iam = client("ec2", sandbox.aws_url), client("iam", sandbox.aws_url)
    found = ec2.describe_subnets(Filters=[{"Name": "default-for-az", "Values": ["true"]}])
    subnets = found["Subnets"]
    group = ec2.create_security_group(
        GroupName="nodes", Description="nodes", VpcId=subnets[0]["VpcId"]
    )
    tagged = [*(one["SubnetId"] for one in subnets), group["GroupId"]]
    ec2.create_tags(Resources=tagged, Tags=[{"Key": "discovery", "Value": "prod"}])
    own = {"Key": f"kubernetes.io/cluster/{cluster}", "Value": "owned"}
    ec2.create_tags(Resources=[group["GroupId"]], Tags=[own])
    iam.create_role(RoleName=ROLE, AssumeRolePolicyDocument="{}")
    iam.create_instance_profile(InstanceProfileName=ROLE)
    iam.add_role_to_instance_profile(InstanceProfileName=ROLE, RoleName=ROLE)
    eks = client("eks", sandbox.aws_url)
    arn = PARAMETERS["NodeRoleArns"]
    eks.create_access_entry(clusterName=cluster, principalArn=arn, type="EC2_LINUX")
    dynamodb = client("dynamodb", sandbox.aws_url)
    DynamoTable(lambda: dynamodb, table_of(sandbox)).put(
        SURVEY, compressed(sandbox_survey()), region="us-east-1"
    )


def store(sandbox: Sandbox, *documents: dict[str, Any], replaces: int = 0) -> None:
    """Store manifests of the cluster as `leeway apply` does, invalid ones too. `replaces` is their
    stored version, 0 if they are new."""
    dynamodb = client("dynamodb", sandbox.aws_url)
    writing = StoredManifests(DynamoTable(lambda: dynamodb, table_of(sandbox)))
    for document in documents:
        kind = find_kind(document["apiVersion"], document["kind"])
        body, original = json.dumps(document), ""
        if written := interpret(document, "test").written:
            body, original = written[0].body, written[0].original
        stored = manifest(
            document["metadata"]["name"],
            replaces + 1,
            resource=kind.resource,
            body=body,
            original=original,
        )
        writing.write(CLUSTER, stored, replaces)


def table_of(sandbox: Sandbox) -> str:
    """Return the name of the table."""
    return sandbox.environment()["LEEWAY_TABLE"]


def message(cluster: str = CLUSTER, why: str = "test") -> dict[str, Any]:
    """Return a message as Lambda delivers it."""
    body = json.dumps({"cluster": cluster, "why": why})
    return {"messageId": uuid4().hex, "receiptHandle": "unknown", "body": body}


def run(sandbox: Sandbox) -> list[str]:
    """Send a message to the queue of provision_nodes, and wait until a run has served it: SQS gives
    the messages of a cluster to one run at a time. Return the message's id if it comes again."""
    body = message(sandbox.endpoints.cluster)["body"]
    sqs, url = queue(sandbox)
    sent = sqs.send_message(
        QueueUrl=url,
        MessageBody=body,
        MessageGroupId=sandbox.endpoints.cluster,
        MessageDeduplicationId=uuid4().hex,
    )["MessageId"]

    def served() -> list[dict[str, Any]]:
        return [
            entry
            for entry in sandbox.journal()
            if entry["kind"] == "queue-batch" and sent in {one["id"] for one in entry["messages"]}
        ]

    batch = until(served)[0]
    assert batch["outcome"] == "ok", batch
    return [one for one in batch["failed"] if one == sent]


def queue(sandbox: Sandbox) -> tuple[Any, str]:
    """Return a client of SQS and the URL of the queue of provision_nodes."""
    sqs = client("sqs", sandbox.aws_url)
    (url,) = [one for one in sqs.list_queues()["QueueUrls"] if one.endswith("provision.fifo")]
    return sqs, url


def invoke(sandbox: Sandbox, *messages: dict[str, Any]) -> list[str]:
    """Invoke provision_nodes with messages, by default one, beside its queue; return the ids of
    those that SQS would deliver again."""
    functions = boto3.session.Session("sandbox", "sandbox").client(
        "lambda", endpoint_url=sandbox.lambda_url, region_name="us-east-1"
    )
    event = {"Records": list(messages or (message(sandbox.endpoints.cluster),))}
    answer = functions.invoke(FunctionName=FUNCTION, Payload=json.dumps(event).encode())
    payload = json.loads(answer["Payload"].read())
    assert "FunctionError" not in answer, payload
    return [one["itemIdentifier"] for one in payload["batchItemFailures"]]


def bound(kube: Client) -> dict[str, str]:
    """Return the nodes of the pods that run, by the name of the pod."""
    return {
        str(pod.metadata.name): str(pod.spec.nodeName)
        for pod in kube.list(Pod, namespace="default")
        if pod.metadata and pod.spec and pod.status and pod.status.phase == "Running"
    }


def nodes(kube: Client) -> list[Node]:
    """Return the Nodes."""
    return list(kube.list(Node))


def instances(sandbox: Sandbox) -> list[str]:
    """Return the instances that start or run."""
    ec2 = client("ec2", sandbox.aws_url)
    filters = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    pages = ec2.describe_instances(Filters=filters)["Reservations"]
    return [one["InstanceId"] for page in pages for one in page["Instances"]]


def fire_watch(env: Environment) -> None:
    """Run watch_pods as its schedule of each minute does."""
    (name,) = [s["name"] for s in env.sandbox.schedules() if s["name"].endswith("-watch-pods")]
    assert env.sandbox.fire(name)


def watch(env: Environment) -> None:
    """Start watch_pods, and wait until it watches and the buyer has run once."""
    fire_watch(env)
    env.until(0, _watches)
    env.until(0, lambda seen: seen.of("queue-batch", function=FUNCTION))


def _watches(seen: Journal) -> bool:
    return any("PodsWatched" in str(e["line"]) for e in seen.of("logs"))


_SIMULATED: WeakKeyDictionary[Sandbox, list[tuple[float, int]]] = WeakKeyDictionary()
"""The minutes that tests let pass in each sandbox, and when."""


def simulated_time(sandbox: Sandbox, at: float) -> float:
    """Return a time with the minutes that tests let pass before it, in epoch seconds."""
    return at + sum(60 * minutes for moment, minutes in _SIMULATED.get(sandbox, ()) if moment <= at)


def let_launches_age(sandbox: Sandbox, minutes: int) -> None:
    """Move the launches of the cluster into the past, as if these minutes had passed.

    The buyer may run meanwhile: what it still writes about a launch would be lost, and between a
    deletion and a write it would know of no launch.
    """
    dynamodb, table = client("dynamodb", sandbox.aws_url), table_of(sandbox)
    stored = DynamoTable(lambda: dynamodb, table)

    def settled() -> list[tuple[LaunchIntent, ...]]:
        known = stored.list(INTENT, cluster=CLUSTER)
        return [known] if all(one.is_answered and not one.to_admit for one in known) else []

    (found,) = until(settled)
    _SIMULATED.setdefault(sandbox, []).append((time.time(), minutes))
    age = timedelta(minutes=minutes)
    # The time of a launch is part of its key.
    stored.change(
        INTENT,
        [
            one.model_copy(update={"created_at": one.created_at - age, "version": 1})
            for one in found
        ],
        [{"cluster": CLUSTER, "created_at": one.created_at, "id": one.id} for one in found],
    )


def end_time_to_join(
    sandbox: Sandbox, launched: Iterable[str], cluster: str = CLUSTER
) -> dict[str, int]:
    """Move the deadlines of admissions to now, as if 15 minutes had passed; return their attempts.
    Their first steps may come only now, on a busy machine."""
    dynamodb = client("dynamodb", sandbox.aws_url)
    stored = DynamoTable(lambda: dynamodb, table_of(sandbox))
    attempts: dict[str, int] = {}
    for instance in launched:
        read = partial(stored.get, ADMISSION, cluster=cluster, instance=instance)
        conflicts = Conflicts("an admission record")
        until(read)
        while instance not in attempts:
            with conflicts:
                record = read()
                assert record is not None
                changes = {"deadline": SystemClock().now(), "version": record.version + 1}
                stored.put(ADMISSION, record.model_copy(update=changes))
                attempts[instance] = record.attempt
    return attempts
