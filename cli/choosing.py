"""Which stored manifests somebody means: by kind and name, or by the files they came from."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.completion import kinds
from cli.errors import BadInputError
from cli.manifest_files import read_files

if TYPE_CHECKING:
    from leeway.manifests.ports import StoredManifest

KindArgument = Annotated[
    str,
    typer.Argument(
        metavar="KIND",
        help="A kind, such as nodepools; several, as in clusters,headrooms; or KIND/NAME.",
        show_default=False,
        autocompletion=kinds,
    ),
]
NamesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME", help="Names of manifests.", show_default=False),
]
NamespaceOption = Annotated[
    str,
    typer.Option("--namespace", "-n", help="Only in this namespace, of kinds that have one."),
]


@dataclass(frozen=True, slots=True)
class Wanted:
    """One thing that is asked for; empty fields match anything."""

    resources: frozenset[str] = frozenset()
    namespace: str = ""
    name: str = ""
    title: str = ""

    def matches(self, stored: "StoredManifest") -> bool:
        """Whether a stored manifest is meant."""
        return (
            (not self.resources or stored.resource in self.resources)
            and self.namespace in ("", stored.namespace)
            and self.name in ("", stored.name)
        )


def wanted(
    kind: str, names: Sequence[str], namespace: str, files: Sequence[Path] | None
) -> tuple[Wanted, ...]:
    """Say what is asked for; without anything, everything is. `kind` and `names` may also be things
    as they are printed, each as KIND/NAME.

    Raises:
        BadInputError: both are given, or there is no such kind.
    """
    if "/" in kind and not files:
        return tuple(_printed(one, namespace) for one in (kind, *names))
    if files and kind:
        raise BadInputError("expected either KIND [NAME] or --filename, not both")
    if files:
        return tuple(
            Wanted(frozenset({one.kind.resource}), one.namespace, one.name, one.title)
            for one in read_files(files).written
        )
    resources = _resources(kind) if kind else frozenset()
    if not names:
        return (Wanted(resources, namespace),)
    return tuple(Wanted(resources, namespace, name, f"{kind} {name}") for name in names)


def _printed(word: str, namespace: str) -> Wanted:
    kind, slash, name = word.partition("/")
    if not slash or not name:
        raise BadInputError(f"expected KIND/NAME like those before, got {word}")
    return Wanted(_resources(kind), namespace, name, f"{kind} {name}")


def _resources(words: str) -> frozenset[str]:
    return frozenset(one for word in words.split(",") for one in _resources_called(word))


def _resources_called(word: str) -> frozenset[str]:
    from leeway.manifests.kinds import UnknownKind, kinds_called

    try:
        return frozenset(kind.resource for kind in kinds_called(word))
    except UnknownKind as error:
        if "." in word:  # a kind that a newer Leeway wrote
            return frozenset({word.lower()})
        raise BadInputError(f"KIND: {error}") from error


def not_found(asked: Iterable[Wanted], stored: Sequence["StoredManifest"]) -> list[str]:
    """Name what was asked for by name and is not there."""
    return [one.title for one in asked if one.title and not any(map(one.matches, stored))]
