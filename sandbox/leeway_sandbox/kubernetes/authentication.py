"""Authentication: the admin of the sandbox, or an IAM principal with an access entry."""

from __future__ import annotations

import dataclasses
import functools
import time

import msgspec

from leeway_sandbox.kubernetes import eks_tokens


@dataclasses.dataclass(frozen=True, slots=True)
class User:
    """An authenticated caller."""

    name: str
    groups: tuple[str, ...]


class AccessEntry(msgspec.Struct, frozen=True):
    """The user, groups and secret of an access key; on EKS the secret is known to STS only."""

    username: str
    groups: list[str]
    secret: str


class Authenticator:
    """Checks tokens by the admin token and the access entries of the cluster."""

    def __init__(self, cluster: str, admin_token: str) -> None:
        self._cluster = cluster
        self._admin_token = admin_token
        self._entries: dict[str, AccessEntry] = {}

    def grant(self, entries: dict[str, AccessEntry]) -> None:
        """Replace the access entries, by access key id."""
        self._entries = entries

    def user(self, authorization: str) -> User | None:
        """Return the user of an Authorization header, or None."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer":
            return None
        if token == self._admin_token:
            return User("admin", ("system:masters", "system:authenticated"))
        signed = eks_tokens.presigned(token)
        entry = self._entries.get(signed.access_key) if signed else None
        if signed is None or entry is None or not signed.is_current(time.time()):
            return None
        if not _is_signed(signed, entry.secret, self._cluster):
            return None
        return User(entry.username, (*entry.groups, "system:authenticated"))


@functools.lru_cache(maxsize=eks_tokens.REMEMBERED)
def _is_signed(token: eks_tokens.Presigned, secret: str, cluster: str) -> bool:
    return token.is_signed(secret, cluster)
