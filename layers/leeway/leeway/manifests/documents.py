"""Read YAML or JSON text into documents whose values know their lines. The loader builds only the
types of JSON, and limits size, depth and time.

Plain scalars have the same types as in kubectl: booleans of YAML 1.1, numbers, otherwise text (a
date or `12:30` is text). Source: the resolution of go-yaml v2, which sigs.k8s.io/yaml uses.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import yaml

from leeway.manifests.base import Path, Problem, too_large

LARGEST_TEXT = 32 * 1024 * 1024
"""The most bytes of a file, and of each of its documents as compact JSON with aliases expanded."""

DEEPEST = 64
"""The most levels of nesting, with aliases expanded."""

MOST_DOCUMENTS = 100_000
"""The most documents of one text: more than the pending pods of any cluster, and few enough to
read in seconds."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset(w for t in ("y", "yes", "true", "on") for w in (t, t.title(), t.upper()))
_FALSE = frozenset(w for t in ("n", "no", "false", "off") for w in (t, t.title(), t.upper()))
# go-yaml reads `y` and `n` as text.
_BOOLEANS = dict.fromkeys(_TRUE - {"y", "Y"}, True) | dict.fromkeys(_FALSE - {"n", "N"}, False)
_INTEGER = re.compile(
    r"[-+]?(0b_*[01][01_]*|0x_*[0-9a-fA-F][0-9a-fA-F_]*|0o_*[0-7][0-7_]*|0[0-7_]*|[1-9][0-9_]*)"
)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SURROGATES = re.compile(
    r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"
)
_STANDARD = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True)
class Value:
    """A value and the line on which it begins; the line of a mapping's member is that of its key.

    `size` is an upper bound of the bytes of its compact JSON, and `depth` counts the levels below
    it, both with aliases expanded: an alias is the same Value again.
    """

    line: int
    size: int
    content: Any
    depth: int = 0

    def plain(self) -> Any:
        """Build the value from dicts, lists, text, numbers, booleans and None."""
        if isinstance(self.content, dict):
            return {key: member.plain() for key, member in self.content.items()}
        if isinstance(self.content, list):
            return [member.plain() for member in self.content]
        return self.content

    def line_of(self, path: Path) -> int:
        """Find the line of the value at the path, or of its nearest parent that exists."""
        value = self
        for part in path:
            content: Any = value.content
            in_list = isinstance(content, list) and isinstance(part, int) and part < len(content)
            if not in_list and not (isinstance(content, dict) and part in content):
                break
            value = content[part]
        return value.line


@dataclass(frozen=True, slots=True)
class Documents:
    """The documents of a text, without the empty ones, and the problems found in it."""

    values: tuple[Value, ...] = ()
    problems: tuple[Problem, ...] = ()


def read_documents(text: str, source: str) -> Documents:
    """Read all documents of a text; `source` names the text in problems. A syntax error ends the
    reading."""
    if len(text) > LARGEST_TEXT:
        return Documents(problems=(Problem(source, 0, (), too_large(len(text), LARGEST_TEXT)),))
    building = _Building(source)
    values: list[Value] = []
    try:
        events = yaml.parse(_SURROGATES.sub(_joined, text), Loader=_LOADER)
        starts = (event for event in events if isinstance(event, yaml.DocumentStartEvent))
        for _ in islice(starts, MOST_DOCUMENTS):
            value = building.document(events)
            if value is not None:
                values.append(value)
        if next(starts, None) is not None:
            message = f"expected at most {MOST_DOCUMENTS:,} documents"
            building.problems.append(Problem(source, 0, (), message))
    except yaml.YAMLError as error:
        building.problems.append(_syntax(error, text, source))
    except _GivenUp as error:
        building.problems.append(Problem(source, error.line, (), error.message))
    return Documents(tuple(values), tuple(building.problems))


def _joined(pair: re.Match[str]) -> str:
    """Join a surrogate pair: JSON writes a character beyond 16 bits as two escapes, which YAML does
    not support."""
    high, low = int(pair[2], 16), int(pair[3], 16)
    return pair[1] + chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))


class _GivenUp(Exception):
    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


def _syntax(error: yaml.YAMLError, text: str, source: str) -> Problem:
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return Problem(source, 0, (), f"not valid YAML: {' '.join(str(error).split())}")
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    indentation = line[: len(line) - len(line.lstrip())]
    if "\t" in indentation or line[mark.column : mark.column + 1] == "\t":
        return Problem(source, mark.line + 1, (), "tab in the indentation; YAML allows only spaces")
    said = getattr(error, "problem", None) or "it cannot be read"
    return Problem(source, mark.line + 1, (), f"not valid YAML: {said}")


