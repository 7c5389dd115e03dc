"""`leeway delete`: takes manifests out of the table, by file or by name."""

from typing import Annotated

import typer

from cli.apply import DryRunOption
from cli.choosing import KindArgument, NamesArgument, NamespaceOption, not_found, wanted
from cli.errors import BadInputError, CannotBeDoneError
from cli.manifest_files import FilesOption
from cli.output import Format, FormatOption
from cli.stack import DEFAULT_STACK, ClusterOption, StackOption, find_stack


def delete(
    cluster: ClusterOption,
    kind: KindArgument = "",
    names: NamesArgument = None,
    files: FilesOption = None,
    namespace: NamespaceOption = "",
    ignore_not_found: Annotated[
        bool, typer.Option("--ignore-not-found", help="What is not there is no error.")
    ] = False,
    dry_run: DryRunOption = False,
    stack: StackOption = DEFAULT_STACK,
    output: FormatOption = Format.TABLE,
) -> None:
    """Delete manifests from a cluster's configuration."""
    if not files and not names and "/" not in kind:
        raise BadInputError("expected KIND and NAMEs, or --filename: what is to be deleted")
    asked = wanted(kind, names or (), namespace, files)

    from cli.changes import Change, Planned
    from cli.changing import carry_out, report, stored_of

    found = find_stack(stack)
    stored = stored_of(found, cluster)
    chosen = [one for one in stored if any(want.matches(one) for want in asked)]
    for want in asked:
        places = {one.namespace for one in chosen if want.matches(one)}
        if len(places) > 1:
            there = ", ".join(sorted(places))
            raise BadInputError(f"--namespace: expected one of {there}: {want.title} is in each")
    planned = [Planned(Change.DELETED, one.title, one, None) for one in chosen]
    report(planned if dry_run else carry_out(found, cluster, planned), cluster, dry_run, output)
    missing = not_found(asked, stored)
    if missing and not ignore_not_found:
        raise CannotBeDoneError(f"not found in cluster {cluster}: {', '.join(missing)}")
