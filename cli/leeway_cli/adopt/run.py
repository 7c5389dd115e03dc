"""Runs `leeway adopt` and `leeway release`: plans, asks, claims the cluster, and makes the changes
one by one. Adopt asks the functions for their rights at the end."""

import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import typer
from leeway import __version__
from leeway.admission.record import ADMISSION
from leeway.manifests.in_cluster import Home, home_of
from leeway.reasons import counted, some
from leeway.retirement.record import RETIREMENT
from leeway.table import OPEN
from leeway.wiring.clients import clock, table

from leeway_cli.adopt.adoptions import Adoption
from leeway_cli.adopt.changes import (
    Change,
    Plan,
    Setting,
    Step,
    Wanted,
    desired_settings,
    recorded_change,
    undo,
)
from leeway_cli.adopt.plan import RBAC, read_objects
from leeway_cli.adopt.services import Connected, Services
from leeway_cli.adopt.settings.objects import ClusterObject
from leeway_cli.errors import CannotBeDoneError, CommandError, aws_errors
from leeway_cli.output import Format, print_json, write_stderr, write_stdout

RENEW_EVERY = 15.0
"""Seconds between two renewals of a claim while a long step runs."""
READ_BACK_TRIES = 30
READ_BACK_SECONDS = 1.0
"""Between two tries."""
_TRIES, _PAUSE = 3, 10.0
"""EKS applies a new access entry within some seconds."""
_LATER_DEPLOYMENTS = (
    "Also set ClusterNames={names} where your deployments take their parameters from, such as "
    "samconfig.toml: the next deployment sets ClusterNames to that value."
)


