"""Requests in somebody else's name, which an API server allows to those with the right for it.

Source: Kubernetes documentation, "User impersonation".
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2

_TOKEN = frozenset(b"!#$&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
"""What a header's name may have, but for `%`, by which all else is escaped."""


@dataclass(frozen=True, slots=True)
class Impersonation:
    """In whose name requests are made; with an empty `user`, in one's own."""

    user: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def overridden(self, by: "Impersonation") -> "Impersonation":
        """Return this with all that `by` says instead, as kubectl's flags go before a kubeconfig.

        Raises:
            ValueError: groups, a UID or extra fields are impersonated, and no user; or a value
                can't be a header's.
        """
        merged = replace(
            self,
            user=by.user or self.user,
            groups=by.groups or self.groups,
            uid=by.uid or self.uid,
            extra={**self.extra, **by.extra},
        )
        if not merged.user and (merged.groups or merged.uid or merged.extra):
            raise ValueError("a group, UID or extra field is impersonated: expected a user, too")
        for _, value in merged.headers():
            if any(byte < 0x20 or byte == 0x7F for byte in value):
                raise ValueError(f"impersonation: a control character in {value!r}")
        return merged

    def headers(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the headers by which an API server is asked for it."""
        if not self.user:
            return
        yield b"Impersonate-User", self.user.encode()
        if self.uid:
            yield b"Impersonate-Uid", self.uid.encode()
        for group in self.groups:
            yield b"Impersonate-Group", group.encode()
        for key, values in self.extra.items():
            for value in values:
                yield b"Impersonate-Extra-" + _escaped(key), value.encode()


def read_impersonation(user: Mapping[str, Any]) -> Impersonation:
    """Read `as`, `as-groups`, `as-uid` and `as-user-extra` of a kubeconfig's user.

    Raises:
        ValueError: one of them has not the form that kubectl takes.
    """
    extra = user.get("as-user-extra") or {}
    if not isinstance(extra, dict):
        raise ValueError("as-user-extra: expected lists by their keys")
    return Impersonation(
        user=_text("as", user.get("as")),
        groups=_texts("as-groups", user.get("as-groups")),
        uid=_text("as-uid", user.get("as-uid")),
        extra={_text("as-user-extra", key): _texts(key, some) for key, some in extra.items()},
    )


class Impersonating(httpx2.BaseTransport):
    """Makes every request in somebody else's name."""

    def __init__(self, inner: httpx2.BaseTransport, who: Impersonation) -> None:
        self._inner = inner
        self._headers = tuple(who.headers())
        self._names = {name.lower() for name, _ in self._headers}

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, which may be one that is sent again."""
        others = [one for one in request.headers.raw if one[0].lower() not in self._names]
        request.headers = httpx2.Headers([*others, *self._headers])
        return self._inner.handle_request(request)

    def close(self) -> None:
        """Close the connections that are open."""
        self._inner.close()


def _text(name: str, value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{name}: expected text, got {value!r}")
    return value


def _texts(name: str, values: object) -> tuple[str, ...]:
    if values is None:
        return ()
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping):
        raise ValueError(f"{name}: expected a list, got {values!r}")
    return tuple(_text(name, value) for value in values)


def _escaped(key: str) -> bytes:
    """Return a key as part of a header's name, as Kubernetes' own clients write it."""
    return b"".join(bytes([byte]) if byte in _TOKEN else b"%%%02X" % byte for byte in key.encode())
