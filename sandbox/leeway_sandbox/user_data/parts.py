"""Takes user data apart: compression, base64, and MIME multipart documents."""

import base64
import binascii
import contextlib
import email.parser
import email.policy
import gzip
import zlib
from dataclasses import dataclass

from leeway_sandbox.user_data.configuration import BootError

_GZIP = b"\x1f\x8b"
_OPEN_ENDED = {"CloseBoundaryNotFoundDefect", "StartBoundaryNotFoundDefect"}


@dataclass(frozen=True)
class Part:
    """One part of a multipart document; `content_type` is in lower case."""

    content_type: str
    content: bytes


def unpacked(data: bytes) -> bytes:
    """The data without base64 and gzip, if it has either."""
    with contextlib.suppress(binascii.Error):
        data = base64.b64decode(data.replace(b"\r", b"").replace(b"\n", b""), validate=True)
    return inflated(data)


def inflated(data: bytes) -> bytes:
    """The data without gzip, if it has that."""
    if not data.startswith(_GZIP):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise BootError(f"the user data is not valid gzip: {error}") from error


def text_of(data: bytes) -> str:
    """The data as text."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BootError(f"the user data is not UTF-8 text: {error}") from error


def multipart(data: bytes) -> list[Part] | None:
    """The parts of a MIME multipart document, in their order, or None if it is none.

    Go's mime/multipart also takes the line `--boundary` as the end, if nothing follows it.
    """
    document = email.parser.BytesParser(policy=email.policy.compat32).parsebytes(data)
    if document.get_content_maintype() != "multipart":
        return None
    found = {type(defect).__name__ for defect in document.defects}
    boundary = document.get_boundary()
    ended = data.endswith((f"\n--{boundary}\n".encode(), f"\n--{boundary}\r\n".encode()))
    if (found & _OPEN_ENDED and not ended) or not document.is_multipart():
        raise BootError(f"the MIME document does not end with its boundary --{boundary}--")
    parts = []
    for part in document.walk():
        if part.is_multipart() or part.get("Content-Type") is None:
            continue
        content = part.get_payload(decode=True)
        assert isinstance(content, bytes)
        parts.append(Part(part.get_content_type(), content))
    return parts
