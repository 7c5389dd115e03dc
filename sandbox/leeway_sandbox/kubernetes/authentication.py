"""Who calls the API: the sandbox's admin, an IAM principal with an access entry, or the user that a
caller impersonates.

A token of EKS is `k8s-aws-v1.` and a presigned GetCallerIdentity URL in base64url without padding.
EKS sends this request with the name of its cluster in the signed header `x-k8s-aws-id`, so that a
token for another cluster has a wrong signature. Rules: aws-iam-authenticator's token verifier;
AWS' "Signature Version 4" for requests that are signed in the query.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import datetime
import functools
import hashlib
import hmac
import re
import time
import urllib.parse
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from leeway_sandbox.kubernetes import errors

if TYPE_CHECKING:
    from multidict import CIMultiDictProxy

    from leeway_sandbox.kubernetes.authorization import Authorizer

PREFIX = "k8s-aws-v1."
_CLUSTER_HEADER = "x-k8s-aws-id"
_LIFETIME = 15 * 60  # seconds; the expiry of the URL does not matter
_CLOCK_SKEW = 5 * 60
REMEMBERED = 4096  # tokens; a client uses a token for several requests
_HOST = re.compile(r"sts(\.[a-z0-9-]+)?\.(amazonaws\.com(\.cn)?|c2s\.ic\.gov|sc2s\.sgov\.gov)")


@dataclasses.dataclass(frozen=True, slots=True)
class Presigned:
    """A well-formed presigned request; its age and signature are not verified yet."""

    access_key: str
    scope: str
    date: str
    signed_at: float
    host: str
    query: tuple[tuple[str, str], ...]
    signed_headers: str
    signature: str

    def is_current(self, now: float) -> bool:
        """Whether its age is valid at a time (seconds since the epoch)."""
        return -_CLOCK_SKEW <= now - self.signed_at <= _LIFETIME

    def is_signed(self, secret: str, cluster: str) -> bool:
        """Whether it was signed with this secret for this cluster."""
        headers = {"host": self.host, _CLUSTER_HEADER: cluster}
        wanted = self.signed_headers.split(";")
        canonical = "\n".join(
            (
                "GET",
                "/",
                "&".join(sorted(f"{_quoted(name)}={_quoted(value)}" for name, value in self.query)),
                *(f"{name}:{headers.get(name, '')}" for name in wanted),
                "",
                self.signed_headers,
                hashlib.sha256(b"").hexdigest(),
            )
        )
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        key = f"AWS4{secret}".encode()
        for part in self.scope.split("/"):
            key = _hmac(key, part)
        text = f"AWS4-HMAC-SHA256\n{self.date}\n{self.scope}\n{digest}"
        return hmac.compare_digest(_hmac(key, text).hex(), self.signature)


@functools.lru_cache(maxsize=REMEMBERED)
def presigned(token: str) -> Presigned | None:
    """Parse a token; None if it is not valid."""
    encoded = token.removeprefix(PREFIX)
    if "=" in encoded:
        return None
    try:
        url = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
        parts = urllib.parse.urlsplit(url)
        pairs = urllib.parse.parse_qsl(parts.query, keep_blank_values=True)
        query = {name.lower(): value for name, value in pairs}
        access_key, _, scope = query["x-amz-credential"].partition("/")
        expires = int(query["x-amz-expires"])
        read = Presigned(
            access_key=access_key,
            scope=scope,
            date=query["x-amz-date"],
            signed_at=datetime.datetime.fromisoformat(query["x-amz-date"]).timestamp(),
            host=parts.netloc,
            query=tuple(pair for pair in pairs if pair[0].lower() != "x-amz-signature"),
            signed_headers=query["x-amz-signedheaders"],
            signature=query["x-amz-signature"],
        )
    except (binascii.Error, UnicodeDecodeError, KeyError, ValueError):
        return None
    valid = (
        (parts.scheme, parts.path) == ("https", "/")
        and _HOST.fullmatch(parts.netloc) is not None
        and query.get("action") == "GetCallerIdentity"
        and {"host", _CLUSTER_HEADER} <= set(read.signed_headers.split(";"))
        and 0 < expires <= _LIFETIME
        and scope.endswith("/sts/aws4_request")
    )
    return read if valid else None


def _quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="-_.~")


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


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
        signed = presigned(token)
        entry = self._entries.get(signed.access_key) if signed else None
        if signed is None or entry is None or not signed.is_current(time.time()):
            return None
        if not _is_signed(signed, entry.secret, self._cluster):
            return None
        return User(entry.username, (*entry.groups, "system:authenticated"))


@functools.lru_cache(maxsize=REMEMBERED)
def _is_signed(token: Presigned, secret: str, cluster: str) -> bool:
    return token.is_signed(secret, cluster)


# Rules: Kubernetes' impersonation filter. The headers `Impersonate-User`, `-Group`, `-Uid` and
# `-Extra-KEY` name the impersonated user. The caller needs the permission `impersonate` for each.
_ACCOUNT = "system:serviceaccount:"
_EXTRA = "impersonate-extra-"
_ANONYMOUS = "system:anonymous"
_AUTHENTICATION = "authentication.k8s.io"

type Headers = CIMultiDictProxy[str]
# Group, resource, namespace and name for the permission `impersonate`.
type _Asked = tuple[str, str, str, str]


def acting_user(authorizer: Authorizer, user: User, headers: Headers) -> User:
    """Return the user, or the impersonated one; 403 without the permission."""
    asked = list(_asked(headers))
    if not asked:
        return user
    name = headers.get("Impersonate-User", "")
    if not name:
        text = ", ".join(f"{resource} {one}" for _, resource, _, one in asked)
        message = f"Internal error occurred: requested {text} without impersonating a user name"
        raise errors.ApiError(500, "InternalError", message, {"causes": [{"message": message}]})
    for one in asked:
        _check_impersonation(authorizer, user, one)
    return User(name, _groups(name, headers.getall("Impersonate-Group", [])))


def _asked(headers: Headers) -> Iterator[_Asked]:
    if name := headers.get("Impersonate-User", ""):
        namespace, _, account = name.removeprefix(_ACCOUNT).partition(":")
        if name.startswith(_ACCOUNT) and account:
            yield "", "serviceaccounts", namespace, account
        else:
            yield "", "users", "", name
    for group in headers.getall("Impersonate-Group", []):
        yield "", "groups", "", group
    if uid := headers.get("Impersonate-Uid"):
        yield _AUTHENTICATION, "uids", "", uid
    for key, value in headers.items():
        if key.lower().startswith(_EXTRA):
            extra = urllib.parse.unquote(key[len(_EXTRA) :]).lower()
            yield _AUTHENTICATION, f"userextras/{extra}", "", value


def _check_impersonation(authorizer: Authorizer, user: User, asked: _Asked) -> None:
    group, resource, namespace, name = asked
    if authorizer.allows(user, "impersonate", group, resource, namespace, name):
        return
    scope = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    plural = f"{resource}.{group}" if group else resource
    message = (
        f'{plural} "{name}" is forbidden: User "{user.name}" cannot impersonate resource '
        f'"{resource}" in API group "{group}" {scope}'
    )
    details = {"name": name, **({"group": group} if group else {}), "kind": resource}
    raise errors.ApiError(403, "Forbidden", message, details)


def _groups(name: str, given: list[str]) -> tuple[str, ...]:
    """Return the groups: those of the headers or of the service account, and the system group."""
    groups = list(given)
    namespace, _, account = name.removeprefix(_ACCOUNT).partition(":")
    if not groups and name.startswith(_ACCOUNT) and account:
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    known = "system:unauthenticated" if name == _ANONYMOUS else "system:authenticated"
    return tuple(dict.fromkeys((*groups, known)))
