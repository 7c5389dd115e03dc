"""The Lambda API over HTTP: invocations and durable executions."""

import asyncio
import datetime
import json
import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from aiohttp import web
from aws_durable_execution_sdk_python_testing.exceptions import AwsApiException, UnknownRouteError
from aws_durable_execution_sdk_python_testing.execution import ExecutionStatus
from aws_durable_execution_sdk_python_testing.web import handlers, routes
from aws_durable_execution_sdk_python_testing.web.models import HTTPRequest, HTTPResponse

from leeway_sandbox.control import Journal
from leeway_sandbox.lambda_service.definitions import (
    LATEST,
    PUBLISHED,
    EventSource,
    FunctionDefinition,
    Functions,
    ServiceError,
    Target,
)
from leeway_sandbox.lambda_service.event_sources import EventSources
from leeway_sandbox.lambda_service.events import Events
from leeway_sandbox.lambda_service.executions import Executions
from leeway_sandbox.lambda_service.faults import Faults
from leeway_sandbox.lambda_service.invocation import (
    TRACE_HEADER,
    Invocation,
    Lineage,
    Outcome,
    lineage_of,
)
from leeway_sandbox.lambda_service.pools import Pools


@dataclass(frozen=True)
class Service:
    """Functions, workers, executions, events, event sources, faults and journal."""

    functions: Functions
    pools: Pools
    executions: Executions
    events: Events
    event_sources: EventSources
    faults: Faults
    journal: Journal


STARTS_A_SECOND = 300


