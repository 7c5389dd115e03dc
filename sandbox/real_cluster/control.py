"""The control API of a real cluster: the same calls as that of the sandbox's own Kubernetes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from sandbox.access import Gate
from sandbox.control import JSON, ControlApi, Query
from sandbox.journal import Journal
from sandbox.kubernetes.authentication import AccessEntry, Authenticator
from sandbox.listening import refused
from sandbox.real_cluster.machines import Machines
from sandbox.reasons import FAULTS_NOT_OF_REAL_CLUSTER, ReasonError


class InstanceReport(msgspec.Struct):
    """The state of an instance, and its Node as EC2 describes it. `join` has no effect: a machine
    takes the time that it takes."""

    instance: str
    state: str
    node: dict[str, Any] | None = None
    join: float | None = None


class Control(ControlApi):
    """Lets the other processes of the sandbox and its users control the link to the cluster."""

    def __init__(
        self,
        journal: Journal,
        machines: Machines,
        authenticator: Authenticator,
        status: Callable[[], dict[str, Any]],
        leave: Callable[[], Awaitable[None]],
        gate: Gate,
    ) -> None:
        super().__init__(
            journal,
            {
                "GET status": lambda _body, _query: status(),
                "PUT faults": self._replace_faults,
                "PUT access": self._replace_access,
                "POST instances": self._report,
                "POST leave": self._leave,
            },
        )
        self._machines = machines
        self._authenticator = authenticator
        self._leave_cluster = leave
        self._gate = gate

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """Answer one HTTP request."""
        refusal = self._gate.refusal(request.path, request.headers)
        if refusal is not None:
            return refused(*refusal)
        body = await request.read()
        status, result = await self.answer(request.method, request.path, request.query_string, body)
        return web.Response(status=status, body=result, content_type=JSON)

    def _replace_faults(self, body: Any, _query: Query) -> dict[str, Any]:
        if body != {"faults": []}:
            raise ReasonError(FAULTS_NOT_OF_REAL_CLUSTER)
        return {"faults": []}

    def _replace_access(self, body: Any, _query: Query) -> dict[str, int]:
        granted = msgspec.convert(body, dict[str, AccessEntry])
        self._authenticator.grant(granted)
        return {"entries": len(granted)}

    def _report(self, body: Any, _query: Query) -> dict[str, str]:
        report = msgspec.convert(body, InstanceReport)
        self._machines.report(report.instance, report.state, report.node)
        return {"instance": report.instance, "state": report.state}

    async def _leave(self, _body: Any, _query: Query) -> dict[str, bool]:
        await self._leave_cluster()
        return {"left": True}
