"""Nodes that are not well, and instances with tags or records that are wrong."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from leeway.admission.record import ADMISSION, AdmissionRequest, apply_request
from leeway.aws.table import DynamoTable
from leeway.instances.facts import InstanceFacts, Owner, OwnerKind
from leeway.reasons import Reason
from leeway_sandbox.provisioning import client

from tests.drills.night import Night
from tests.end_to_end.provisioning import CLUSTER, table_of

GPU = "g5.xlarge"
BY_DRILL = "drill"
"""The launch intent of instances that a drill launches."""


def table_of_drills(night: Night) -> DynamoTable:
    """Return Leeway's table."""
    dynamodb = client("dynamodb", night.sandbox.aws_url)
    return DynamoTable(lambda: dynamodb, table_of(night.sandbox))


def nodes_of_groups(night: Night, count: int) -> dict[str, str]:
    """Return nodes of groups by instance. Other drills may use them after this one."""
    night.until(lambda: len(night.env.free_nodes(count)) == count)
    return night.env.free_nodes(count)


def admit(
    night: Night, instance: str, node: str, instance_type: str = "m5.large", **more: Any
) -> None:
    """Start the admission of an instance whose time is over. `more` are fields of the request."""
    facts = InstanceFacts(
        instance=instance,
        cluster=CLUSTER,
        private_dns_name=node,
        zone="us-east-1a",
        instance_type=instance_type,
        capacity_type="on-demand",
        owner=Owner(OwnerKind.AUTO_SCALING_GROUP, "plain"),
    )
    now = datetime.now(UTC)
    why = Reason("Drill", "A drill.")
    request = AdmissionRequest(BY_DRILL, now - timedelta(minutes=15), now, why, **more)
    table = table_of_drills(night)
    table.delete(ADMISSION, cluster=CLUSTER, instance=instance)
    table.put(ADMISSION, apply_request(None, request, facts).record)
    client("lambda", night.sandbox.lambda_url).invoke(
        FunctionName="leeway-admit-node:live",
        InvocationType="Event",
        Payload=json.dumps({"instance": instance, "cluster": CLUSTER, "attempt": 1}),
    )


def instances_with_tags(
    night: Night, count: int, image: str = "lost", more: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Launch instances that never join, with the tags of those of a pool of Leeway and `more`, and
    return them as EC2 describes them."""
    ec2 = client("ec2", night.sandbox.aws_url)
    (found,) = ec2.describe_images(Filters=[{"Name": "name", "Values": [image]}])["Images"]
    tags = {
        f"kubernetes.io/cluster/{CLUSTER}": "owned",
        "leeway.sh/owner": "leeway",
        "leeway.sh/nodepool": "lost",
        "leeway.sh/intent": BY_DRILL,
        **(more or {}),
    }
    launched: list[dict[str, Any]] = ec2.run_instances(
        ImageId=found["ImageId"],
        InstanceType="m5.large",
        MinCount=count,
        MaxCount=count,
        TagSpecifications=[
            {
                "ResourceType": "instance",
                "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
            }
        ],
    )["Instances"]
    return launched


def end_instances(night: Night, instances: Sequence[str]) -> None:
    """Terminate instances."""
    client("ec2", night.sandbox.aws_url).terminate_instances(InstanceIds=list(instances))


@contextmanager
def not_ready(night: Night, *names: str, minutes: int = 0) -> Iterator[None]:
    """Nodes are not Ready for so long, as the node lifecycle controller writes it."""
    since = datetime.now(UTC) - timedelta(minutes=minutes)
    _say(night, names, {"status": "Unknown", "reason": "NodeStatusUnknown"}, since)
    try:
        yield
    finally:
        _say(night, names, {"status": "True", "reason": "KubeletReady"}, datetime.now(UTC))


def _say(night: Night, names: Sequence[str], status: Mapping[str, str], since: datetime) -> None:
    at = f"{since:%Y-%m-%dT%H:%M:%SZ}"
    patch = {"status": {"conditions": [{"type": "Ready", **status, "lastTransitionTime": at}]}}
    for name in names:
        said = night.type(
            f"kubectl patch node {name} --subresource=status -p '{json.dumps(patch)}'"
        )
        assert "patched" in said, said


@contextmanager
def without_nodes(night: Night, *names: str) -> Iterator[None]:
    """Somebody deletes Nodes. Then their kubelets restart, and create them again."""
    kept = [json.loads(night.type(f"kubectl get node {name} -o json")) for name in names]
    night.type(f"kubectl delete node {' '.join(names)}")
    try:
        yield
    finally:
        for node in kept:
            for field in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
                node["metadata"].pop(field, None)
            create(night, node)


def create(night: Night, document: Mapping[str, Any]) -> None:
    """Create an object."""
    said = night.type(f"kubectl create -f - <<'END'\n{json.dumps(document)}\nEND")
    assert "created" in said, said