@dataclass
class Command:
    """The options of one command. `yes` agrees to each question."""

    yes: bool
    dry_run: bool
    output: Format
    adoption: Adoption | None = field(default=None, init=False)

    def sleep(self, seconds: float) -> None:
        """Wait for AWS, and keep the claim meanwhile."""
        time.sleep(seconds)
        if self.adoption is not None:
            self.adoption.record([*self.adoption.changes.values()])

    @contextmanager
    def renewing(self, every: float = RENEW_EVERY) -> Iterator[None]:
        """Keep the claim for the time of the block, which does not call `sleep`. A claim that is
        lost meanwhile is found by the next `sleep`."""
        ended = threading.Event()

        def renew() -> None:
            while not ended.wait(every):
                with suppress(CannotBeDoneError), aws_errors("the table"):
                    self.sleep(0.0)

        thread = threading.Thread(target=renew, name="claim", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def say(self, line: str) -> None:
        """Print a line of progress."""
        (write_stderr if self.output is Format.JSON else write_stdout)(line)

    def ask(self, cluster: str, questions: Sequence[str]) -> None:
        """Ask for consent to each change of a setting of somebody else.

        Raises:
            CannotBeDoneError: a user does not agree, or nobody can be asked.
        """
        changes = counted(len(questions), "step changes settings", "steps change settings")
        missing = (
            f"Nothing was changed in cluster {cluster}: {changes} of "
            "others. Read them above, and run the command with --yes."
        )
        for one in () if self.yes else questions:
            if not sys.stdin.isatty():
                raise CannotBeDoneError(missing, "\n".join(questions))
            if not typer.confirm(f"{one} Continue?", err=True):
                raise CannotBeDoneError(missing)

    @contextmanager
    def claimed(self, adoption: Adoption) -> Iterator[None]:
        """Claim the cluster for the time of the block."""
        with aws_errors(f"the adoption of {adoption.cluster}"):
            adoption.claim()
            self.adoption = adoption
            try:
                yield
            finally:
                self.adoption = None
                adoption.leave()


@dataclass(frozen=True, slots=True)
class Executor:
    """Makes the changes of one cluster. `say` prints a line about each; `sleep` waits for seconds,
    and keeps the claim meanwhile."""

    services: Services
    adoption: Adoption
    say: Callable[[str], None]
    sleep: Callable[[float], None]

    def adopt(self, changes: Sequence[Change]) -> None:
        """Make the changes. Each is recorded before it is made, so that release undoes it even if
        this process is killed in between.

        Raises:
            CannotBeDoneError: a change failed; those before it are made.
        """
        for number, change in enumerate(changes, 1):
            recorded = self.adoption.changes
            own = recorded_change(recorded.get(change.key), change)
            self.adoption.record([*{**recorded, change.key: own}.values()])
            self._make(change, number, len(changes))

    def release(self, changes: Sequence[Change]) -> None:
        """Make the changes that undo an adoption. Each is removed from the record after it is made.

        Raises:
            CannotBeDoneError: a change failed; those before it are made.
        """
        for number, change in enumerate(changes, 1):
            self._make(change, number, len(changes))
            self.forget(change.key)

    def forget(self, key: str) -> None:
        """Remove a setting from the record, and renew the claim."""
        self.adoption.record([one for one in self.adoption.changes.values() if one.key != key])

    def _make(self, change: Change, number: int, steps: int) -> None:
        action = "removed" if change.after is None else "written"
        try:
            self.services.write(change)
            found = self._read_back(change)
        except CannotBeDoneError as error:
            raise CannotBeDoneError(
                f"Step {number} of {steps}, {change.title}: {error}", error.details
            ) from error
        if found != change.after:
            raise CannotBeDoneError(
                f"Cluster {self.services.cluster}: {change.title} is not as step {number} of "
                f"{steps} wrote it. Somebody else writes it at the same time. Run the command "
                "again."
            )
        self.say(f"[{number}/{steps}] {change.title}: {action}, read back")

    def _read_back(self, change: Change) -> Setting | None:
        """Read the setting until it is as it was written, for at most READ_BACK_TRIES: reads of AWS
        are eventually consistent, and a namespace needs seconds to end."""
        for _ in range(READ_BACK_TRIES):
            found = self.services.read([change.setting]).get(change.key)
            if found == change.after:
                break
            self.sleep(READ_BACK_SECONDS)
        return found


def ask_home(found: Connected, command: Command) -> Home | None:
    """Ask where users keep the manifests of a cluster; None if it is recorded, or if nobody can be
    asked: the table has them then."""
    cluster = found.cluster.name
    with aws_errors(found.services.stack.where):
        recorded = home_of(table(name=found.services.stack.table), cluster)
    if recorded.version or command.yes or command.dry_run or not sys.stdin.isatty():
        return None
    said = typer.confirm(
        f"Do users keep NodePools and the other manifests of {cluster} in its API server (kubectl, "
        "Argo CD, Flux)? Without it, `leeway apply` stores them in Leeway's table.",
        err=True,
    )
    return Home.CLUSTER if said else Home.TABLE


def adoption_of(found: Connected) -> Adoption:
    """Return the record of a cluster, which is not read yet."""
    return Adoption(table(name=found.services.stack.table), found.cluster.name, clock().now)


def run_adoption(found: Connected, plan: Callable[[], Plan], command: Command) -> None:
    """Bring a cluster under care.

    Raises:
        CannotBeDoneError: a setting blocks the adoption, a user does not agree, another process
            works on the cluster, or a change failed.
    """
    planned = plan()
    print_plan(planned, command.output)
    _refuse_if_blocked(planned, command)
    if command.dry_run:
        print_result(planned, done=False, output=command.output)
        return
    agreed = _questions(planned)
    command.ask(found.cluster.name, agreed)
    if planned.steps:
        adoption = adoption_of(found)
        with command.claimed(adoption):
            _adopt(found, plan(), command, adoption, agreed)
    print_result(planned, done=True, output=command.output)
    command.say(f"Cluster {found.cluster.name} is under Leeway's care.")


def _adopt(
    found: Connected, plan: Plan, command: Command, adoption: Adoption, agreed: Collection[str]
) -> None:
    """Make the changes. The cluster is read again, since questions take time; a question that was
    not asked yet is asked now."""
    _refuse_if_blocked(plan, command)
    command.ask(plan.cluster, [one for one in _questions(plan) if one not in agreed])
    executor = Executor(found.services, adoption, command.say, command.sleep)
    executor.adopt([step.change for step in plan.steps])
    if any(step.change.key == "cluster-name" for step in plan.steps):
        names = dict.fromkeys([*found.stack.clusters, plan.cluster])
        command.say(_LATER_DEPLOYMENTS.format(names=",".join(names)))


def _questions(plan: Plan) -> list[str]:
    return [step.consent for step in plan.steps if step.consent is not None]


def _refuse_if_blocked(plan: Plan, command: Command) -> None:
    if not plan.blockers:
        return
    first, *others = plan.blockers
    result = plan.as_data() if command.output is Format.JSON else None
    raise CannotBeDoneError(f"{first} Nothing was changed.", "\n".join(others), result)


def print_plan(plan: Plan, output: Format) -> None:
    """Print each step with its call, and whatever does not fit into a step."""
    if output is Format.JSON:
        return
    for number, step in enumerate(plan.steps, 1):
        write_stdout(f"{number:3}. {step.change.title}: {step.reason}")
        write_stdout(f"     {step.change.call(plan.cluster)}")
        if step.consent is not None:
            write_stdout(f"     asks first: {step.consent}")
    for title, reasons in (("left", plan.left), ("warning", plan.warnings)):
        for one in reasons:
            write_stdout(f"{title}: {one}")
    if plan.present_before:
        what = counted(len(plan.present_before), "setting stays", "settings stay")
        why = "because `leeway adopt` found them in place"
        write_stdout(f"left: {what}, {why}: {some(plan.present_before)}")
    if not plan.steps:
        write_stdout("Nothing has to be changed.")


def print_result(plan: Plan, *, done: bool, output: Format) -> None:
    """Print the JSON document of a command, or its last line."""
    if output is Format.JSON:
        print_json({**plan.as_data(), "done": done})
    elif not done:
        write_stdout("Dry run: nothing was changed.")


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
        f"Cluster {adoption.cluster} is released. Its nodes and instances stay as they are, and so "
        "do the manifests in Leeway's table that people applied."
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
    present = (*_present_before(found, adoption.changes),)
    plan = Plan(adoption.cluster, steps, left=(*left, *later.values()), present_before=present)
    return Release(plan, changes, later)


def _present_before(found: Connected, recorded: dict[str, Change]) -> Iterator[str]:
    """Yield the names of the settings of Leeway that adopt found in place: release leaves them."""
    services, cluster = found.services, found.cluster.name
    if not RBAC.is_dir():
        return
    with aws_errors(f"groups of cluster {cluster}"):
        groups = [one.name for one in services.scaling.groups_of(cluster) if not one.node_group]
    desired = desired_settings(Wanted(cluster, found.stack, read_objects(RBAC), tuple(groups)))
    current = services.read(desired)
    for one in desired:
        if one.key in current and one.key not in recorded and one.key != "authentication":
            yield one.title


def _restored(changes: Iterable[Change]) -> Iterator[str]:
    """Yield a question for each object that gets its previous content back: whoever may write the
    record may not always write this object."""
    for one in changes:
        if isinstance(one.after, ClusterObject):
            yield f"{one.title} gets back what it had before `leeway adopt`: {one.after.content}."


def _busy(found: Connected) -> Iterator[str]:
    """Yield a question if Leeway works on instances of the cluster."""
    stack, cluster = found.services.stack, found.cluster.name
    with aws_errors(stack.where):
        records = table(name=stack.table)
        busy = records.find(OPEN, cluster, RETIREMENT, ADMISSION, unreadable=lambda _: None)
    number = len(busy)
    if number:
        yield (
            f"Leeway is working on {counted(number, 'instance')} of cluster {cluster}, and "
            "loses its rights to them. Wait until `leeway status` lists none, or run the command "
            "with --yes."
        )


def ask_functions(found: Connected, objects: Iterable[ClusterObject], command: Command) -> None:
    """Print each finding. The cluster is under care with or without findings."""
    from leeway_cli.doctor.checks.probes import about_aws, about_cluster
    from leeway_cli.doctor.finding import causes
    from leeway_cli.doctor.read.aws import answers_of
    from leeway_cli.doctor.rights import rights_of

    if found.stack.version != __version__:
        return
    rights = rights_of(one.body for one in objects)
    for left in reversed(range(_TRIES)):
        try:
            with aws_errors("the functions"):
                answers = answers_of(found.stack.name, [found.cluster.name])
        except CommandError as error:
            command.say(f"The functions were not asked for their rights: {error}")
            return
        of_aws = [*about_aws(found.stack, answers)]
        of_cluster = [one for each in answers for one in about_cluster(found.stack, each, rights)]
        if not of_cluster or not left:
            break
        command.sleep(_PAUSE)
    for one in causes([*of_aws, *of_cluster]):
        command.say(f"{one.severity.value}  {one.code}: {' '.join(one.reasons)}")
        if one.command:
            command.say(f"$ {one.command}")
