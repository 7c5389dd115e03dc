"""`leeway apply`: writes manifests to the table; every function knows them within a minute."""

from typing import Annotated

import typer

from cli.errors import BadInputError
from cli.manifest_files import FilesOption, read_files
from cli.output import Format, FormatOption
from cli.stack import DEFAULT_STACK, ClusterOption, StackOption, find_stack

DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Tell what would change; change nothing.")
]


def apply(
    cluster: ClusterOption,
    files: FilesOption = None,
    dry_run: DryRunOption = False,
    stack: StackOption = DEFAULT_STACK,
    output: FormatOption = Format.TABLE,
) -> None:
    """Apply manifests to a cluster's configuration.

    A manifest with metadata.resourceVersion is only written if nobody has changed it since.
    """
    if not files:
        raise BadInputError("--filename: expected at least one file, folder or -")
    written = read_files(files).written

    from cli.changes import check_names
    from cli.changing import carry_out, plans, report

    check_names(written, cluster)
    found = find_stack(stack)
    found.warn_of_a_stranger(cluster)
    planned = plans(found, cluster, written)
    report(planned if dry_run else carry_out(found, cluster, planned), cluster, dry_run, output)
