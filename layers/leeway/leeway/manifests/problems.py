"""Errors and warnings about manifests: each has a file, a line, a field and one sentence."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

type Path = tuple[str | int, ...]
"""A place in a document: keys and list positions from the root."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One error or warning. `line` counts from 1, and is 0 if the text is not available; an empty
    path means the whole document."""

    source: str
    line: int
    path: Path
    message: str

    @property
    def field(self) -> str:
        """The path as text; empty for the whole document."""
        return rendered(self.path)

    def __str__(self) -> str:
        """Render as `FILE:LINE: FIELD: MESSAGE`."""
        place = f"{self.source}:{self.line}" if self.line else self.source
        return ": ".join(part for part in (place, self.field, self.message) if part)


@dataclass(frozen=True, slots=True)
class Note:
    """A warning about one field."""

    path: Path
    message: str


def without(document: Any, paths: Iterable[Path]) -> Any:
    """Copy the document without the values at the paths; paths that do not exist are ignored."""
    dropped = set(paths)

    def copy(value: Any, path: Path) -> Any:
        if isinstance(value, dict):
            kept = {key: item for key, item in value.items() if (*path, key) not in dropped}
            return {key: copy(item, (*path, key)) for key, item in kept.items()}
        if isinstance(value, list):
            return [
                copy(item, (*path, index))
                for index, item in enumerate(value)
                if (*path, index) not in dropped
            ]
        return value

    return copy(document, ())


def rendered(path: Path) -> str:
    """Render a path as text: `spec.terms[0].tags["a/b"]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif "." in part or "/" in part or not part:
            text += f'["{part}"]'
        else:
            text += f".{part}" if text else part
    return text


def too_large(size: int, most: int) -> str:
    """Render the message for a text that has too many bytes."""
    return f"too large: {size // 1024:,} KB; the limit is {most // 1024:,} KB"


def listed(words: Sequence[str]) -> str:
    """Render alternatives: `a, b or c`."""
    return " or ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


def near_miss(word: str, known: Iterable[str]) -> str:
    """Render `; did you mean X?`, or an empty text if no known word is similar."""
    by_lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {by_lower[found[0]]}?" if found else ""
