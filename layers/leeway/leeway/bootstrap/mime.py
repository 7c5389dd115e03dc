"""Splits MIME multipart user data into its parts, unchanged, and joins parts into an archive.

cloud-init reads all parts, nodeadm only the parts of the outermost level: so the user's parts are
moved into Leeway's archive, with all of their headers.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from itertools import chain, count

from leeway.bootstrap.problems import UserDataError

FIELD = "spec.userData"

SHELL = 'Content-Type: text/x-shellscript; charset="us-ascii"'
NODE_CONFIG = "Content-Type: application/node.eks.aws"

_HEADER = re.compile(r"[!-9;-~]+:[^\x00-\x08\x0a-\x1f]*|[ \t]+[^\s\x00-\x1f][^\x00-\x08\x0a-\x1f]*")
_WINDOWS_LINE_END = re.compile(r"\r+\n")
_LINE_END = re.compile(r"[\r\n]")
_BEGINS = re.compile(r"(MIME-Version|Content-Type):", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Part:
    """One part: its header lines, and its content after the empty line."""

    header: str
    body: str

    @property
    def content_type(self) -> str:
        """The media type, such as text/x-shellscript."""
        return _message(self.header).get_content_type()


def with_unix_lines(text: str) -> str:
    """Return user data with `\\n` at each line's end: no shell reads `\\r\\n`."""
    return _WINDOWS_LINE_END.sub("\n", text.removeprefix("\ufeff")).rstrip("\r")


def parts_of(text: str) -> tuple[Part, ...] | None:
    """Split MIME into its parts; None if the text is not MIME. Its lines end with `\\n`.

    Raises:
        UserDataError: it begins like MIME, and is not valid.
    """
    header, _, body = text.lstrip().partition("\n\n")
    message = _message(header)
    is_header = _is_header(header)
    if not _BEGINS.match(header) and not (is_header and "Content-Type" in message):
        return None
    if not is_header:
        raise UserDataError(FIELD, "expected an empty line after the header of the MIME archive")
    if message.get_content_maintype() != "multipart":
        kept = (line for line in _unfolded(header) if not line.lower().startswith("mime-version:"))
        return (Part("\n".join(kept), body),)
    boundary = message.get_boundary()
    if not boundary:
        raise UserDataError(FIELD, "expected a boundary in the Content-Type of the MIME archive")
    return tuple(_part(number, one) for number, one in enumerate(_cut(body, boundary), 1))


def archive(parts: Iterable[Part]) -> str:
    """Join parts, with a boundary that no line of a part begins with."""
    given = tuple(parts)
    lines = {line for part in given for line in _LINE_END.split(part.body) if line.startswith("--")}
    candidates = chain(["//"], (f"leeway-{number}" for number in count(1)))
    boundary = next(
        one for one in candidates if not any(line.startswith(f"--{one}") for line in lines)
    )
    text = f'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="{boundary}"\n\n'
    for part in given:
        header = f"{part.header}\n" if part.header else ""
        text += f"--{boundary}\n{header}\n{part.body}\n"
    return f"{text}--{boundary}--\n"


def _cut(body: str, boundary: str) -> Iterator[str]:
    """The text of each part, without the text before the first part and after the last one. The
    line end before a boundary belongs to the boundary.

    An archive may end with `--boundary` instead of `--boundary--`: Go's mime/multipart, which
    Karpenter and nodeadm read with, finds no further part after it.
    """
    found: list[str] | None = None
    for line in body.split("\n"):
        end = line.rstrip(" \t")
        if end in {f"--{boundary}", f"--{boundary}--"}:
            if found is not None:
                yield "\n".join(found)
            found = []
            if end.endswith(f"{boundary}--"):
                return
        elif found is not None:
            found.append(line)
    if found is None:
        raise UserDataError(FIELD, f"expected the MIME boundary --{boundary} on a line")
    if any(found):
        yield "\n".join(found)


def _part(number: int, text: str) -> Part:
    if text.startswith("\n"):
        return Part("", text.removeprefix("\n"))
    header, empty_line, body = text.partition("\n\n")
    if not empty_line or not _is_header(header):
        raise UserDataError(
            FIELD, f"expected a header and an empty line in part {number} of the MIME archive"
        )
    return Part(header, body)


def _is_header(text: str) -> bool:
    lines = text.split("\n")
    return all(map(_HEADER.fullmatch, lines)) and not lines[0].startswith((" ", "\t"))


def _message(header: str) -> Message:
    return HeaderParser().parsestr(f"{header}\n\n")


def _unfolded(header: str) -> list[str]:
    return re.sub(r"\n[ \t]+", " ", header).split("\n")
