"""The quotas of vCPUs in Service Quotas. moto has those of VPC only.

Codes: Service Quotas of EC2. The values are those of an account that has run instances for a while.
"""

import json
from http import HTTPStatus
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.servicequotas.responses import ServiceQuotasResponse

from leeway_sandbox.aws.paging import page

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
    """Let moto answer ListServiceQuotas."""
    setattr(ServiceQuotasResponse, "list_service_quotas", _list)  # noqa: B010 - moto has none