@dataclass
class _Building:
    """Builds values from a parser's events."""

    source: str
    problems: list[Problem] = field(default_factory=list)
    anchors: dict[str, Value] = field(default_factory=dict)

    def document(self, events: Iterator[Any]) -> Value | None:
        """Build the document that starts here; None if it is empty."""
        self.anchors = {}
        value = self.value(next(events), events)
        return None if value.content is None else value

    def value(self, event: Any, events: Iterator[Any], above: int = 0) -> Value:
        line = event.start_mark.line + 1
        if above > DEEPEST:
            raise _GivenUp(line, _TOO_DEEP)
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self.anchors:
                raise _GivenUp(
                    line,
                    f"unknown alias *{event.anchor}: expected an anchor on a complete value above",
                )
            return self.anchors[event.anchor]
        if isinstance(event, yaml.ScalarEvent):
            value = self.scalar(event, line)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self.sequence(events, line, above)
        else:
            value = self.mapping(events, line, above)
        if event.anchor is not None:
            self.anchors[event.anchor] = value
        return value

    def scalar(self, event: yaml.ScalarEvent, line: int) -> Value:
        tag = (event.tag or "").removeprefix(_STANDARD)
        if tag not in {"", "!", "str", "int", "float", "bool", "null"}:
            written = (event.tag or "").replace(_STANDARD, "!!")
            raise _GivenUp(line, f"unsupported tag {written}: expected a plain value")
        text = event.value
        quoted = not event.implicit[0] or tag in {"!", "str"}
        content = text if quoted and tag not in {"int", "float", "bool", "null"} else _meant(text)
        return Value(line, _size_of(content), content)

    def sequence(self, events: Iterator[Any], line: int, above: int) -> Value:
        items: list[Value] = []
        size, depth = 2, 0
        for event in events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            item = self.value(event, events, above + 1)
            items.append(item)
            size, depth = _grown(line, size + item.size + 1, max(depth, item.depth + 1))
        return Value(line, size, items, depth)

    def mapping(self, events: Iterator[Any], line: int, above: int) -> Value:
        members: dict[str, Value] = {}
        merged: list[Value] = []
        size, depth = 2, 0
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            at = event.start_mark.line + 1
            key = self.key(event, at)
            value = self.value(next(events), events, above + 1)
            grown = size + _size_of(key) + value.size + 2
            size, depth = _grown(line, grown, max(depth, value.depth + 1))
            if key == "<<" and event.implicit[0]:
                merged += value.content if isinstance(value.content, list) else [value]
                continue
            if key in members:
                message = f"duplicate key {key!r}, first set on line {members[key].line}"
                self.problems.append(Problem(self.source, at, (), message))
            members[key] = Value(at, value.size, value.content, value.depth)
        for other in merged:
            if not isinstance(other.content, dict):
                raise _GivenUp(line, "expected a mapping or a list of mappings after <<")
            members = other.content | members
        return Value(line, size, members, depth)

    def key(self, event: Any, line: int) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            raise _GivenUp(line, "expected text as a key")
        return str(event.value)


_TOO_DEEP = f"expected at most {DEEPEST} levels of nesting"


def _grown(line: int, size: int, depth: int) -> tuple[int, int]:
    """Stop as soon as a collection is too large or too deep with aliases expanded: `<<` copies, and
    a document may merge the same mapping a thousand times."""
    if size > LARGEST_TEXT:
        raise _GivenUp(line, too_large(size, LARGEST_TEXT))
    if depth > DEEPEST:
        raise _GivenUp(line, _TOO_DEEP)
    return size, depth


def _size_of(content: Any) -> int:
    return len(json.dumps(content, ensure_ascii=False).encode())


def _meant(text: str) -> Any:
    """Return the value of a plain scalar."""
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INTEGER.fullmatch(text):
        return _integer(text.replace("_", ""))
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


class _Dumper(yaml.SafeDumper):
    """Quotes each text that kubectl would read as something else, such as 0E0 or on, and escapes
    the line breaks that a reader folds."""


_FOLDED = re.compile("[\x85\u2028\u2029]")


def _represented(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if _FOLDED.search(text) else "'" if _meant(text) != text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represented)


def as_yaml(document: Any) -> str:
    """Render a document as YAML, fields in their order."""
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text


def _integer(text: str) -> Any:
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-").lower()
    if len(digits) > 40:
        return text  # too long for a number, and slow to convert
    if digits.startswith(("0x", "0b", "0o")):
        return sign * int(digits, 0)
    if len(digits) > 1 and digits.startswith("0"):
        return sign * int(digits, 8)
    return sign * int(digits)
