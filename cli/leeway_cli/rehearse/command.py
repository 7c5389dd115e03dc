"""`leeway rehearse`: shows what an interruption of nodes would do to a cluster."""

import random
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from leeway.policy.rules import ClusterPolicy

from leeway_cli.errors import BadInputError, CannotBeDoneError, aws_errors, kubernetes_errors
from leeway_cli.manifests.files import FilesOption, read_files
from leeway_cli.options import Context, Kubeconfig, parse_duration
from leeway_cli.output import (
    Format,
    FormatOption,
    check_page_path,
    print_json,
    stderr_console,
    write_page,
    write_stderr,
)
from leeway_cli.selection.sources import (
    KubernetesFiles,
    RegionOption,
    SandboxOption,
    find_catalog,
    sandbox_catalog,
)
from leeway_cli.stack import DEFAULT_STACK, StackOption, has_account

if TYPE_CHECKING:
    from leeway.manifests.base import Manifest
    from leeway.ports.workloads import Workloads

    from leeway_cli.rehearse.cluster import Cluster, Pace, RunningPod
    from leeway_cli.rehearse.report import Rehearsal
    from leeway_cli.rehearse.room import Market, Room
    from leeway_cli.rehearse.rounds import Losses
    from leeway_cli.rehearse.storm import Fate, Storm

Lose = Annotated[
    list[str],
    typer.Option(
        metavar="WHAT",
        help="Lose a share of the nodes (30%), a node, zone/NAME, type/NAME or group/NAME. "
        "Repeatable.",
    ),
]
Objects = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="Read the cluster from the output of `kubectl get … -A -o json`. Repeatable.",
    ),
]
Rounds = Annotated[int, typer.Option(help="Set how often the lost nodes of a share are drawn.")]
Seed = Annotated[int, typer.Option(help="Set the seed of the draws.")]
PodStart = Annotated[
    str,
    typer.Option(
        metavar="DURATION",
        help="Set how long a pod takes to be Ready, if its workload's pods do not show it.",
    ),
]
PodStop = Annotated[
    str,
    typer.Option(
        metavar="DURATION",
        help="Set how long a pod takes to end (default: its whole grace period).",
    ),
]
NodeStart = Annotated[
    str,
    typer.Option(metavar="DURATION", help="Set how long after the warning a new node is Ready."),
]
Html = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write a page with pictures to this file.")
]


MOST_ROUNDS, MOST_READ = 10_000, 50
"""The rounds of a rehearsal, and the workloads that are read to say what a planned retirement
does."""

KUBECTL = (
    "kubectl get nodes,pods,pdb,deploy,rs,sts,ds,jobs,pv,pvc,sc,csinodes -A -o json "
    "--show-managed-fields"
)
"""The command that writes a file for --objects."""


def rehearse(
    lose: Lose,
    objects: Objects = None,
    files: FilesOption = None,
    rounds: Rounds = 200,
    seed: Seed = 0,
    pod_start: PodStart = "10s",
    pod_stop: PodStop = "",
    node_start: NodeStart = "90s",
    html: Html = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    sandbox: SandboxOption = False,
    region: RegionOption = None,
    stack: StackOption = DEFAULT_STACK,
    output: FormatOption = Format.TABLE,
) -> None:
    """Rehearse an interruption of nodes: what it does to pods, services and budgets.

    Reads the cluster of the kubeconfig, or the files of --objects, and changes nothing. The drains
    are planned as Leeway drains, the new places as `leeway select` selects them. With -f, NodePools
    are those from which Leeway launches, and a Cluster manifest is the policy.

    \b
    leeway rehearse --lose 30%
    leeway rehearse --lose zone/us-east-1a --html rehearsal.html
    leeway rehearse --lose 30% --objects cluster.json -f pools.yaml -o json
    """
    from leeway_cli.rehearse.report import Rehearsal

    _check(rounds, html)
    pace = _pace(pod_start, pod_stop, node_start)
    manifests = [one.manifest for one in read_files(files).written] if files else []
    cluster, source = _read(objects or (), kubeconfig, context, manifests, pace)
    for sentence in cluster.unread:
        write_stderr(f"warning: {sentence}")
    losses, cluster = _losses(lose, cluster)
    market = _market(manifests, cluster, sandbox, region, stack)
    situation = _Situation(cluster, market, _policy(manifests), pace)
    storms = _rehearse(situation, losses, rounds if losses.drawn else 1, seed)
    planned = _planned(situation, storms, kubeconfig, context, files=bool(objects))
    found = Rehearsal.of(cluster, storms, pace, lose, seed, source, market.priced, planned)
    _show(found, html, output)


