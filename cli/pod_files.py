"""Kubernetes objects from files, with the place of each for what is said of it."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.errors import BadInputError
from cli.manifest_files import read_texts
from cli.output import tell

if TYPE_CHECKING:
    from leeway.manifests.documents import Value
    from leeway.selection.reading.objects import BadObject, Document


class Objects:
    """The Kubernetes objects of some files, and where each of them stands.

    Raises:
        BadInputError: a file has something that is not one of the kinds that are read.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        from leeway.selection.reading.cluster_objects import checked
        from leeway.selection.reading.kinds import passed_over
        from leeway.selection.reading.objects import BadObject

        self._places: list[tuple[str, Value]] = []
        self.documents: Sequence[Document] = tuple(self._read(paths))
        try:
            unread = passed_over(self.documents)
            self.documents = checked(self.documents)
        except BadObject as error:
            raise self._bad(error) from error
        for kind, position in unread.items():
            said = f"{kind} is passed over: Leeway reads no pods from it"
            tell(f"warning: {self.place((position, 'kind'), said)}")

    def _read(self, paths: Sequence[Path]) -> "Iterator[Document]":
        from leeway.manifests.documents import read_documents

        for source, text in read_texts(paths):
            read = read_documents(text, source)
            for problem in read.problems:
                raise BadInputError(str(problem))
            for value in read.values:
                for item, plain in _opened(value, source):
                    if not isinstance(plain, dict):
                        raise BadInputError(f"{source}:{item.line}: expected a Kubernetes object")
                    self._places.append((source, item))
                    yield plain

    def beside[T](
        self,
        others: "Objects",
        reading: "Callable[[Sequence[Document], Sequence[Document]], T]",
    ) -> T:
        """Read something of these objects, and of others that say something about them.

        Raises:
            BadInputError: an object is not as it should be.
        """
        from leeway.selection.reading.objects import BadObject

        try:
            return reading(self.documents, others.documents)
        except BadObject as error:
            position = error.path[0] if error.path else 0
            count = len(self.documents)
            if isinstance(position, int) and position >= count:
                raise others._bad(error, position - count) from error
            raise self._bad(error) from error

    def place(self, path: Sequence[str | int], message: str) -> str:
        """Render what is said of a field: its file and line, the object and the field. The path
        begins with the object's position."""
        from leeway.manifests.problems import rendered

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

    def _bad(self, error: "BadObject", position: int | None = None) -> BadInputError:
        path = error.path if position is None else (position, *error.path[1:])
        return BadInputError(self.place(path, str(error)))


def _opened(value: "Value", source: str) -> "Iterator[tuple[Value, Any]]":
    """Take a list apart, which is what kubectl prints of several objects."""
    plain = value.plain()
    kind = plain.get("kind") if isinstance(plain, dict) else None
    if not isinstance(kind, str) or not kind.endswith("List") or "items" not in plain:
        yield value, plain
        return
    listed = value.content["items"]
    if plain["items"] is not None and not isinstance(plain["items"], list):
        raise BadInputError(f"{source}:{listed.line}: items: expected a list")
    for item, each in zip(listed.content or (), plain["items"] or (), strict=True):
        if isinstance(each, dict) and not each.get("kind"):
            each["kind"] = kind.removesuffix("List")
        yield item, each
