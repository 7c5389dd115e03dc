"""EC2's instances, Spot requests, scheduled events and status checks, by boto3."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import batched
from typing import Any

from botocore.exceptions import ClientError

from leeway.aws.errors import aws_errors, code_of
from leeway.instances.facts import (
    CLUSTER_TAGS,
    EKS_CLUSTER_TAG,
    FLEET_TAG,
    GROUP_TAG,
    INTENT_TAG,
    OWNED_PREFIX,
    SETTINGS_TAG,
    CurrentInstance,
    InstanceFacts,
    ObservedChange,
    ObservedImpairment,
    ObservedInstance,
    ObservedInterruption,
    cluster_of,
    owner_of,
)
from leeway.notices import InterruptionAction, block_ends_instances_at
from leeway.selection.labels import ON_DEMAND, RESERVED, SPOT
from leeway.selection.offers.reservations import BLOCK, INTERRUPTIBLE, ReservedCapacity


def tag_filters(tags: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the filters of resources that have all of these tags; `*` matches any value."""
    return [
        {"Name": "tag-key", "Values": [key]}
        if value == "*"
        else {"Name": f"tag:{key}", "Values": [value]}
        for key, value in sorted(tags.items())
    ]


type Filters = Mapping[str, Iterable[str]]
"""The values of each filter, by its name. One of the values of each has to match."""

UNKNOWN = "InvalidInstanceID.NotFound"
UNKNOWN_RESERVATION = "InvalidCapacityReservationId.NotFound"


PAGE = 1000
FILTER_VALUES = 200
"""Results per page, and values per filter. Source: EC2 API reference, DescribeInstances; EC2 user
guide, "Filter resources"."""

STARTS_OR_RUNS: Filters = {"instance-state-name": ["pending", "running"]}

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


