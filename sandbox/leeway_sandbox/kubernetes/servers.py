"""Runs the servers of one cluster: the API over HTTPS, the control API over HTTP.

The sandbox has its own certificate authority.
"""

from __future__ import annotations

import dataclasses
import datetime
import secrets
import ssl
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import trustme
from aiohttp import web
from cryptography import x509

from leeway_sandbox.access import LOOPBACK, Gate
from leeway_sandbox.kubernetes.authentication import Authenticator
from leeway_sandbox.kubernetes.authorization import Authorizer, load_rules
from leeway_sandbox.kubernetes.cluster import Cluster, Settings
from leeway_sandbox.kubernetes.control import Control, Faults
from leeway_sandbox.kubernetes.controllers.bootstrap import bootstrap
from leeway_sandbox.kubernetes.server import ApiServer
from leeway_sandbox.listening import listen, port_of

_LIFETIME = datetime.timedelta(days=30)
_LAST_RUN = datetime.timedelta(days=1)  # the least remaining lifetime at the start
_NAMES = ("localhost", "host.docker.internal", "kubernetes.default.svc", "127.0.0.1")


def server_context(folder: Path, names: Sequence[str] = ()) -> ssl.SSLContext:
    """Return the TLS context of a server with these names, in addition to the usual ones.

    It creates `tls.crt`, `tls.key` and a new `ca.crt` if one is missing, expires soon, or does not
    have all names and IP addresses.
    """
    wanted = sorted({*_NAMES, *names})
    if not _has_certificate_for(wanted, folder):
        folder.mkdir(parents=True, exist_ok=True)
        _make(folder, wanted)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return context


def _has_certificate_for(names: Sequence[str], folder: Path) -> bool:
    if not all((folder / name).exists() for name in ("ca.crt", "tls.crt", "tls.key")):
        return False
    certificate = x509.load_pem_x509_certificate((folder / "tls.crt").read_bytes())
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    is_young = datetime.datetime.now(datetime.UTC) < certificate.not_valid_after_utc - _LAST_RUN
    return is_young and set(names) <= {str(name.value) for name in found}


def _make(folder: Path, names: Sequence[str]) -> None:
    authority = trustme.CA(organization_name="leeway-sandbox")
    expires = datetime.datetime.now(datetime.UTC) + _LIFETIME
    certificate = authority.issue_cert(*names, not_after=expires)
    authority.cert_pem.write_to_path(folder / "ca.crt")
    (folder / "tls.crt").write_bytes(certificate.cert_chain_pems[0].bytes())
    (folder / "tls.key").touch(mode=0o600)
    certificate.private_key_pem.write_to_path(folder / "tls.key")


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