class StartQuota:
    """A token bucket of starts; a rate of 0 means no limit."""

    def __init__(
        self, per_second: int = STARTS_A_SECOND, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_second = per_second
        self._clock = clock
        self._left = float(per_second)
        self._filled_at = clock()

    def take(self) -> bool:
        """Take a token; return whether there was one."""
        if not self._per_second:
            return True
        now = self._clock()
        refilled = self._left + (now - self._filled_at) * self._per_second
        self._left, self._filled_at = min(float(self._per_second), refilled), now
        if self._left < 1:
            return False
        self._left -= 1
        return True


CONCURRENCY = 1000
"""Concurrent executions of an account. Source: Lambda developer guide, "Lambda quotas"."""


class Descriptions:
    """Answers what is registered, and changes what people change at night. There is one version of
    the code."""

    def __init__(self, service: Service) -> None:
        self._functions, self._event_sources = service.functions, service.event_sources
        self._pools = service.pools

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of the API."""
        functions = "/functions/{function}"
        return [
            web.get("/2016-08-19/account-settings", self._account),
            web.get(f"/2015-03-31{functions}/configuration", self._configuration),
            web.get(f"/2019-09-30{functions}/concurrency", self._concurrency),
            web.put(f"/2017-10-31{functions}/concurrency", self._reserve),
            web.delete(f"/2017-10-31{functions}/concurrency", self._reserve),
            web.get(f"/2015-03-31{functions}/aliases/{{alias}}", self._alias),
            web.get("/2015-03-31/event-source-mappings", self._mappings),
            web.put("/2015-03-31/event-source-mappings/{uuid}", self._change_mapping),
        ]

    async def _account(self, _request: web.Request) -> web.Response:
        limit = {
            "ConcurrentExecutions": CONCURRENCY,
            "UnreservedConcurrentExecutions": CONCURRENCY,
        }
        return _described({"AccountLimit": limit, "AccountUsage": {}})

    async def _configuration(self, request: web.Request) -> web.Response:
        found = self._find(request)
        return _described(
            {
                "FunctionName": found.name,
                "FunctionArn": found.arn,
                "Handler": found.handler,
                "Timeout": found.timeout,
                "MemorySize": found.memory,
                "Version": LATEST,
                "State": "Active",
                "LastUpdateStatus": "Successful",
            }
        )

    async def _concurrency(self, request: web.Request) -> web.Response:
        pool = self._pools.find(self._find(request).name)
        if pool is None or pool.reserved is None:
            return _described({})
        return _described({"ReservedConcurrentExecutions": pool.reserved})

    async def _reserve(self, request: web.Request) -> web.Response:
        removed, pool = request.method == "DELETE", self._pools.find(self._find(request).name)
        given = None if removed else (await request.json())["ReservedConcurrentExecutions"]
        if pool is not None:
            pool.reserve(given)
        return web.Response(status=204) if removed else await self._concurrency(request)

    async def _alias(self, request: web.Request) -> web.Response:
        found, alias = self._find(request), request.match_info["alias"]
        if alias not in found.aliases:
            raise ServiceError.missing(f"Cannot find alias arn: {found.arn}:{alias}")
        arn = f"{found.arn}:{alias}"
        return _described({"AliasArn": arn, "Name": alias, "FunctionVersion": PUBLISHED})

    async def _mappings(self, request: web.Request) -> web.Response:
        name = request.query.get("FunctionName")
        wanted = self._functions.resolve(name).function if name else None
        mappings = [
            self._mapping(source)
            for source in self._event_sources.sources()
            if wanted in (None, self._functions.resolve(source.function).function)
        ]
        return _described({"EventSourceMappings": mappings})

    async def _change_mapping(self, request: web.Request) -> web.Response:
        wanted, change = request.match_info["uuid"], await request.json()
        for source in self._event_sources.sources():
            if _uuid_of(source) == wanted:
                self._event_sources.enable(source, enabled=change["Enabled"])
                return _described(self._mapping(source))
        raise ServiceError.missing(f"The resource you requested does not exist: {wanted}")

    def _mapping(self, source: EventSource) -> dict[str, Any]:
        return {
            "UUID": _uuid_of(source),
            "FunctionArn": source.function,
            "EventSourceArn": source.queue,
            "State": self._event_sources.state(source),
            "BatchSize": source.batch_size,
        }

    def _find(self, request: web.Request) -> FunctionDefinition:
        return self._functions.resolve(request.match_info["function"]).function


def _uuid_of(source: EventSource) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, source.name))


def _described(body: dict[str, Any]) -> web.Response:
    return web.Response(body=json.dumps(body), content_type="application/json")


_log = logging.getLogger(__name__)
_ASYNCHRONOUS_ONLY = (
    "You cannot synchronously invoke a durable function with an executionTimeout greater than 15 "
    "minutes. The sandbox starts durable functions with the invocation type Event only."
)
_SYNCHRONOUS_BYTES = 6 * 2**20
_EVENT_BYTES = 2**20

_DURABLE_HANDLERS: dict[type[routes.Route], type[handlers.EndpointHandler]] = {
    routes.GetDurableExecutionRoute: handlers.GetDurableExecutionHandler,
    routes.CheckpointDurableExecutionRoute: handlers.CheckpointDurableExecutionHandler,
    routes.StopDurableExecutionRoute: handlers.StopDurableExecutionHandler,
    routes.GetDurableExecutionStateRoute: handlers.GetDurableExecutionStateHandler,
    routes.GetDurableExecutionHistoryRoute: handlers.GetDurableExecutionHistoryHandler,
}

_ACCESS_KEY = re.compile(r"Credential=([^/,\s]+)/")

type MayInvoke = Callable[[str], Awaitable[str]]
"""Returns why the role of an access key does not allow to invoke a function; empty if it does."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer a ServiceError in the format of Lambda's clients."""
    try:
        return await handler(request)
    except ServiceError as error:
        return error.response()


class LambdaApi:
    """The operations of Lambda that the sandbox supports."""

    def __init__(self, service: Service, starts: StartQuota, may_invoke: MayInvoke) -> None:
        self._starts, self._may_invoke = starts, may_invoke
        self._functions, self._pools = service.functions, service.pools
        self._executions, self._events = service.executions, service.events
        self._faults = service.faults
        self._router = routes.Router()
        self._handlers = {
            route: handler(service.executions) for route, handler in _DURABLE_HANDLERS.items()
        }

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of the API."""
        functions = "/functions/{function}"
        return [
            web.post(f"/2015-03-31{functions}/invocations", self._invoke),
            web.get(f"/2025-12-01{functions}/durable-executions", self._list),
            web.route("*", "/2025-12-01/{path:.*}", self._durable),
        ]

    async def _invoke(self, request: web.Request) -> web.Response:
        target = self._functions.resolve(
            request.match_info["function"], request.query.get("Qualifier")
        )
        if target.function.durable and target.qualifier is None:
            raise ServiceError.invalid(
                "You cannot invoke a durable function using an unqualified ARN."
            )
        kind = request.headers.get("X-Amz-Invocation-Type", "RequestResponse")
        if kind == "DryRun":
            return await self._dry_run(request)
        payload = await request.read() or b"{}"
        _check_payload(payload, _EVENT_BYTES if kind == "Event" else _SYNCHRONOUS_BYTES)
        lineage = lineage_of([request.headers.get(TRACE_HEADER, "")], target.function)
        if target.function.durable:
            if kind != "Event":
                raise ServiceError.invalid(_ASYNCHRONOUS_ONLY)
            return await self._start(request, target, payload, lineage)
        if "X-Amz-Durable-Execution-Name" in request.headers:
            raise ServiceError.invalid("Only a durable function takes a durable execution name.")
        invocation = Invocation(target, payload, lineage=lineage)
        if kind == "Event":
            self._events.accept(invocation)
            return web.Response(status=202, headers={"x-amzn-RequestId": invocation.request_id})
        return await self._invoke_plain(invocation)

    async def _dry_run(self, request: web.Request) -> web.Response:
        """Answer whether the caller may invoke the function, as the sandbox's IAM says."""
        key = _ACCESS_KEY.search(request.headers.get("Authorization", ""))
        problem = await self._may_invoke(key.group(1)) if key else ""
        if problem:
            raise ServiceError(403, "AccessDeniedException", problem)
        return web.Response(status=204)

    async def _invoke_plain(self, invocation: Invocation) -> web.Response:
        pool = self._pools.find(invocation.target.function.name)
        if pool is None or pool.saturated:
            raise ServiceError(429, "TooManyRequestsException", "Rate Exceeded.")
        outcome = await pool.run(invocation)
        headers = {"x-amzn-RequestId": invocation.request_id}
        return _answer(outcome, invocation.target.version, headers)

    async def _start(
        self, request: web.Request, target: Target, payload: bytes, lineage: Lineage
    ) -> web.Response:
        if not self._starts.take():
            raise ServiceError(429, "TooManyRequestsException", "Rate Exceeded.")
        loop = asyncio.get_running_loop()

        def hand_on(status: ExecutionStatus) -> None:
            if status is not ExecutionStatus.SUCCEEDED:
                loop.call_soon_threadsafe(self._events.execution_failed, target.function, payload)

        name = request.headers.get("X-Amz-Durable-Execution-Name")
        started = await asyncio.to_thread(
            self._executions.start, target, name, payload.decode(), hand_on, lineage
        )
        return web.Response(status=202, headers={"X-Amz-Durable-Execution-Arn": started.arn})

    async def _list(self, request: web.Request) -> web.Response:
        query = request.query
        target = self._functions.resolve(request.match_info["function"], query.get("Qualifier"))
        statuses = query.getall("Statuses", [])
        listed = await asyncio.to_thread(
            self._executions.list_executions_by_function,
            target.function.name,
            execution_name=query.get("DurableExecutionName"),
            status_filter=statuses[0] if statuses else None,
            started_after=_epoch(query.get("StartedAfter")),
            started_before=_epoch(query.get("StartedBefore")),
            marker=query.get("Marker"),
            max_items=int(query["MaxItems"]) if "MaxItems" in query else None,
            reverse_order=query.get("ReverseOrder") == "true",
        )
        return _converted(HTTPResponse.create_json(200, listed.to_dict()))

    async def _durable(self, request: web.Request) -> web.Response:
        try:
            route = self._router.find_route(request.rel_url.raw_path, request.method)
        except UnknownRouteError:
            raise web.HTTPNotFound from None
        handler = self._handlers.get(type(route))
        if handler is None:
            raise web.HTTPNotFound
        body = await request.read()
        make = (
            HTTPRequest.from_raw_bytes
            if isinstance(route, routes.BytesPayloadRoute)
            else HTTPRequest.from_bytes
        )

        def handle() -> HTTPResponse:
            try:
                parsed = make(
                    body_bytes=body,
                    method=request.method,
                    path=route,
                    headers=dict(request.headers),
                    query_params=parse_qs(request.rel_url.raw_query_string),
                )
                return handler.handle(route, parsed)
            except AwsApiException as error:
                return HTTPResponse.create_error_from_exception(error)

        if isinstance(route, routes.CheckpointDurableExecutionRoute):
            return await self._checkpoint(route.arn, len(body), handle)
        return _converted(await asyncio.to_thread(handle))

    async def _checkpoint(
        self, arn: str, size: int, handle: Callable[[], HTTPResponse]
    ) -> web.Response:
        worker = self._pools.find_execution(arn)
        function = arn.split(":")[6] if arn.count(":") > 6 else ""
        name = self._executions.name_of(arn)
        step = self._executions.number_checkpoint(arn, size)
        if worker and self._faults.take("before", function, name, step):
            worker.kill("killed")
            raise web.HTTPServiceUnavailable
        response = await asyncio.to_thread(handle)
        if worker and self._faults.take("after", function, name, step):
            worker.kill("killed")
        return _converted(response)


def _check_payload(payload: bytes, limit: int) -> None:
    if len(payload) > limit:
        message = f"Request must be smaller than {limit} bytes for the InvokeFunction operation"
        raise ServiceError(413, "RequestTooLargeException", message)
    try:
        json.loads(payload)
    except ValueError as error:
        message = f"Could not parse request body into json: {error}"
        raise ServiceError(400, "InvalidRequestContentException", message) from error


def _answer(outcome: Outcome, version: str, headers: dict[str, str]) -> web.Response:
    headers["X-Amz-Executed-Version"] = version
    if outcome.ending != "ok":
        headers["X-Amz-Function-Error"] = "Unhandled"
    return web.Response(body=outcome.payload, headers=headers, content_type="application/json")


def _converted(response: HTTPResponse) -> web.Response:
    """Return the answer of the library, with the error code in the header for botocore."""
    headers = dict(response.headers)
    if response.status_code >= 400 and isinstance(response.body, dict):
        headers["x-amzn-ErrorType"] = str(response.body.get("Type", "ServiceException"))
    return web.Response(status=response.status_code, headers=headers, body=response.body_to_bytes())


def _epoch(timestamp: str | None) -> str | None:
    """Return a timestamp of a query string in epoch seconds."""
    if timestamp is None:
        return None
    return str(datetime.datetime.fromisoformat(timestamp).timestamp())