def _check(rounds: int, html: Path | None) -> None:
    if not 1 <= rounds <= MOST_ROUNDS:
        raise BadInputError(f"--rounds: expected 1 to {MOST_ROUNDS}, got {rounds}.")
    if html is not None:
        check_page_path("--html", html)


@dataclass(frozen=True, slots=True)
class _Situation:
    """What every round of a rehearsal has in common."""

    cluster: "Cluster"
    market: "Market"
    policy: ClusterPolicy
    pace: "Pace"

    def room(self) -> "Room":
        """Return the planner of places."""
        from leeway_cli.rehearse.room import Room

        return Room(self.cluster, self.market, self.pace)


def _pace(pod_start: str, pod_stop: str, node_start: str) -> "Pace":
    from leeway_cli.rehearse.cluster import Pace

    stop = parse_duration("--pod-stop", pod_stop).total_seconds() if pod_stop else None
    return Pace(
        pod_start=_seconds("--pod-start", pod_start),
        pod_stop=stop,
        node_start=_seconds("--node-start", node_start),
    )


def _seconds(option: str, given: str) -> float:
    found = parse_duration(option, given)
    if found > timedelta(hours=1):
        raise BadInputError(f"{option}: expected at most 1h, got {given}.")
    return found.total_seconds()


def _read(
    objects: Sequence[Path],
    kubeconfig: Path | None,
    context: str | None,
    manifests: "Sequence[Manifest]",
    pace: "Pace",
) -> "tuple[Cluster, str]":
    """Read the cluster, and return it with its source."""
    from leeway.clock import SystemClock
    from leeway.manifests.node_pool import pools_of

    from leeway_cli.kubeconfig import kubeconfig_connection
    from leeway_cli.rehearse.read import read_documents, read_objects, taken_at

    pools = frozenset(pool.name for pool in pools_of(manifests))
    if objects:
        if kubeconfig or context:
            raise BadInputError("--objects: expected no --kubeconfig and no --context with it.")
        source = ", ".join(map(str, objects))
        documents = KubernetesFiles(objects).documents
        now = taken_at(documents)
    else:
        with kubernetes_errors(), closing(kubeconfig_connection(kubeconfig, context)) as connection:
            documents, source = read_documents(connection), connection.server
        now = SystemClock().now()
    file = ("--kubeconfig", str(kubeconfig.absolute())) if kubeconfig else ()
    kubectl = (*file, "--context", context) if context else file
    cluster = replace(read_objects(documents, pace, now, pools), kubectl=kubectl)
    if not cluster.nodes:
        raise BadInputError(
            f"{source}: expected the nodes and pods of a cluster, and found no node. Write the "
            f"file with `{KUBECTL}`."
        )
    if not any(document.get("kind") == "Pod" for document in documents):
        write_stderr(f"warning: {source} has no pod; write the file with `{KUBECTL}`")
    return cluster, source


def _losses(given: Sequence[str], cluster: "Cluster") -> "tuple[Losses, Cluster]":
    """Read --lose. The names of Auto Scaling groups are tags of instances, which EC2 knows."""
    from leeway_cli.rehearse.rounds import UnknownLoss, read_losses

    if any("group/" in one for one in given) and has_account():
        cluster = _with_groups(cluster)
    try:
        return read_losses(given, cluster.nodes.values()), cluster
    except UnknownLoss as error:
        raise BadInputError(f"--lose: expected {error}.") from error


def _with_groups(cluster: "Cluster") -> "Cluster":
    from leeway.wiring.clients import instances

    ids = [node.instance for node in cluster.nodes.values() if node.instance]
    try:
        with aws_errors("the instances of the nodes"):
            facts = instances().describe_all(ids)
    except CannotBeDoneError as error:
        write_stderr(f"warning: the groups of the nodes are not read from EC2: {error}")
        return cluster
    named = {
        name: replace(node, groups=(*node.groups, facts[node.instance].owner.name))
        for name, node in cluster.nodes.items()
        if node.instance in facts and facts[node.instance].owner.name
    }
    return replace(cluster, nodes={**cluster.nodes, **named})


def _market(
    manifests: "Sequence[Manifest]",
    cluster: "Cluster",
    sandbox: bool,
    region: str | None,
    stack: str,
) -> "Market":
    """Return what may be launched: the pools, and the catalog of the account or the sandbox."""
    from leeway.manifests.node_pool import pools_of

    from leeway_cli.rehearse.room import Market

    pools = tuple(pools_of(manifests))
    if sandbox:
        return Market(pools, sandbox_catalog(region), priced=True)
    if has_account():
        try:
            return Market(pools, find_catalog(region, stack, sandbox=False), priced=True)
        except CannotBeDoneError as error:
            write_stderr(f"warning: prices are unknown: {error}")
    else:
        write_stderr(
            "warning: prices are unknown, because no AWS credentials and region are set; the "
            "instance types are those of the sandbox's catalog (its prices: --sandbox)"
        )
    return Market(pools, sandbox_catalog(_known_region(region, cluster)), priced=False)


