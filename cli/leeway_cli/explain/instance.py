"""`leeway explain instance`: what became of the launch of an instance, and what it has printed."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from leeway.printable import printable, printable_lines

from leeway_cli.errors import BadInputError, CannotBeDoneError, aws_errors
from leeway_cli.output import (
    Format,
    FormatOption,
    picked,
    print_json,
    stdout_console,
    write_stderr,
)
from leeway_cli.stack import DEFAULT_STACK, StackOption, find_stack, warn_of_unreadable

if TYPE_CHECKING:
    from leeway.admission.record import Admission
    from leeway.instances.facts import ObservedInstance

_ID = re.compile(r"i-[0-9a-f]{8,17}")

_NOT_LATEST = "UnsupportedOperation"
"""EC2's code for the latest output of an instance that is not built on the Nitro System."""


def explain_instance(
    instance: Annotated[str, typer.Argument(metavar="INSTANCE", help="The id of the instance.")],
    console: Annotated[
        bool,
        typer.Option(
            "--console", help="Also print what the instance has written to its console, from EC2."
        ),
    ] = False,
    stack: StackOption = DEFAULT_STACK,
    output: FormatOption = Format.TABLE,
) -> None:
    """Explain what became of the launch of an instance, and why it has not joined.

    Shows its state, its pool, and the state of its admission. The console output shows what the
    boot and the user data have printed: it may contain secrets. Nothing stores it. Changes nothing.

    \b
    leeway explain instance i-0123456789abcdef0
    leeway explain instance i-0123456789abcdef0 --console
    """
    if not _ID.fullmatch(instance):
        raise BadInputError(f"INSTANCE: expected the id of an instance, got {instance!r}.")
    from leeway.wiring.clients import instances

    with aws_errors(f"instance {instance}"):
        observed = instances().observe(instance)
    if observed is None:
        raise CannotBeDoneError(
            f"EC2 shows no instance {instance} in this region whose tags name one cluster. EC2 "
            "forgets an instance about an hour after its end."
        )
    admission = _admission(observed, stack)
    printed = console_output(instance) if console else None
    if output is Format.JSON:
        print_json(_as_data(observed, admission, printed))
        return
    shown = stdout_console()
    for line in _lines(observed, admission, datetime.now(UTC)):
        shown.print(line, soft_wrap=True, markup=False, highlight=False)
    if printed is not None:
        _show_console(instance, printed)


def _admission(observed: "ObservedInstance", stack: str) -> "Admission | None":
    from leeway.admission.record import ADMISSION
    from leeway.wiring.clients import table

    try:
        deployment = find_stack(stack)
    except CannotBeDoneError as error:
        write_stderr(f"warning: the launch of the instance is not known: {error}")
        return None
    with aws_errors(deployment.where):
        facts = observed.facts
        return table(name=deployment.table).get(
            ADMISSION,
            cluster=facts.cluster,
            instance=facts.instance,
            unreadable=warn_of_unreadable,
        )


def console_output(instance: str) -> str:
    """Return what EC2 has of the console of an instance, at most 64 KB; empty if it has nothing.

    Source: EC2 API reference, GetConsoleOutput: the latest output exists only of instances of the
    Nitro System, of others what they have printed until some minutes after a start.

    Raises:
        CannotBeDoneError: AWS refused the request or did not answer.
    """
    from botocore.exceptions import ClientError
    from leeway.aws.errors import code_of
    from leeway.wiring.clients import client

    ec2 = client("ec2")
    with aws_errors(f"the console output of instance {instance}"):
        try:
            answer = ec2.get_console_output(InstanceId=instance, Latest=True)
        except ClientError as error:
            if code_of(error) != _NOT_LATEST:
                raise
            answer = ec2.get_console_output(InstanceId=instance)
    return str(answer.get("Output", ""))


def _as_data(
    observed: "ObservedInstance", admission: "Admission | None", printed: str | None
) -> dict[str, Any]:
    facts = observed.facts
    return {
        **picked(facts, "instance", "cluster", "instance_type", "zone", "capacity_type"),
        **picked(observed, "state", "launched_at"),
        "joined": facts.joined,
        "pool": admission.launch.pool if admission and admission.launch else None,
        "admission": admission
        and picked(admission, "phase", "deadline", "result", "ended_at", "reason"),
        "console": printed,
    }


def _lines(
    observed: "ObservedInstance", admission: "Admission | None", now: datetime
) -> Iterator[str]:
    from leeway.launch.intent import LATE_AFTER

    from leeway_cli.manifests.changes import age

    facts = observed.facts
    offering = f"{facts.instance_type}, {facts.zone}, {facts.capacity_type}"
    joined = "has joined" if facts.joined else "has not joined"
    yield f"{facts.instance}  {observed.state}  ({offering})"
    yield f"  cluster    {printable(facts.cluster)}; by the tag of EKS the instance {joined}"
    ago = age(now - observed.launched_at)
    if admission is None or admission.launch is None:
        yield f"  launched   {ago} ago; the table has no record that Leeway launched it"
        return
    yield f"  launched   {ago} ago for pool {printable(admission.launch.pool)}"
    end = admission.result or f"{admission.phase}, {age(admission.deadline - now)} left"
    yield f"  admission  {end}: {printable(admission.reason.message)}"
    if admission.is_open and not facts.joined and now - admission.launch.at >= LATE_AFTER:
        yield (
            "  late       the usual causes are the user data, a security group or a subnet without "
            "a way to the API server, and a missing access entry of the node role"
        )


def _show_console(instance: str, printed: str) -> None:
    if not printed:
        write_stderr(
            f"EC2 has no console output of {instance}. It has some a few minutes after the start, "
            "and for about an hour after the end."
        )
        return
    # The instance decides what this text is: it must not control the terminal.
    text = printable_lines(printed.replace("\r\n", "\n").replace("\r", "\n"))
    typer.echo(f"\n{text.rstrip()}")
