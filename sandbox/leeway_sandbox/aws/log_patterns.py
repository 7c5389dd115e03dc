"""Filter patterns of CloudWatch Logs: which log events a pattern selects.

Rules: "Filter pattern syntax for metric filters, subscription filters, filter log events, and Live
Tail" in the user guide. moto lets every event pass that a JSON pattern refuses. Patterns for
space-delimited events (`[a, b]`) are not supported.
"""

import json
import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

type Selects = Callable[[str], bool]
"""Whether the message of a log event is selected."""

type _Finds = Callable[[Any], bool]
"""The same for a message that is JSON."""

_TERM = re.compile(r'\s*([?-]?)(?:"((?:[^"\\]|\\.)*)"|(%[^%]+%)|([^\s"]+))')
_TOKEN = re.compile(
    r'\s*(?:(&&|\|\||[()]|!=|<=|>=|[=<>])|("(?:[^"\\]|\\.)*"|%[^%]+%)|([^\s"%=!<>()&|]+))'
)
_SELECTOR = re.compile(r"\$((?:\.[\w-]+|\[\d+\]|\.?\['[^']+'\])+)")
_PART = re.compile(r"\.([\w-]+)|\[(\d+)\]|\.?\['([^']+)'\]")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


class BadPatternError(ValueError):
    """CloudWatch Logs refuses the pattern."""


def selecting(pattern: str) -> Selects:
    """Return what a pattern selects; the empty pattern selects everything.

    Raises:
        BadPatternError: the pattern is invalid.
    """
    text = pattern.strip()
    if text.startswith("["):
        raise NotImplementedError("patterns for space-delimited log events")
    if text.startswith("{"):
        if not text.endswith("}"):
            raise BadPatternError("Invalid filter pattern: the closing } is missing")
        return _of_json(_Expression(text[1:-1]).whole())
    return _of_terms(text)


def _of_terms(text: str) -> Selects:
    """Terms are words or phrases. `?` terms count only without other terms."""
    wanted: dict[str, list[re.Pattern[str]]] = {"": [], "?": [], "-": []}
    at = 0
    while at < len(text):
        found = _TERM.match(text, at)
        if found is None:
            raise BadPatternError("Invalid filter pattern: a quotation mark is not closed")
        sign, phrase, regex, word = found.groups()
        if word is not None and not re.fullmatch(r"\w+", word, re.ASCII):
            raise BadPatternError(f"Invalid character(s) in term '{word}'")
        wanted[sign].append(_term(phrase if phrase is not None else word, regex))
        at = found.end()
    required, either, excluded = wanted[""], wanted["?"], wanted["-"]
    if required or excluded:
        return lambda message: (
            all(one.search(message) for one in required)
            and not any(one.search(message) for one in excluded)
        )
    return lambda message: not either or any(one.search(message) for one in either)


def _term(text: str | None, regex: str | None) -> re.Pattern[str]:
    if text is None:
        return re.compile((regex or "")[1:-1])
    literal = re.escape(_unescaped(text))
    return re.compile(rf"(?<!\w){literal}(?!\w)" if re.fullmatch(r"\w+", text) else literal)


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _of_json(finds: _Finds) -> Selects:
    def selects(message: str) -> bool:
        if not message.startswith("{"):
            return False
        try:
            document = json.loads(message)
        except ValueError:
            return False
        return finds(document)

    return selects


class _Expression:
    """A JSON pattern without its braces: conditions that && and || join."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        at = 0
        while text[at:].strip():
            found = _TOKEN.match(text, at)
            if found is None:
                raise BadPatternError(f"Invalid filter pattern at '{text[at:].strip()}'")
            self._tokens.append(next(one for one in found.groups() if one is not None))
            at = found.end()

    def whole(self) -> _Finds:
        """Return the condition of the whole expression."""
        found = self._either()
        if self._tokens:
            raise BadPatternError(f"Invalid filter pattern at '{self._tokens[0]}'")
        return found

    def _take(self, *expected: str) -> str:
        if not self._tokens or (expected and self._tokens[0] not in expected):
            at = self._tokens[0] if self._tokens else "its end"
            raise BadPatternError(f"Invalid filter pattern at '{at}'")
        return self._tokens.pop(0)

    def _either(self) -> _Finds:
        parts = [self._both()]
        while self._tokens[:1] == ["||"]:
            self._take()
            parts.append(self._both())
        return lambda document: any(part(document) for part in parts)

    def _both(self) -> _Finds:
        parts = [self._one()]
        while self._tokens[:1] == ["&&"]:
            self._take()
            parts.append(self._one())
        return lambda document: all(part(document) for part in parts)

    def _one(self) -> _Finds:
        if self._tokens[:1] == ["("]:
            self._take()
            inner = self._either()
            self._take(")")
            return inner
        read = _reading(self._take())
        operator = self._take("=", "!=", "<", "<=", ">", ">=", "IS", "NOT")
        if operator == "NOT":
            self._take("EXISTS")
            return lambda document: not read(document)
        if operator == "IS":
            value = {"NULL": None, "TRUE": True, "FALSE": False}[
                self._take("NULL", "TRUE", "FALSE")
            ]
            return lambda document: any(one is value for one in read(document))
        holds = _comparison(operator, self._take())
        return lambda document: any(one is not None and holds(one) for one in read(document))


def _reading(selector: str) -> Callable[[Any], list[Any]]:
    """Return how to read a field: a list with its value, empty if there is none."""
    if not (found := _SELECTOR.fullmatch(selector)):
        raise BadPatternError(f"Invalid filter pattern: '{selector}' is no property selector")
    keys = [
        int(index) if index else name or quoted for name, index, quoted in _PART.findall(found[1])
    ]

    def read(document: Any) -> list[Any]:
        for key in keys:
            try:
                document = document[key]
            except (LookupError, TypeError):
                return []
        return [document]

    return read


def _comparison(operator: str, value: str) -> _Finds:
    if operator in ("=", "!="):
        equals = _equality(value)
        return equals if operator == "=" else lambda one: not equals(one)
    if not _NUMBER.fullmatch(value):
        raise BadPatternError(f"Invalid filter pattern: {operator} needs a number, not '{value}'")
    limit = float(value)
    compare: dict[str, Callable[[float], bool]] = {
        "<": lambda one: one < limit,
        "<=": lambda one: one <= limit,
        ">": lambda one: one > limit,
        ">=": lambda one: one >= limit,
    }
    holds = compare[operator]
    return lambda one: isinstance(one, int | float) and not isinstance(one, bool) and holds(one)


def _equality(value: str) -> _Finds:
    if value.startswith("%"):
        regex = re.compile(value[1:-1])
        return lambda one: regex.search(_text(one)) is not None
    if _NUMBER.fullmatch(value):
        number = float(value)
        return lambda one: not isinstance(one, bool | str) and one == number
    wanted = _unescaped(value[1:-1]) if value.startswith('"') else value
    # Only * is a wildcard, at any place.
    pattern = re.sub(r"[?\[]", r"[\g<0>]", wanted)
    return lambda one: fnmatchcase(_text(one), pattern)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
