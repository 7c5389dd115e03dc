"""`leeway apply`, `get`, `diff`, `delete`, `scale`, `pause` and `resume`."""

import difflib
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from leeway.reasons import counted

from leeway_cli.errors import BadInputError, CannotBeDoneError, as_clause
from leeway_cli.manifests.files import (
    FilesOption,
    KindArgument,
    NamesArgument,
    NamespaceOption,
    not_found,
    read_files,
    selectors_of,
)
from leeway_cli.output import (
    Format,
    FormatOption,
    print_json,
    stderr_console,
    write_stderr,
    write_stdout,
)
from leeway_cli.stack import DEFAULT_STACK, ClusterOption, StackOption, cluster_name, find_stack

if TYPE_CHECKING:
    from leeway.manifests.configuration import StoredManifest
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

    from leeway.manifests.node_pool import pools_without_limits

    from leeway_cli.manifests.changes import (
        apply_changes,
        check_names,
        check_no_placeholders,
        kept_apart,
        plan_changes,
        pools_without_classes,
        print_changes,
        stored_manifests,
        warn_of_overlays,
    )

    check_names(written, cluster)
    check_no_placeholders(written)
    _check_user_data(written)
    found = find_stack(stack)
    found.warn_if_unmanaged(cluster)
    stored = stored_manifests(found, cluster)
    planned = kept_apart(found, cluster, plan_changes(stored, written))
    for pool, node_class in pools_without_classes(stored, written):
        write_stderr(
            f"warning: pool {pool} names the EC2NodeClass {node_class}, which has no manifest: its "
            "nodes get the defaults of the Cluster manifest"
        )
    for one in pools_without_limits(each.manifest for each in written):
        write_stderr(
            f"warning: pool {one} has no spec.limits: only spec.launches.usdPerHour of the Cluster "
            "manifest limits what its nodes cost"
        )
    warn_of_overlays(found, stored, written)
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

    from leeway_cli.manifests.changes import stored_manifests

    stored = stored_manifests(find_stack(stack), cluster)
    found = [one for one in stored if any(each.matches(one) for each in selectors)]
    if missing := not_found(selectors, stored):
        raise CannotBeDoneError(f"Cluster {cluster} has no manifest {', '.join(missing)}.")
    single = len(selectors) == len(found) == 1 and bool(selectors[0].name) and not files
    _show(found, cluster, output, single=single)


def _show(
    found: Sequence["StoredManifest"], cluster: str, output: ManifestFormat, *, single: bool
) -> None:
    from leeway_cli.manifests.changes import aligned, as_document, as_list, as_yaml, rows

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


DIFFERS, COMPARISON_FAILED = 1, 3


class DiffFailedError(CannotBeDoneError):
    """The manifests could not be compared. Exit code 1 would mean that they differ."""

    exit_code = COMPARISON_FAILED


def diff(
    cluster: ClusterOption,
    files: FilesOption = None,
    stack: StackOption = DEFAULT_STACK,
) -> None:
    """Show how manifests differ from the stored manifests of a cluster.

    Exit codes: 0 no difference, 1 differences, 2 bad input, 3 the comparison failed.
    """
    if not files:
        raise BadInputError("--filename: expected at least one file, folder or -.")
    written = read_files(files).written

    from leeway_cli.manifests.changes import check_names, plan_changes, stored_manifests

    check_names(written, cluster)
    try:
        planned = plan_changes(stored_manifests(find_stack(stack), cluster), written)
    except CannotBeDoneError as error:
        raise DiffFailedError(str(error), error.details) from error
    lines = [
        line for one in planned if one.before != one.after for line in _lines(one.before, one.after)
    ]
    if lines:
        write_stdout("".join(lines).removesuffix("\n"))
        raise typer.Exit(DIFFERS)


def _lines(before: "StoredManifest | None", after: "StoredManifest | None") -> list[str]:
    title = (after or before).title  # type: ignore[union-attr]
    return list(
        difflib.unified_diff(
            _yaml(before), _yaml(after), f"stored/{title}", f"applied/{title}", n=3
        )
    )


def _yaml(manifest: "StoredManifest | None") -> list[str]:
    if manifest is None:
        return []
    from leeway_cli.manifests.changes import as_yaml, parsed

    return as_yaml(parsed(manifest.as_written)).splitlines(keepends=True)


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

    from leeway_cli.manifests.changes import (
        Change,
        PlannedChange,
        apply_changes,
        kept_apart,
        print_changes,
        stored_manifests,
    )

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
    changes = [PlannedChange(Change.DELETED, one.title, one, None) for one in chosen]
    planned = kept_apart(found, cluster, changes)
    made = planned if dry_run else apply_changes(found, cluster, planned)
    missing = () if ignore_not_found else not_found(selectors, stored)
    deleted = [one.before for one in made if one.before is not None and not one.conflict]
    pools = [one.name for one in deleted if one.resource == POOL]
    if pools and not dry_run:
        stay = counted(DELETED_POOLS_STAY_FOR.total_seconds() / 60, "minute")
        write_stderr(
            f"Leeway gives the nodes of {', '.join(pools)} back in {stay}. To keep them, apply the "
            "pool again."
        )
    print_changes(made, cluster, dry_run, output, missing)


ClusterArgument = Annotated[
    str, typer.Argument(metavar="CLUSTER", callback=cluster_name, help="Name the cluster.")
]

