"""EC2's service-linked role for Spot instances, by boto3. Every function raises botocore's errors.

EC2 launches no Spot instance in an account without it, and the functions of Leeway may not create
it. Source: EC2 user guide, "Service-linked role for Spot Instance requests".
"""

from typing import Any

from botocore.exceptions import ClientError
from leeway.aws.errors import code_of

_NAME, _SERVICE = "AWSServiceRoleForEC2Spot", "spot.amazonaws.com"


def spot_role_exists(iam: Any) -> bool:
    """Return whether the account has the role, by GetRole."""
    try:
        iam.get_role(RoleName=_NAME)
    except ClientError as error:
        if code_of(error) == "NoSuchEntity":
            return False
        raise
    return True


def create_spot_role(iam: Any) -> None:
    """Create the role; one that exists is not an error."""
    try:
        iam.create_service_linked_role(AWSServiceName=_SERVICE)
    except ClientError:
        if not spot_role_exists(iam):
            raise
