"""IAM's instance profiles, by boto3."""

from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

from leeway.aws.errors import aws_errors, code_of


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
