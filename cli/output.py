"""Where a command's output goes: its result to stdout, everything else to stderr."""

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
"""Columns that no line of a result has."""


class Format(StrEnum):
    """How a result is printed."""

    TABLE = "table"
    JSON = "json"


FormatOption = Annotated[
    Format, typer.Option("--output", "-o", help="How the result is printed on stdout.")
]


def tell(text: str) -> None:
    """Write a line, or several, on stderr. Not by a console, whose set-up takes longer than a
    drain's evictions."""
    sys.stderr.write(f"{printable_lines(text)}\n")


def show(text: str) -> None:
    """Write a line, or several, of the result on stdout."""
    sys.stdout.write(f"{printable_lines(text)}\n")


def print_json(document: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print one JSON document on stdout."""
    # Within strings, which is where they can be, the escapes are JSON's own.
    show(json.dumps(document, indent=2, ensure_ascii=False))


def messages() -> "Console":
    """A console on stderr, for messages and progress."""
    from cli.terminal import terminal

    return terminal(stderr=True)


def results() -> "Console":
    """A console on stdout, for the result itself. What reads it through a pipe gets whole lines."""
    from cli.terminal import terminal

    width = None if sys.stdout.isatty() else UNBROKEN
    return terminal(width=width)
