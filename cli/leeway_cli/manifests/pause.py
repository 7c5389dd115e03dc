"""`leeway pause` and `leeway resume`: stop and resume the voluntary actions in a cluster."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leeway_cli.errors import CannotBeDoneError
from leeway_cli.output import Format, FormatOption
from leeway_cli.stack import DEFAULT_STACK, StackOption, cluster_name, find_stack

if TYPE_CHECKING:
    from leeway.manifests.configuration import StoredManifest

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
        from leeway_cli.manifests.resume_pool import resume_pool

        resume_pool(find_stack(stack), cluster, pool, output)
    else:
        _set(cluster, False, stack, output)


def _set(cluster: str, paused: bool, stack: str, output: Format) -> None:
    """Set one field of the Cluster manifest, and create the manifest if there is none. Other fields
    are not changed, even if this version does not support them."""
    from leeway_cli.manifests.apply_changes import apply_changes, print_changes, stored_manifests
    from leeway_cli.manifests.planned_change import CLUSTER, find, plan_body

    found = find_stack(stack)
    found.warn_if_unmanaged(cluster)
    for _ in range(TRIES):
        before = find(stored_manifests(found, cluster), CLUSTER, "", cluster)
        body = _with(_document(cluster) if before is None else _parsed(before), paused)
        planned = plan_body(before, CLUSTER, cluster, body, datetime.now(UTC))
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
