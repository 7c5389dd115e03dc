"""The control API of the cluster, over HTTP on its own port: instances, journal, faults."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from sandbox.access import Gate
from sandbox.control import JSON, ControlApi, Query
from sandbox.kubernetes import registry
from sandbox.kubernetes.authentication import AccessEntry, Authenticator
from sandbox.kubernetes.cluster import Cluster
from sandbox.kubernetes.controllers.instances import Instances
from sandbox.kubernetes.faults import Fault, Faults
from sandbox.kubernetes.store import Change
from sandbox.listening import refused

type Listening = Callable[[bool], Awaitable[None]]


class FaultList(msgspec.Struct, forbid_unknown_fields=True):
    """The faults that replace all present faults."""

    faults: list[Fault]


class InstanceReport(msgspec.Struct):
    """The state of an instance, and the Node that joins after `join` seconds if it runs."""

    instance: str
    state: str
    node: dict[str, Any] | None = None
    join: float | None = None


class Control(ControlApi):
    """Lets the command line and tests control the cluster and read its state."""

    def __init__(
        self,
        cluster: Cluster,
        instances: Instances,
        authenticator: Authenticator,
        faults: Faults,
        listen: Listening,
        status: Callable[[], dict[str, Any]],
        gate: Gate,
    ) -> None:
        super().__init__(
            cluster.journal,
            {
                "GET status": self._show_status,
                "PUT faults": self._replace_faults,
                "PUT access": self._replace_access,
                "POST instances": self._report,
            },
        )
        self._cluster = cluster
        self._instances = instances
        self._authenticator = authenticator
        self._faults = faults
        self._listen = listen
        self._status = status
        self._gate = gate
        self._running = 0
        cluster.store.listen(registry.POD, self._count)

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """Answer one HTTP request."""
        refusal = self._gate.refusal(request.path, request.headers)
        if refusal is not None:
            return refused(*refusal)
        body = await request.read()
        status, result = await self.answer(request.method, request.path, request.query_string, body)
        return web.Response(status=status, body=result, content_type=JSON)

    def _show_status(self, _body: Any, _query: Query) -> dict[str, Any]:
        store = self._cluster.store
        return {
            "cluster": self._cluster.settings.name,
            "revision": store.revision,
            "nodes": store.count(registry.NODE),
            "pods": store.count(registry.POD),
            "running": self._running,
            "instances": self._instances.states(),
            **self._status(),
        }

    async def _replace_faults(self, body: Any, _query: Query) -> FaultList:
        """Replace the faults; one with `refuse` closes the API's port until the next PUT."""
        wanted = msgspec.convert(body, FaultList)
        self._faults.replace(wanted.faults)
        self._instances.device_plugins = not self._faults.without_devices
        await self._listen(not self._faults.refusing)
        return wanted

    def _replace_access(self, body: Any, _query: Query) -> dict[str, int]:
        granted = msgspec.convert(body, dict[str, AccessEntry])
        self._authenticator.grant(granted)
        return {"entries": len(granted)}

    def _report(self, body: Any, _query: Query) -> dict[str, str]:
        report = msgspec.convert(body, InstanceReport)
        self._instances.report(report.instance, report.state, report.node, report.join)
        return {"instance": report.instance, "state": report.state}

    def _count(self, change: Change) -> None:
        """Update the number of running pods, so that a status request is cheap."""
        is_running = change.type != "DELETED" and change.object["status"]["phase"] == "Running"
        before = change.previous
        was_running = before is not None and before["status"]["phase"] == "Running"
        self._running += is_running - was_running
