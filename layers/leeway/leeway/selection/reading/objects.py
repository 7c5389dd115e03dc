"""Documents of the Kubernetes API, and what is said of one that is not as it should be."""

from collections.abc import Mapping, Sequence
from typing import Any

type Document = Mapping[str, Any]


class BadObject(ValueError):
    """An object that is not as the API has it. `path` leads to the field that is wrong."""

    def __init__(self, path: Sequence[str | int], message: str) -> None:
        super().__init__(message)
        self.path = tuple(path)
