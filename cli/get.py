"""`leeway get`: a cluster's manifests, as a table, YAML or JSON."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from cli.choosing import KindArgument, NamesArgument, NamespaceOption, not_found, wanted
from cli.errors import CannotBeDoneError
from cli.manifest_files import FilesOption
from cli.output import messages, print_json, show
from cli.stack import DEFAULT_STACK, ClusterOption, StackOption, find_stack

if TYPE_CHECKING:
    from leeway.manifests.ports import StoredManifest


class ManifestFormat(StrEnum):
    """How manifests are printed."""

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
        ManifestFormat, typer.Option("--output", "-o", help="How they are printed on stdout.")
    ] = ManifestFormat.TABLE,
) -> None:
    """Get the manifests of a cluster's configuration."""
    asked = wanted(kind, names or (), namespace, files)

    from cli.changing import stored_of

    stored = stored_of(find_stack(stack), cluster)
    found = [one for one in stored if any(want.matches(one) for want in asked)]
    if missing := not_found(asked, stored):
        raise CannotBeDoneError(f"not found in cluster {cluster}: {', '.join(missing)}")
    alone = len(asked) == len(found) == 1 and bool(asked[0].name) and not files
    _show(found, cluster, output, alone=alone)


def _show(
    found: Sequence["StoredManifest"], cluster: str, output: ManifestFormat, *, alone: bool
) -> None:
    from cli.manifest_output import aligned, as_document, as_list, as_yaml, rows

    if output is ManifestFormat.TABLE:
        if not found:
            messages().print(f"Nothing is configured for cluster {cluster}.")
        tables = rows(found, datetime.now(UTC))
        show("\n".join(aligned(table) for table in tables).removesuffix("\n"))
        return
    document = as_document(found[0]) if alone else as_list(found)
    if output is ManifestFormat.JSON:
        print_json(document)
    else:
        sys.stdout.write(as_yaml(document))
