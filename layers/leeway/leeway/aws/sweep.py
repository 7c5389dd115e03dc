"""EC2's instances, Spot requests and scheduled events, all at once, by boto3."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import batched
from typing import Any

from botocore.exceptions import ClientError

from leeway.aws.ec2 import MARKED, UNKNOWN, changes_in, facts_of
from leeway.aws.errors import aws_errors, code_of
from leeway.instances.observed import (
    ObservedChange,
    ObservedImpairment,
    ObservedInstance,
    ObservedInterruption,
)
from leeway.instances.owners import CLUSTER_TAGS, GROUP_TAG, OWNED_PREFIX

PAGE = 1000
FILTER_VALUES = 200
"""What DescribeInstances takes. Source: EC2 API reference."""

_ID = re.compile(r"\bi-[0-9a-f]+\b")


# What EC2 schedules. Source: EC2 API reference, InstanceStatusEvent.
_CODES = [
    "instance-reboot",
    "instance-retirement",
    "instance-stop",
    "system-maintenance",
    "system-reboot",
]


# Status checks, as filters name them, and where the answer has them. All names of filters must hold
# together: each check takes a call of its own. Source: EC2 API reference, DescribeInstanceStatus.
_CHECKS = {
    "instance": "InstanceStatus",
    "system": "SystemStatus",
    "attached-ebs": "AttachedEbsStatus",
}


class Ec2Sweep:
    """The Sweep Protocol; `client` makes boto3's EC2 client when first asked."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def instances(self, clusters: Collection[str]) -> list[ObservedInstance]:
        """List the instances whose tags name one of the clusters, completely."""
        if not clusters:
            return []
        keys = [*CLUSTER_TAGS, *(f"{OWNED_PREFIX}{name}" for name in sorted(clusters))]
        found = {}  # by id: tags of two batches may be on one instance
        for values in batched(keys, FILTER_VALUES, strict=False):
            for one in self._seen([{"Name": "tag-key", "Values": list(values)}]):
                if one.facts.cluster in clusters:
                    found[one.facts.instance] = one
        return list(found.values())

    def named(self, private_dns_names: Collection[str]) -> list[ObservedInstance]:
        """List the instances of any cluster that have one of these private DNS names."""
        found: list[ObservedInstance] = []
        for values in batched(sorted(private_dns_names), FILTER_VALUES, strict=False):
            found += self._seen([{"Name": "private-dns-name", "Values": list(values)}])
        return found

    def _seen(self, filters: list[dict[str, Any]]) -> Iterator[ObservedInstance]:
        for described in self._described(filters):
            facts = facts_of(described)
            if facts is not None:
                state, launched_at = described["State"]["Name"], described["LaunchTime"]
                yield ObservedInstance(facts, state, launched_at, _group_of(described))

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
        """List the Spot instances that EC2 is about to take back, or has taken back before."""
        seen = []
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
                        seen.append(ObservedInterruption(request["InstanceId"], action, marked_at))
        return seen

    def changes(self) -> list[ObservedChange]:
        """List what EC2 has scheduled for instances; among it what is over, for about a week."""
        seen = []
        with aws_errors():
            pages = (
                self._client()
                .get_paginator("describe_instance_status")
                .paginate(Filters=[{"Name": "event.code", "Values": _CODES}], MaxResults=PAGE)
            )
            for page in pages:
                for status in page["InstanceStatuses"]:
                    seen += changes_in(status)
        return seen

    def impairments(self) -> list[ObservedImpairment]:
        """List the running instances of which some status check fails."""
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
        """Read the states of these very instances now.

        A filter finds what there is in one call. What is missing from its answer is asked for by
        id: only that answer says that EC2 does not know an instance.
        """
        found: dict[str, str] = {}
        for values in batched(sorted(instances), FILTER_VALUES, strict=False):
            for described in self._described([{"Name": "instance-id", "Values": list(values)}]):
                found[described["InstanceId"]] = described["State"]["Name"]
            missing = [instance for instance in values if instance not in found]
            found |= self._states_by_id(missing)
        return found

    def _states_by_id(self, instances: Sequence[str]) -> dict[str, str]:
        """Ask for instances by id. EC2 refuses the whole call for those that it does not know, and
        names them: the others are asked for again. Where it names none, nothing is said of any."""
        found: dict[str, str] = {}
        left = list(instances)
        while left:
            described, refusal = self._asked_by_id(left)
            if not refusal:
                return found | {one["InstanceId"]: one["State"]["Name"] for one in described}
            unknown = set(left).intersection(_ID.findall(refusal))
            if not unknown:
                return found
            found |= dict.fromkeys(unknown, "terminated")
            left = [instance for instance in left if instance not in unknown]
        return found

    def _asked_by_id(self, instances: Sequence[str]) -> tuple[list[dict[str, Any]], str]:
        """Return what EC2 tells of these instances, or its refusal where it does not know all."""
        with aws_errors():
            try:
                answer = self._client().describe_instances(InstanceIds=list(instances))
            except ClientError as error:
                if code_of(error) == UNKNOWN:
                    return [], str(error)
                raise
        return [one for some in answer["Reservations"] for one in some["Instances"]], ""


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


def _group_of(described: dict[str, Any]) -> str:
    """Return the name of the Auto Scaling group that an instance is in, empty where in none."""
    tags = (tag for tag in described.get("Tags", []) if tag["Key"] == GROUP_TAG)
    return next((str(tag["Value"]) for tag in tags), "")
