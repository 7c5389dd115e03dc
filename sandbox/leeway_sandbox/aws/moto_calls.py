"""Passes requests to moto, by the fastest entry point of each service."""

import functools
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError
from moto.core import base_backend as moto_backends
from moto.core import responses as moto_responses
from moto.core.request import Request
from moto.core.serialize import AttributePickerContext, XFormedAttributePicker
from moto.core.utils import method_names_from_class
from moto.ec2.responses import EC2Response
from moto.events.responses import EventsHandler
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.exceptions import HTTPException

from leeway_sandbox.aws.autoscaling import ScalingResponse
from leeway_sandbox.aws.calls import Answer, Call, Environ
from leeway_sandbox.aws.documents import TypesOfRegion
from leeway_sandbox.aws.dynamodb import DynamoDbResponse
from leeway_sandbox.aws.eks import Eks
from leeway_sandbox.aws.instance_status import InstanceStatuses
from leeway_sandbox.aws.prices import PricingResponse, SpotPrices
from leeway_sandbox.aws.reservations import ReservationCalls
from leeway_sandbox.aws.spot import SpotRequests
from leeway_sandbox.aws.stacks import DeployedStacks
from leeway_sandbox.aws.target_groups import TargetGroups


class Ec2(InstanceStatuses, ReservationCalls, SpotPrices, SpotRequests, TypesOfRegion, EC2Response):
    """moto's EC2 actions, and those that the sandbox answers itself."""


# These services have one URL and need no router. To call their class directly takes half of the
# time that moto's web application takes.
CLASSES = {
    "autoscaling": ScalingResponse,
    "dynamodb": DynamoDbResponse,
    "ec2": Ec2,
    "eks": Eks,
    "elasticloadbalancing": TargetGroups,
    "events": EventsHandler,
    "pricing": PricingResponse,
}


class _ServerRequest(Request):
    from_wsgi_server = True  # the server adds the Date header


class Moto(DomainDispatcherApplication):
    """moto's dispatcher with a cache of lookups that take 0.5 of the 1.4 ms of a call."""

    def __init__(self, stacks: DeployedStacks, region: str) -> None:
        super().__init__(create_backend_app)
        # To ask botocore for the regions of a service takes as long as some calls of it.
        answer: Any = lambda _backend, _service: [region]  # noqa: E731
        vars(moto_backends)["AccountSpecificBackend"]._generate_regions = answer
        self._stacks = stacks
        self._known: dict[str | None, Any] = {}
        cached = functools.cache(method_names_from_class)
        moto_responses.method_names_from_class = cached  # type: ignore[attr-defined]
        _remember_names_of_members()

    def get_backend_for_host(self, host: str | None) -> Any:
        """Return the moto application of a host name."""
        if host not in self._known:
            self._known[host] = super().get_backend_for_host(host)
        return self._known[host]

    def answer(self, call: Call | None, environ: Environ) -> Answer:
        """Return moto's answer to a request."""
        if call:
            self._stacks.create(call.service)
        if call and call.service == "cloudformation":
            from leeway_sandbox.aws.cloudformation import Stacks  # the import takes a second

            return _dispatched(Stacks.dispatch, environ)
        if call and call.service == "logs":
            from leeway_sandbox.aws.logs import Logs

            return _dispatched(Logs.dispatch, environ)
        if call and call.service in CLASSES:
            return _dispatched(CLASSES[call.service].dispatch, environ)
        output: list[Any] = []

        def start_response(status: str, headers: list[tuple[str, str]], *_: Any) -> None:
            output.extend((int(status.split()[0]), dict(headers)))

        body = b"".join(self(environ, start_response))
        return output[0], output[1], body


def _remember_names_of_members() -> None:
    """Let moto's serializer find once under what names a class of objects may have a member.

    To find them takes a quarter of the time of all calls. They depend on the two classes only.
    """
    find = XFormedAttributePicker.get_possible_keys
    known: dict[tuple[Any, str, type], tuple[str, ...]] = {}

    def get_possible_keys(self: Any, context: AttributePickerContext) -> tuple[str, ...]:
        member = context.shape, context.key, type(context.obj)
        if member not in known:
            known[member] = tuple(find(self, context))
        return known[member]

    XFormedAttributePicker.get_possible_keys = get_possible_keys  # type: ignore[method-assign,assignment]


def _dispatched(dispatch: Callable[..., Any], environ: Environ) -> Answer:
    request = _ServerRequest(environ)
    try:
        url = f"http://{environ['HTTP_HOST']}{environ['RAW_URI']}"
        result = dispatch(request, url, dict(request.headers))
    except ClientError as error:
        result = 400, {}, error.response["Error"]["Message"]
    except HTTPException as error:
        response = error.get_response(environ)
        return response.status_code, dict(response.headers), response.get_data()
    status, headers, content = result if len(result) == 3 else (200, {}, result)
    body = content.encode() if isinstance(content, str) else content
    return status, {key: str(value) for key, value in headers.items()}, body