TRIES = 5
"""How often the command retries after another writer changed the manifest."""


def pause(
    cluster: ClusterArgument,
    stack: StackOption = DEFAULT_STACK,
    output: FormatOption = Format.TABLE,
) -> None:
    """Stop all voluntary actions of Leeway in a cluster. It still drains interrupted nodes.

    It takes effect within a minute. Actions that have begun continue.
    """
    _set(cluster, True, stack, output)


def resume(
    cluster: ClusterArgument,
    pool: Annotated[
        str, typer.Option(metavar="NAME", help="Resume only this node pool, which Leeway paused.")
    ] = "",
    stack: StackOption = DEFAULT_STACK,
    output: FormatOption = Format.TABLE,
) -> None:
    """Resume the voluntary actions of Leeway in a cluster, or the launches of one node pool. It
    takes effect within a minute.

    Leeway pauses a node pool when three of its instances in a row have not joined the cluster.
    """
    if pool:
        from leeway_cli.manifests.changes import resume_pool

        resume_pool(find_stack(stack), cluster, pool, output)
    else:
        _set(cluster, False, stack, output)


def scale(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND", help="Select nodepool NAME, or nodepool/NAME.", show_default=False
        ),
    ],
    cluster: ClusterOption,
    replicas: Annotated[
        int, typer.Option(min=0, max=100_000, metavar="N", help="Set the number of nodes.")
    ],
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name the node pool.", show_default=False)
    ] = "",
    stack: StackOption = DEFAULT_STACK,
    output: FormatOption = Format.TABLE,
) -> None:
    """Set the number of nodes of a static node pool (spec.replicas).

    Leeway launches what the pool lacks, and drains and gives back what it has too much, empty nodes
    first. It begins within a minute.
    """
    (selector,) = selectors_of(kind, [name] if name else [], "", None)

    from leeway.manifests.configuration import POOL

    if selector.resources != {POOL} or not selector.name:
        raise BadInputError(f"KIND: expected nodepool NAME, got {kind} {name}".rstrip() + ".")
    _edit(
        cluster,
        POOL,
        selector.name,
        lambda before: _scaled(before, selector.name, replicas),
        stack,
        output,
    )


def _scaled(before: "StoredManifest | None", name: str, replicas: int) -> str:
    if before is None:
        raise CannotBeDoneError(f"nodepool {name}: not found.")
    document = _parsed(before)
    if document["spec"].get("replicas") is None:
        raise CannotBeDoneError(
            f"{before.title}: the pool is not static: it has no spec.replicas, and launches nodes "
            "for pods."
        )
    changed = {**document, "spec": {**document["spec"], "replicas": replicas}}
    return json.dumps(changed, ensure_ascii=False, separators=(",", ":"))


def _set(cluster: str, paused: bool, stack: str, output: Format) -> None:
    """Set one field of the Cluster manifest, and create the manifest if there is none."""

    def body(before: "StoredManifest | None") -> str:
        return _with(_document(cluster) if before is None else _parsed(before), paused)

    _edit(cluster, "cluster.leeway.sh", cluster, body, stack, output)


def _edit(
    cluster: str,
    resource: str,
    name: str,
    body_of: "Callable[[StoredManifest | None], str]",
    stack: str,
    output: Format,
) -> None:
    """Change a stored manifest. Fields that `body_of` keeps are not changed, even if this version
    does not support them."""
    from leeway_cli.manifests.changes import (
        apply_changes,
        find,
        kept_apart,
        plan_body,
        print_changes,
        stored_manifests,
    )

    found = find_stack(stack)
    found.check_managed(cluster)
    for _ in range(TRIES):
        before = find(stored_manifests(found, cluster), resource, "", name)
        planned = plan_body(before, resource, name, body_of(before), datetime.now(UTC))
        (planned,) = kept_apart(found, cluster, [planned])
        if planned.conflict:
            raise CannotBeDoneError(f"{planned.title}: {planned.conflict}.")
        made = apply_changes(found, cluster, [planned])
        if not made[0].conflict:
            return print_changes(made, cluster, dry_run=False, output=output)
    raise CannotBeDoneError(
        f"{planned.title}: conflict: other writers changed it {TRIES} times; try again."
    )


def _document(cluster: str) -> dict[str, Any]:
    return {
        "apiVersion": "leeway.sh/v1",
        "kind": "Cluster",
        "metadata": {"name": cluster},
        "spec": {},
    }


def _parsed(stored: "StoredManifest") -> dict[str, Any]:
    try:
        document = json.loads(stored.body)
        spec = document.setdefault("spec", {})
    except (ValueError, AttributeError) as error:
        raise CannotBeDoneError(
            f"The stored manifest {stored.title} is damaged. Apply it again with `leeway apply`."
        ) from error
    if not isinstance(spec, dict):
        raise CannotBeDoneError(
            f"The stored manifest {stored.title} is damaged. Apply it again with `leeway apply`."
        )
    return dict(document)


def _with(document: dict[str, Any], paused: bool) -> str:
    spec = {name: value for name, value in document["spec"].items() if name != "paused"}
    changed = {**document, "spec": {**spec, "paused": True} if paused else spec}
    return json.dumps(changed, ensure_ascii=False, separators=(",", ":"))
