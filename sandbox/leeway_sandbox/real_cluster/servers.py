"""Runs the front of a real cluster and its control API, from the arrival to the departure."""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from leeway_sandbox.access import LOOPBACK, Gate
from leeway_sandbox.control import Journal, Query
from leeway_sandbox.errors import SandboxError
from leeway_sandbox.kubernetes.authentication import Authenticator
from leeway_sandbox.kubernetes.control import ClusterControl
from leeway_sandbox.listening import listen, port_of
from leeway_sandbox.real_cluster.front import Front
from leeway_sandbox.real_cluster.guests import Guests
from leeway_sandbox.real_cluster.machines import BareNodes, Machines
from leeway_sandbox.real_cluster.observer import Links, Observer
from leeway_sandbox.real_cluster.target import RealCluster
from leeway_sandbox.real_cluster.upstream import Upstream


class Control(ClusterControl):
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
            authenticator,
            gate,
            lambda report: machines.report(report.instance, report.state, report.node),
            {
                "GET status": lambda _body, _query: status(),
                "PUT faults": self._replace_faults,
                "POST leave": self._leave,
            },
        )
        self._leave_cluster = leave

    def _replace_faults(self, body: Any, _query: Query) -> dict[str, Any]:
        if body != {"faults": []}:
            raise SandboxError(
                "The sandbox injects no faults into a real cluster. Use faults of the parts aws "
                "and lambda, or a sandbox with its own Kubernetes."
            )
        return {"faults": []}

    async def _leave(self, _body: Any, _query: Query) -> dict[str, bool]:
        await self._leave_cluster()
        return {"left": True}


_LAST_ANSWERS_SECONDS = 0.2


@dataclass(frozen=True)
class Addresses:
    """The ports of the servers, and the token of the sandbox's admin."""

    port: int
    control_port: int
    token: str


class Servers:
    """The servers between the sandbox and one real cluster."""

    def __init__(
        self, cluster: RealCluster, upstream: Upstream, rbac: Path, tls: ssl.SSLContext, gate: Gate
    ) -> None:
        self._tls = tls
        self._token = secrets.token_urlsafe(24)
        self._cluster = cluster
        journal, links = Journal(), Links(sorted(cluster.nodes))
        authenticator = Authenticator(cluster.name, self._token)
        self._observer = Observer(upstream, links, journal)
        self._bare = BareNodes(upstream)
        self._observer.listeners.append(self._bare.changed)
        self._guests = Guests(upstream, rbac, cluster.nodes)
        self._machines = Machines(
            upstream, links, self._observer, self._bare, journal, cluster.join, cluster.leave
        )
        self._front = Front(upstream, authenticator, links, self._observer, journal)
        control = Control(
            journal, self._machines, authenticator, self._status, self.leave_cluster, gate
        )
        self._runners = [
            web.ServerRunner(server, shutdown_timeout=_LAST_ANSWERS_SECONDS)
            for server in (
                web.Server(self._front.handle, access_log=None, handler_cancellation=True),
                web.Server(control.handle, access_log=None),
            )
        ]
        self._tasks: list[asyncio.Task[None]] = []
        self._left = False

    async def start(self, host: str, port: int) -> Addresses:
        """Put the access rules into the cluster, watch it, and listen.

        Raises:
            SandboxError: the cluster has access rules of another Leeway.
        """
        await self._bare.remove_all()  # those of a sandbox that was killed
        await self._guests.arrive()
        self._tasks = [
            asyncio.create_task(work) for work in (self._observer.run(), self._bare.run())
        ]
        front, control = self._runners
        for runner in self._runners:
            await runner.setup()
        await listen(front, host, port, ssl_context=self._tls)
        await listen(control, LOOPBACK)
        return Addresses(port_of(front), port_of(control), self._token)

    async def leave_cluster(self) -> None:
        """Remove from the cluster what the sandbox has put there; once."""
        if self._left:
            return
        self._left = True
        await self._machines.finish()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._guests.leave()
        await self._bare.remove_all()

    async def stop(self) -> None:
        """Leave the cluster, and close the servers without waiting for open watches."""
        await self.leave_cluster()
        for runner in self._runners:
            await runner.cleanup()

    def _status(self) -> dict[str, Any]:
        return {
            "cluster": self._cluster.name,
            **self._observer.counts(),
            "instances": self._machines.states(),
            "requests": self._front.requests,
            "calls": {user: dict(calls) for user, calls in self._front.calls.items()},
        }
