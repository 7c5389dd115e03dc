"""Who may talk to the sandbox: the control APIs' token, the hosts that requests may name, and
which addresses servers may bind.

Control calls register code and run it, so each needs the token of a file that only its owner can
read. The Host header must name this server: a web page whose name resolves to this machine (DNS
rebinding) can't call it.
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

from sandbox.control import PREFIX

LOOPBACK = "127.0.0.1"
_OWN_NAMES = (LOOPBACK, "localhost", "::1")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class TokenFileError(ValueError):
    """The file of the control token can't be used; the message says why."""


def new_token(path: Path) -> str:
    """Write a new control token to a file of mode 0600, in place of what was there."""
    token = secrets.token_urlsafe(32)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token)
    return token


def read_token(path: Path) -> str:
    """Read a control token; TokenFileError where others may read its file too."""
    mode = path.stat().st_mode
    if mode & _OTHERS:
        raise TokenFileError(
            f"{path}: others may read it (mode {stat.S_IMODE(mode):04o}, not 0600)"
        )
    token = path.read_text().strip()
    if not token:
        raise TokenFileError(f"{path}: it holds no token")
    return token


def bearer(token: str) -> dict[str, str]:
    """Return the header that a control call needs."""
    return {"Authorization": f"Bearer {token}"}


def check_address(host: str) -> None:
    """Refuse an address that stands for all of a machine's interfaces; ValueError says so."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ValueError(f"{host}: not an address of this machine: {error.strerror}") from error
    if not host or any(_is_unspecified(str(address[0])) for *_, address in found):
        raise ValueError(
            f"{host or 'an empty address'} is every interface of this machine, and whoever reaches "
            "one could use the sandbox. Give the one address that clients use."
        )


def _is_unspecified(text: str) -> bool:
    address = ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_unspecified


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options by which a process of the sandbox learns who may talk to it."""
    parser.add_argument(
        "--host", default=LOOPBACK, help="another address to answer at, besides 127.0.0.1"
    )
    parser.add_argument(
        "--advertise", default=LOOPBACK, help="another name that requests may call it by"
    )
    parser.add_argument(
        "--control-token", type=Path, required=True, metavar="FILE", help="of mode 0600"
    )


class Gate:
    """Lets requests pass that name this server and, where the path is private, hold the token."""

    def __init__(
        self, token: str, hosts: Iterable[str], private: tuple[str, ...] = (PREFIX,)
    ) -> None:
        self._token = token
        self._hosts = frozenset(map(str.lower, (*_OWN_NAMES, *hosts)))
        self._private = private

    @classmethod
    def of(cls, options: argparse.Namespace, *private: str) -> Self:
        """Return the gate that `arguments` tell of; `private` are more prefixes of paths.

        Raises:
            ValueError: the address is every interface, or others may read the token.
        """
        check_address(options.host)
        hosts = (options.host, options.advertise)
        return cls(read_token(options.control_token), hosts, (PREFIX, *private))

    def pass_on(self) -> dict[str, str]:
        """Return the header with which this process calls the sandbox's others."""
        return bearer(self._token)

    def refusal(self, path: str, headers: Mapping[str, str]) -> tuple[HTTPStatus, str] | None:
        """Return status and reason of a refusal; None where the request may pass."""
        host = headers.get("Host", "")
        if not self._is_own(host):
            return HTTPStatus.MISDIRECTED_REQUEST, f"this server is not {host!r}"
        if not path.startswith(self._private) or self._holds_token(headers):
            return None
        return HTTPStatus.UNAUTHORIZED, "this call needs the control token as a bearer token"

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
