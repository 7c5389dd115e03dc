"""`leeway roll`: replaces the nodes of an Auto Scaling group that no longer fit its template."""

import re
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from leeway.instances.facts import OwnerKind
from rich.markup import escape

from leeway_cli.errors import AccountError, BadInputError, CannotBeDoneError, aws_errors
from leeway_cli.options import parse_duration
from leeway_cli.output import (
    Format,
    FormatOption,
    print_json,
    stderr_console,
    stdout_console,
    write_stderr,
)
from leeway_cli.stack import DEFAULT_STACK, ClusterOption, Stack, StackOption, caller, find_stack
from leeway_cli.terminal import ProgressBars

if TYPE_CHECKING:
    from leeway.reconciliation.decide_roll import Asked, GroupRoll

    from leeway_cli.status.rolls import RollStatus

READ_EVERY = 2.0
"""Seconds between two reads of the record."""

LONGEST_TIMEOUT = timedelta(days=1)


def roll(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Name the Auto Scaling group.")],
    cluster: ClusterOption,
    max_unavailable: Annotated[
        str,
        typer.Option(
            metavar="NUMBER",
            help="Set how many of its nodes may be unavailable at once: 2, or 33%. Default: "
            "groups.maxUnavailable of the Cluster manifest.",
        ),
    ] = "",
    timeout: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="Set how long the drain of each node may take. Default: groups.nodeTimeout.",
        ),
    ] = "",
    force: Annotated[
        bool | None,
        typer.Option(
            "--force/--no-force",
            help="Delete pods that a budget or an annotation protects at their latest moment, and "
            "replace instances that are protected from scale-in. Default: groups.force.",
        ),
    ] = None,
    stop: Annotated[
        bool, typer.Option("--stop", help="Begin with no other node of a roll that is under way.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Only show the progress of a roll.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Show the progress until the roll ends.")
    ] = True,
    stack: StackOption = DEFAULT_STACK,
    output: FormatOption = Format.TABLE,
) -> None:
    """Replace the nodes of a group whose launch template, AMI or types are no longer its own, once.

    Leeway does it, and not this command: reconcile begins with nodes every minute, within the
    disruption budget of the cluster, and each successor is ready for pods before its node is
    drained. Ctrl-C ends only the display. --stop ends the roll after the nodes that are being
    replaced; the same command without it takes the roll up again, with the options that it had. A
    request waits for no maintenance window.

    \b
    leeway roll web --cluster prod
    leeway roll web --max-unavailable 33% --timeout 30m --cluster prod
    leeway roll web --stop --cluster prod
    """
    from leeway.reconciliation.decide_roll import Asked, ask_for_roll, stop_roll

    asked = _asked(max_unavailable, timeout, force)
    if (stop or watch) and (asked != Asked() or (stop and watch)):
        one = "--stop" if stop else "--watch"
        raise BadInputError(f"{one}: expected no other option of the roll.")
    found = find_stack(stack)
    found.check_managed(cluster)
    if stop:
        _write(found, cluster, group, lambda stored, now: stop_roll(stored, group, now))
    elif watch:
        _read(found, cluster, group)  # without a roll there is nothing to wait for
    else:
        _check_group(cluster, group)
        by = caller()
        wanted = Asked(by, asked.max_unavailable, asked.node_timeout, asked.force)
        _write(
            found,
            cluster,
            group,
            lambda stored, now: ask_for_roll(stored, cluster, group, wanted, now),
        )
    goes_on = wait and not stop
    _finish(_follow(found, cluster, group) if goes_on else _read(found, cluster, group), output)


def _asked(max_unavailable: str, timeout: str, force: bool | None) -> "Asked":
    """Check the options, by the rules of the Cluster manifest."""
    from leeway.manifests.cluster import MAX_UNAVAILABLE
    from leeway.reconciliation.decide_roll import Asked

    if max_unavailable and not re.fullmatch(MAX_UNAVAILABLE, max_unavailable, re.ASCII):
        raise BadInputError(
            f"--max-unavailable: expected 1 to 9999 nodes, or 1% to 100%, got {max_unavailable!r}."
        )
    limit = parse_duration("--timeout", timeout) if timeout else None
    if limit is not None and not timedelta(0) < limit <= LONGEST_TIMEOUT:
        raise BadInputError(f"--timeout: expected more than 0s and at most 24h, got {timeout}.")
    return Asked("", max_unavailable, limit, force)


