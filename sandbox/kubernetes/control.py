"""The sandbox's own API, over plain HTTP on a port of its own: instances, journal, faults."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from sandbox.kubernetes import registry
from sandbox.kubernetes.authentication import Authenticator
from sandbox.kubernetes.cluster import Cluster
from sandbox.kubernetes.faults import Faults
from sandbox.kubernetes.inhabitants.instances import Instances
from sandbox.kubernetes.objects import encode
from sandbox.kubernetes.store import Change

type Listening = Callable[[bool], Awaitable[None]]


class Control:
    """Lets an outside hand move the cluster, and see what happened in it."""

    def __init__(
        self,
        cluster: Cluster,
        instances: Instances,
        authenticator: Authenticator,
        faults: Faults,
        listen: Listening,
        status: Callable[[], dict[str, Any]],
    ) -> None:
        self._cluster = cluster
        self._instances = instances
        self._authenticator = authenticator
        self._faults = faults
        self._listen = listen
        self._status = status
        self._running = 0
        cluster.store.listen(registry.POD, self._count)

    def application(self) -> web.Application:
        """Return the routes."""
        application = web.Application(client_max_size=64 * 1024 * 1024)
        application.add_routes(
            [
                web.get("/_sandbox/journal", self.journal),
                web.get("/_sandbox/audit", self.audit),
                web.put("/_sandbox/faults", self.replace_faults),
                web.get("/_sandbox/status", self.status),
                web.put("/_sandbox/access", self.access),
                web.post("/_sandbox/instances", self.instances),
            ]
        )
        return application

    async def journal(self, request: web.Request) -> web.Response:
        """GET: what happened from a number on."""
        return _json(self._cluster.journal.since(_since(request)))

    async def audit(self, request: web.Request) -> web.Response:
        """GET: the audit records from a number on."""
        return _json(self._cluster.audit.since(_since(request)))

    async def replace_faults(self, request: web.Request) -> web.Response:
        """PUT: replace the faults; one with `refuse` closes the API's port until the next PUT."""
        body = await _body(request)
        try:
            self._faults.replace(body.get("faults", []))
        except (ValueError, TypeError, AttributeError) as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        await self._listen(not self._faults.refusing)
        return _json({"faults": body.get("faults", [])})

    async def status(self, _request: web.Request) -> web.Response:
        """GET: how much there is of everything."""
        store = self._cluster.store
        return _json(
            {
                "cluster": self._cluster.settings.name,
                "revision": store.revision,
                "nodes": store.count(registry.NODE),
                "pods": store.count(registry.POD),
                "running": self._running,
                "instances": self._instances.states(),
                **self._status(),
            }
        )

    async def access(self, request: web.Request) -> web.Response:
        """PUT: replace the access entries, by access key id."""
        granted = await _body(request)
        try:
            self._authenticator.grant(granted)
        except ValueError as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        return _json({"entries": len(granted)})

    async def instances(self, request: web.Request) -> web.Response:
        """POST: an instance runs (its node joins after a while), is stopped or is terminated."""
        body = await _body(request)
        try:
            self._instances.report(
                body["instance"], body["state"], body.get("node"), body.get("join")
            )
        except (KeyError, ValueError, TypeError) as error:
            raise web.HTTPBadRequest(text=f"not an instance's state: {error}") from error
        return _json({"instance": body["instance"], "state": body["state"]}, 202)

    def _count(self, change: Change) -> None:
        """Keep count of the running pods, so that asking for it costs nothing."""
        is_running = change.type != "DELETED" and change.object["status"]["phase"] == "Running"
        before = change.previous
        was_running = before is not None and before["status"]["phase"] == "Running"
        self._running += is_running - was_running


def _since(request: web.Request) -> int:
    since = request.query.get("since", "0")
    if not since.isdigit():
        raise web.HTTPBadRequest(text="since must be a number")
    return int(since)


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        body = await request.json()
    except json.JSONDecodeError as error:
        raise web.HTTPBadRequest(text=f"not JSON: {error}") from error
    if not isinstance(body, dict):
        raise web.HTTPBadRequest(text="not a JSON object")
    return body


def _json(body: dict[str, Any], status: int = 200) -> web.Response:
    return web.Response(body=encode(body), status=status, content_type="application/json")
