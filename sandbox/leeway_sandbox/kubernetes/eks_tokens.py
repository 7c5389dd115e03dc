"""Parses EKS tokens and verifies them as STS does: access key, cluster, age.

A token is `k8s-aws-v1.` and a presigned GetCallerIdentity URL in base64url without padding. EKS
sends this request with the name of its cluster in the signed header `x-k8s-aws-id`, so that a token
for another cluster has a wrong signature. Rules: aws-iam-authenticator's token verifier; AWS'
"Signature Version 4" for requests that are signed in the query.
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
import urllib.parse

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
