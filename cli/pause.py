"""`leeway pause` and `leeway resume`: stop what is voluntary in a cluster, and let it go on."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.errors import CannotBeDoneError
from cli.output import Format, FormatOption
from cli.stack import DEFAULT_STACK, StackOption, cluster_name, find_stack

if TYPE_CHECKING:
    from leeway.manifests.ports import StoredManifest

ClusterArgument = Annotated[
    str, typer.Argument(metavar="CLUSTER", callback=cluster_name, help="The cluster's name.")
]

TRIES = 5
"""How often a manifest is read again when somebody else wrote it in between."""


def pause(
    cluster: ClusterArgument,
    stack: StackOption = DEFAULT_STACK,
    output: FormatOption = Format.TABLE,
) -> None:
    """Stop all that Leeway does voluntarily in a cluster; interruptions are still drained.

    Every function knows within a minute. What is under way is not broken off.
    """
    _set(cluster, True, stack, output)


def resume(
    cluster: ClusterArgument,
    stack: StackOption = DEFAULT_STACK,
    output: FormatOption = Format.TABLE,
) -> None:
    """Let Leeway act in a cluster again, within a minute."""
    _set(cluster, False, stack, output)


def _set(cluster: str, paused: bool, stack: str, output: Format) -> None:
    """Change one field of the Cluster manifest, and make one if there is none; what else stands in
    it, this version need not understand."""
    from cli.changes import CLUSTER, find, plan_body
    from cli.changing import carry_out, report, stored_of

    found = find_stack(stack)
    found.warn_of_a_stranger(cluster)
    for _ in range(TRIES):
        before = find(stored_of(found, cluster), CLUSTER, "", cluster)
        body = _with(_document(cluster) if before is None else _parsed(before), paused)
        planned = plan_body(before, CLUSTER, cluster, body, datetime.now(UTC))
        made = carry_out(found, cluster, [planned])
        if not made[0].conflict:
            return report(made, cluster, dry_run=False, output=output)
    raise CannotBeDoneError(f"{planned.title} changed {TRIES} times in a row; try again")


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
        raise CannotBeDoneError(f"{stored.title} in the table is damaged: apply it anew") from error
    if not isinstance(spec, dict):
        raise CannotBeDoneError(f"{stored.title} in the table is damaged: apply it anew")
    return dict(document)


def _with(document: dict[str, Any], paused: bool) -> str:
    spec = {name: value for name, value in document["spec"].items() if name != "paused"}
    changed = {**document, "spec": {**spec, "paused": True} if paused else spec}
    return json.dumps(changed, ensure_ascii=False, separators=(",", ":"))
