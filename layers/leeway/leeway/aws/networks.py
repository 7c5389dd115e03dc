"""EC2's subnets and security groups, by boto3."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from leeway.aws.ec2 import tag_filters
from leeway.aws.errors import aws_errors
from leeway.launch.resolve_pools import Subnet
from leeway.manifests.base import SecurityGroupTerm, SubnetTerm


class Ec2Networks:
    """The Networks Protocol; `client` makes boto3's EC2 client when it is first used."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def subnets(self, terms: Sequence[SubnetTerm]) -> list[Subnet]:
        """List the subnets that match at least one of the terms."""
        ids = [one.id for one in terms if one.id]
        queries = [tag_filters(one.tags) for one in terms if one.tags]
        if ids:
            queries.append([{"Name": "subnet-id", "Values": ids}])
        with aws_errors():
            paginator = self._client().get_paginator("describe_subnets")
        found = {
            one["SubnetId"]: Subnet(
                one["SubnetId"], one["AvailabilityZone"], one["AvailableIpAddressCount"]
            )
            for query in queries
            for one in _described(paginator, "Subnets", query)
        }
        return [found[name] for name in sorted(found)]

    def security_groups(self, terms: Sequence[SecurityGroupTerm]) -> list[str]:
        """List the ids of the security groups that match at least one of the terms."""
        queries = [tag_filters(one.tags) for one in terms if one.tags]
        for name, values in (
            ("group-id", [one.id for one in terms if one.id]),
            ("group-name", [one.name for one in terms if one.name]),
        ):
            if values:
                queries.append([{"Name": name, "Values": values}])
        with aws_errors():
            paginator = self._client().get_paginator("describe_security_groups")
        return sorted(
            {
                str(one["GroupId"])
                for query in queries
                for one in _described(paginator, "SecurityGroups", query)
            }
        )


def _described(
    paginator: Any, content: str, filters: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    with aws_errors():
        found = [one for page in paginator.paginate(Filters=filters) for one in page[content]]
    yield from found
