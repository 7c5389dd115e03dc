"""IAM's instance profiles, by boto3."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as NoConnection

from leeway.aws.errors import aws_errors, code_of
from leeway.aws.remembered import Remembered
from leeway.clock import Clock
from leeway.launch.resolve_pools import InstanceProfile, NoWayToIam
from leeway.ports.aws import CloudRefused


class IamInstanceProfiles:
    """The InstanceProfiles Protocol; `client` makes boto3's IAM client when it is first used."""

    def __init__(self, client: Callable[[], Any], clock: Clock) -> None:
        self._client = client
        self._read: Remembered[str, InstanceProfile | NoWayToIam] = Remembered(clock)

    def profiles_of(self, role: str) -> list[InstanceProfile]:
        """List the instance profiles that have a role; none if there is no role."""
        with _iam():
            try:
                pages = self._client().get_paginator("list_instance_profiles_for_role")
                return [
                    _profile(one)
                    for page in pages.paginate(RoleName=role)
                    for one in page["InstanceProfiles"]
                ]
            except ClientError as error:
                if code_of(error) == "NoSuchEntity":
                    return []
                raise

    def profile(self, name: str) -> InstanceProfile | None:
        """Read an instance profile; None if it does not exist. That IAM cannot be reached is
        remembered, too: a connection attempt takes seconds."""

        def ask() -> InstanceProfile | NoWayToIam:
            try:
                with _iam():
                    answer = self._client().get_instance_profile(InstanceProfileName=name)
                    return _profile(answer["InstanceProfile"])
            except NoWayToIam as error:
                return error

        try:
            found = self._read.get(name, ask)
        except CloudRefused as error:
            if isinstance(error.__cause__, ClientError) and _is_missing(error.__cause__):
                return None
            raise
        if isinstance(found, NoWayToIam):
            raise found
        return found

    def tags_of(self, role: str) -> Mapping[str, str]:
        """Read the tags of a role; none if it does not exist, or if IAM cannot be reached."""
        try:
            with _iam():
                found = self._client().get_role(RoleName=role)["Role"]
        except NoWayToIam:
            return {}
        except CloudRefused as error:
            if isinstance(error.__cause__, ClientError) and _is_missing(error.__cause__):
                return {}
            raise
        return {one["Key"]: one["Value"] for one in found.get("Tags", ())}


def _profile(described: Mapping[str, Any]) -> InstanceProfile:
    roles = [one["Arn"] for one in described.get("Roles", ())]
    return InstanceProfile(
        described["InstanceProfileName"],
        roles[0] if roles else "",
        described.get("Path", "/"),
        {one["Key"]: one["Value"] for one in described.get("Tags", ())},
    )


def _is_missing(error: ClientError) -> bool:
    return code_of(error) == "NoSuchEntity"


@contextmanager
def _iam() -> Iterator[None]:
    with aws_errors():
        try:
            yield
        except (HTTPClientError, NoConnection) as error:
            raise NoWayToIam(f"{type(error).__name__}: {error}; {_NO_WAY}") from error


_NO_WAY = (
    "functions in a VPC reach IAM only through a NAT gateway, or in us-east-1 through the VPC "
    "endpoint com.amazonaws.iam: set spec.instanceProfile of the node class to a profile with the "
    "name of its role, and Leeway does not need IAM"
)
"""Source: IAM user guide, "Create a VPC endpoint for IAM"."""
