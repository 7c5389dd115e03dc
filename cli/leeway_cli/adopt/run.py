"""Runs `leeway adopt`: plans, asks, claims the cluster, and makes the changes."""

import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import typer
from leeway.wiring.clients import client, clock

from leeway_cli.adopt.adoptions import Adoption
from leeway_cli.adopt.connect import Connected
from leeway_cli.adopt.execute import Executor
from leeway_cli.adopt.view import Plan, print_plan, print_result
from leeway_cli.errors import CannotBeDoneError, aws_errors
from leeway_cli.output import Format, write_stderr, write_stdout

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

    def say(self, line: str) -> None:
        """Print a line of progress."""
        (write_stderr if self.output is Format.JSON else write_stdout)(line)

    def ask(self, cluster: str, questions: Sequence[str]) -> None:
        """Ask for consent to each change of a setting of somebody else.

        Raises:
            CannotBeDoneError: a user does not agree, or nobody can be asked.
        """
        missing = (
            f"Nothing was changed in cluster {cluster}: {len(questions)} steps change settings of "
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
        with aws_errors(f"table {adoption.table}"):
            adoption.claim()
            self.adoption = adoption
            try:
                yield
            finally:
                self.adoption = None
                adoption.leave()


def adoption_of(found: Connected) -> Adoption:
    """Return the record of a cluster, which is not read yet."""
    table = found.services.stack.table
    now = clock().now
    return Adoption(
        partial(client, "dynamodb"), table, found.cluster.name, lambda: now().timestamp()
    )


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
