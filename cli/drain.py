"""`leeway drain`: the drain engine from a terminal, with all that `kubectl drain` offers."""

from contextlib import closing
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core
from leeway.policies import OnBlocked

from cli.durations import parse_duration
from cli.errors import BadInputError, CannotBeDoneError
from cli.output import Format, FormatOption

PAGE = 500


class DryRun(StrEnum):
    """How much is only said: all of it, all but that the API server checks the requests, none."""

    NONE = "none"
    CLIENT = "client"
    SERVER = "server"


class _BareDryRun(typer.core.TyperCommand):
    """Takes `--dry-run` without a value for `--dry-run=client`, as kubectl does."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        bare, full = "--dry-run", f"--dry-run={DryRun.CLIENT}"
        return super().parse_args(ctx, [full if one == bare else one for one in args])


app = typer.Typer(add_completion=False)


@app.command(cls=_BareDryRun)
def drain(
    nodes: Annotated[list[str] | None, typer.Argument(metavar="NODE…", help="Names.")] = None,
    selector: Annotated[
        str, typer.Option("--selector", "-l", help="Drain the nodes with these labels instead.")
    ] = "",
    pod_selector: Annotated[str, typer.Option(help="Drain only the pods with these labels.")] = "",
    deadline: Annotated[
        str, typer.Option(metavar="DURATION", help="When the nodes go, from now: 120s, 2m.")
    ] = "",
    on_blocked: Annotated[
        OnBlocked,
        typer.Option(help="What becomes of a pod that a budget blocks at its latest moment."),
    ] = OnBlocked.FAIL,
    force: Annotated[
        bool,
        typer.Option("--force", help="Evict pods that nothing brings back; refuse nothing else."),
    ] = False,
    ignore_daemonsets: Annotated[
        bool, typer.Option("--ignore-daemonsets", help="Leave DaemonSets' pods where they are.")
    ] = False,
    delete_emptydir_data: Annotated[
        bool, typer.Option("--delete-emptydir-data", help="Evict pods whose emptyDir is lost.")
    ] = False,
    disable_eviction: Annotated[
        bool, typer.Option("--disable-eviction", help="Delete pods, past every budget.")
    ] = False,
    grace_period: Annotated[
        int, typer.Option(help="Seconds for every pod instead of its own; negative: its own.")
    ] = -1,
    skip_wait_for_delete_timeout: Annotated[
        int,
        typer.Option(min=0, help="Wait for no pod whose deletion is overdue by so many seconds."),
    ] = 0,
    timeout: Annotated[
        str, typer.Option(metavar="DURATION", help="When to give up; 0: never.")
    ] = "0s",
    chunk_size: Annotated[
        int, typer.Option(min=0, help="Objects in a page of a list; 0: all in one.")
    ] = PAGE,
    dry_run: Annotated[
        DryRun,
        typer.Option(help="Say what would be done and do nothing: client (if bare) or server."),
    ] = DryRun.NONE,
    kubeconfig: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Default: $KUBECONFIG, ~/.kube/config.")
    ] = None,
    context: Annotated[str | None, typer.Option(help="The kubeconfig's context.")] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Cordon nodes and evict their pods, each in time for a deadline.

    Refuses what `kubectl drain` refuses; the flags that allow it are the same, and --force allows
    all of it. What is refused is not even cordoned.
    """
    from leeway.clock import SystemClock
    from leeway.cluster.kubeconfig import BadKubeconfig, kubeconfig_cluster
    from leeway.cluster.ports import ClusterRefused, ClusterUnavailable
    from leeway.drain.deadline import Terms

    from cli.drain_run import DrainRun

    if bool(nodes) == bool(selector):
        raise BadInputError("drain: expected either names of nodes or a --selector")
    flags = {
        "--ignore-daemonsets": ignore_daemonsets,
        "--delete-emptydir-data": delete_emptydir_data,
        "--force": force,
    }
    ends = parse_duration("--deadline", deadline) if deadline else None
    gives_up = parse_duration("--timeout", timeout)
    skips = timedelta(seconds=skip_wait_for_delete_timeout)
    clock = SystemClock()
    terms = Terms(
        deadline=clock.now() + ends if ends is not None else None,
        on_blocked=on_blocked,
        grace=grace_period if grace_period >= 0 else None,
        bypass_budgets=disable_eviction,
        skip_deleted_for=skips or None,
    )
    try:
        with closing(kubeconfig_cluster(kubeconfig, context, chunk_size)) as cluster:
            run = DrainRun(
                cluster=cluster,
                clock=clock,
                terms=terms,
                timeout=gives_up or None,
                pod_selector=pod_selector,
                allowed=frozenset(flag for flag, given in flags.items() if given or force),
                output=output,
            )
            named = nodes or cluster.select_nodes(selector)
            if dry_run is DryRun.NONE:
                run.drain(named, as_list=bool(selector))
            else:
                run.rehearse(named, ask_server=dry_run is DryRun.SERVER, as_list=bool(selector))
    except BadKubeconfig as error:
        raise BadInputError(str(error)) from error
    except ClusterRefused as error:
        if (selector or pod_selector) and str(error).startswith("400"):
            raise BadInputError(f"--selector, --pod-selector: {error}") from error
        raise CannotBeDoneError(str(error)) from error
    except ClusterUnavailable as error:
        raise CannotBeDoneError(str(error)) from error
