"""The sandbox's own API: which functions there are, faults, the journal, the status."""

from typing import Any

from aiohttp import web
from pydantic import BaseModel, ConfigDict, ValidationError

from sandbox.journal import Journal
from sandbox.lambda_service.definitions import FunctionDefinition, Functions
from sandbox.lambda_service.errors import ServiceError
from sandbox.lambda_service.events import Events
from sandbox.lambda_service.executions import Executions
from sandbox.lambda_service.faults import Fault, Faults
from sandbox.lambda_service.pools import Pools


class _FunctionsBody(BaseModel):
    model_config = ConfigDict(extra="forbid")
    functions: list[FunctionDefinition]


class _FaultsBody(BaseModel):
    model_config = ConfigDict(extra="forbid")
    faults: list[Fault]


class ControlApi:
    """Served under ``/_sandbox``."""

    def __init__(
        self,
        functions: Functions,
        pools: Pools,
        executions: Executions,
        events: Events,
        faults: Faults,
        journal: Journal,
    ) -> None:
        self._functions = functions
        self._pools = pools
        self._executions = executions
        self._events = events
        self._faults = faults
        self._journal = journal

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
        self._functions.replace(body.functions)
        await self._pools.replace(body.functions)
        return await self._get_functions(request)

    async def _get_functions(self, request: web.Request) -> web.Response:
        return web.json_response(
            {"functions": [function.model_dump(by_alias=True) for function in self._functions]}
        )

    async def _put_faults(self, request: web.Request) -> web.Response:
        body = await _parsed(request, _FaultsBody)
        self._faults.replace(body.faults)
        return await self._get_faults(request)

    async def _get_faults(self, request: web.Request) -> web.Response:
        return web.json_response({"faults": [f.model_dump() for f in self._faults.pending()]})

    async def _get_journal(self, request: web.Request) -> web.Response:
        return web.json_response(self._journal.since(int(request.query.get("since", "0"))))

    async def _get_status(self, request: web.Request) -> web.Response:
        status: dict[str, Any] = {
            "functions": self._pools.status(),
            "events": len(self._events),
            "executions": self._executions.counts(),
        }
        return web.json_response(status)


async def _parsed[Body: BaseModel](request: web.Request, body: type[Body]) -> Body:
    try:
        return body.model_validate_json(await request.read())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ServiceError.invalid(f"{where}: {first['msg']}") from None
