"""Changes the stored manifests of a cluster with conditional writes, and prints the results."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from leeway.manifests.configuration import StoredManifest
from leeway.table import RecordChanged

from leeway_cli.errors import CannotBeDoneError, aws_errors
from leeway_cli.manifests.planned_change import Change, PlannedChange, plan_change
from leeway_cli.output import Format, print_json, write_stdout
from leeway_cli.stack import Stack

if TYPE_CHECKING:
    from leeway.manifests.reading import Written


def stored_manifests(stack: Stack, cluster: str) -> tuple[StoredManifest, ...]:
    """Read a cluster's manifests.

    Raises:
        CannotBeDoneError: the table cannot be read.
    """
    with aws_errors(stack.where):
        return stack.manifests().of(cluster)


def plan_changes(stack: Stack, cluster: str, written: Iterable["Written"]) -> list[PlannedChange]:
    """Compare manifests with the stored ones.

    Raises:
        CannotBeDoneError: the table cannot be read.
    """
    stored, now = stored_manifests(stack, cluster), datetime.now(UTC)
    return [plan_change(one, stored, now) for one in written]


def apply_changes(
    stack: Stack, cluster: str, planned: Iterable[PlannedChange]
) -> list[PlannedChange]:
    """Make the changes that have no conflict. A change that another writer preceded becomes a
    conflict.

    Raises:
        CannotBeDoneError: a write failed; the changes before it are made.
    """
    done: list[PlannedChange] = []
    writing = stack.manifests()
    for one in planned:
        if one.conflict or one.change is Change.UNCHANGED:
            done.append(one)
            continue
        try:
            with aws_errors(stack.where):
                if one.after is not None:
                    writing.write(cluster, one.after, one.before.version if one.before else 0)
                elif one.before is not None:
                    writing.delete(cluster, one.before)
        except RecordChanged:
            done.append(replace(one, conflict="another writer changed it at the same time"))
        except CannotBeDoneError as error:
            lines = "\n".join(_line(before) for before in done if not before.conflict)
            raise CannotBeDoneError(f"{one.title}: {error}", lines) from error
        else:
            done.append(one)
    return done


def print_changes(
    made: Sequence[PlannedChange],
    cluster: str,
    dry_run: bool,
    output: Format,
    missing: Sequence[str] = (),
) -> None:
    """Print the results, as kubectl does. `missing` are manifests that the command did not find.

    Raises:
        CannotBeDoneError: there were conflicts or missing manifests; the other changes are made.
    """
    result = {"cluster": cluster, "dryRun": dry_run, "manifests": [_as_data(one) for one in made]}
    reasons = [f"{one.title}: conflict: {one.conflict}." for one in made if one.conflict]
    if missing:
        reasons.append(f"Cluster {cluster} has no manifest {', '.join(missing)}.")
    if output is Format.JSON:
        if not reasons:
            print_json(result)
    else:
        suffix = " (dry run)" if dry_run else ""
        for one in made:
            if not one.conflict:
                write_stdout(f"{_line(one)}{suffix}")
    if reasons:
        details = "\n".join(str(reason) for reason in reasons[1:])
        raise CannotBeDoneError(reasons[0], details, result)


def _line(one: PlannedChange) -> str:
    return f"{one.title} {one.change}"


def _as_data(one: PlannedChange) -> dict[str, str | None]:
    version = one.after.version if one.after else None
    return {
        "manifest": one.title,
        "result": "conflict" if one.conflict else one.change.value,
        "reason": one.conflict or None,
        "resourceVersion": None if version is None or one.conflict else str(version),
    }
