"""`leeway schema`: prints the fields of manifests, for editors, people and API servers."""

import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leeway_cli.errors import BadInputError, as_clause, unreadable

if TYPE_CHECKING:
    from leeway.manifests.reading import Kind


class SchemaFormat(StrEnum):
    """JSON Schema or Markdown pages."""

    JSON = "json"
    MARKDOWN = "markdown"


def schema(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="Select a kind, such as cluster.")
    ] = "",
    directory: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write a file for each kind to this folder."),
    ] = None,
    output: Annotated[
        SchemaFormat | None,
        typer.Option("--output", "-o", help="Select JSON Schema (default) or Markdown pages."),
    ] = None,
    crd: Annotated[
        bool, typer.Option("--crd", help="Print CustomResourceDefinitions as YAML: KIND or all.")
    ] = False,
) -> None:
    """Print the JSON Schema of a kind of manifest, or write the schemas of all kinds.

    Editors with the YAML language server complete and check a file that begins with
    `# yaml-language-server: $schema=DIR/leeway.sh/cluster_v1.json`.

    \b
    leeway schema nodepool
    leeway schema --crd | kubectl apply --server-side -f -
    """
    from leeway.manifests.reading import KINDS, UnknownKind, kinds_called

    try:
        kinds = kinds_called(kind) if kind else KINDS
    except UnknownKind as error:
        raise BadInputError(f"KIND: {as_clause(error)}.") from error
    if crd and output:
        raise BadInputError("--output: expected none with --crd, which prints YAML.")
    if crd:
        _write_crds(kinds, kind, directory)
        return
    if directory is None:
        if not kind:
            names = ", ".join(sorted({one.name.lower() for one in kinds}))
            raise BadInputError(f"KIND: expected one of {names}, or --directory.")
        sys.stdout.write(_rendered(kinds[-1], output))
        return
    for one in kinds:
        _write(directory / _file(one, output), _rendered(one, output))


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise unreadable(path, error) from error
    sys.stdout.write(f"{path}\n")


def _write_crds(kinds: "Sequence[Kind]", word: str, directory: Path | None) -> None:
    """Print the CRDs of some kinds, or write a file for each."""
    from leeway_cli.manifests.crds import crd_file, crd_text, defined_kinds

    defined = [one for one in defined_kinds() if one.resource in {kind.resource for kind in kinds}]
    if not defined:
        names = ", ".join(sorted(one.name.lower() for one in defined_kinds()))
        raise BadInputError(f"KIND: Leeway has no CRD of {word}; expected one of {names}.")
    for one in defined:
        if directory is None:
            sys.stdout.write(f"---\n{crd_text(one)}")
        else:
            _write(directory / crd_file(one), crd_text(one))


def _rendered(kind: "Kind", output: SchemaFormat | None) -> str:
    from leeway_cli.manifests.schema_pages import page_of, schema_of

    if output is SchemaFormat.MARKDOWN:
        return page_of(kind)
    return json.dumps(schema_of(kind), indent=2, ensure_ascii=False) + "\n"


def _file(kind: "Kind", output: SchemaFormat | None) -> str:
    from leeway_cli.manifests.schema_pages import file_of

    return file_of(kind, ".md" if output is SchemaFormat.MARKDOWN else ".json")
