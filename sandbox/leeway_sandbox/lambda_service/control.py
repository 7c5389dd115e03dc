"""The control API of the Lambda service: functions, faults, journal, status."""

from typing import Any

from aiohttp import web
from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from leeway_sandbox.control import PREFIX, ControlApi, Query
from leeway_sandbox.lambda_service.definitions import EventSource, FunctionDefinition
from leeway_sandbox.lambda_service.faults import Fault
from leeway_sandbox.lambda_service.log_lines import log_events
from leeway_sandbox.lambda_service.server import Service
from leeway_sandbox.listening import control_response


class _FunctionsBody(BaseModel):
    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True)
    functions: list[FunctionDefinition]
    event_sources: list[EventSource] = []


class _FaultsBody(BaseModel):
    model_config = ConfigDict(extra="forbid")
    faults: list[Fault]


class _KillBody(BaseModel):
    model_config = ConfigDict(extra="forbid", alias_generator=to_camel)
    access_key: str


class Control(ControlApi):
    """Lets the command line and tests control the Lambda service and read its state."""

    def __init__(self, service: Service) -> None:
        super().__init__(
            service.journal,
            {
                "PUT functions": self._put_functions,
                "POST kill": self._kill,
                "PUT faults": self._put_faults,
                "GET faults": self._get_faults,
                "GET status": self._get_status,
                "GET logs": self._get_logs,
            },
        )
        self._service = service

    def routes(self) -> list[web.RouteDef]:
        """The API's routes."""
        return [web.route("*", PREFIX + "{name:.*}", self._handle)]

    async def _handle(self, request: web.Request) -> web.Response:
        return await control_response(self, request)

    async def _put_functions(self, body: Any, _query: Query) -> Any:
        given = _FunctionsBody.model_validate(body)
        self._service.functions.replace(given.functions)
        self._service.pools.replace(given.functions)
        await self._service.event_sources.replace(given.event_sources)
        return given.model_dump(by_alias=True)

    def _kill(self, body: Any, _query: Query) -> Any:
        caller = _KillBody.model_validate(body).access_key
        return {"functions": self._service.pools.kill(caller)}

    def _put_faults(self, body: Any, query: Query) -> Any:
        self._service.faults.replace(_FaultsBody.model_validate(body).faults)
        self._service.pools.set_clocks()
        return self._get_faults(body, query)

    def _get_faults(self, _body: Any, _query: Query) -> Any:
        pending = self._service.faults.pending()
        return {"faults": [fault.model_dump(exclude_none=True) for fault in pending]}

    def _get_logs(self, _body: Any, query: Query) -> Any:
        functions, since = self._service.functions, int(query.get("since", 0))
        return log_events(self._service.journal, functions, since)

    def _get_status(self, _body: Any, _query: Query) -> Any:
        return {
            "functions": self._service.pools.status(),
            "events": len(self._service.events),
            "eventSources": self._service.event_sources.status(),
            "executions": self._service.executions.counts(),
        }
