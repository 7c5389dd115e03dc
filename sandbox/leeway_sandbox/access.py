"""Access to the sandbox: the control token, the allowed Host headers, the allowed addresses.

Control calls register and run code, so each needs the token of a file that only its owner can read.
The Host header must name this server, so that a web page whose name resolves to this machine (DNS
rebinding) cannot call it.
"""

import argparse
import hmac
import os
import secrets
import socket
import stat
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from leeway_sandbox.control import PREFIX
from leeway_sandbox.errors import RefusedError, SandboxError

LOOPBACK = "127.0.0.1"
_OWN_NAMES = (LOOPBACK, "localhost", "::1")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def new_token(path: Path) -> str:
    """Write a new control token to a file of mode 0600; replace an existing file."""
    token = secrets.token_urlsafe(32)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token)
    return token


def read_token(path: Path) -> str:
    """Read a control token; SandboxError if other users can read the file."""
    try:
        mode = path.stat().st_mode
        token = path.read_text().strip()
    except OSError as error:
        raise SandboxError(
            f"The control token cannot be read from {path}: {error.strerror}."
        ) from error
    if mode & _OTHERS:
        raise SandboxError(
            f"Other users can read the control token in {path} (mode {stat.S_IMODE(mode):04o}"
            ", not 0600). Start the sandbox again, which writes a new token; then keep the "
            "mode 0600."
        )
    if not token:
        raise SandboxError(f"The file {path} holds no control token.")
    return token


def bearer(token: str) -> dict[str, str]:
    """Return the header that a control call needs."""
    return {"Authorization": f"Bearer {token}"}


def check_address(host: str) -> None:
    """Raise RefusedError for an address that means all interfaces, or that does not resolve."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise RefusedError(
            f"{host} is not an address of this machine: {error.strerror}."
        ) from error
    if not host or any(_is_unspecified(str(address[0])) for *_, address in found):
        raise RefusedError(
            f"{host or 'An empty address'} is every interface of this machine, and any client "
            "of a network could use the sandbox. Give the one address that clients use."
        )


def _is_unspecified(text: str) -> bool:
    address = ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_unspecified


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options about addresses and access that each process of the sandbox has."""
    parser.add_argument(
        "--host", default=LOOPBACK, help="one more address to listen at, besides 127.0.0.1"
    )
    parser.add_argument(
        "--advertise", default=LOOPBACK, help="one more name that Host headers may have"
    )
    parser.add_argument(
        "--control-token", type=Path, required=True, metavar="FILE", help="of mode 0600"
    )


class Gate:
    """Checks the Host header of each request and, for a private path, the control token."""

    def __init__(
        self, token: str, hosts: Iterable[str], private: tuple[str, ...] = (PREFIX,)
    ) -> None:
        self._token = token
        self._hosts = frozenset(map(str.lower, (*_OWN_NAMES, *hosts)))
        self._private = private

    @classmethod
    def of(cls, options: argparse.Namespace, *private: str) -> Self:
        """Return the gate for parsed `arguments`; `private` are more path prefixes to protect.

        Raises:
            RefusedError: the address means all interfaces, or does not resolve.
            SandboxError: the token file cannot be used.
        """
        check_address(options.host)
        hosts = (options.host, options.advertise)
        return cls(read_token(options.control_token), hosts, (PREFIX, *private))

    def pass_on(self) -> dict[str, str]:
        """Return the header with which this process calls the other processes."""
        return bearer(self._token)

    def refusal(self, path: str, headers: Mapping[str, str]) -> tuple[HTTPStatus, str] | None:
        """Return status and reason of a refusal; None if the request is allowed."""
        host = headers.get("Host", "")
        if not self._is_own(host):
            problem = f"The Host header {host!r} names none of the addresses of this server."
            return HTTPStatus.MISDIRECTED_REQUEST, problem
        if not path.startswith(self._private) or self._holds_token(headers):
            return None
        return HTTPStatus.UNAUTHORIZED, "This call needs the control token as a bearer token."

    def _is_own(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            return False
        # Names under localhost are this machine's own wherever they are resolved (RFC 6761).
        return name is not None and (name in self._hosts or name.endswith(".localhost"))

    def _holds_token(self, headers: Mapping[str, str]) -> bool:
        given = headers.get("Authorization", "").encode()
        return hmac.compare_digest(given, f"Bearer {self._token}".encode())
