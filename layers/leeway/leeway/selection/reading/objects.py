"""Documents of the Kubernetes API, and what is said of one that is not as it should be."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

type Document = Mapping[str, Any]

LONGEST_SHOWN = 60
"""Characters of a wrong value that are repeated to its author."""


class BadObject(ValueError):
    """An object that is not as the API has it. `path` leads to the field that is wrong."""

    def __init__(self, path: Sequence[str | int], message: str) -> None:
        super().__init__(message)
        self.path = tuple(path)

    def below(self, *path: str | int) -> "BadObject":
        """Return the error as seen from further up: its path begins with this one."""
        return BadObject((*path, *self.path), str(self))


def shown(value: Any) -> str:
    """Render a wrong value for its author: what it is, not all of it."""
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