def described_instances(client: Callable[[], Any], filters: Filters) -> Iterator[dict[str, Any]]:
    """Yield the instances that match all filters, as DescribeInstances describes them, in pages. A
    filter, unlike InstanceIds, accepts ids that EC2 does not know. `client` returns boto3's
    EC2 client.

    Raises:
        CloudUnavailable, CloudRefused: AWS does not answer, or refuses the call.
    """
    wanted = [{"Name": name, "Values": list(values)} for name, values in filters.items()]
    with aws_errors():
        found = client().get_paginator("describe_instances")
        for page in found.paginate(Filters=wanted, MaxResults=PAGE):
            for reservation in page["Reservations"]:
                yield from reservation["Instances"]


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
        exactly one cluster, are left out."""
        found = (
            one
            for some in batched(sorted(instances), FILTER_VALUES, strict=False)
            for one in described_instances(self._client, {"instance-id": some})
        )
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
        filters = {"capacity-reservation-id": [reservation], **STARTS_OR_RUNS}
        return [one["InstanceId"] for one in described_instances(self._client, filters)]

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
        return [one.facts for one in self._launched_since(since, {f"tag:{GROUP_TAG}": [group]})]

    def launched_by_groups(self, cluster: str, since: datetime) -> list[ObservedInstance]:
        """List the `pending` and `running` instances of a cluster that Auto Scaling groups launched
        since a time, which is at most an hour ago."""
        found = self._launched_since(since, {"tag-key": [GROUP_TAG]})
        return [one for one in found if one.facts.cluster == cluster]

    def _launched_since(self, since: datetime, wanted: Filters) -> list[ObservedInstance]:
        """EC2 filters launch times by patterns and reports whole seconds: the call filters by the
        hour of `since` and the next hour."""
        since = since.replace(microsecond=0)
        filters = {
            **wanted,
            **STARTS_OR_RUNS,
            "launch-time": [f"{since + n * timedelta(hours=1):%Y-%m-%dT%H}:*" for n in (0, 1)],
        }
        found = map(observed_of, described_instances(self._client, filters))
        return [one for one in found if one and one.launched_at >= since]

    def members(self, group: str) -> frozenset[str]:
        """Return the running instances of a group."""
        filters = {f"tag:{GROUP_TAG}": [group], "instance-state-name": ["running"]}
        found = described_instances(self._client, filters)
        return frozenset(one["InstanceId"] for one in found)

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
        capacity_type=capacity_type_of(described),
        owner=owner_of(tags),
        joined=EKS_CLUSTER_TAG in tags,
        from_fleet=FLEET_TAG in tags,
        image=described.get("ImageId", ""),
        subnet=described.get("SubnetId", ""),
        security_groups=tuple(
            sorted(one["GroupId"] for one in described.get("SecurityGroups", []))
        ),
        launch_settings=tags.get(SETTINGS_TAG, ""),
        reservation=reservation_of(described),
    )


def reservation_of(described: dict[str, Any]) -> ReservedCapacity | None:
    """The capacity reservation that an instance was launched for; None without one. An instance
    that EC2 only happens to run in an open reservation was launched as on-demand."""
    specification = described.get("CapacityReservationSpecification", {})
    only = specification.get("CapacityReservationPreference") == "capacity-reservations-only"
    found = described.get("CapacityReservationId")
    if not (only and found):
        return None
    lifecycle = described.get("InstanceLifecycle")
    return ReservedCapacity(found, lifecycle == BLOCK, lifecycle == INTERRUPTIBLE)


def capacity_type_of(described: dict[str, Any]) -> str:
    """The capacity type of an instance. One whose reservation has ended is on-demand."""
    if described.get("InstanceLifecycle") == SPOT:
        return SPOT
    return RESERVED if reservation_of(described) else ON_DEMAND


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


_ID = re.compile(r"\bi-[0-9a-f]+\b")


# Codes of scheduled events. Source: EC2 API reference, InstanceStatusEvent.
_CODES = [
    "instance-reboot",
    "instance-retirement",
    "instance-stop",
    "system-maintenance",
    "system-reboot",
]


# Status checks: their names in filters, and their fields in the answer. Filters of one call are
# combined with AND, so each check takes a call. Source: EC2 API reference, DescribeInstanceStatus.
_CHECKS = {
    "instance": "InstanceStatus",
    "system": "SystemStatus",
    "attached-ebs": "AttachedEbsStatus",
}


class Ec2Sweep:
    """The Sweep Protocol; `client` returns boto3's EC2 client."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def instances(self, clusters: Collection[str]) -> list[ObservedInstance]:
        """List the instances whose tags name one of the clusters: one DescribeInstances for each
        200 tag keys and 1,000 instances."""
        if not clusters:
            return []
        keys = [*CLUSTER_TAGS, *(f"{OWNED_PREFIX}{name}" for name in sorted(clusters))]
        found = {}  # by id: an instance may have tags of two batches
        for values in batched(keys, FILTER_VALUES, strict=False):
            for observed in self._observed({"tag-key": values}):
                if observed.facts.cluster in clusters:
                    found[observed.facts.instance] = observed
        return list(found.values())

    def named(self, private_dns_names: Collection[str]) -> list[ObservedInstance]:
        """List the instances of any cluster that have one of these private DNS names."""
        found: list[ObservedInstance] = []
        for values in batched(sorted(private_dns_names), FILTER_VALUES, strict=False):
            found += self._observed({"private-dns-name": values})
        return found

    def _observed(self, filters: Filters) -> Iterator[ObservedInstance]:
        for described in described_instances(self._client, filters):
            observed = observed_of(described)
            if observed is not None:
                yield observed

    def interruptions(self) -> list[ObservedInterruption]:
        """List the interruptions in Spot requests by DescribeSpotInstanceRequests, with those of
        instances that are already terminated."""
        found = []
        with aws_errors():
            pages = (
                self._client()
                .get_paginator("describe_spot_instance_requests")
                .paginate(Filters=[{"Name": "status-code", "Values": list(MARKED)}])
            )
            for page in pages:
                for request in page["SpotInstanceRequests"]:
                    if "InstanceId" in request:
                        marked_at = request["Status"]["UpdateTime"]
                        action = MARKED[request["Status"]["Code"]]
                        found.append(ObservedInterruption(request["InstanceId"], action, marked_at))
        return found

    def changes(self) -> list[ObservedChange]:
        """List scheduled events by DescribeInstanceStatus. EC2 also returns events that were over
        within the last week."""
        found = []
        with aws_errors():
            pages = (
                self._client()
                .get_paginator("describe_instance_status")
                .paginate(Filters=[{"Name": "event.code", "Values": _CODES}], MaxResults=PAGE)
            )
            for page in pages:
                for status in page["InstanceStatuses"]:
                    found += changes_in(status)
        return found

    def impairments(self) -> list[ObservedImpairment]:
        """List the running instances with a failed status check: one call for each check."""
        found: dict[str, ObservedImpairment] = {}
        for check in _CHECKS:
            filters = [{"Name": f"{check}-status.status", "Values": ["impaired"]}]
            with aws_errors():
                pages = (
                    self._client()
                    .get_paginator("describe_instance_status")
                    .paginate(Filters=filters, MaxResults=PAGE)
                )
                for page in pages:
                    for status in page["InstanceStatuses"]:
                        found[status["InstanceId"]] = _impairment(status)
        return list(found.values())

    def block_ends(self, reservations: Collection[str]) -> dict[str, datetime]:
        """Read when EC2 begins to end the instances of these Capacity Blocks."""
        found = {}
        # A filter by tags or types would not name them, and a call with an unknown id is refused:
        # there are few blocks, and many calls would be needed only for many.
        for reservation in sorted(reservations):
            with aws_errors():
                try:
                    answer = self._client().describe_capacity_reservations(
                        CapacityReservationIds=[reservation]
                    )
                except ClientError as error:
                    if code_of(error) != UNKNOWN_RESERVATION:
                        raise
                    continue
            for one in answer["CapacityReservations"]:
                if (ends := one.get("EndDate")) is not None:
                    found[reservation] = block_ends_instances_at(ends, one["InstanceType"])
        return found

    def states(self, instances: Collection[str]) -> dict[str, str]:
        """Read the states of these instances.

        A call with a filter returns the instances that EC2 knows. The missing ones are then
        requested by id: only that answer proves that EC2 does not know an instance.
        """
        found: dict[str, str] = {}
        for values in batched(sorted(instances), FILTER_VALUES, strict=False):
            for described in described_instances(self._client, {"instance-id": values}):
                found[described["InstanceId"]] = described["State"]["Name"]
            missing = [instance for instance in values if instance not in found]
            found |= self._states_by_id(missing)
        return found

    def _states_by_id(self, instances: Sequence[str]) -> dict[str, str]:
        """Read states by instance id. EC2 refuses a call with unknown ids and names them in its
        message: the call is repeated without them. If the message names none, all remaining
        instances are left out."""
        found: dict[str, str] = {}
        remaining = list(instances)
        while remaining:
            described, refusal = self._describe_by_id(remaining)
            if not refusal:
                return found | {one["InstanceId"]: one["State"]["Name"] for one in described}
            unknown = set(remaining).intersection(_ID.findall(refusal))
            if not unknown:
                return found
            found |= dict.fromkeys(unknown, "terminated")
            remaining = [instance for instance in remaining if instance not in unknown]
        return found

    def _describe_by_id(self, instances: Sequence[str]) -> tuple[list[dict[str, Any]], str]:
        """Return the described instances, or EC2's message if it does not know all of them."""
        with aws_errors():
            try:
                answer = self._client().describe_instances(InstanceIds=list(instances))
            except ClientError as error:
                if code_of(error) == UNKNOWN:
                    return [], str(error)
                raise
        return [i for r in answer["Reservations"] for i in r["Instances"]], ""


def _impairment(status: dict[str, Any]) -> ObservedImpairment:
    since = {
        check: min(failed)
        for check, field in _CHECKS.items()
        if (
            failed := [
                detail["ImpairedSince"]
                for detail in status.get(field, {}).get("Details", [])
                if detail.get("Status") == "failed" and detail.get("ImpairedSince")
            ]
        )
    }
    return ObservedImpairment(status["InstanceId"], since)
