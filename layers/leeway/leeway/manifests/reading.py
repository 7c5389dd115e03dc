"""Manifests as text → manifests: several documents, lists, YAML or JSON, each with its place."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leeway.manifests.interpreting import Interpreted, Written, interpret
from leeway.manifests.problems import Path, Problem, too_large, without

LARGEST = 350 * 1024
"""Bytes of a manifest as compact JSON, aliases expanded. One is kept as one DynamoDB item, which
takes 400 KB, with what else is said about it."""

if TYPE_CHECKING:
    from leeway.manifests.documents import Value


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read. Whoever acts on `written` looks at `problems` first."""

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
    """Read all manifests of a text; `source` names it in problems."""
    # Functions only read what is stored, which is JSON, and start without YAML.
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
    """Read one manifest as it is kept, which is JSON; its lines mean nothing to anybody."""
    try:
        document = json.loads(body)
    except ValueError as error:
        return Reading(problems=(Problem(source, 0, (), f"is no JSON: {error}"),))
    return _as_reading(interpret(document, source, _nowhere))


def read_salvaged(body: str, source: str) -> Reading:
    """Read one manifest as it is kept, without the fields that are wrong, which are problems all
    the same: of a policy, what can be read is better than nothing."""
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
    """Open `kind: List`, which is what kubectl prints of several objects."""
    content = value.content
    if isinstance(content, dict) and "items" in content and "kind" in content:
        kind, items = content["kind"].content, content["items"].content
        if kind == "List" and isinstance(items, list):
            for item in items:
                yield from _items(item)
            return
    yield value
