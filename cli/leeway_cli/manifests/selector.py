"""Selects stored manifests by kind and name, or by the files that define them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leeway_cli.completion import kinds
from leeway_cli.errors import BadInputError, as_clause
from leeway_cli.manifests.files import read_files

if TYPE_CHECKING:
    from leeway.manifests.configuration import StoredManifest

KindArgument = Annotated[
    str,
    typer.Argument(
        metavar="KIND",
        help="Select kinds (nodepools, or clusters,headrooms) or one manifest (KIND/NAME).",
        show_default=False,
        autocompletion=kinds,
    ),
]
NamesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME", help="Select manifests by name.", show_default=False),
]
NamespaceOption = Annotated[
    str,
    typer.Option(
        "--namespace", "-n", help="Select only manifests of this namespace, of kinds that have one."
    ),
]


@dataclass(frozen=True, slots=True)
class ManifestSelector:
    """Selects manifests. An empty field matches anything."""

    resources: frozenset[str] = frozenset()
    namespace: str = ""
    name: str = ""
    title: str = ""

    def matches(self, stored: "StoredManifest") -> bool:
        """Return whether the selector matches a stored manifest."""
        return (
            (not self.resources or stored.resource in self.resources)
            and self.namespace in ("", stored.namespace)
            and self.name in ("", stored.name)
        )


def selectors_of(
    kind: str, names: Sequence[str], namespace: str, files: Sequence[Path] | None
) -> tuple[ManifestSelector, ...]:
    """Build the selectors of a command line; without arguments, everything is selected. `kind` and
    `names` may have the form that commands print, KIND/NAME.

    Raises:
        BadInputError: both names and files are given, or the kind does not exist.
    """
    if "/" in kind and not files:
        return tuple(_from_printed(one, namespace) for one in (kind, *names))
    if files and kind:
        raise BadInputError("KIND: expected either KIND [NAME] or --filename, not both.")
    if files:
        return tuple(
            ManifestSelector(frozenset({one.kind.resource}), one.namespace, one.name, one.title)
            for one in read_files(files).written
        )
    resources = _resources(kind) if kind else frozenset()
    if not names:
        return (ManifestSelector(resources, namespace),)
    return tuple(ManifestSelector(resources, namespace, name, f"{kind} {name}") for name in names)


def _from_printed(word: str, namespace: str) -> ManifestSelector:
    kind, slash, name = word.partition("/")
    if not slash or not name:
        raise BadInputError(f"KIND: expected KIND/NAME, as in the other arguments, got {word}.")
    return ManifestSelector(_resources(kind), namespace, name, f"{kind} {name}")


def _resources(words: str) -> frozenset[str]:
    return frozenset(one for word in words.split(",") for one in _resources_of_kind(word))


def _resources_of_kind(word: str) -> frozenset[str]:
    from leeway.manifests.reading import UnknownKind, kinds_called

    try:
        return frozenset(kind.resource for kind in kinds_called(word))
    except UnknownKind as error:
        if "." in word:  # a kind that a newer version of Leeway wrote
            return frozenset({word.lower()})
        raise BadInputError(f"KIND: {as_clause(error)}.") from error


def not_found(
    selectors: Iterable[ManifestSelector], stored: Sequence["StoredManifest"]
) -> list[str]:
    """Return the titles of selectors with a name that match no stored manifest."""
    return [one.title for one in selectors if one.title and not any(map(one.matches, stored))]
