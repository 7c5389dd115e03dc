"""Target groups of Application and Network Load Balancers, by boto3."""

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Any

from botocore.exceptions import ClientError

from leeway.aws.errors import aws_errors, code_of
from leeway.ports.aws import Target, TargetGroup

DELAY = "deregistration_delay.timeout_seconds"
"""Source: Elastic Load Balancing API reference, TargetGroupAttribute."""

GROUPS_PER_PAGE = 400
"""Source: Elastic Load Balancing API reference (2015-12-01), DescribeTargetGroups, PageSize."""


class LoadBalancerTargets:
    """The Targets Protocol; `client` returns boto3's client `elbv2`."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def of_instance(self, instance: str, among: Collection[str] | None = None) -> Sequence[Target]:
        """List the targets of an instance: one DescribeTargetHealth for each group `among` these
        or, if that is None, for each group with instance targets and a load balancer."""
        with aws_errors():
            groups = self.groups() if among is None else among
            return [target for group in groups for target in self._targets(group, instance)]

    def deregistration_delay(self, group: str) -> timedelta | None:
        """Return the deregistration delay of a target group; None if there is no such group."""
        with aws_errors():
            try:
                answer = self._client().describe_target_group_attributes(TargetGroupArn=group)
            except ClientError as error:
                if code_of(error) == "TargetGroupNotFound":
                    return None
                raise
        found = {one["Key"]: one["Value"] for one in answer["Attributes"]}
        return timedelta(seconds=int(found.get(DELAY, 0)))

    def groups(self) -> Sequence[str]:
        """List the groups with instance targets and a load balancer, 400 by each call."""
        with aws_errors():
            pages = (
                self._client()
                .get_paginator("describe_target_groups")
                .paginate(PaginationConfig={"PageSize": GROUPS_PER_PAGE})
            )
            return [
                group["TargetGroupArn"]
                for page in pages
                for group in page["TargetGroups"]
                if group.get("TargetType") == "instance" and group.get("LoadBalancerArns")
            ]

    def group(self, arn: str) -> TargetGroup:
        """Read a target group by two calls."""
        states: dict[str, tuple[str, ...]] = {}
        with aws_errors():
            for instance, target in self._all(arn):
                states[instance] = (*states.get(instance, ()), target.state)
        delay = self.deregistration_delay(arn) if states else None
        return TargetGroup(states, int(delay.total_seconds()) if delay else 0)

    def _targets(self, group: str, instance: str) -> list[Target]:
        return [target for one, target in self._all(group) if one == instance]

    def _all(self, group: str) -> list[tuple[str, Target]]:
        """List the targets of a group, with their instances."""
        # Without a filter the answer has the targets of all ports, also those that drain.
        try:
            answer = self._client().describe_target_health(TargetGroupArn=group)
        except ClientError as error:
            if code_of(error) == "TargetGroupNotFound":
                return []  # the group was deleted since
            raise
        return [
            (
                one["Target"]["Id"],
                Target(group, one["Target"].get("Port", 0), one["TargetHealth"]["State"]),
            )
            for one in answer["TargetHealthDescriptions"]
        ]
