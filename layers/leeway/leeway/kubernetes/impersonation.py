"""User impersonation: the headers of a request, and a transport that adds them.

Source: Kubernetes documentation, "User impersonation".
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2

_TOKEN = frozenset(b"!#$&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
"""Characters that a header name may contain, without `%`, which escapes all others."""


@dataclass(frozen=True, slots=True)
class Impersonation:
    """The user to impersonate; an empty `user` means no impersonation."""

    user: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def overridden_by(self, flags: "Impersonation") -> "Impersonation":
        """Return this with the non-empty fields of `flags`: kubectl's flags override a kubeconfig.

        Raises:
            ValueError: groups, a UID or extra fields are set without a user; or a value contains a
                control character.
        """
        merged = replace(
            self,
            user=flags.user or self.user,
            groups=flags.groups or self.groups,
            uid=flags.uid or self.uid,
            extra={**self.extra, **flags.extra},
        )
        if not merged.user and (merged.groups or merged.uid or merged.extra):
            raise ValueError("a group, UID or extra field is impersonated: expected a user, too")
        for _, value in merged.headers():
            if any(byte < 0x20 or byte == 0x7F for byte in value):
                raise ValueError(f"impersonation: a control character in {value!r}")
        return merged

    def headers(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the impersonation headers."""
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
        ValueError: a field does not have the form that kubectl accepts.
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


class ImpersonationTransport(httpx2.BaseTransport):
    """Adds the impersonation headers to every request."""

    def __init__(self, inner: httpx2.BaseTransport, impersonation: Impersonation) -> None:
        self._inner = inner
        self._headers = tuple(impersonation.headers())
        self._names = {name.lower() for name, _ in self._headers}

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. A retried request may have the headers already: they are replaced."""
        others = [pair for pair in request.headers.raw if pair[0].lower() not in self._names]
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
    """Escape a key for a header name, as client-go does."""
    return b"".join(bytes([byte]) if byte in _TOKEN else b"%%%02X" % byte for byte in key.encode())
