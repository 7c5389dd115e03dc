"""Runs `leeway release`: undoes what the record of an adoption lists."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from leeway.admission.record import ADMISSION
from leeway.retirement.record import RETIREMENT
from leeway.table import OPEN
from leeway.wiring.clients import table as stored

from leeway_cli.adopt.adoptions import Adoption
from leeway_cli.adopt.changes import Change, Plan, Step, Wanted, desired_settings, undo
from leeway_cli.adopt.plan import RBAC, read_objects
from leeway_cli.adopt.run import Command, Executor, adoption_of, print_plan, print_result
from leeway_cli.adopt.services import Connected
from leeway_cli.adopt.settings.objects import ClusterObject
from leeway_cli.errors import CannotBeDoneError, aws_errors


@dataclass(frozen=True, slots=True)
class Release:
    """What a release does. `later` are settings that it can remove only later, by their keys."""

    plan: Plan
    changes: tuple[Change, ...]
    later: dict[str, str]


def run_release(found: Connected, command: Command) -> None:
    """Undo an adoption.

    Raises:
        CannotBeDoneError: the cluster was never adopted, a user does not agree, another process
            works on the cluster, a change failed, or a setting cannot be removed yet.
    """
    adoption = adoption_of(found)
    with aws_errors(found.services.stack.where):
        adoption.read()
    if not adoption.changes:
        raise CannotBeDoneError(
            f"The table has no record of `leeway adopt {adoption.cluster}`, so there is nothing to "
            "release. docs/deploy.md tells how to undo steps that were made by hand."
        )
    release = _plan(found, adoption)
    print_plan(release.plan, command.output)
    if command.dry_run:
        print_result(release.plan, done=False, output=command.output)
        return
    command.ask(adoption.cluster, [*_busy(found), *_restored(release.changes)])
    with command.claimed(adoption):
        release = _plan(found, adoption)
        executor = Executor(found.services, adoption, command.say, command.sleep)
        executor.release(release.changes)
        for key in set(adoption.changes) - set(release.later):
            executor.forget(key)
    if release.later:
        reasons = " ".join(release.later.values())
        raise CannotBeDoneError(f"Cluster {adoption.cluster} is not released yet: {reasons}")
    print_result(release.plan, done=True, output=command.output)
    command.say(
        f"Cluster {adoption.cluster} is released. Its nodes and instances, and its manifests in "
        "Leeway's table, stay as they are."
    )


def _plan(found: Connected, adoption: Adoption) -> Release:
    recorded = [*adoption.changes.values()]
    undone, left = undo(recorded, found.services.read(one.setting for one in recorded))
    reasons = {one.key: found.services.later(one) for one in undone}
    later = {key: reason for key, reason in reasons.items() if reason is not None}
    changes = tuple(one for one in undone if one.key not in later)
    steps = [
        Step(one, f"The {one.title} becomes as it was before `leeway adopt`.") for one in changes
    ]
    left = (*left, *later.values(), *_present_before(found, adoption.changes))
    return Release(Plan(adoption.cluster, steps, left=left), changes, later)


def _present_before(found: Connected, recorded: dict[str, Change]) -> Iterator[str]:
    """Yield the settings of Leeway that adopt found in place, so that release leaves them."""
    services, cluster = found.services, found.cluster.name
    if not RBAC.is_dir():
        return
    with aws_errors(f"groups of cluster {cluster}"):
        groups = [one.name for one in services.scaling.groups_of(cluster) if not one.node_group]
    desired = desired_settings(Wanted(cluster, found.stack, read_objects(RBAC), tuple(groups)))
    current = services.read(desired)
    for one in desired:
        if one.key in current and one.key not in recorded and one.key != "authentication":
            yield f"The {one.title} stays: it was there before `leeway adopt`."


def _restored(changes: Iterable[Change]) -> Iterator[str]:
    """Yield a question for each object that gets its previous content back: whoever may write the
    record may not always write this object."""
    for one in changes:
        if isinstance(one.after, ClusterObject):
            yield f"{one.title} gets back what it had before `leeway adopt`: {one.after.content}."


def _busy(found: Connected) -> Iterator[str]:
    """Yield a question if Leeway works on instances of the cluster."""
    table, cluster = found.services.stack.table, found.cluster.name
    with aws_errors(f"table {table}"):
        busy = stored(name=table).find(
            OPEN, cluster, RETIREMENT, ADMISSION, unreadable=lambda _: None
        )
    number = len(busy)
    if number:
        yield (
            f"Leeway is working on {number} instances of cluster {cluster}, and loses its rights "
            "to them. Wait until `leeway status` lists none, or run the command with --yes."
        )
