"""`leeway switch`: hands the nodes of a cluster from Karpenter to Leeway, and back."""

import sys
from contextlib import redirect_stdout
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from leeway.policy.rules import OnBlocked

from leeway_cli import options
from leeway_cli.adopt.command import ClusterArgument, DryRunOption, YesOption
from leeway_cli.errors import BadInputError, CannotBeDoneError, kubernetes_errors
from leeway_cli.output import Format, FormatOption, print_json, write_stdout
from leeway_cli.stack import DEFAULT_STACK, StackOption

if TYPE_CHECKING:
    from leeway_cli.adopt.run import Command
    from leeway_cli.adopt.services import Connected
    from leeway_cli.switch.plan import SwitchPlan
    from leeway_cli.switch.world import LiveWorld


class Other(StrEnum):
    """What a cluster is switched from or to."""

    KARPENTER = "karpenter"


def switch(
    cluster: ClusterArgument,
    source: Annotated[
        Other | None,
        typer.Option("--from", help="Let Leeway launch nodes, and take those of Karpenter."),
    ] = None,
    target: Annotated[
        Other | None,
        typer.Option("--to", help="Let Karpenter launch nodes, and give it back those it had."),
    ] = None,
    deployment: Annotated[
        str,
        typer.Option(
            metavar="NAMESPACE/NAME",
            help="Set Karpenter's Deployment. Default: the one with the label "
            "app.kubernetes.io/name=karpenter.",
        ),
    ] = "",
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    stack: StackOption = DEFAULT_STACK,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Hand the nodes of a cluster from Karpenter to Leeway, or back, without a pod that restarts.

    Prints the plan, asks, and does it step by step. Run it again after any failure: it goes on. The
    other direction works at any moment. NodePools, node classes and NodeClaims stay as they are.
    Back to Karpenter, a node of Leeway that Karpenter would not keep is drained.

    \b
    leeway switch CLUSTER --from karpenter --dry-run
    leeway switch CLUSTER --from karpenter
    leeway switch CLUSTER --to karpenter
    """
    if (source is None) == (target is None):
        raise BadInputError("expected one of --from karpenter and --to karpenter.")
    if deployment and [*map(bool, deployment.split("/"))] != [True, True]:
        raise BadInputError(f"--deployment: expected NAMESPACE/NAME, got {deployment!r}.")

    from leeway.switched import Buyer

    from leeway_cli.adopt.run import Command, adoption_of
    from leeway_cli.adopt.services import connected
    from leeway_cli.switch.plan import plan_switch
    from leeway_cli.switch.run import carry_out

    to = Buyer.LEEWAY if source is not None else Buyer.KARPENTER
    command = Command(yes, dry_run, output)
    with connected(cluster, stack, kubeconfig, context, command.sleep) as found:
        drain = partial(_drain, command, kubeconfig, context, cluster, stack)
        world = _world(found, deployment, drain)
        plan = plan_switch(world.read(), to)
        if output is Format.TABLE:
            _print(plan)
        if plan.refusals:
            first, *others = plan.refusals
            result = plan.as_data() if output is Format.JSON else None
            raise CannotBeDoneError(f"{first} Nothing was changed.", "\n".join(others), result)
        if plan.steps and not dry_run:
            whom = "Leeway" if to is Buyer.LEEWAY else "Karpenter"
            command.ask(cluster, [f"{whom} becomes the one that launches nodes of {cluster}."])
            with command.claimed(adoption_of(found)):
                plan = carry_out(world, to, command.say, command.sleep)
        if output is Format.JSON:
            print_json({**plan.as_data(), "done": not dry_run})
        elif dry_run:
            write_stdout("Dry run: nothing was changed.")
        else:
            write_stdout(f"The nodes of cluster {cluster} are those of {to.value} now.")
            for one in plan.left:
                write_stdout(f"left: {one}")


def _world(found: "Connected", deployment: str, drain: partial[None]) -> "LiveWorld":
    from leeway.wiring.clients import client, clock, table

    from leeway_cli.switch.world import LiveWorld

    return LiveWorld(
        cluster=found.cluster.name,
        managed=found.cluster.name in found.stack.clusters,
        kubernetes=found.services.objects,
        ec2=partial(client, "ec2"),
        table=table(name=found.stack.table),
        now=clock().now,
        drain_node=drain,
        named=deployment,
    )


def _drain(
    command: "Command",
    kubeconfig: Path | None,
    context: str | None,
    cluster: str,
    stack: str,
    node: str,
) -> None:
    """Do what `leeway terminate NODE --ignore-daemonsets --delete-emptydir-data` does."""
    from leeway_cli.drain.command import connect, drain_run, terms_of
    from leeway_cli.terminate.run import AwsInstances, TerminateRun

    terms = terms_of("", OnBlocked.WAIT, -1, False, 0, waits_for_volumes=True)
    allowed = options.allowed_flags(False, True, True)
    with (
        command.renewing(),
        redirect_stdout(sys.stderr if command.output is Format.JSON else sys.stdout),
        kubernetes_errors(),
        connect(kubeconfig, context, options.PAGE, ("", (), "")) as connected,
    ):
        drains = drain_run(connected, terms, "0s", "", allowed, Format.TABLE)
        TerminateRun(drains, AwsInstances(connected.server, cluster, stack), False).terminate(
            [node]
        )


def _print(plan: "SwitchPlan") -> None:
    for one in plan.found:
        write_stdout(f"found: {one}")
    for number, step in enumerate(plan.steps, 1):
        write_stdout(f"{number:3}. {step.title}: {step.why}")
        if step.instances:
            write_stdout(f"     {', '.join(step.instances)}")
        if step.by_git:
            write_stdout(f"     by hand: {step.by_git} applies the Deployment")
    for title, lines in (("otherwise", plan.otherwise), ("left", plan.left)):
        for one in lines:
            write_stdout(f"{title}: {one}")
    if not plan.steps and not plan.refusals:
        write_stdout("Nothing has to be changed.")
