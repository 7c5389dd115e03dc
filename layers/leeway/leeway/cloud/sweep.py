"""EC2's instances and Spot requests, all at once, by boto3."""

from collections.abc import Callable, Collection, Iterator
from typing import Any

from leeway.cloud.ec2 import facts_of
from leeway.cloud.errors import aws_errors
from leeway.notices import InterruptionAction
from leeway.omissions import SeenInstance, SeenInterruption
from leeway.owners import CLUSTER_TAGS, OWNED_PREFIX

PAGE = 1000
FILTER_VALUES = 200
"""What DescribeInstances takes. Source: EC2 API reference."""

# What Spot requests are marked with while the two minutes run.
# Source: EC2 user guide, "Spot request status codes".
_MARKED = {
    "marked-for-termination": InterruptionAction.TERMINATE,
    "marked-for-stop": InterruptionAction.STOP,
    "marked-for-hibernation": InterruptionAction.HIBERNATE,
}


class Ec2Sweep:
    """The Sweep Protocol; `client` makes boto3's EC2 client when first asked."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def instances(self, clusters: Collection[str]) -> list[SeenInstance]:
        """List the instances whose tags name one of the clusters, completely."""
        if not clusters:
            return []
        keys = [*CLUSTER_TAGS, *(f"{OWNED_PREFIX}{name}" for name in sorted(clusters))]
        found = []
        for described in self._described([{"Name": "tag-key", "Values": keys}]):
            facts = facts_of(described)
            if facts is not None and facts.cluster in clusters:
                state, launched_at = described["State"]["Name"], described["LaunchTime"]
                found.append(SeenInstance(facts, state, launched_at))
        return found

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

    def interruptions(self) -> list[SeenInterruption]:
        """List the Spot instances that EC2 is about to take back."""
        seen = []
        with aws_errors():
            pages = (
                self._client()
                .get_paginator("describe_spot_instance_requests")
                .paginate(Filters=[{"Name": "status-code", "Values": list(_MARKED)}])
            )
            for page in pages:
                for request in page["SpotInstanceRequests"]:
                    status = request["Status"]
                    if "InstanceId" in request:
                        action = _MARKED[status["Code"]]
                        marked_at = status["UpdateTime"]
                        seen.append(SeenInterruption(request["InstanceId"], action, marked_at))
        return seen

    def states(self, instances: Collection[str]) -> dict[str, str]:
        """Read the states of these very instances now; one that EC2 does not know is left out.

        A filter finds what there is; asked for by id, one that is unknown would fail them all.
        """
        found = {}
        wanted = sorted(instances)
        for start in range(0, len(wanted), FILTER_VALUES):
            values = wanted[start : start + FILTER_VALUES]
            for described in self._described([{"Name": "instance-id", "Values": values}]):
                found[described["InstanceId"]] = described["State"]["Name"]
        return found
