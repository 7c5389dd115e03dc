"""Reads Kubernetes objects from files, with the place of each for messages."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leeway_cli.errors import BadInputError, as_clause
from leeway_cli.manifests.files import read_texts
from leeway_cli.output import write_stderr

if TYPE_CHECKING:
    from leeway.manifests.documents import Value
    from leeway.selection.reading.objects import BadObject, Document


class KubernetesFiles:
    """The Kubernetes objects of some files, and the place of each.

    Raises:
        BadInputError: a file has an invalid object.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        from leeway.selection.reading.cluster_objects import checked
        from leeway.selection.reading.objects import BadObject, unknown_kinds

        self._places: list[tuple[str, Value]] = []
        self.documents: Sequence[Document] = tuple(self._read(paths))
        try:
            unread = unknown_kinds(self.documents)
            self.documents = checked(self.documents)
        except BadObject as error:
            raise self._invalid(error) from error
        for kind, position in unread.items():
            message = f"{kind} is ignored: Leeway reads no pods from it"
            write_stderr(f"warning: {self.place((position, 'kind'), message)}")

    def _read(self, paths: Sequence[Path]) -> "Iterator[Document]":
        from leeway.manifests.documents import read_documents

        for source, text in read_texts(paths):
            read = read_documents(text, source)
            for problem in read.problems:
                raise BadInputError(f"{as_clause(problem)}.")
            for value in read.values:
                for item, plain in _items_of(value, source):
                    if not isinstance(plain, dict):
                        raise BadInputError(f"{source}:{item.line}: expected a Kubernetes object.")
                    self._places.append((source, item))
                    yield plain

    def read_with[T](
        self,
        others: "KubernetesFiles",
        reading: "Callable[[Sequence[Document], Sequence[Document]], T]",
    ) -> T:
        """Read these objects together with the objects of other files.

        Raises:
            BadInputError: an object is invalid.
        """
        from leeway.selection.reading.objects import BadObject

        try:
            return reading(self.documents, others.documents)
        except BadObject as error:
            position = error.path[0] if error.path else 0
            count = len(self.documents)
            if isinstance(position, int) and position >= count:
                raise others._invalid(error, position - count) from error
            raise self._invalid(error) from error

    def place(self, path: Sequence[str | int], message: str) -> str:
        """Render a message about a field with its file, line, object and path. The path begins with
        the position of the object."""
        from leeway.manifests.base import rendered

        position, *inside = path
        if not isinstance(position, int):
            return message
        source, value = self._places[position]
        document = self.documents[position]
        metadata = document.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        title = "" if inside == ["kind"] else f"{document.get('kind')} {name or '?'}"
        parts = (title, rendered(tuple(inside)), message)
        where = f"{source}:{value.line_of(tuple(inside))}"
        return f"{where}: {': '.join(part for part in parts if part)}"

    def _invalid(self, error: "BadObject", position: int | None = None) -> BadInputError:
        path = error.path if position is None else (position, *error.path[1:])
        problem = self.place(path, str(error))
        return BadInputError(f"{as_clause(problem)}.")


def _items_of(value: "Value", source: str) -> "Iterator[tuple[Value, Any]]":
    """Yield the items of a List, which kubectl prints for several objects."""
    plain = value.plain()
    kind = plain.get("kind") if isinstance(plain, dict) else None
    if not isinstance(kind, str) or not kind.endswith("List") or "items" not in plain:
        yield value, plain
        return
    listed = value.content["items"]
    if plain["items"] is not None and not isinstance(plain["items"], list):
        raise BadInputError(f"{source}:{listed.line}: items: expected a list.")
    for item, each in zip(listed.content or (), plain["items"] or (), strict=True):
        if isinstance(each, dict) and not each.get("kind"):
            each["kind"] = kind.removesuffix("List")
        yield item, each
