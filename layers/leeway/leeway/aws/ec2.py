"""EC2's instances, by boto3."""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from itertools import batched
from typing import Any

from botocore.exceptions import ClientError

from leeway.aws.errors import aws_errors, code_of
from leeway.instances.facts import InstanceFacts
from leeway.instances.observed import CurrentInstance, ObservedChange, ObservedInstance
from leeway.instances.owners import (
    EKS_CLUSTER_TAG,
    FLEET_TAG,
    GROUP_TAG,
    INTENT_TAG,
    SETTINGS_TAG,
    cluster_of,
    owner_of,
)
from leeway.notices import InterruptionAction

UNKNOWN = "InvalidInstanceID.NotFound"


_IN_ONE_CALL = 200
"""Values that one filter takes. Source: EC2 user guide, "Filter resources"."""

# Status codes of a Spot request during the two minutes before an interruption. The first code is
# the usual one, and the request keeps it after the instance is terminated: only the state of the
# instance shows whether it still runs.
# Source: EC2 user guide, "Spot request status codes" and "State changes for a Spot request".
MARKED = {
    "instance-terminated-no-capacity": InterruptionAction.TERMINATE,
    "marked-for-termination": InterruptionAction.TERMINATE,
    "marked-for-stop": InterruptionAction.STOP,
}

# Prefixes of the descriptions of events that are over. EC2 returns such events for another week.
# Source: EC2 API reference, InstanceStatusEvent; EC2 user guide, "Scheduled events".
_OVER = ("[Completed]", "[Canceled]")


class Ec2Instances:
    """The Instances, InstanceDescriptions, CurrentInstances, ScheduledChanges and InstanceTypes
    Protocols; `client` returns boto3's EC2 client."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def describe(self, instance: str) -> InstanceFacts | None:
        """Read an instance by DescribeInstances; None if EC2 does not know it, or if its tags do
        not name exactly one cluster."""
        found = self._read(instance)
        return facts_of(found) if found is not None else None

    def describe_all(self, instances: Collection[str]) -> dict[str, InstanceFacts]:
        """Read instances by their ids; those that EC2 does not know, or whose tags do not name
        exactly one cluster, are left out. A filter, unlike InstanceIds, accepts unknown ids."""
        found: list[dict[str, Any]] = []
        for some in batched(sorted(instances), _IN_ONE_CALL, strict=False):
            filters = [{"Name": "instance-id", "Values": list(some)}]
            with aws_errors():
                pages = self._client().get_paginator("describe_instances").paginate(Filters=filters)
                found += [i for page in pages for r in page["Reservations"] for i in r["Instances"]]
        return {facts.instance: facts for one in found if (facts := facts_of(one)) is not None}

    def observe(self, instance: str) -> ObservedInstance | None:
        """Read an instance by DescribeInstances, with its state; None as `describe`."""
        found = self._read(instance)
        return observed_of(found) if found is not None else None

    def _read(self, instance: str) -> dict[str, Any] | None:
        with aws_errors():
            try:
                answer = self._client().describe_instances(InstanceIds=[instance])
            except ClientError as error:
                if code_of(error) == UNKNOWN:
                    return None
                raise
        found = [i for r in answer["Reservations"] for i in r["Instances"]]
        return found[0] if found else None

    def state_of(self, instance: str) -> str:
        """Read EC2's name of an instance's state, as `running`; empty if EC2 does not know it."""
        found = self._read(instance)
        return str(found["State"]["Name"]) if found is not None else ""

    def current_instance(self, instance: str) -> CurrentInstance | None:
        """Read an instance's state, latest start and Spot request. A Spot Instance takes a second
        call, DescribeSpotInstanceRequests."""
        found = self._read(instance)
        if found is None:
            return None
        state, started = found["State"]["Name"], found["LaunchTime"]
        marked = bool(found.get("SpotInstanceRequestId")) and self._is_marked(instance)
        return CurrentInstance(state, started, marked)

    def _is_marked(self, instance: str) -> bool:
        """Whether a Spot request of the instance announces an interruption."""
        filters = [
            {"Name": "instance-id", "Values": [instance]},
            {"Name": "status-code", "Values": list(MARKED)},
        ]
        with aws_errors():
            answer = self._client().describe_spot_instance_requests(Filters=filters)
        return bool(answer["SpotInstanceRequests"])

    def in_reservation(self, reservation: str) -> list[str]:
        """List the `pending` and `running` instances of a capacity reservation."""
        filters = [
            {"Name": "capacity-reservation-id", "Values": [reservation]},
            {"Name": "instance-state-name", "Values": ["pending", "running"]},
        ]
        with aws_errors():
            pages = self._client().get_paginator("describe_instances").paginate(Filters=filters)
            return [
                instance["InstanceId"]
                for page in pages
                for reserved in page["Reservations"]
                for instance in reserved["Instances"]
            ]

    def changes_of(self, instance: str) -> list[ObservedChange]:
        """List the scheduled events of a running instance by DescribeInstanceStatus, with the
        events that are over."""
        with aws_errors():
            answer = self._client().describe_instance_status(InstanceIds=[instance])
        return [change for status in answer["InstanceStatuses"] for change in changes_in(status)]

    def accelerators(self, instance_type: str) -> tuple[str, ...]:
        """Return the manufacturers of a type's GPUs and other accelerators; empty if none."""
        with aws_errors():
            answer = self._client().describe_instance_types(InstanceTypes=[instance_type])
        makers: list[str] = []
        for found in answer["InstanceTypes"]:
            makers += [gpu["Manufacturer"] for gpu in found.get("GpuInfo", {}).get("Gpus", [])]
            inference = found.get("InferenceAcceleratorInfo", {}).get("Accelerators", [])
            makers += [accelerator["Manufacturer"] for accelerator in inference]
            if found.get("NeuronInfo", {}).get("NeuronDevices"):
                makers.append("AWS")
        return tuple(dict.fromkeys(makers))

    def launched_in(self, group: str, since: datetime) -> list[InstanceFacts]:
        """List the `pending` and `running` instances of a group launched since a time, which is at
        most an hour ago."""
        return self._launched_since(since, {f"tag:{GROUP_TAG}": [group]})

    def launched_by_groups(self, cluster: str, since: datetime) -> list[InstanceFacts]:
        """List the `pending` and `running` instances of a cluster that Auto Scaling groups launched
        since a time, which is at most an hour ago."""
        found = self._launched_since(since, {"tag-key": [GROUP_TAG]})
        return [one for one in found if one.cluster == cluster]

    def _launched_since(
        self, since: datetime, wanted: Mapping[str, list[str]]
    ) -> list[InstanceFacts]:
        """EC2 filters launch times by patterns and reports whole seconds: the call filters by the
        hour of `since` and the next hour."""
        since = since.replace(microsecond=0)
        filters = {
            **wanted,
            "instance-state-name": ["pending", "running"],
            "launch-time": [f"{since + n * timedelta(hours=1):%Y-%m-%dT%H}:*" for n in (0, 1)],
        }
        with aws_errors():
            pages = (
                self._client()
                .get_paginator("describe_instances")
                .paginate(
                    Filters=[{"Name": name, "Values": values} for name, values in filters.items()]
                )
            )
            found = [i for page in pages for r in page["Reservations"] for i in r["Instances"]]
        return [facts for one in found if one["LaunchTime"] >= since and (facts := facts_of(one))]

    def members(self, group: str) -> frozenset[str]:
        """Return the running instances of a group."""
        filters = [
            {"Name": f"tag:{GROUP_TAG}", "Values": [group]},
            {"Name": "instance-state-name", "Values": ["running"]},
        ]
        with aws_errors():
            pages = self._client().get_paginator("describe_instances").paginate(Filters=filters)
            return frozenset(
                one["InstanceId"]
                for page in pages
                for reserved in page["Reservations"]
                for one in reserved["Instances"]
            )

    def terminate(self, instance: str) -> None:
        """Call TerminateInstances; an instance that EC2 does not know is not an error."""
        with aws_errors():
            try:
                self._client().terminate_instances(InstanceIds=[instance])
            except ClientError as error:
                if code_of(error) != UNKNOWN:
                    raise


