"""Read manifests from YAML or JSON text: documents and lists, each with its line."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leeway.manifests.interpreting import Interpreted, Written, interpret
from leeway.manifests.problems import Path, Problem, too_large, without

LARGEST = 350 * 1024
"""The most bytes of a manifest as compact JSON with aliases expanded. A manifest is one DynamoDB
item, which holds at most 400 KB with its other attributes."""

if TYPE_CHECKING:
    from leeway.manifests.documents import Value


@dataclass(frozen=True, slots=True)
class Reading:
    """The manifests of a text with their problems. A caller that acts on `written` checks
    `problems` first."""

    written: tuple[Written, ...] = ()
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()

    def __add__(self, other: "Reading") -> "Reading":
        return Reading(
            self.written + other.written,
            self.problems + other.problems,
            self.warnings + other.warnings,
        )


def read_manifests(text: str, source: str) -> Reading:
    """Read all manifests of a text; `source` names the text in problems."""
    # Functions read only stored manifests, which are JSON, and start without the YAML parser.
    from leeway.manifests.documents import read_documents

    documents = read_documents(text, source)
    reading = Reading(problems=documents.problems)
    for value in documents.values:
        for item in _items(value):
            reading += _read_item(item, source)
    return reading


def _read_item(item: "Value", source: str) -> Reading:
    if item.size > LARGEST:
        return Reading(problems=(Problem(source, item.line, (), too_large(item.size, LARGEST)),))
    return _as_reading(interpret(item.plain(), source, item.line_of))


def read_stored(body: str, source: str) -> Reading:
    """Read one stored manifest, which is JSON; problems have no line."""
    try:
        document = json.loads(body)
    except ValueError as error:
        return Reading(problems=(Problem(source, 0, (), f"not valid JSON: {error}"),))
    return _as_reading(interpret(document, source, _nowhere))


def read_salvaged(body: str, source: str) -> Reading:
    """Read one stored manifest without its wrong fields, and report these as problems: the valid
    part of a policy still applies."""
    reading = read_stored(body, source)
    if reading.written or not reading.problems:
        return reading
    try:
        document = without(json.loads(body), (problem.path for problem in reading.problems))
    except ValueError:
        return reading
    return Reading(_as_reading(interpret(document, source, _nowhere)).written, reading.problems)


def _nowhere(_path: Path) -> int:
    return 0


def _as_reading(found: Interpreted) -> Reading:
    written = () if found.written is None else (found.written,)
    return Reading(written, found.problems, found.warnings)


def _items(value: "Value") -> "Iterator[Value]":
    """Expand `kind: List`, which kubectl prints for several objects."""
    content = value.content
    if isinstance(content, dict) and "items" in content and "kind" in content:
        kind, items = content["kind"].content, content["items"].content
        if kind == "List" and isinstance(items, list):
            for item in items:
                yield from _items(item)
            return
    yield value
