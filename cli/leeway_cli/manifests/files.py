"""The manifests that a command is given: as files, or by kind and name."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from leeway.reasons import counted

from leeway_cli.completion import kinds
from leeway_cli.errors import BadInputError, as_clause, unreadable
from leeway_cli.output import write_stderr

if TYPE_CHECKING:
    from leeway.manifests.base import Manifest, Problem
    from leeway.manifests.configuration import StoredManifest
    from leeway.manifests.reading import Reading
    from leeway.selection.offers.catalog import Catalog
    from leeway.selection.pods import NodePool

STDIN = Path("-")
_SUFFIXES = frozenset({".yaml", ".yml", ".json"})
_MOST_PRINTED = 20
"""How many further problems are printed at most."""

FilesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--filename",
        "-f",
        metavar="FILE",
        help="Read manifests from a file, a folder or stdin (-). Repeatable.",
    ),
]


def read_files(paths: Iterable[Path]) -> "Reading":
    """Read all manifests of these files. Warnings go to stderr.

    Raises:
        BadInputError: a file cannot be read, a manifest is invalid, or there is none.
    """
    from leeway.manifests.reading import Reading, read_manifests

    reading, sources = Reading(), []
    for source, text in read_texts(paths):
        reading += read_manifests(text, source)
        sources.append(source)
    return checked(reading, sources)


def read_pools(paths: Iterable[Path]) -> "tuple[list[Manifest], tuple[NodePool, ...]]":
    """Read all manifests of these files, and the pools among them.

    Raises:
        BadInputError: as `read_files`, or there is no pool.
    """
    from leeway.manifests.node_pool import pools_of

    manifests = [one.manifest for one in read_files(paths).written]
    pools = pools_of(manifests)
    if not pools:
        raise BadInputError("--filename: expected at least one NodePool or Provisioner.")
    return manifests, pools


def with_overlays(manifests: "Iterable[Manifest]", catalog: "Catalog") -> "tuple[Manifest, ...]":
    """Return the manifests without the NodeOverlays that conflict with another one, and warn of
    these."""
    from leeway.manifests.node_pool import without_conflicts

    applied, conflicts = without_conflicts(manifests, catalog)
    for one in conflicts.values():
        write_stderr(f"warning: {one.code}: {one}")
    return applied


def read_texts(paths: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of every file, each once. The files of a folder are sorted by
    name.

    Raises:
        BadInputError: a file cannot be read or has no text.
    """
    from leeway.manifests.documents import LARGEST_TEXT

    for file in dict.fromkeys(file for path in paths for file in _files(path)):
        if file == STDIN:
            yield "stdin", _decoded("stdin", sys.stdin.buffer.read(LARGEST_TEXT + 1))
            continue
        try:
            with file.open("rb") as opened:
                content = opened.read(LARGEST_TEXT + 1)
        except OSError as error:
            raise unreadable(file, error) from error
        yield str(file), _decoded(str(file), content)


def _files(path: Path) -> list[Path]:
    # A Path turns `https://host/x` into `https:/host/x`.
    if str(path).startswith(("https:/", "http:/")):
        raise BadInputError(
            f"{path}: expected a file or a folder; for a URL: curl -sL … | leeway … -f -."
        )
    if path == STDIN or not path.is_dir():
        return [path]
    found = sorted(p for p in path.iterdir() if p.suffix in _SUFFIXES and p.is_file())
    if not found:
        raise BadInputError(f"{path}: expected files that end in .yaml, .yml or .json in it.")
    return found


def _decoded(source: str, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadInputError(f"{source}:{line}: expected text in UTF-8.") from error


def checked(reading: "Reading", sources: Sequence[str]) -> "Reading":
    """Print the warnings, and check that there are manifests without problems. `sources` are the
    names of the files.

    Raises:
        BadInputError: there is a problem or no manifest.
    """
    for warning in reading.warnings:
        write_stderr(f"warning: {_line(warning)}")
    problems = [*reading.problems, *_repeated(reading)]
    if problems:
        first, *others = [_line(problem) for problem in problems]
        more = len(others) - _MOST_PRINTED
        details = others[:_MOST_PRINTED] + (
            [f"and {counted(more, 'more problem')}"] if more > 0 else []
        )
        raise BadInputError(f"{as_clause(first)}.", "\n".join(details))
    if not reading.written:
        where = ", ".join(sources) or "--filename"
        raise BadInputError(f"{where}: expected at least one manifest, found none.")
    return reading


def _repeated(reading: "Reading") -> Iterator["Problem"]:
    from leeway.manifests.base import Problem

    first: dict[tuple[str, str], str] = {}
    for one in reading.written:
        place = first.setdefault((one.title, one.namespace), f"{one.source}:{one.line}")
        if place != f"{one.source}:{one.line}":
            yield Problem(one.source, one.line, (), f"{one.title} is already defined at {place}")


def _line(problem: "Problem") -> str:
    return " ".join(str(problem).split())


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
