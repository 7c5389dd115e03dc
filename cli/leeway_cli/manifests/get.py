"""`leeway get`: prints the manifests of a cluster as a table, YAML or JSON."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from leeway_cli.errors import CannotBeDoneError
from leeway_cli.manifests.files import FilesOption
from leeway_cli.manifests.selector import (
    KindArgument,
    NamesArgument,
    NamespaceOption,
    not_found,
    selectors_of,
)
from leeway_cli.output import print_json, stderr_console, write_stdout
from leeway_cli.stack import DEFAULT_STACK, ClusterOption, StackOption, find_stack

if TYPE_CHECKING:
    from leeway.manifests.configuration import StoredManifest


class ManifestFormat(StrEnum):
    """The output formats of manifests."""

    TABLE = "table"
    YAML = "yaml"
    JSON = "json"


def get(
    cluster: ClusterOption,
    kind: KindArgument = "",
    names: NamesArgument = None,
    files: FilesOption = None,
    namespace: NamespaceOption = "",
    stack: StackOption = DEFAULT_STACK,
    output: Annotated[
        ManifestFormat,
        typer.Option("--output", "-o", help="Set the format of the manifests on stdout."),
    ] = ManifestFormat.TABLE,
) -> None:
    """Print the manifests of a cluster."""
    selectors = selectors_of(kind, names or (), namespace, files)

    from leeway_cli.manifests.apply_changes import stored_manifests

    stored = stored_manifests(find_stack(stack), cluster)
    found = [one for one in stored if any(each.matches(one) for each in selectors)]
    if missing := not_found(selectors, stored):
        raise CannotBeDoneError(f"Cluster {cluster} has no manifest {', '.join(missing)}.")
    single = len(selectors) == len(found) == 1 and bool(selectors[0].name) and not files
    _show(found, cluster, output, single=single)


def _show(
    found: Sequence["StoredManifest"], cluster: str, output: ManifestFormat, *, single: bool
) -> None:
    from leeway_cli.manifests.output import aligned, as_document, as_list, as_yaml, rows

    if output is ManifestFormat.TABLE:
        if not found:
            stderr_console().print(f"Cluster {cluster} has no manifests.")
        tables = rows(found, datetime.now(UTC))
        write_stdout("\n".join(aligned(table) for table in tables).removesuffix("\n"))
        return
    document = as_document(found[0]) if single else as_list(found)
    if output is ManifestFormat.JSON:
        print_json(document)
    else:
        sys.stdout.write(as_yaml(document))
