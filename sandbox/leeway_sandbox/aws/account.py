"""What an account has of its own: EC2's role for Spot, defaults of the metadata, quotas of vCPUs.

moto has none of them. A new account has no such role; the sandbox's account has launched Spot
instances before. Codes of quotas: Service Quotas of EC2. The values are those of an account that
has run instances for a while.
"""

import json
from http import HTTPStatus
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.core.responses import ActionResult
from moto.ec2.responses import EC2Response
from moto.iam import models
from moto.iam.models import iam_backends
from moto.servicequotas.responses import ServiceQuotasResponse

from leeway_sandbox.aws.cloud import ACCOUNT
from leeway_sandbox.aws.ec2_requests import page

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


_SERVICE = "ec2"
_MOST = 100
VCPUS = {
    "L-34B43A08": ("All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", 5000.0),
    "L-1216C47A": ("Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", 5000.0),
    "L-3819A6DF": ("All G and VT Spot Instance Requests", 256.0),
    "L-DB2E81BA": ("Running On-Demand G and VT instances", 256.0),
}


def _list(response: ServiceQuotasResponse) -> str:
    """Answer ListServiceQuotas."""
    asked = json.loads(response.body)
    if asked.get("ServiceCode") != _SERVICE:
        raise _NoSuchService
    items, token = page(
        [_quota(*one) for one in VCPUS.items()],
        min(int(asked.get("MaxResults") or _MOST), _MOST),
        asked.get("NextToken"),
    )
    return json.dumps({"Quotas": list(items), **({"NextToken": token} if token else {})})


class _NoSuchService(JsonRESTError):
    code = HTTPStatus.BAD_REQUEST

    def __init__(self) -> None:
        super().__init__("NoSuchResourceException", "The sandbox has only quotas of EC2.")


def _quota(code: str, given: tuple[str, float]) -> dict[str, Any]:
    name, value = given
    return {
        "ServiceCode": _SERVICE,
        "QuotaCode": code,
        "QuotaName": name,
        "Value": value,
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
    }


def install() -> None:
    """Create the role, and let moto answer ModifyInstanceMetadataDefaults."""
    models.SERVICE_NAME_CONVERSION["spot"] = SPOT_ROLE.removeprefix("AWSServiceRoleFor")
    if not has_spot_role():
        iam_backends[ACCOUNT]["aws"].create_service_linked_role(_SPOT, "", "")
    answer = "modify_instance_metadata_defaults"
    setattr(EC2Response, answer, _modify_defaults)
    setattr(ServiceQuotasResponse, "list_service_quotas", _list)  # noqa: B010 - moto has none