def changes_in(status: dict[str, Any]) -> list[ObservedChange]:
    """Translate the scheduled events of an instance's status. Events without an id or a start time
    are left out."""
    return [
        ObservedChange(
            status["InstanceId"],
            event["InstanceEventId"],
            event["Code"],
            event["NotBefore"],
            event.get("Description", "").startswith(_OVER),
        )
        for event in status.get("Events", [])
        if event.get("InstanceEventId") and event.get("NotBefore")
    ]


def facts_of(described: dict[str, Any]) -> InstanceFacts | None:
    """Translate an instance of DescribeInstances; None if its tags do not name exactly one
    cluster."""
    tags = {tag["Key"]: tag["Value"] for tag in described.get("Tags", [])}
    cluster = cluster_of(tags)
    if cluster is None:
        return None
    return InstanceFacts(
        instance=described["InstanceId"],
        cluster=cluster,
        private_dns_name=described.get("PrivateDnsName", ""),
        zone=described.get("Placement", {}).get("AvailabilityZone", ""),
        instance_type=described.get("InstanceType", ""),
        capacity_type=described.get("InstanceLifecycle", "on-demand"),
        owner=owner_of(tags),
        joined=EKS_CLUSTER_TAG in tags,
        from_fleet=FLEET_TAG in tags,
        image=described.get("ImageId", ""),
        subnet=described.get("SubnetId", ""),
        security_groups=tuple(
            sorted(one["GroupId"] for one in described.get("SecurityGroups", []))
        ),
        launch_settings=tags.get(SETTINGS_TAG, ""),
    )


def observed_of(described: dict[str, Any]) -> ObservedInstance | None:
    """Translate an instance of DescribeInstances, with its state; None if its tags do not name
    exactly one cluster."""
    facts = facts_of(described)
    if facts is None:
        return None
    tags = {tag["Key"]: tag["Value"] for tag in described.get("Tags", [])}
    return ObservedInstance(
        facts,
        described["State"]["Name"],
        described["LaunchTime"],
        tags.get(GROUP_TAG, ""),
        tags.get(INTENT_TAG, ""),
    )
