"""`leeway terminate`: drains nodes and ends their instances, once and by hand."""

from dataclasses import replace
from typing import Annotated

import typer
from leeway.policy.rules import OnBlocked

from leeway_cli import options
from leeway_cli.drain.command import KubectlCommand, connect, drain_run, names_of, terms_of
from leeway_cli.errors import kubernetes_errors
from leeway_cli.options import PAGE, DryRun
from leeway_cli.output import Format, FormatOption, write_stderr
from leeway_cli.stack import DEFAULT_STACK, StackOption, cluster_name

app = typer.Typer(add_completion=False)

Nodes = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NODE",
        help="Terminate these nodes: NAME, node/NAME, or the id of an instance.",
        autocompletion=options.complete_nodes,
    ),
]
Decrement = Annotated[
    bool,
    typer.Option(
        "--decrement",
        help="Lower the desired capacity of the Auto Scaling group. Without it the group "
        "launches another instance.",
    ),
]
WaitForTargets = Annotated[
    bool,
    typer.Option(
        "--wait-for-targets",
        help="Exclude the nodes from load balancers when the drain begins, and end each instance "
        "only when the load balancers have drained it: at most --deadline, or an hour.",
    ),
]
# Not from LEEWAY_CLUSTER: a variable that is meant for another kubeconfig would switch off the
# check that the instance belongs to this cluster.
ClusterName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="The name of the kubeconfig's cluster. Default: EKS is asked whether the cluster "
        "in the instance's tags has the kubeconfig's API server.",
    ),
]


@app.command(cls=KubectlCommand)
def terminate(
    nodes: Nodes = None,
    selector: options.Selector = "",
    decrement: Decrement = False,
    wait_for_targets: WaitForTargets = False,
    deadline: options.Deadline = "",
    on_blocked: options.OnBlockedOption = OnBlocked.FAIL,
    force: options.Force = False,
    ignore_daemonsets: options.IgnoreDaemonsets = False,
    delete_emptydir_data: options.DeleteEmptydirData = False,
    disable_eviction: options.DisableEviction = False,
    grace_period: options.GracePeriod = -1,
    skip_wait_for_delete_timeout: options.SkipWaitForDelete = 0,
    timeout: options.Timeout = "0s",
    chunk_size: options.ChunkSize = PAGE,
    dry_run: options.DryRunOption = DryRun.NONE,
    cluster: ClusterName = "",
    stack: StackOption = DEFAULT_STACK,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    as_user: options.As = "",
    as_group: options.AsGroup = None,
    as_uid: options.AsUid = "",
    output: FormatOption = Format.TABLE,
) -> None:
    """Drain nodes, and terminate the instance of each node that is drained.

    Drains as `leeway drain` does, and also waits until volumes are detached. An instance of Leeway,
    or of no group, ends by TerminateInstances; one of an Auto Scaling group through its group.
    Nodes of managed node groups, Karpenter and EKS Auto Mode are refused. Asks no questions.

    \b
    leeway terminate NODE --ignore-daemonsets --delete-emptydir-data --dry-run
    leeway terminate NODE --force --timeout 10m
    leeway terminate i-0123456789abcdef0 --ignore-daemonsets --decrement
    """
    from leeway_cli.terminate.run import AwsInstances, TerminateRun

    names = names_of(nodes, selector)
    named = cluster_name(cluster) if cluster else ""
    terms = terms_of(
        deadline,
        on_blocked,
        grace_period,
        disable_eviction,
        skip_wait_for_delete_timeout,
        waits_for_volumes=True,
    )
    allowed = options.allowed_flags(force, ignore_daemonsets, delete_emptydir_data)
    user = (as_user, as_group, as_uid)
    with (
        kubernetes_errors(with_selector=bool(selector)),
        connect(kubeconfig, context, chunk_size, user) as connected,
    ):
        drains = replace(
            drain_run(connected, terms, timeout, "", allowed, output), excludes=wait_for_targets
        )
        given = names or connected.select_nodes(selector)
        if not given:
            write_stderr(f"No node has the labels {selector}.")
        instances = AwsInstances(connected.server, named, stack)
        run = TerminateRun(drains, instances, decrement, waits=wait_for_targets)
        if dry_run is DryRun.NONE:
            run.terminate(given)
        else:
            run.dry_run(given, on_server=dry_run is DryRun.SERVER)
