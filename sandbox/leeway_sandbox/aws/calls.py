"""Identifies the AWS API call of an HTTP request, and builds error answers in its protocol."""

import json
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

from moto.core.exceptions import ServiceException
from moto.core.request import Request, determine_request_protocol
from moto.core.routing import get_service_router
from moto.core.serialize import get_serializer_class
from moto.core.utils import get_service_model
from werkzeug.exceptions import NotFound

from leeway_sandbox.access_entries import POLLER_AGENT

Environ = dict[str, Any]
Answer = tuple[int, dict[str, str], bytes]

# Signing names that differ from botocore's names of the service.
SERVICES = {
    "monitoring": "cloudwatch",
    "eventbridge": "events",
    "servicequotas": "service-quotas",
}
MODELS = {"elasticloadbalancing": "elbv2"}
"""botocore's names of services that IAM names as their signatures do."""
_scope = re.compile(r"Credential=([^/,\s]+)/\d{8}/([^/]+)/([^/]+)/aws4_request")


@dataclass(frozen=True)
class Call:
    """A signed call: service and action as IAM names them (`ec2`, `DescribeInstances`). `polling`
    calls are those of Lambda's pollers, in the name of a function."""

    service: str
    action: str
    region: str
    access_key: str
    form: dict[str, list[str]]  # the parameters of a query-protocol call
    polling: bool = False

    def __str__(self) -> str:
        return f"{self.service}:{self.action}"


def recognise(environ: Environ, body: bytes) -> Call | None:
    """Return the call of a request, or None if it is no signed AWS request."""
    scope = _scope.search(environ.get("HTTP_AUTHORIZATION", ""))
    if scope is None:
        return None
    key, region, signed_for = scope.groups()
    service = SERVICES.get(signed_for, signed_for)
    form: dict[str, list[str]] = {}
    if target := environ.get("HTTP_X_AMZ_TARGET"):
        action = target.rpartition(".")[2]
    elif environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded"):
        form = parse_qs(body.decode())
        action = form.get("Action", ["?"])[0]
    else:
        action = _routed(service, environ)
    polling = environ.get("HTTP_USER_AGENT") == POLLER_AGENT
    return Call(service, action, region, key, form, polling)


def _routed(service: str, environ: Environ) -> str:
    try:
        operation, _ = get_service_router(service).match(Request(environ))
    except (NotFound, NotImplementedError):
        return "?"
    return str(operation.name)


class Refusal(ServiceException):
    """An error of the called service, for moto's serializers."""


GLOBAL = frozenset({"iam", "pricing", "sts"})
"""Services whose endpoint accepts another region than that of the sandbox."""


def error_of_region(call: Call, environ: Environ, region: str) -> tuple[str, str, int] | None:
    """Return the code, message and status of the refusal of a call that is signed for another
    region than that of the endpoint; None if it is not."""
    if call.region == region or call.service in GLOBAL:
        return None
    code, status = "InvalidSignatureException", HTTPStatus.FORBIDDEN
    if call.service == "ec2":
        code, status = "AuthFailure", HTTPStatus.UNAUTHORIZED
    elif call.form:
        code = "SignatureDoesNotMatch"
    elif "HTTP_X_AMZ_TARGET" in environ:
        status = HTTPStatus.BAD_REQUEST
    message = f"Credential should be scoped to a valid region, not '{call.region}'. "
    return code, message, status


def refusal(call: Call, environ: Environ, code: str, message: str, status: int) -> Answer:
    """Return an error answer in the protocol of the call, serialized by moto."""
    name = MODELS.get(call.service, call.service)
    service = get_service_model(name)
    protocol = determine_request_protocol(service, environ.get("CONTENT_TYPE"))
    serializer = get_serializer_class(name, protocol)(service.operation_model(call.action))
    answer = serializer.serialize(Refusal(code, message))
    body = answer["body"]
    if isinstance(body, dict):
        body = json.dumps(body)
    headers = {key: str(value) for key, value in answer["headers"].items()}
    return status, headers, body.encode() if isinstance(body, str) else body
