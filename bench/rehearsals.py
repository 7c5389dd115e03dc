"""Compares rehearsals with real runs: random clusters in a sandbox, whose nodes EC2 interrupts.

Several random clusters share one sandbox: each has its own group of nodes and its own namespace.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import batched
from pathlib import Path
from tempfile import TemporaryDirectory

from leeway.clock import SystemClock
from leeway.policy.rules import ClusterPolicy
from leeway.selection.reading.objects import Document, key_of
from leeway_cli.demo.storm import candidate_nodes, follow_storm, workloads_of
from leeway_cli.kubeconfig import kubeconfig_connection
from leeway_cli.rehearse.cluster import Cluster, Pace, RunningPod
from leeway_cli.rehearse.read import read_documents, read_objects
from leeway_cli.rehearse.room import Market, Room
from leeway_cli.rehearse.storm import RequestTimes, Storm, rehearse
from leeway_cli.report.model import StormPlan, StormReport, Target
from leeway_cli.selection.sources import sandbox_catalog
from leeway_sandbox.errors import SandboxError
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import ENDS_AFTER, STARTS_AFTER, Scenario
from rich.console import Console

from bench.fates import Compared, Verdict, compare_fates, removed_otherwise, request_times
from bench.random_clusters import LABEL, name_of, random_clusters

LATE = 85.0
"""Seconds between the time in a warning and its arrival, so that a storm is over in half a
minute."""
REACTION = 0.6
NODE_START = 8.0
"""Seconds from the arrival until the sandbox's replacements are Ready."""
CLUSTERS_AT_ONCE = 8
CLUSTERS = 100


@dataclass(frozen=True)
class Comparison:
    """The workloads of some random clusters, as rehearsed and as they happened.

    `otherwise` pods were removed by other means than rehearsed. `raced` pods were bound to an
    interrupted node after its notice and before its cordon: a rehearsal does not foresee them, and
    they are not compared. `faults` are those that the report of the storm found.
    """

    workloads: tuple[Compared, ...]
    otherwise: int
    raced: int
    faults: tuple[str, ...]

    @property
    def defects(self) -> list[Compared]:
        """The workloads whose pods had other fates than rehearsed, although the machine was not
        late."""
        return [one for one in self.workloads if one.verdict is Verdict.DIFFERS]

    @property
    def not_same(self) -> list[Compared]:
        """The workloads whose pods had other fates than rehearsed at the usual pace."""
        return [one for one in self.workloads if one.verdict is not Verdict.SAME]

    @property
    def late(self) -> float:
        """How many seconds the latest request was late."""
        return max((one.late for one in self.workloads), default=0.0)

    @property
    def pods(self) -> int:
        """The number of pods that were compared."""
        return sum(one.happened.total() for one in self.workloads)


def compare(seeds: Sequence[int], folder: Path) -> Comparison:
    """Rehearse the loss of nodes in some random clusters, and then let EC2 interrupt them."""
    scenario = random_clusters(seeds)
    with Sandbox.start(scenario, state_dir=folder) as sandbox:
        sandbox.write_kubeconfig()
        cluster = _read(sandbox.kubeconfig)
        lost = _lost_nodes(cluster, seeds)
        report = _interrupt(sandbox, scenario, lost)
    before = {one.pod.uid for one in cluster.pods}
    pods = [pod for node in report.nodes for pod in node.pods]
    known = [pod for pod in pods if pod.trace.uid in before]
    usual = _rehearse(cluster, lost, report, {})
    own = _rehearse(cluster, lost, report, request_times(pod.trace for pod in known))
    return Comparison(
        compare_fates(usual, own, known),
        removed_otherwise(own, known),
        len(pods) - len(known),
        report.all_faults,
    )


def _rehearse(
    cluster: Cluster, lost: frozenset[str], report: StormReport, recorded: RequestTimes
) -> Storm:
    """Rehearse the storm of a run, whose warnings arrived when they did."""
    notices = [notice for node in report.nodes for notice in node.trace.notices]
    sent_at = min(notice.sent_at for notice in notices)
    late = min(notice.at for notice in notices) - sent_at
    pace = Pace(late=late, reaction=REACTION, node_start=late + NODE_START)
    places = Room(cluster, Market((), sandbox_catalog(), priced=False), pace).plan(lost)
    notice = datetime.fromtimestamp(sent_at, UTC)
    return rehearse(cluster, lost, places, ClusterPolicy(), pace, notice, recorded)


