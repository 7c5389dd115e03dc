"""Where a command's output goes: its result to stdout, everything else to stderr."""

import json
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

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


def print_json(document: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print one JSON document on stdout."""
    json.dump(document, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def messages() -> "Console":
    """A console on stderr, for messages and progress."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def results() -> "Console":
    """A console on stdout, for the result itself. What reads it through a pipe gets whole lines."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else UNBROKEN
    return Console(highlight=False, width=width)
