"""Runs the servers of one cluster: the API over HTTPS, the control API over HTTP."""

from __future__ import annotations

import dataclasses
import secrets
import ssl
import time
from pathlib import Path
from typing import Any

from aiohttp import web

from leeway_sandbox.access import LOOPBACK, Gate
from leeway_sandbox.kubernetes.access_rules import load_rules
from leeway_sandbox.kubernetes.authentication import Authenticator
from leeway_sandbox.kubernetes.authorization import Authorizer
from leeway_sandbox.kubernetes.cluster import Cluster, Settings
from leeway_sandbox.kubernetes.control import Control
from leeway_sandbox.kubernetes.controllers.bootstrap import bootstrap
from leeway_sandbox.kubernetes.faults import Faults
from leeway_sandbox.kubernetes.server import ApiServer
from leeway_sandbox.listening import listen, port_of

_LAST_ANSWERS_SECONDS = 0.2


@dataclasses.dataclass(frozen=True)
class Addresses:
    """The ports of the servers, and the CA and token that a client needs."""

    port: int
    control_port: int
    ca: Path
    token: str


class Servers:
    """The servers of one cluster, from start to stop."""

    def __init__(
        self,
        settings: Settings,
        host: str,
        ca: Path,
        tls: ssl.SSLContext,
        rbac: Path | None,
        gate: Gate,
    ) -> None:
        self._host = host
        self._ca = ca
        self._tls = tls
        self._token = secrets.token_urlsafe(24)
        self._began = time.time()
        self._cluster = Cluster(settings)
        authenticator = Authenticator(settings.name, self._token)
        authorizer = Authorizer(self._cluster.store, enforced=rbac is not None)
        faults = Faults(settings.seed)
        controllers = bootstrap(self._cluster)
        if rbac is not None:
            load_rules(self._cluster.store, rbac)
            self._cluster.policies.prepare()
        self._api = ApiServer(
            self._cluster, controllers.disruption, authenticator, authorizer, faults
        )
        self._control = Control(
            self._cluster,
            controllers.instances,
            authenticator,
            faults,
            self.listen,
            self._status,
            gate,
        )
        self._server = web.Server(self._api.handle, access_log=None, handler_cancellation=True)
        self._runner = web.ServerRunner(self._server, shutdown_timeout=_LAST_ANSWERS_SECONDS)
        self._control_runner = web.ServerRunner(
            web.Server(self._control.handle, access_log=None),
            shutdown_timeout=_LAST_ANSWERS_SECONDS,
        )
        self._sites: list[web.TCPSite] = []
        self._port = 0

    async def start(self, port: int) -> Addresses:
        """Listen; `port` 0 means any free port."""
        await self._runner.setup()
        await self._control_runner.setup()
        self._port = port
        await self.listen(True)
        # Only the other processes of the sandbox call it, on this machine.
        await listen(self._control_runner, LOOPBACK)
        return Addresses(self._port, port_of(self._control_runner), self._ca, self._token)

    async def listen(self, accepting: bool) -> None:
        """Open the port of the API, or close it and every connection."""
        if accepting and not self._sites:
            self._sites = await listen(
                self._runner, self._host, self._port, ssl_context=self._tls, reuse_address=True
            )
            self._port = port_of(self._runner)
        elif not accepting and self._sites:
            sites, self._sites = self._sites, []
            for connection in self._server.connections:
                connection.force_close()
                if connection.transport is not None:
                    connection.transport.abort()
            for site in sites:
                await site.stop()

    async def stop(self) -> None:
        """Close the servers without waiting for open watches."""
        await self.listen(False)
        await self._runner.cleanup()
        await self._control_runner.cleanup()

    def _status(self) -> dict[str, Any]:
        uptime = round(time.time() - self._began, 1)
        return {
            "requests": self._api.requests,
            "calls": {user: dict(calls) for user, calls in self._api.calls.items()},
            "listening": bool(self._sites),
            "up": uptime,
        }
