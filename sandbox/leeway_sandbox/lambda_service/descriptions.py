"""Lambda's calls that describe functions, aliases, event source mappings and the account."""

import json
import uuid
from typing import Any

from aiohttp import web

from leeway_sandbox.lambda_service.definitions import LATEST, PUBLISHED, FunctionDefinition
from leeway_sandbox.lambda_service.errors import ServiceError
from leeway_sandbox.lambda_service.service import Service

CONCURRENCY = 1000
"""Concurrent executions of an account. Source: Lambda developer guide, "Lambda quotas"."""


class Descriptions:
    """Answers what is registered. There is one version of the code, and no reserved concurrency."""

    def __init__(self, service: Service) -> None:
        self._functions, self._event_sources = service.functions, service.event_sources

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of the API."""
        functions = "/functions/{function}"
        return [
            web.get("/2016-08-19/account-settings", self._account),
            web.get(f"/2015-03-31{functions}/configuration", self._configuration),
            web.get(f"/2019-09-30{functions}/concurrency", self._concurrency),
            web.get(f"/2015-03-31{functions}/aliases/{{alias}}", self._alias),
            web.get("/2015-03-31/event-source-mappings", self._mappings),
        ]

    async def _account(self, _request: web.Request) -> web.Response:
        limit = {
            "ConcurrentExecutions": CONCURRENCY,
            "UnreservedConcurrentExecutions": CONCURRENCY,
        }
        return _answer({"AccountLimit": limit, "AccountUsage": {}})

    async def _configuration(self, request: web.Request) -> web.Response:
        found = self._find(request)
        return _answer(
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
        self._find(request)
        return _answer({})

    async def _alias(self, request: web.Request) -> web.Response:
        found, alias = self._find(request), request.match_info["alias"]
        if alias not in found.aliases:
            raise ServiceError.missing(f"Cannot find alias arn: {found.arn}:{alias}")
        arn = f"{found.arn}:{alias}"
        return _answer({"AliasArn": arn, "Name": alias, "FunctionVersion": PUBLISHED})

    async def _mappings(self, request: web.Request) -> web.Response:
        name = request.query.get("FunctionName")
        wanted = self._functions.resolve(name).function if name else None
        mappings = [
            {
                "UUID": str(uuid.uuid5(uuid.NAMESPACE_URL, source.name)),
                "FunctionArn": source.function,
                "EventSourceArn": source.queue,
                "State": "Enabled",
                "BatchSize": source.batch_size,
            }
            for source in self._event_sources.sources()
            if wanted in (None, self._functions.resolve(source.function).function)
        ]
        return _answer({"EventSourceMappings": mappings})

    def _find(self, request: web.Request) -> FunctionDefinition:
        return self._functions.resolve(request.match_info["function"]).function


def _answer(body: dict[str, Any]) -> web.Response:
    return web.Response(body=json.dumps(body), content_type="application/json")
