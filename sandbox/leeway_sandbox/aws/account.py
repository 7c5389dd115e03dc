"""What an account has of its own for launches: EC2's role for Spot, and defaults of the metadata.

moto has neither. A new account has no such role; the sandbox's account has launched Spot instances
before.
"""

from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.responses import EC2Response
from moto.iam import models
from moto.iam.models import iam_backends

from leeway_sandbox.aws.cloud import ACCOUNT

SPOT_ROLE, _SPOT = "AWSServiceRoleForEC2Spot", "spot.amazonaws.com"
_ATTRIBUTE = "instance_metadata_tags_default"


def has_spot_role() -> bool:
    """Whether the account has the role without which EC2 launches no Spot instance."""
    roles = iam_backends[ACCOUNT]["aws"].roles.values()
    return any(one.name == SPOT_ROLE for one in roles)


def metadata_tags(ec2: Any, options: Any) -> bool:
    """Whether an instance with these metadata options has its tags in the metadata: the account's
    default counts if they do not say so."""
    default = getattr(ec2, _ATTRIBUTE, "no-preference")
    return ((options or {}).get("InstanceMetadataTags") or default) == "enabled"


def _modify_defaults(self: EC2Response) -> ActionResult:
    self.error_on_dryrun()
    if (tags := self._get_param("InstanceMetadataTags")) is not None:
        setattr(self.ec2_backend, _ATTRIBUTE, tags)
    return ActionResult({"Return": True})


def install() -> None:
    """Create the role, and let moto answer ModifyInstanceMetadataDefaults."""
    models.SERVICE_NAME_CONVERSION["spot"] = SPOT_ROLE.removeprefix("AWSServiceRoleFor")
    if not has_spot_role():
        iam_backends[ACCOUNT]["aws"].create_service_linked_role(_SPOT, "", "")
    answer = "modify_instance_metadata_defaults"
    setattr(EC2Response, answer, _modify_defaults)