def _check_group(cluster: str, group: str) -> None:
    """Raise CannotBeDoneError unless the cluster has running nodes of this group, which are not
    those of a managed node group: reconcile would begin with none."""
    from leeway.aws.ec2 import Ec2Sweep
    from leeway.manifests.base import near_miss
    from leeway.wiring.clients import client

    with aws_errors(f"the instances of cluster {cluster}"):
        seen = Ec2Sweep(partial(client, "ec2")).instances([cluster])
    grouped = [one for one in seen if one.group and one.state == "running"]
    own = {one.group for one in grouped if one.facts.owner.kind is OwnerKind.AUTO_SCALING_GROUP}
    if group in own:
        return
    managed = [one.facts.owner for one in grouped if group in (one.group, one.facts.owner.name)]
    if managed:
        raise CannotBeDoneError(
            f"EKS replaces the nodes of managed node group {managed[0].name}: run `aws eks "
            f"update-nodegroup-version --cluster-name {cluster} --nodegroup-name "
            f"{managed[0].name}`."
        )
    raise CannotBeDoneError(
        f"Cluster {cluster} has no running node of an Auto Scaling group {group}"
        f"{near_miss(group, own)}."
    )


def _write(
    stack: Stack,
    cluster: str,
    group: str,
    change: "Callable[[GroupRoll | None, datetime], GroupRoll]",
) -> None:
    """Write the changed record of a group. Of two people who ask at once, one is refused."""
    from leeway.clock import SystemClock
    from leeway.execution.retrying import Conflicts
    from leeway.reconciliation.decide_roll import GROUP_ROLL, RollRefused
    from leeway.wiring.clients import table

    records = table(name=stack.table)
    conflicts = Conflicts(f"the record of group {group}")
    with aws_errors(stack.where):
        while True:
            with conflicts:
                stored = records.get(GROUP_ROLL, cluster=cluster, group=group)
                try:
                    changed = change(stored, SystemClock().now())
                except RollRefused as error:
                    raise CannotBeDoneError(
                        f"{error} `leeway roll {group} --watch` shows its progress, and --stop "
                        "stops it."
                        if stored is not None and not stored.is_over
                        else str(error)
                    ) from error
                if changed != stored:
                    records.put(GROUP_ROLL, changed)
                return


def _read(stack: Stack, cluster: str, group: str) -> "RollStatus":
    from leeway.wiring.clients import table

    from leeway_cli.status.rolls import read_rolls

    with aws_errors(stack.where):
        found = read_rolls(table(name=stack.table), cluster, group)
    if not found:
        raise CannotBeDoneError(f"Group {group} of cluster {cluster} has no roll.")
    return found[0]


def _follow(stack: Stack, cluster: str, group: str) -> "RollStatus":
    """Show the progress until the roll has ended, is halted or was stopped. The roll goes on while
    its record cannot be read, so an error that may pass is a warning."""
    with RollProgress(group) as progress:
        try:
            while True:
                try:
                    seen = _read(stack, cluster, group)
                except AccountError:
                    raise
                except CannotBeDoneError as error:
                    write_stderr(f"warning: {error}")
                else:
                    progress.show(seen)
                    if seen.state in {"ended", "halted", "stopped"}:
                        return seen
                time.sleep(READ_EVERY)
        except KeyboardInterrupt:
            write_stderr(f"The roll goes on; `leeway roll {group} --stop` stops it.")
            raise


def _finish(seen: "RollStatus", output: Format) -> None:
    """Print the roll.

    Raises:
        CannotBeDoneError: it is halted: nodes that its template launches do not join.
    """
    from leeway_cli.status.rolls import roll_as_data, roll_lines

    document = roll_as_data(seen)
    if seen.state == "halted" and seen.roll.halted is not None:
        raise CannotBeDoneError(seen.roll.halted.message, result=document)
    if output is Format.JSON:
        print_json(document)
        return
    first, *others = roll_lines(seen)
    console = stdout_console()
    console.print(f"group {seen.roll.group} of cluster {seen.roll.cluster}: {first}", markup=False)
    for line in others:
        console.print(f"  {line}", soft_wrap=True, markup=False)


class RollProgress(ProgressBars):
    """A context with a bar of the nodes on a terminal, and with a line for each change elsewhere.
    What the roll waits for stands beside the bar."""

    def __init__(self, group: str) -> None:
        super().__init__(stderr_console(), "{task.completed}/{task.total} {task.fields[why]}")
        self._task = self._bars.add_task(f"Rolling {group}", total=None, why="")
        self._shown = ""

    def show(self, seen: "RollStatus") -> None:
        """Show how far the roll is."""
        from leeway_cli.status.rolls import roll_lines

        first, *others = roll_lines(seen)
        self._bars.update(
            self._task,
            completed=seen.roll.replaced,
            total=seen.total,
            why=escape(others[0] if others else seen.state),
        )
        text = "; ".join([first, *others])
        if text != self._shown and not self._console.is_terminal:
            self._console.print(text, soft_wrap=True, markup=False)
        self._shown = text
