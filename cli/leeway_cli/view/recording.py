"""The record of a page: a file of lines of JSON that keeps the last hour.

The first line has the page at the beginning, each further line what changed. Every ten minutes the
changes that are older than an hour go into the first line.
"""

import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal, Self

import msgspec
from msgspec import Struct

from leeway_cli.errors import BadInputError, CannotBeDoneError, as_clause, unreadable
from leeway_cli.view.picture import KEPT, Change, Picture, applied, difference

SHORTENED_EVERY = 600.0
"""Seconds by which a record may exceed its hour."""

LONGEST_LINE = 64 * 1024 * 1024
"""Bytes. A page of 500 nodes and 10,000 pods has one."""


class First(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The first line."""

    leeway_view: Literal[1]
    picture: Picture


class Recording:
    """Writes a record. Only the user who runs the command can read the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._first: Picture | None = None
        self._last: Picture | None = None
        self._changes: deque[Change] = deque()
        self._file = _created(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, picture: Picture) -> None:
        """Write what has changed since the picture before.

        Raises:
            CannotBeDoneError: the file cannot be written.
        """
        try:
            if self._last is None:
                self._first = picture
                self._file.write(_line(First(1, picture)))
            else:
                self._changes.append(difference(self._last, picture))
                self._file.write(_line(self._changes[-1]))
            self._file.flush()
            self._last = picture
            self._shorten(picture.at)
        except OSError as error:
            raise CannotBeDoneError(
                f"The record {self._path} could not be written: {error.strerror}."
            ) from error

    def _shorten(self, now: float) -> None:
        """Write the file again without changes that are older than an hour."""
        since = now - KEPT.total_seconds()
        if self._first is None or self._first.at > since - SHORTENED_EVERY:
            return
        while self._changes and self._changes[0].at <= since:
            self._first = applied(self._first, self._changes.popleft())
        new = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        file = _created(new)
        file.write(_line(First(1, self._first)))
        file.writelines(map(_line, self._changes))
        file.flush()
        new.replace(self._path)
        self._file.close()
        self._file = file


def _created(path: Path) -> BinaryIO:
    try:
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise BadInputError(f"--record: expected a new file, but {path} exists.") from None
    except OSError as error:
        raise unreadable(path, error) from error
    return os.fdopen(made, "wb")


def _line(one: Struct) -> bytes:
    return msgspec.json.encode(one) + b"\n"


def read_recording(path: Path) -> bytes:
    """Return the lines of a record, each of which was checked.

    Raises:
        BadInputError: the file cannot be read, or is no record. The message names the line.
    """
    try:
        with path.open("rb") as file:
            return b"".join(_checked(file, path))
    except OSError as error:
        raise unreadable(path, error) from error


def _checked(file: BinaryIO, path: Path) -> Iterator[bytes]:
    latest = 0.0
    for number in range(1, 1_000_000):
        line = file.readline(LONGEST_LINE)
        # A command that was killed may leave a part of a line.
        if not line.endswith(b"\n") and (number > 1 or not line):
            break
        try:
            if number == 1:
                at = msgspec.json.decode(line, type=First).picture.at
            else:
                at = msgspec.json.decode(line, type=Change).at
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise _bad(path, number, as_clause(error)) from error
        if at < latest:
            raise _bad(path, number, "its time is before that of the line above")
        latest = at
        yield line
    if not latest:
        raise _bad(path, 1, "the file is empty")


def _bad(path: Path, number: int, problem: str) -> BadInputError:
    return BadInputError(
        f"{path}: line {number}: expected a record of `leeway view --record`: {problem}."
    )
