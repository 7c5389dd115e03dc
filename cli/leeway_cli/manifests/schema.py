"""`leeway schema`: prints the fields of manifests, for editors and for people."""

import json
import sys
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
        SchemaFormat, typer.Option("--output", "-o", help="Select JSON Schema or Markdown pages.")
    ] = SchemaFormat.JSON,
) -> None:
    """Print the JSON Schema of a kind of manifest, or write the schemas of all kinds.

    Editors with the YAML language server complete and check a file that begins with
    `# yaml-language-server: $schema=DIR/leeway.sh/cluster_v1.json`.
    """
    from leeway.manifests.reading import KINDS, UnknownKind, kinds_called

    try:
        kinds = kinds_called(kind) if kind else KINDS
    except UnknownKind as error:
        raise BadInputError(f"KIND: {as_clause(error)}.") from error
    if directory is None:
        if not kind:
            names = ", ".join(sorted({one.name.lower() for one in kinds}))
            raise BadInputError(f"KIND: expected one of {names}, or --directory.")
        sys.stdout.write(_rendered(kinds[-1], output))
        return
    for one in kinds:
        path = directory / _file(one, output)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_rendered(one, output), encoding="utf-8")
        except OSError as error:
            raise unreadable(path, error) from error
        sys.stdout.write(f"{path}\n")


def _rendered(kind: "Kind", output: SchemaFormat) -> str:
    from leeway_cli.manifests.json_schema import schema_of
    from leeway_cli.manifests.reference_page import page_of

    if output is SchemaFormat.MARKDOWN:
        return page_of(kind)
    return json.dumps(schema_of(kind), indent=2, ensure_ascii=False) + "\n"


def _file(kind: "Kind", output: SchemaFormat) -> str:
    from leeway_cli.manifests.json_schema import file_of

    return file_of(kind, ".md" if output is SchemaFormat.MARKDOWN else ".json")
