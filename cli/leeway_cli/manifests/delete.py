"""`leeway delete`: deletes manifests from the table, by file or by name."""

from typing import Annotated

import typer

from leeway_cli.errors import BadInputError
from leeway_cli.manifests.apply import DryRunOption
from leeway_cli.manifests.files import FilesOption
from leeway_cli.manifests.selector import (
    KindArgument,
    NamesArgument,
    NamespaceOption,
    not_found,
    selectors_of,
)
from leeway_cli.output import Format, FormatOption, write_stderr
from leeway_cli.stack import DEFAULT_STACK, ClusterOption, StackOption, find_stack


def delete(
    cluster: ClusterOption,
    kind: KindArgument = "",
    names: NamesArgument = None,
    files: FilesOption = None,
    namespace: NamespaceOption = "",
    ignore_not_found: Annotated[
        bool, typer.Option("--ignore-not-found", help="Exit with 0 if a manifest does not exist.")
    ] = False,
    dry_run: DryRunOption = False,
    stack: StackOption = DEFAULT_STACK,
    output: FormatOption = Format.TABLE,
) -> None:
    """Delete manifests of a cluster."""
    if not files and not names and "/" not in kind:
        raise BadInputError(
            "KIND: expected KIND and NAMEs, or --filename, of the manifests to delete."
        )
    selectors = selectors_of(kind, names or (), namespace, files)

    from leeway.disruption.rules import DELETED_POOLS_STAY_FOR
    from leeway.manifests.configuration import POOL

    from leeway_cli.manifests.apply_changes import apply_changes, print_changes, stored_manifests
    from leeway_cli.manifests.planned_change import Change, PlannedChange

    found = find_stack(stack)
    stored = stored_manifests(found, cluster)
    chosen = [one for one in stored if any(each.matches(one) for each in selectors)]
    for selector in selectors:
        namespaces = {one.namespace for one in chosen if selector.matches(one)}
        if len(namespaces) > 1:
            raise BadInputError(
                f"--namespace: expected one of {', '.join(sorted(namespaces))}: {selector.title} "
                "is in each."
            )
    planned = [PlannedChange(Change.DELETED, one.title, one, None) for one in chosen]
    made = planned if dry_run else apply_changes(found, cluster, planned)
    missing = () if ignore_not_found else not_found(selectors, stored)
    pools = [one.name for one in chosen if one.resource == POOL]
    if pools and not dry_run:
        minutes = DELETED_POOLS_STAY_FOR.total_seconds() / 60
        write_stderr(
            f"Leeway gives the nodes of {', '.join(pools)} back in {minutes:.0f} minutes. To keep "
            "them, apply the pool again."
        )
    print_changes(made, cluster, dry_run, output, missing)