def _known_region(region: str | None, cluster: "Cluster") -> str | None:
    """Return the region of the nodes if the sandbox has it, so that zones have the same names."""
    from leeway_sandbox.aws.regions import regions

    zones = {node.zone for node in cluster.nodes.values()}
    return region or next((one for one in regions() if any(z.startswith(one) for z in zones)), None)


def _policy(manifests: "Sequence[Manifest]") -> ClusterPolicy:
    from leeway.manifests.cluster import Cluster as Manifest
    from leeway.manifests.cluster import cluster_policy

    written = [cluster_policy(one) for one in manifests if isinstance(one, Manifest)]
    if len(written) > 1:
        raise BadInputError("--filename: expected one Cluster manifest at most.")
    return written[0] if written else ClusterPolicy()


def _rehearse(situation: _Situation, losses: "Losses", rounds: int, seed: int) -> "list[Storm]":
    """Rehearse the rounds. The same lost nodes have the same result, and are rehearsed once."""
    from leeway_cli.rehearse.report import RoundProgress
    from leeway_cli.rehearse.storm import rehearse as rehearse_once

    rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
    room, known, storms = situation.room(), {}, []
    with RoundProgress(stderr_console(), rounds) as progress:
        for number in range(rounds):
            lost = losses.draw(rng)
            if lost not in known:
                known[lost] = rehearse_once(
                    situation.cluster,
                    lost,
                    room.plan(lost),
                    situation.policy,
                    situation.pace,
                    situation.cluster.read_at,
                )
            storms.append(known[lost])
            progress.show(number + 1)
    return storms


def _planned(
    situation: _Situation,
    storms: "Sequence[Storm]",
    kubeconfig: Path | None,
    context: str | None,
    *,
    files: bool,
) -> dict[str, str]:
    """Say of workloads that budgets keep in these storms what a retirement does for which Leeway
    chooses the time: whether it adds a pod first. That is read from the cluster, not from files."""
    from leeway.kubernetes.surging import HttpSurgeWorkloads

    from leeway_cli.kubeconfig import kubeconfig_connection
    from leeway_cli.rehearse.findings import kept_by_budget

    kept: dict[str, tuple[Storm, Fate]] = {}
    for storm in storms:
        for fate in filter(kept_by_budget, storm.fates):
            kept.setdefault(fate.workload, (storm, fate))
    if not kept:
        return {}
    if files:
        unknown = "Whether a planned retirement adds a pod first is not known from files."
        return dict.fromkeys(kept, unknown if situation.policy.surges else "")
    pods = {one.pod.key: one for one in situation.cluster.pods}
    with closing(kubeconfig_connection(kubeconfig, context)) as connection:
        workloads = HttpSurgeWorkloads(connection)
        return {
            key: _surge_of(pods[fate.pod], fate, storm, workloads, situation.policy)
            for key, (storm, fate) in list(kept.items())[:MOST_READ]
        }


def _surge_of(
    one: "RunningPod", fate: "Fate", storm: "Storm", workloads: "Workloads", policy: ClusterPolicy
) -> str:
    """Say whether a pod's workload gets one more pod before its eviction; nothing if nobody asks
    for that."""
    from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable
    from leeway.retirement.decide_surge import SurgeAction
    from leeway.retirement.surge import preview

    budgets = fate.progress.budgets if fate.progress else ()
    try:
        decision = preview(workloads, policy.surges, one.pod.workload, budgets)
    except (ClusterRefused, ClusterUnavailable) as error:
        return f"Whether a planned retirement adds a pod first is not known: {error}."
    if decision is None:
        return ""
    if decision.action is not SurgeAction.SCALE_UP:
        return f"In a planned retirement it is kept until its budget allows it: {decision.reason}"
    place = storm.placements.places.get(fate.pod)
    where = "on a new node" if place and place.ready_in else ""
    where = where or (f"on node {place.node}" if place else "as soon as a node has room")
    return (
        f"In a planned retirement {fate.workload} gets one more pod first, {where}. The old one "
        f"goes when that serves, {one.starts_in:.0f} s after it has a node: none is missing."
    )


def _show(found: "Rehearsal", html: Path | None, output: Format) -> None:
    from leeway_cli.rehearse.report import as_data, print_rehearsal

    if html is not None:
        from leeway_cli.rehearse.report import rehearsal_page
        from leeway_cli.report.page import render_page

        write_page(html, render_page(rehearsal_page(found)))
        write_stderr(f"The HTML page: {html}")
    if output is Format.JSON:
        print_json(as_data(found))
    else:
        print_rehearsal(found)
