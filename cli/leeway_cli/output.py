"""Writes the result of a command to stdout or to a page, and everything else to stderr."""

import json
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from leeway.printable import printable_lines

from leeway_cli.errors import BadInputError, CannotBeDoneError

if TYPE_CHECKING:
    from jinja2 import Environment
    from rich.console import Console
    from rich.table import Table


UNBROKEN = 10_000
"""A width in columns that no line of a result reaches."""


class Format(StrEnum):
    """The output formats of a result."""

    TABLE = "table"
    JSON = "json"


FormatOption = Annotated[
    Format, typer.Option("--output", "-o", help="Set the format of the result on stdout.")
]


def _write_stderr(text: str) -> None:
    sys.stderr.write(f"{printable_lines(text)}\n")


_writer: ContextVar[Callable[[str], None]] = ContextVar("_writer", default=_write_stderr)


def write_stderr(text: str) -> None:
    """Write lines to stderr. It needs no console, whose start takes longer than the evictions of a
    drain."""
    _writer.get()(text)


@contextmanager
def kept_warnings(*, written: bool = False) -> Iterator[list[str]]:
    """Keep what this thread would write to stderr, for a command that reads again and again. If
    `written`, it is also written."""
    kept: list[str] = []
    outer = _writer.get()

    def keep(text: str) -> None:
        kept.append(text)
        if written:
            outer(text)

    token = _writer.set(keep)
    try:
        yield kept
    finally:
        _writer.reset(token)


def write_stdout(text: str) -> None:
    """Write lines of the result to stdout."""
    sys.stdout.write(f"{printable_lines(text)}\n")


FORMAT_VERSION = 1
"""The version of all JSON documents that commands print. docs/json.md says what changes it."""


def print_json(document: Mapping[str, Any], rows: str = "") -> None:
    """Print one JSON document on stdout, with the version of its format. A manifest has its own,
    the apiVersion. The list in the field `rows`, the last one, has a line for each element: a
    region has over a thousand instance types."""
    own = "apiVersion" in document
    versioned = document if own else {"formatVersion": FORMAT_VERSION, **document}
    if rows:
        lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in versioned[rows])
        head = json.dumps({**versioned, rows: []}, indent=2, ensure_ascii=False)
        write_stdout(head.removesuffix("]\n}") + f"\n{lines}\n]\n}}")
        return
    # Control characters occur only in strings, where JSON escapes them.
    write_stdout(json.dumps(versioned, indent=2, ensure_ascii=False))


def stderr_console() -> "Console":
    """Return a console on stderr, for messages and progress."""
    from leeway_cli.terminal import terminal

    return terminal(stderr=True)


def stdout_console() -> "Console":
    """Return a console on stdout, for the result. It does not wrap lines in a pipe."""
    from leeway_cli.terminal import terminal

    width = None if sys.stdout.isatty() else UNBROKEN
    return terminal(width=width)


FLAT = {"flat": True}
"""The metadata of a field whose own fields stand in its place in JSON."""


def as_json(value: Any, name: str = "", *, epoch: bool = False) -> Any:
    """Render dataclasses as JSON: fields in camelCase, an empty text as null.

    With `epoch`, a number in a field whose name ends with `at` is an epoch second, and becomes a
    time of RFC 3339.
    """
    match value:
        case Enum():
            return value.value
        case datetime():
            return value.isoformat()
        case Mapping():
            return {key: as_json(one, epoch=epoch) for key, one in value.items()}
        case list() | tuple():
            return [as_json(one, name, epoch=epoch) for one in value]
        case set() | frozenset():
            return sorted(value)
        case float() if epoch and name.split("_")[-1] == "at":
            return datetime.fromtimestamp(value, UTC).isoformat(timespec="milliseconds")
        case float():
            return round(value, 6)
        case "":
            return None
    return _fields(value, epoch=epoch)


def _fields(value: Any, *, epoch: bool) -> Any:
    """Render a pydantic model or a dataclass; anything else is JSON already."""
    if (model := getattr(type(value), "model_fields", None)) is not None:
        return picked(value, *model)
    if not is_dataclass(value):
        return value
    found: dict[str, Any] = {}
    for one in fields(value):
        rendered = as_json(getattr(value, one.name), one.name, epoch=epoch)
        if one.metadata == FLAT:
            found |= rendered
        else:
            found[camel(one.name)] = rendered
    return found


def picked(value: object, *names: str, **renamed: str) -> dict[str, Any]:
    """Render some attributes as JSON: `names` in camelCase, `renamed` with other names."""
    found = {camel(name): as_json(getattr(value, name)) for name in names}
    return found | {key: as_json(getattr(value, name)) for key, name in renamed.items()}


def table(*titles: str, right: Collection[str] = ()) -> "Table":
    """Return a table without borders; `right` are the titles of columns of numbers."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False)
    for title in titles:
        made.add_column(title, overflow="fold", justify="right" if title in right else "left")
    return made


def camel(name: str) -> str:
    """Render the name of a field as JSON names it."""
    return re.sub(r"_(\w)", lambda found: found[1].upper(), name)


def templates() -> "Environment":
    """Return the environment of `cli/templates`: values are escaped, a missing one is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("leeway_cli"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def check_page_path(option: str, path: Path) -> None:
    """Check that a page can be written to a path, before the work begins.

    Raises:
        BadInputError: it is a folder, or is in no folder.
    """
    if path.is_dir():
        raise BadInputError(f"{option}: expected a file, but {path} is a folder.")
    if not path.absolute().parent.is_dir():
        raise BadInputError(
            f"{option}: expected a file in a folder, but {path.absolute().parent} is no folder."
        )


def write_page(path: Path, page: str, result: Mapping[str, Any] | None = None) -> None:
    """Write a page. `result` has the fields of the JSON document that is printed in any case.

    Raises:
        CannotBeDoneError: the file cannot be written.
    """
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise CannotBeDoneError(
            f"The page {path} could not be written: {error.strerror}.", result=result
        ) from error
