"""`leeway drain`: the drain executor from a terminal, with the options of `kubectl drain`."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
import typer.core
from leeway.policy.rules import OnBlocked

from leeway_cli import options
from leeway_cli.errors import BadInputError, kubernetes_errors
from leeway_cli.options import PAGE, DryRun, parse_duration
from leeway_cli.output import Format, FormatOption, write_stderr

if TYPE_CHECKING:
    from leeway.kubernetes.http_cluster import HttpCluster
    from leeway.retirement.pods import Terms

    from leeway_cli.drain.run import DrainRun


class KubectlCommand(typer.core.TyperCommand):
    """Accepts switches as kubectl does: `--dry-run` without a value, `--force=true` with one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        switches = {
            name for one in self.params if getattr(one, "is_flag", False) for name in one.opts
        }
        given = [word for arg in args for word in _from_kubectl(arg, switches)]
        return super().parse_args(ctx, given)


def _from_kubectl(arg: str, switches: Collection[str]) -> tuple[str, ...]:
    """Translate an argument of kubectl. A switch with its default value becomes nothing."""
    name, _, value = arg.partition("=")
    if arg == "--dry-run":
        return (f"--dry-run={DryRun.CLIENT}",)
    if name in switches and value in {"true", "false"}:
        return (name,) if value == "true" else ()
    return (arg,)


def node_name(given: str) -> str:
    """Read `NAME`, or `node/NAME` as kubectl prints it."""
    kind, slash, name = given.rpartition("/")
    if slash and (kind not in {"node", "nodes", "no"} or not name):
        raise BadInputError(f"NODE: expected the name of a node, got {given}.")
    return name


app = typer.Typer(add_completion=False)


@app.command(cls=KubectlCommand)
def drain(
    nodes: options.Nodes = None,
    selector: options.Selector = "",
    pod_selector: options.PodSelector = "",
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
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    as_user: options.As = "",
    as_group: options.AsGroup = None,
    as_uid: options.AsUid = "",
    output: FormatOption = Format.TABLE,
) -> None:
    """Cordon nodes and evict their pods before a deadline.

    Refuses the same pods as `kubectl drain` and allows them with the same flags; --force allows all
    of them. A refused node is not cordoned.

    \b
    leeway drain NODE --ignore-daemonsets --delete-emptydir-data --dry-run
    leeway drain NODE --force --deadline 2m --on-blocked delete
    leeway drain -l pool=old --ignore-daemonsets --timeout 1h
    """
    names = names_of(nodes, selector)
    terms = terms_of(
        deadline, on_blocked, grace_period, disable_eviction, skip_wait_for_delete_timeout
    )
    allowed = options.allowed_flags(force, ignore_daemonsets, delete_emptydir_data)
    with (
        kubernetes_errors(with_selector=bool(selector or pod_selector)),
        connect(kubeconfig, context, chunk_size, (as_user, as_group, as_uid)) as cluster,
    ):
        run = drain_run(cluster, terms, timeout, pod_selector, allowed, output)
        _drain(run, names, selector, dry_run)


def names_of(nodes: Sequence[str] | None, selector: str) -> list[str]:
    """Return the names of the given nodes, each once; none with a selector."""
    if bool(nodes) == bool(selector):
        raise BadInputError("NODE: expected either names of nodes or a --selector.")
    return list(dict.fromkeys(node_name(one) for one in nodes or ()))


@contextmanager
def connect(
    kubeconfig: Path | None,
    context: str | None,
    chunk_size: int,
    user: tuple[str, Sequence[str] | None, str],
) -> "Iterator[HttpCluster]":
    """Connect to the cluster of a kubeconfig, as the impersonated user, groups and UID."""
    from leeway.kubernetes.connection import Impersonation

    from leeway_cli.kubeconfig import kubeconfig_cluster

    name, groups, uid = user
    impersonation = Impersonation(name, tuple(groups or ()), uid)
    with closing(kubeconfig_cluster(kubeconfig, context, chunk_size, impersonation)) as cluster:
        yield cluster


def drain_run(
    cluster: "HttpCluster",
    terms: "Terms",
    timeout: str,
    pod_selector: str,
    allowed: frozenset[str],
    output: Format,
) -> "DrainRun":
    """Build the run of a drain; `timeout` is the value of --timeout."""
    from leeway.clock import SystemClock

    from leeway_cli.drain.run import DrainRun

    stop_after = parse_duration("--timeout", timeout) or None
    return DrainRun(cluster, SystemClock(), terms, stop_after, pod_selector, allowed, output)


def _drain(run: "DrainRun", names: list[str], selector: str, dry_run: DryRun) -> None:
    """Drain the named nodes, or those with the labels."""
    nodes = names or run.cluster.select_nodes(selector)
    if not nodes:
        write_stderr(f"No node has the labels {selector}.")
    if dry_run is DryRun.NONE:
        run.drain(nodes, as_list=bool(selector))
    else:
        run.dry_run(nodes, on_server=dry_run is DryRun.SERVER, as_list=bool(selector))


def terms_of(
    deadline: str,
    on_blocked: OnBlocked,
    grace: int,
    bypass_budgets: bool,
    overdue: int,
    waits_for_volumes: bool = False,
) -> "Terms":
    """Build the terms of the drain; `grace` and `overdue` are in seconds."""
    from leeway.clock import SystemClock
    from leeway.retirement.pods import Terms

    within = parse_duration("--deadline", deadline) if deadline else None
    return Terms(
        deadline=SystemClock().now() + within if within is not None else None,
        on_blocked=on_blocked,
        grace=grace if grace >= 0 else None,
        bypass_budgets=bypass_budgets,
        skip_deleted_for=timedelta(seconds=overdue) or None,
        waits_for_volumes=waits_for_volumes,
    )
