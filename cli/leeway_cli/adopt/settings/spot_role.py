"""EC2's service-linked role for Spot instances, by boto3.

EC2 launches no Spot instance in an account without it, and the functions of Leeway may not create
it. Source: EC2 user guide, "Service-linked role for Spot Instance requests".
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from botocore.exceptions import ClientError
from leeway.aws.errors import code_of
from leeway.launch.fleet_errors import SPOT_ROLE_MISSING
from leeway.wiring.clients import client

from leeway_cli.adopt.settings.setting import AwsCall, Kind

if TYPE_CHECKING:
    from leeway_cli.adopt.services import Services

_NAME, _SERVICE = "AWSServiceRoleForEC2Spot", "spot.amazonaws.com"


@dataclass(frozen=True, slots=True)
class SpotRole(Kind):
    """EC2's service-linked role for Spot instances. The whole account uses it."""

    setting: Literal["spot-role"] = "spot-role"

    @property
    def title(self) -> str:
        return f"role {_NAME} of the account"

    @property
    def stays(self) -> str | None:
        return f"The role {_NAME} stays: every Spot instance of the account needs it."

    def reason(self, cluster: str, now: Self | None) -> str:
        return str(SPOT_ROLE_MISSING())

    def call(self, cluster: str, now: Self | None) -> AwsCall:
        return AwsCall("iam", "CreateServiceLinkedRole", {"AWSServiceName": _SERVICE})

    def write(self, services: "Services", now: Self | None) -> None:
        """A role that exists is not an error."""
        try:
            super(SpotRole, self).write(services, now)
        except ClientError:
            if not spot_role_exists(client("iam")):
                raise


def read_spot_role(services: "Services", asked: Iterable[Kind]) -> Iterator[Kind]:
    """Read the role if it is asked for."""
    for one in asked:
        if isinstance(one, SpotRole) and spot_role_exists(client("iam")):
            yield one


def spot_role_exists(iam: Any) -> bool:
    """Return whether the account has the role, by GetRole."""
    try:
        iam.get_role(RoleName=_NAME)
    except ClientError as error:
        if code_of(error) == "NoSuchEntity":
            return False
        raise
    return True
