"""`leeway apply`: writes manifests to the table. Every function reads them within a minute."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from leeway_cli.errors import BadInputError, as_clause
from leeway_cli.manifests.files import FilesOption, read_files
from leeway_cli.output import Format, FormatOption, write_stderr
from leeway_cli.stack import DEFAULT_STACK, ClusterOption, StackOption, find_stack

if TYPE_CHECKING:
    from leeway.manifests.reading import Written

DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Print the changes without making them.")
]


def apply(
    cluster: ClusterOption,
    files: FilesOption = None,
    dry_run: DryRunOption = False,
    stack: StackOption = DEFAULT_STACK,
    output: FormatOption = Format.TABLE,
) -> None:
    """Store manifests of a cluster.

    Leeway uses them within a minute. A manifest with metadata.resourceVersion is written only if
    the stored manifest still has this version.
    """
    if not files:
        raise BadInputError("--filename: expected at least one file, folder or -.")
    written = read_files(files).written

    from leeway.manifests.pools import pools_without_limits

    from leeway_cli.manifests.apply_changes import apply_changes, plan_changes, print_changes
    from leeway_cli.manifests.planned_change import check_names

    check_names(written, cluster)
    _check_user_data(written)
    found = find_stack(stack)
    found.warn_if_unmanaged(cluster)
    planned = plan_changes(found, cluster, written)
    for one in pools_without_limits(each.manifest for each in written):
        write_stderr(
            f"warning: pool {one} has no spec.limits: only spec.launches.usdPerHour of the Cluster "
            "manifest limits what its nodes cost"
        )
    made = planned if dry_run else apply_changes(found, cluster, planned)
    print_changes(made, cluster, dry_run, output)


def _check_user_data(written: "Iterable[Written]") -> None:
    """Warn of what nodes would not get of their user data; refuse user data that no node can have:
    launches of its pools would fail."""
    from leeway.bootstrap.node import UserDataError
    from leeway.bootstrap.user_data import check_user_data
    from leeway.manifests.node_class import EC2NodeClass

    for one in written:
        if not isinstance(one.manifest, EC2NodeClass):
            continue
        place = f"{one.source}:{one.line}: {one.title}"
        try:
            warnings = check_user_data(one.manifest)
        except UserDataError as error:
            raise BadInputError(f"{place}: {as_clause(error)}.") from error
        for warning in warnings:
            write_stderr(f"warning: {place}: spec.userData: {warning.code}: {warning.message}")
