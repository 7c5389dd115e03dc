"""Changes to a cluster's manifests: planned, made under the table's locks, and told."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from leeway.manifests.ports import StoredManifest
from leeway.ports.table import RecordChanged

from cli.aws import aws_trouble
from cli.changes import Change, Planned, plan
from cli.errors import CannotBeDoneError
from cli.output import Format, print_json, show
from cli.stack import Stack

if TYPE_CHECKING:
    from leeway.manifests.interpreting import Written


def stored_of(stack: Stack, cluster: str) -> tuple[StoredManifest, ...]:
    """Read a cluster's manifests.

    Raises:
        CannotBeDoneError: the table cannot be read.
    """
    with aws_trouble(stack.where):
        return stack.manifests().of(cluster)


def plans(stack: Stack, cluster: str, written: Iterable["Written"]) -> list[Planned]:
    """Compare manifests with what is stored.

    Raises:
        CannotBeDoneError: the table cannot be read.
    """
    stored, now = stored_of(stack, cluster), datetime.now(UTC)
    return [plan(one, stored, now) for one in written]


def carry_out(stack: Stack, cluster: str, planned: Iterable[Planned]) -> list[Planned]:
    """Make the changes that are no conflicts; one that somebody else came before is one then.

    Raises:
        CannotBeDoneError: the table does not take one; those before it are made.
    """
    done: list[Planned] = []
    writing = stack.writing()
    for one in planned:
        if one.conflict or one.change is Change.UNCHANGED:
            done.append(one)
            continue
        try:
            with aws_trouble(stack.where):
                if one.after is not None:
                    writing.write(cluster, one.after, one.before.version if one.before else 0)
                elif one.before is not None:
                    writing.delete(cluster, one.before)
        except RecordChanged:
            done.append(replace(one, conflict="somebody else changed it at this very moment"))
        except CannotBeDoneError as error:
            told = "".join(f"\n{_line(before)}" for before in done if not before.conflict)
            raise CannotBeDoneError(f"{one.title}: {error}", told.strip()) from error
        else:
            done.append(one)
    return done


def report(made: Sequence[Planned], cluster: str, dry_run: bool, output: Format) -> None:
    """Tell what was done, as kubectl does.

    Raises:
        CannotBeDoneError: there were conflicts; the rest has been done.
    """
    if output is Format.JSON:
        print_json(
            {"cluster": cluster, "dryRun": dry_run, "manifests": [_as_data(one) for one in made]}
        )
    else:
        suffix = " (dry run)" if dry_run else ""
        for one in made:
            if not one.conflict:
                show(f"{_line(one)}{suffix}")
    conflicts = [f"{one.title}: conflict: {one.conflict}" for one in made if one.conflict]
    if conflicts:
        raise CannotBeDoneError(conflicts[0], "\n".join(conflicts[1:]))


def _line(one: Planned) -> str:
    return f"{one.title} {one.change}"


def _as_data(one: Planned) -> dict[str, str | None]:
    version = one.after.version if one.after else None
    return {
        "manifest": one.title,
        "result": "conflict" if one.conflict else one.change.value,
        "reason": one.conflict or None,
        "resourceVersion": None if version is None or one.conflict else str(version),
    }