def _read(kubeconfig: Path) -> Cluster:
    """Read the cluster as the command does, with the times that the pods' annotations set."""
    with closing(kubeconfig_connection(kubeconfig, None)) as connection:
        documents = read_documents(connection)
    cluster = read_objects(documents, Pace(), SystemClock().now(), frozenset())
    times = {key_of(one): _times(one) for one in documents if one["kind"] == "Pod"}

    def with_times(one: RunningPod) -> RunningPod:
        starts_in, stops_in = times[one.pod.key]
        return replace(one, starts_in=starts_in, stops_in=stops_in)

    return replace(cluster, pods=tuple(map(with_times, cluster.pods)))


def _times(pod: Document) -> tuple[float, float]:
    marks = pod["metadata"].get("annotations") or {}
    starts, ends = (marks.get(name, default) for name, default in _USUAL.items())
    return float(starts.removesuffix("s")), float(ends.removesuffix("s"))


_USUAL = {STARTS_AFTER: "1.0s", ENDS_AFTER: "0.5s"}
"""What the sandbox does without an annotation."""


def _lost_nodes(cluster: Cluster, seeds: Sequence[int]) -> frozenset[str]:
    """Return one to all but one nodes of each random cluster."""
    lost: set[str] = set()
    for seed in seeds:
        labels = {node.name: node.labels for node in cluster.state.nodes}
        names = sorted(name for name, own in labels.items() if own.get(LABEL) == name_of(seed))
        rng = random.Random(seed)
        lost |= set(rng.sample(names, rng.randint(1, len(names) - 1)))
    return frozenset(lost)


def _interrupt(sandbox: Sandbox, scenario: Scenario, lost: frozenset[str]) -> StormReport:
    found = {one.node: one for one in candidate_nodes(sandbox.journal())}
    targets = tuple(Target(found[name].instance, name, found[name].group) for name in sorted(lost))
    plan = StormPlan(scenario.cluster, targets, workloads=workloads_of(scenario), late=LATE)
    sandbox.interrupt([target.instance for target in targets], late=LATE)
    return follow_storm(sandbox, plan, lambda _: None)


def main(clusters: int = CLUSTERS) -> None:
    """Compare the first random clusters, and print what differs."""
    compare_clusters(range(1, clusters + 1))


def compare_clusters(seeds: Sequence[int]) -> None:
    """Compare the random clusters of these seeds, and print what differs."""
    console, began = Console(soft_wrap=True), time.monotonic()
    compared: list[Comparison] = []
    missing: list[int] = []
    for batch in batched(seeds, CLUSTERS_AT_ONCE, strict=False):
        try:
            with TemporaryDirectory(prefix="leeway-rehearsals-") as folder:
                compared.append(compare(batch, Path(folder)))
        except SandboxError as error:
            missing += batch
            console.print(f"{_names(batch)}: not compared: {error}", markup=False)
        else:
            _print_batch(console, batch, compared[-1])
    if missing:
        console.print(f"Not compared: {_names(missing)}", markup=False)
    _print_total(console, len(seeds) - len(missing), compared, time.monotonic() - began)


def _print_total(
    console: Console, clusters: int, compared: Sequence[Comparison], seconds: float
) -> None:
    verdicts = Counter(one.verdict for found in compared for one in found.workloads)
    pods = sum(found.pods for found in compared)
    console.print(f"{clusters} random clusters, {pods} pods, {verdicts.total()} workloads:")
    for verdict in Verdict:
        console.print(f"{verdicts[verdict]:6} {verdict}", markup=False)
    console.print(
        f"{sum(found.otherwise for found in compared)} pods were evicted instead of deleted or "
        f"the reverse, {sum(found.raced for found in compared)} were bound between notice and "
        f"cordon ({seconds:.0f} s)"
    )


def _print_batch(console: Console, batch: Sequence[int], found: Comparison) -> None:
    load = os.getloadavg()[0]
    console.print(
        f"{_names(batch)}: {found.pods} pods, the latest request {found.late:.1f} s late, load "
        f"{load:.1f} on {os.cpu_count()} processors",
        markup=False,
    )
    for line in (*found.not_same, *found.faults):
        console.print(f"  {line}", markup=False)


def _names(seeds: Sequence[int]) -> str:
    return ",".join(map(name_of, seeds))
