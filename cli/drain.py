"""`leeway drain`: the drain engine from a terminal, with all that `kubectl drain` offers."""

from collections.abc import Collection
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import typer
import typer.core
from leeway.policy.rules import OnBlocked

from cli import drain_options as options
from cli.cluster_trouble import cluster_trouble
from cli.drain_options import PAGE, DryRun
from cli.durations import parse_duration
from cli.errors import BadInputError
from cli.output import Format, FormatOption, tell

if TYPE_CHECKING:
    from leeway.clock import Clock
    from leeway.drain.deadline import Terms


class _LikeKubectl(typer.core.TyperCommand):
    """Takes switches as kubectl does: `--dry-run` without a value, `--force=true` with one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        switches = {
            name for one in self.params if getattr(one, "is_flag", False) for name in one.opts
        }
        given = [word for arg in args for word in _as_here(arg, switches)]
        return super().parse_args(ctx, given)


def _as_here(arg: str, switches: Collection[str]) -> tuple[str, ...]:
    """Say a word of kubectl's command line in words of ours: none, where it is a default."""
    name, _, value = arg.partition("=")
    if arg == "--dry-run":
        return (f"--dry-run={DryRun.CLIENT}",)
    if name in switches and value in {"true", "false"}:
        return (name,) if value == "true" else ()
    return (arg,)


def _node_name(given: str) -> str:
    """Take a node as people name it: `NAME`, or `node/NAME` as kubectl prints it."""
    kind, slash, name = given.rpartition("/")
    if slash and kind not in {"node", "nodes", "no"}:
        raise BadInputError(f"NODE: expected a node's name, got {given}")
    return name


app = typer.Typer(add_completion=False)


@app.command(cls=_LikeKubectl)
def drain(
    nodes: options.Nodes = None,
    selector: options.Selector = "",
    pod_selector: options.PodSelector = "",
    deadline: options.Deadline = "",
    on_blocked: options.WhatIfBlocked = OnBlocked.FAIL,
    force: options.Force = False,
    ignore_daemonsets: options.IgnoreDaemonsets = False,
    delete_emptydir_data: options.DeleteEmptydirData = False,
    disable_eviction: options.DisableEviction = False,
    grace_period: options.GracePeriod = -1,
    skip_wait_for_delete_timeout: options.SkipWaitForDelete = 0,
    timeout: options.Timeout = "0s",
    chunk_size: options.ChunkSize = PAGE,
    dry_run: options.OnlySay = DryRun.NONE,
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    as_user: options.As = "",
    as_group: options.AsGroup = None,
    as_uid: options.AsUid = "",
    output: FormatOption = Format.TABLE,
) -> None:
    """Cordon nodes and evict their pods, each in time for a deadline.

    Refuses what `kubectl drain` refuses; the flags that allow it are the same, and --force allows
    all of it. What is refused is not even cordoned.

    \b
    leeway drain NODE --ignore-daemonsets --delete-emptydir-data --dry-run
    leeway drain NODE --force --deadline 2m --on-blocked delete
    leeway drain -l pool=old --ignore-daemonsets --timeout 1h
    """
    from leeway.clock import SystemClock
    from leeway.kubernetes.impersonation import Impersonation
    from leeway.kubernetes.kubeconfig import kubeconfig_cluster

    from cli.drain_run import DrainRun

    if bool(nodes) == bool(selector):
        raise BadInputError("drain: expected either names of nodes or a --selector")
    names = list(dict.fromkeys(_node_name(one) for one in nodes or ()))
    flags = {
        "--ignore-daemonsets": ignore_daemonsets,
        "--delete-emptydir-data": delete_emptydir_data,
        "--force": force,
    }
    clock = SystemClock()
    terms = _terms(
        clock, deadline, on_blocked, grace_period, disable_eviction, skip_wait_for_delete_timeout
    )
    gives_up = parse_duration("--timeout", timeout)
    who = Impersonation(as_user, tuple(as_group or ()), as_uid)
    with (
        cluster_trouble(by_labels=bool(selector or pod_selector)),
        closing(kubeconfig_cluster(kubeconfig, context, chunk_size, who)) as cluster,
    ):
        run = DrainRun(
            cluster=cluster,
            clock=clock,
            terms=terms,
            timeout=gives_up or None,
            pod_selector=pod_selector,
            allowed=frozenset(flag for flag, given in flags.items() if given or force),
            output=output,
        )
        named = names or cluster.select_nodes(selector)
        if not named:
            tell(f"No node has the labels {selector}.")
        if dry_run is DryRun.NONE:
            run.drain(named, as_list=bool(selector))
        else:
            run.rehearse(named, ask_server=dry_run is DryRun.SERVER, as_list=bool(selector))


def _terms(
    clock: "Clock",
    deadline: str,
    on_blocked: OnBlocked,
    grace: int,
    bypass_budgets: bool,
    overdue: int,
) -> "Terms":
    """Put together on what terms the nodes are drained; `grace` and `overdue` are in seconds."""
    from leeway.drain.deadline import Terms

    ends = parse_duration("--deadline", deadline) if deadline else None
    return Terms(
        deadline=clock.now() + ends if ends is not None else None,
        on_blocked=on_blocked,
        grace=grace if grace >= 0 else None,
        bypass_budgets=bypass_budgets,
        skip_deleted_for=timedelta(seconds=overdue) or None,
    )
