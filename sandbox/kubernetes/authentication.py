"""Who calls: the sandbox's own admin, or the holder of an EKS token.

An EKS token is `k8s-aws-v1.` and a presigned STS GetCallerIdentity URL in base64url without
padding. EKS asks STS; here everything that can be seen in the URL itself is checked: the action,
the age (15 minutes), and that the cluster's header is among the signed ones.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import datetime
import secrets
import time
import urllib.parse
from typing import Any

_EKS_PREFIX = "k8s-aws-v1."
_EKS_LIFETIME = 15 * 60
_CLOCK_SKEW = 5 * 60
DEFAULT_GROUP = "leeway:drain"


@dataclasses.dataclass(frozen=True, slots=True)
class User:
    """A caller that has proved who it is."""

    name: str
    groups: tuple[str, ...]


class Authenticator:
    """Knows the admin's token and which access keys mean which groups."""

    def __init__(self, admin_token: str) -> None:
        self._admin = User("admin", ("system:masters", "system:authenticated"))
        self._tokens = {admin_token: self._admin}
        self._access: dict[str, User] = {}

    def grant(self, access: dict[str, Any]) -> None:
        """Replace the mapping from access key ids or plain tokens to users.

        A value is a list of groups, or `{"username": …, "groups": […]}`.
        """
        self._access = {}
        for key, value in access.items():
            granted = value if isinstance(value, dict) else {"groups": value}
            name = granted.get("username", f"aws:{key}")
            groups = (*granted.get("groups", ()), "system:authenticated")
            self._access[key] = User(name, groups)

    def issue(self, user: User) -> str:
        """Make a new token for a user."""
        token = secrets.token_urlsafe(32)
        self._tokens[token] = user
        return token

    def user(self, authorization: str) -> User | None:
        """Return whom a request's Authorization header belongs to, None for nobody."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return None
        if token.startswith(_EKS_PREFIX):
            key = access_key_of(token, time.time())
            if key is None:
                return None
            default = User(f"aws:{key}", (DEFAULT_GROUP, "system:authenticated"))
            return self._access.get(key, default)
        return self._tokens.get(token) or self._access.get(token)


def access_key_of(token: str, now: float) -> str | None:
    """Return the access key id that signed an EKS token; None when the token is not valid now."""
    encoded = token.removeprefix(_EKS_PREFIX)
    if "=" in encoded:
        return None
    try:
        url = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
        parsed = urllib.parse.urlsplit(url)
        query = {name.lower(): value for name, value in urllib.parse.parse_qsl(parsed.query)}
        signed_at = datetime.datetime.fromisoformat(query["x-amz-date"])
        age = now - signed_at.timestamp()
        expires = int(query["x-amz-expires"])
        credential = query["x-amz-credential"].split("/")
    except (binascii.Error, UnicodeDecodeError, KeyError, ValueError):
        return None
    signed_headers = query.get("x-amz-signedheaders", "").split(";")
    valid = (
        query.get("action") == "GetCallerIdentity"
        and {"host", "x-k8s-aws-id"} <= set(signed_headers)
        and -_CLOCK_SKEW <= age <= _EKS_LIFETIME
        and 0 < expires <= _EKS_LIFETIME
        and len(credential) == len(("key", "date", "region", "sts", "aws4_request"))
        and credential[3] == "sts"
        and "x-amz-signature" in query
    )
    return credential[0] if valid else None
