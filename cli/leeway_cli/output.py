"""Writes the result of a command to stdout and everything else to stderr."""

import json
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from leeway.printable import printable_lines

if TYPE_CHECKING:
    from rich.console import Console


UNBROKEN = 10_000
"""A width in columns that no line of a result reaches."""


class Format(StrEnum):
    """The output formats of a result."""

    TABLE = "table"
    JSON = "json"


FormatOption = Annotated[
    Format, typer.Option("--output", "-o", help="Set the format of the result on stdout.")
]


def write_stderr(text: str) -> None:
    """Write lines to stderr. It needs no console, whose start takes longer than the evictions of a
    drain."""
    sys.stderr.write(f"{printable_lines(text)}\n")


def write_stdout(text: str) -> None:
    """Write lines of the result to stdout."""
    sys.stdout.write(f"{printable_lines(text)}\n")


def print_json(document: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print one JSON document on stdout."""
    # Control characters occur only in strings, where JSON escapes them.
    write_stdout(json.dumps(document, indent=2, ensure_ascii=False))


def stderr_console() -> "Console":
    """Return a console on stderr, for messages and progress."""
    from leeway_cli.terminal import terminal

    return terminal(stderr=True)


def stdout_console() -> "Console":
    """Return a console on stdout, for the result. It does not wrap lines in a pipe."""
    from leeway_cli.terminal import terminal

    width = None if sys.stdout.isatty() else UNBROKEN
    return terminal(width=width)
