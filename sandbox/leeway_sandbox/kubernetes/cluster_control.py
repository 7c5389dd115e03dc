"""The control API that the embedded cluster and a real cluster share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from aiohttp import web

from leeway_sandbox.access import Gate
from leeway_sandbox.control import ControlApi, Query, Route
from leeway_sandbox.journal import Journal
from leeway_sandbox.kubernetes.authentication import AccessEntry, Authenticator
from leeway_sandbox.listening import control_response, refused


class InstanceReport(msgspec.Struct):
    """The state of an instance, and its Node as EC2 describes it, which joins after `join` seconds
    if the instance runs. A machine of a real cluster takes its own time instead of `join`."""

    instance: str
    state: str
    node: dict[str, Any] | None = None
    join: float | None = None


class ClusterControl(ControlApi):
    """Takes access entries and reports of instances; `routes` are those of one kind of cluster."""

    def __init__(
        self,
        journal: Journal,
        authenticator: Authenticator,
        gate: Gate,
        report: Callable[[InstanceReport], None],
        routes: Mapping[str, Route],
    ) -> None:
        own: dict[str, Route] = {
            "PUT access": self._replace_access,
            "POST instances": self._report,
        }
        super().__init__(journal, {**own, **routes})
        self._authenticator = authenticator
        self._gate = gate
        self._take_report = report

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """Answer one HTTP request."""
        refusal = self._gate.refusal(request.path, request.headers)
        return refused(*refusal) if refusal else await control_response(self, request)

    def _replace_access(self, body: Any, _query: Query) -> dict[str, int]:
        granted = msgspec.convert(body, dict[str, AccessEntry])
        self._authenticator.grant(granted)
        return {"entries": len(granted)}

    def _report(self, body: Any, _query: Query) -> dict[str, str]:
        report = msgspec.convert(body, InstanceReport)
        self._take_report(report)
        return {"instance": report.instance, "state": report.state}
