"""`leeway reasons`: prints the meaning of reason codes and the sections of the runbook."""

import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from leeway_cli.errors import BadInputError
from leeway_cli.output import picked, print_json, stdout_console, table, write_stdout

RUNBOOK = "runbook.md"

_DECLARATION = re.compile(r"^([A-Z0-9_]+) = ReasonCode\(", re.MULTILINE)


class ReasonFormat(StrEnum):
    """The output formats of codes."""

    TABLE = "table"
    JSON = "json"
    MARKDOWN = "markdown"


@dataclass(frozen=True, slots=True)
class DeclaredCode:
    """A reason code with the part that declares it. `runbook` is the anchor of a section of
    docs/runbook.md, empty if nobody has to act."""

    part: str
    name: str
    sentence: str
    runbook: str


@cache
def declared_codes() -> tuple[DeclaredCode, ...]:
    """Collect the codes that the modules of Leeway and of `leeway doctor` declare, by part and
    name."""
    found = [*_in_layer(), *_of_doctor(), *_errors()]
    return tuple(sorted(found, key=lambda code: (code.part, code.name)))


def _in_layer() -> Iterator[DeclaredCode]:
    import leeway

    for path in sorted(Path(leeway.__path__[0]).rglob("*.py")):
        if declared := _DECLARATION.findall(path.read_text(encoding="utf-8")):
            parts = path.relative_to(leeway.__path__[0]).with_suffix("").parts
            module = importlib.import_module(".".join(("leeway", *parts)))
            for code in (getattr(module, name) for name in declared):
                yield DeclaredCode(parts[0], code.name, code.plain_sentence, code.runbook)


ERRORS = "errors"
"""The part of the errors of AWS and of API servers, which stand in the sentences of other codes."""


def _errors() -> Iterator[DeclaredCode]:
    from leeway.execution.retrying import API_ERRORS

    for module in ("leeway.ports.aws", "leeway.ports.kubernetes"):
        for one in vars(importlib.import_module(module)).values():
            if isinstance(one, type) and issubclass(one, API_ERRORS):
                sentence = " ".join((one.__doc__ or "").split())
                yield DeclaredCode(ERRORS, one.__name__, sentence, "clusterproblemsalarm")


def _of_doctor() -> Iterator[DeclaredCode]:
    from leeway.reasons import ReasonCode

    from leeway_cli.doctor import reasons as declared

    for code in [one for one in vars(declared).values() if isinstance(one, ReasonCode)]:
        yield DeclaredCode("doctor", code.name, code.plain_sentence, code.runbook)


def reasons(
    codes: Annotated[
        list[str] | None, typer.Argument(metavar="[CODE]...", help="Print these codes only.")
    ] = None,
    output: Annotated[
        ReasonFormat, typer.Option("--output", "-o", help="Set the format of the codes on stdout.")
    ] = ReasonFormat.TABLE,
) -> None:
    """Print the meaning of reason codes, and the sections of the runbook with the actions.

    Log lines, events, outcomes and findings of `leeway doctor` carry these codes.
    """
    declared = declared_codes()
    if codes:
        known = {code.name: code for code in declared}
        if unknown := [name for name in codes if name not in known]:
            raise BadInputError(
                f"CODE: expected a code that `leeway reasons` lists, got {unknown[0]}."
            )
        declared = tuple(known[name] for name in codes)
    match output:
        case ReasonFormat.JSON:
            names = ("part", "sentence", "runbook")
            print_json({"codes": [picked(code, *names, code="name") for code in declared]})
        case ReasonFormat.MARKDOWN:
            write_stdout(page_of(declared).rstrip("\n"))
        case ReasonFormat.TABLE:
            rows = table("CODE", "PART", "SENTENCE", "RUNBOOK")
            for code in declared:
                rows.add_row(code.name, code.part, code.sentence, code.runbook or "-")
            stdout_console().print(rows)


_INTRODUCTION = (
    "Every outcome, log line, Kubernetes Event, Leeway event and finding of `leeway doctor` "
    "carries a code and a sentence. Codes are stable: use them in log queries and in rules. "
    "`leeway reasons CODE` prints the same in a terminal. Each alarm has a section in the "
    "[runbook](runbook.md)."
)


def page_of(codes: tuple[DeclaredCode, ...]) -> str:
    """Render docs/reasons.md."""
    lines = [
        "# Reason codes",
        "",
        _INTRODUCTION,
        "",
        "This page is made by `make reasons` from the code; edit the `reasons` modules instead.",
    ]
    part = ""
    for code in codes:
        if code.part != part:
            part = code.part
            lines += ["", f"## {part}", "", "| code | sentence | runbook |", "| --- | --- | --- |"]
        section = f"[{code.runbook}]({RUNBOOK}#{code.runbook})" if code.runbook else ""
        lines.append(f"| `{code.name}` | {_cell(code.sentence)} | {section} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
