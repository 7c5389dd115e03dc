"""Documents with a value of a wrong shape somewhere, for tests of what reads them."""

import copy
from collections.abc import Iterator
from typing import Any

type Path = tuple[str | int, ...]

WRONG: list[Any] = [
    *(None, True, -1, 5, "x", "a b", "1e999"),
    *([], [None], [1], {}, {"a": 1}),
]


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every path of a document, but not that of the whole."""
    if path:
        yield path
    members: Any = ()
    if isinstance(value, dict):
        members = value.items()
    elif isinstance(value, list):
        members = enumerate(value)
    for key, member in members:
        yield from paths(member, (*path, key))


def replaced(document: Any, path: Path, value: Any) -> Any:
    """The document with another value at a path. It shares whatever is not on the path."""
    first, *rest = path
    changed = copy.copy(document)
    changed[first] = replaced(document[first], tuple(rest), value) if rest else value
    return changed
