"""Lists of EC2's instances, Spot requests, scheduled events and status checks, by boto3."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import batched
from typing import Any

from botocore.exceptions import ClientError

from leeway.aws.ec2 import MARKED, UNKNOWN, changes_in, observed_of
from leeway.aws.errors import aws_errors, code_of
from leeway.instances.observed import (
    ObservedChange,
    ObservedImpairment,
    ObservedInstance,
    ObservedInterruption,
)
from leeway.instances.owners import CLUSTER_TAGS, OWNED_PREFIX

PAGE = 1000
FILTER_VALUES = 200
"""Results per page, and values per filter. Source: EC2 API reference, DescribeInstances."""

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
            for observed in self._observed([{"Name": "tag-key", "Values": list(values)}]):
                if observed.facts.cluster in clusters:
                    found[observed.facts.instance] = observed
        return list(found.values())

    def named(self, private_dns_names: Collection[str]) -> list[ObservedInstance]:
        """List the instances of any cluster that have one of these private DNS names."""
        found: list[ObservedInstance] = []
        for values in batched(sorted(private_dns_names), FILTER_VALUES, strict=False):
            found += self._observed([{"Name": "private-dns-name", "Values": list(values)}])
        return found

    def _observed(self, filters: list[dict[str, Any]]) -> Iterator[ObservedInstance]:
        for described in self._described(filters):
            observed = observed_of(described)
            if observed is not None:
                yield observed

    def _described(self, filters: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        with aws_errors():
            pages = (
                self._client()
                .get_paginator("describe_instances")
                .paginate(Filters=filters, MaxResults=PAGE)
            )
            for page in pages:
                for reservation in page["Reservations"]:
                    yield from reservation["Instances"]

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

    def states(self, instances: Collection[str]) -> dict[str, str]:
        """Read the states of these instances.

        A call with a filter returns the instances that EC2 knows. The missing ones are then
        requested by id: only that answer proves that EC2 does not know an instance.
        """
        found: dict[str, str] = {}
        for values in batched(sorted(instances), FILTER_VALUES, strict=False):
            for described in self._described([{"Name": "instance-id", "Values": list(values)}]):
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
