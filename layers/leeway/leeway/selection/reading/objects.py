"""Kubernetes API documents, and the error for invalid ones."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

type Document = Mapping[str, Any]

LONGEST_SHOWN = 60
"""Maximum number of characters of an invalid value in an error."""


def name_of(document: Document) -> str:
    """Return an object's name; empty if it has none yet."""
    return str((document.get("metadata") or {}).get("name") or "")


def namespace_of(document: Document) -> str:
    """Return an object's namespace, `default` by default."""
    return str((document.get("metadata") or {}).get("namespace") or "default")


def key_of(document: Document) -> str:
    """Return `namespace/name`, or `namespace/generateName` of an object without a name."""
    metadata = document.get("metadata") or {}
    name = metadata.get("name") or metadata.get("generateName") or ""
    return f"{namespace_of(document)}/{name}"


class BadObject(ValueError):
    """An invalid object. `path` leads to the invalid field."""

    def __init__(self, path: Sequence[str | int], message: str) -> None:
        super().__init__(message)
        self.path = tuple(path)

    def below(self, *path: str | int) -> "BadObject":
        """Return the error with its path extended at the front."""
        return BadObject((*path, *self.path), str(self))


def creation_time(document: Document) -> datetime:
    """Return when an object was created, which every stored object says.

    Raises:
        BadObject: the time is missing or invalid.
    """
    text = (document.get("metadata") or {}).get("creationTimestamp")
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError:
        path = ("metadata", "creationTimestamp")
        raise BadObject(path, f"expected a time, got {text!r}"[:80]) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def shown(value: Any) -> str:
    """Render an invalid value, shortened."""
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
