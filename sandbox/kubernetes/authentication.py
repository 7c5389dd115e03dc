"""Who calls: the sandbox's own admin, or an IAM principal that has an access entry."""

from __future__ import annotations

import dataclasses
import functools
import time
from typing import Any

from sandbox.kubernetes import eks_tokens


@dataclasses.dataclass(frozen=True, slots=True)
class User:
    """A caller that has proved who it is."""

    name: str
    groups: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class _Entry:
    user: User
    secret: str


class Authenticator:
    """Knows the admin's token and the cluster's access entries."""

    def __init__(self, cluster: str, admin_token: str) -> None:
        self._cluster = cluster
        self._admin_token = admin_token
        self._entries: dict[str, _Entry] = {}

    def grant(self, entries: dict[str, Any]) -> None:
        """Replace the access entries, by access key id; ValueError for what is none.

        Each is `{"username": …, "groups": […], "secret": …}`: on EKS the key's principal decides
        and STS knows the secret.
        """
        granted = {}
        for key, entry in entries.items():
            try:
                user = User(entry["username"], (*entry["groups"], "system:authenticated"))
                granted[key] = _Entry(user, entry["secret"])
            except (KeyError, TypeError) as error:
                raise ValueError(f"{key}: not an access entry: {error}") from error
        self._entries = granted

    def user(self, authorization: str) -> User | None:
        """Return whom a request's Authorization header belongs to, None for nobody."""
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
        return entry.user if _is_signed(signed, entry.secret, self._cluster) else None


@functools.lru_cache(maxsize=eks_tokens.REMEMBERED)
def _is_signed(token: eks_tokens.Presigned, secret: str, cluster: str) -> bool:
    return token.is_signed(secret, cluster)
