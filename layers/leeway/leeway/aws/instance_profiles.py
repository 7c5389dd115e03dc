"""IAM's instance profiles, by boto3."""

from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as NoConnection

from leeway.aws.errors import aws_errors, code_of
from leeway.ports.aws import CloudUnavailable


class IamInstanceProfiles:
    """The InstanceProfiles Protocol; `client` makes boto3's IAM client when it is first used."""

    def __init__(self, client: Callable[[], Any]) -> None:
        self._client = client

    def profiles_of(self, role: str) -> list[str]:
        """List the names of the instance profiles that have a role; none if there is no role."""
        with aws_errors():
            try:
                pages = self._client().get_paginator("list_instance_profiles_for_role")
                return [
                    one["InstanceProfileName"]
                    for page in pages.paginate(RoleName=role)
                    for one in page["InstanceProfiles"]
                ]
            except ClientError as error:
                if code_of(error) == "NoSuchEntity":
                    return []
                raise
            except (HTTPClientError, NoConnection) as error:
                raise CloudUnavailable(f"{type(error).__name__}: {error}; {_NO_WAY}") from error


_NO_WAY = (
    "functions in a VPC reach IAM only through a NAT gateway, or in us-east-1 through the VPC "
    "endpoint com.amazonaws.iam: set spec.instanceProfile of the node class, and Leeway does not "
    "need IAM"
)
"""Source: IAM user guide, "Create a VPC endpoint for IAM"."""
