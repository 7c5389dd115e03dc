"""The sandbox's own API: which functions there are, faults, the journal, the status."""

from typing import Any

from aiohttp import web
from pydantic import BaseModel, ConfigDict, ValidationError

from sandbox.lambda_service.definitions import FunctionDefinition
from sandbox.lambda_service.errors import ServiceError
from sandbox.lambda_service.faults import Fault
from sandbox.lambda_service.service import Service


class _FunctionsBody(BaseModel):
    model_config = ConfigDict(extra="forbid")
    functions: list[FunctionDefinition]


class _FaultsBody(BaseModel):
    model_config = ConfigDict(extra="forbid")
    faults: list[Fault]


class ControlApi:
    """Served under ``/_sandbox``."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def routes(self) -> list[web.RouteDef]:
        """The API's routes."""
        return [
            web.put("/_sandbox/functions", self._put_functions),
            web.get("/_sandbox/functions", self._get_functions),
            web.put("/_sandbox/faults", self._put_faults),
            web.get("/_sandbox/faults", self._get_faults),
            web.get("/_sandbox/journal", self._get_journal),
            web.get("/_sandbox/status", self._get_status),
        ]

    async def _put_functions(self, request: web.Request) -> web.Response:
        body = await _parsed(request, _FunctionsBody)
        self._service.functions.replace(body.functions)
        await self._service.pools.replace(body.functions)
        return await self._get_functions(request)

    async def _get_functions(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "functions": [
                    function.model_dump(by_alias=True) for function in self._service.functions
                ]
            }
        )

    async def _put_faults(self, request: web.Request) -> web.Response:
        body = await _parsed(request, _FaultsBody)
        self._service.faults.replace(body.faults)
        self._service.pools.set_clocks()
        return await self._get_faults(request)

    async def _get_faults(self, request: web.Request) -> web.Response:
        return web.json_response(
            {"faults": [f.model_dump(exclude_none=True) for f in self._service.faults.pending()]}
        )

    async def _get_journal(self, request: web.Request) -> web.Response:
        return web.json_response(self._service.journal.since(int(request.query.get("since", "0"))))

    async def _get_status(self, request: web.Request) -> web.Response:
        status: dict[str, Any] = {
            "functions": self._service.pools.status(),
            "events": len(self._service.events),
            "executions": self._service.executions.counts(),
        }
        return web.json_response(status)


async def _parsed[Body: BaseModel](request: web.Request, body: type[Body]) -> Body:
    try:
        return body.model_validate_json(await request.read())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ServiceError.invalid(f"{where}: {first['msg']}") from None
