"""Compares rehearsals with real runs: random clusters in a sandbox, whose nodes EC2 interrupts.

Several random clusters share one sandbox: each has its own group of nodes and its own namespace.
"""

import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from leeway.clock import SystemClock
from leeway.drain.progress import RemovalMethod
from leeway.kubernetes.kubeconfig import kubeconfig_connection
from leeway.policy.rules import ClusterPolicy
from leeway.selection.reading.objects import Document, key_of
from rich.console import Console

from cli.demo.storm import candidate_nodes, follow_storm, workloads_of
from cli.rehearse.cluster import Cluster, RunningPod
from cli.rehearse.pace import Pace
from cli.rehearse.read_cluster import read_documents
from cli.rehearse.read_objects import read_objects
from cli.rehearse.room import Market, Room
from cli.rehearse.storm import Fate, rehearse
from cli.report.model import Outcome, PodReport, PodTrace, StormPlan, StormReport, Target
from cli.selection.catalogs import sandbox_catalog
from sandbox.sandbox import Sandbox
from sandbox.scenario import (
    ENDS_AFTER,
    STARTS_AFTER,
    Group,
    Manifest,
    Scenario,
    bare_pod,
    budget,
    daemon_set,
    deployment,
    namespace,
    pod_spec,
    stateful_set,
)

LATE = 85.0
"""Seconds between the time in a warning and its arrival, so that a storm is over in half a
minute."""
REACTION = 0.6
NODE_START = 8.0
"""Seconds from the arrival until the sandbox's replacements are Ready."""
CLUSTERS_AT_ONCE = 8
CLUSTERS = 100
LABEL = "rehearsal"

type Fates = Mapping[str, Counter[str]]
"""How many pods of each workload have which fate."""


@dataclass(frozen=True)
class Comparison:
    """The fates of pods by workload, as rehearsed and as they happened, and the means by which they
    were removed.

    `raced` pods were bound to an interrupted node after its notice and before its cordon: a
    rehearsal does not foresee them, and they are not compared. `faults` are those that the report
    of the storm found.
    """

    rehearsed: Fates
    happened: Fates
    rehearsed_means: Fates
    happened_means: Fates
    raced: int
    faults: tuple[str, ...]

    @property
    def differences(self) -> list[str]:
        """One line for each workload whose pods had other fates than rehearsed."""
        return [
            f"{key}: rehearsed {dict(self.rehearsed.get(key, {}))}, "
            f"happened {dict(self.happened.get(key, {}))}"
            for key in sorted(self.rehearsed.keys() | self.happened.keys())
            if self.rehearsed.get(key) != self.happened.get(key)
        ]

    @property
    def by_other_means(self) -> int:
        """How many pods were rehearsed to be evicted and were deleted, or the other way round: at
        its latest moment, a pod whose budget is about to allow its eviction may get either."""
        return sum(
            (self.rehearsed_means.get(key, Counter()) - means).total()
            for key, means in self.happened_means.items()
        )

    @property
    def pods(self) -> int:
        """The number of pods that were compared."""
        return sum(sum(fates.values()) for fates in self.happened.values())


def compare(seeds: Sequence[int], folder: Path) -> Comparison:
    """Rehearse the loss of nodes in some random clusters, and then let EC2 interrupt them."""
    scenario = random_clusters(seeds)
    with Sandbox.start(scenario, state_dir=folder) as sandbox:
        sandbox.write_kubeconfig()
        cluster = _read(sandbox.kubeconfig)
        lost = _lost_nodes(cluster, seeds)
        pace = Pace(late=LATE, reaction=REACTION, node_start=LATE + NODE_START)
        room = Room(cluster, Market((), sandbox_catalog(), priced=False), pace)
        report = _interrupt(sandbox, scenario, lost)
    notice = datetime.fromtimestamp(report.nodes[0].trace.notices[0].sent_at, UTC)
    storm = rehearse(
        cluster, lost, room.plan(lost), ClusterPolicy(), pace, notice, _reactions(report)
    )
    before = {one.pod.uid for one in cluster.pods}
    pods = [pod for node in report.nodes for pod in node.pods]
    known = [(pod, pod.trace) for pod in pods if pod.trace.uid in before]
    return Comparison(
        _by_workload((_workload(fate), _fate(fate)) for fate in storm.fates),
        _by_workload((trace.workload.owner, _outcome(pod)) for pod, trace in known),
        _by_workload((_workload(fate), _means(fate)) for fate in storm.fates),
        _by_workload((trace.workload.owner, _real_means(trace)) for _, trace in known),
        len(pods) - len(known),
        report.all_faults,
    )


def random_clusters(seeds: Sequence[int]) -> Scenario:
    """Return a scenario with a random cluster for each seed, in a group and a namespace of its
    own."""
    groups, workloads = [], [_agent()]
    for seed in seeds:
        rng, name = random.Random(seed), f"c{seed}"
        groups.append(
            Group(
                name,
                rng.randint(3, 4),
                terminate_hook=rng.random() < 0.5,
                labels=((LABEL, name),),
            )
        )
        workloads += _random_workloads(rng, name)
    return Scenario("rehearsal", tuple(groups), tuple(workloads))


def _agent() -> Manifest:
    tolerations = [{"operator": "Exists"}]
    return daemon_set("kube-system", "agent", pod_spec(cpu="50m", tolerations=tolerations))


def _random_workloads(rng: random.Random, space: str) -> Iterator[Manifest]:
    yield namespace(space)
    for number in range(rng.randint(3, 5)):
        name, replicas = f"w{number}", rng.randint(1, 5)
        template = _random_template(rng, space)
        if rng.random() < 0.25:
            body: Any = stateful_set(space, name, replicas, template)
            body["spec"]["podManagementPolicy"] = rng.choice(["Parallel", "OrderedReady"])
        else:
            body = deployment(space, name, replicas, template)
        yield body
        yield from _random_budgets(rng, space, name, replicas)
    if rng.random() < 0.4:
        yield bare_pod(space, "by-hand", _random_template(rng, space))


def _random_template(rng: random.Random, space: str) -> dict[str, Any]:
    # Between the time that a pod needs and the time that it gets there is always a second or more.
    grace = rng.choice([2, 5, 10, 20, 60, 300])
    template = pod_spec(
        cpu=rng.choice(["50m", "100m", "200m"]),
        grace=grace,
        ends_after=rng.choice([0.5, 1.0, 3.5, 8.0, 70.0]),
        starts_after=rng.choice([0.5, 1.0, 3.0]),
        priority_class="system-cluster-critical" if rng.random() < 0.1 else None,
    )
    template["spec"]["nodeSelector"] = {LABEL: space}
    return template


def _random_budgets(rng: random.Random, space: str, name: str, replicas: int) -> Iterator[Manifest]:
    rules: list[dict[str, int | str] | None] = [
        None,
        None,
        {"maxUnavailable": 1},
        {"maxUnavailable": "50%"},
        {"minAvailable": max(1, replicas - 1)},
        {"minAvailable": replicas},
        {"minAvailable": "100%"},
    ]
    rule = rng.choice(rules)
    if rule is not None:
        yield budget(space, name, **rule)
        if rng.random() < 0.15:
            second: Any = budget(space, name, maxUnavailable=1)
            second["metadata"]["name"] = f"{name}-again"
            yield second


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
        names = sorted(name for name, own in labels.items() if own.get(LABEL) == f"c{seed}")
        rng = random.Random(seed)
        lost |= set(rng.sample(names, rng.randint(1, len(names) - 1)))
    return frozenset(lost)


def _interrupt(sandbox: Sandbox, scenario: Scenario, lost: frozenset[str]) -> StormReport:
    found = {one.node: one for one in candidate_nodes(sandbox.journal())}
    targets = tuple(Target(found[name].instance, name, found[name].group) for name in sorted(lost))
    plan = StormPlan(scenario.cluster, targets, workloads=workloads_of(scenario), late=LATE)
    sandbox.interrupt([target.instance for target in targets], late=LATE)
    return follow_storm(sandbox, plan, lambda _: None)


def _reactions(report: StormReport) -> dict[str, float]:
    """Return how long after the arrival of its warning the drain of each node made its first
    request. A busy machine takes seconds, and not the same for each node."""
    found = {}
    for node in report.nodes:
        moments = [at.at for pod in node.pods for at in pod.trace.attempts]
        moments += [pod.trace.requested_at for pod in node.pods if pod.trace.requested_at]
        if moments and node.trace.notices:
            arrived = node.trace.notices[0].sent_at + LATE
            found[node.trace.target.node] = max(0.0, min(moments) - arrived)
    return found


def _by_workload(found: Iterable[tuple[str, str]]) -> Fates:
    counted: dict[str, Counter[str]] = {}
    for workload, what in found:
        counted.setdefault(workload, Counter())[what] += 1
    return counted


def _workload(fate: Fate) -> str:
    """Return the workload as the sandbox's journals name it."""
    kind, _, name = fate.workload.partition(" ")
    return f"{kind}/{name}"


def _fate(fate: Fate) -> str:
    if fate.left:
        return Outcome.STAYED.value
    if fate.died:
        return Outcome.DIED.value
    if fate.cut:
        return Outcome.CUT.value
    if fate.workload.startswith("Pod "):
        return Outcome.ENDED.value
    again = fate.ready_at is not None
    return Outcome.MOVED.value if again else Outcome.NOT_RESCHEDULED.value


def _outcome(pod: PodReport) -> str:
    died = pod.evaluation.outcome is Outcome.DIED
    return (Outcome.CUT if died and _in_last_second(pod.trace) else pod.evaluation.outcome).value


def _in_last_second(trace: PodTrace) -> bool:
    """Whether the instance of a pod ended in the last second of its grace period: the retirement
    ends the instance at its deadline."""
    if trace.requested_at is None or trace.ended_at is None or trace.grace_given is None:
        return False
    return trace.ended_at > trace.requested_at + trace.grace_given - 1


def _means(fate: Fate) -> str:
    by = fate.progress.method if fate.progress is not None else None
    return by.value if by is not None else ""


def _real_means(trace: PodTrace) -> str:
    if trace.workload.daemon or trace.requested_by is None:
        return ""
    by_eviction = trace.requested_by == "eviction"
    return (RemovalMethod.EVICT if by_eviction else RemovalMethod.DELETE).value


def main(clusters: int = CLUSTERS) -> None:
    """Compare random clusters, and print what differs."""
    console, began = Console(), time.monotonic()
    pods = differing = raced = otherwise = 0
    for first in range(1, clusters + 1, CLUSTERS_AT_ONCE):
        seeds = range(first, min(first + CLUSTERS_AT_ONCE, clusters + 1))
        with TemporaryDirectory(prefix="leeway-rehearsals-") as folder:
            found = compare(seeds, Path(folder))
        pods += found.pods
        differing += len(found.differences)
        raced += found.raced
        otherwise += found.by_other_means
        for line in (*found.differences, *found.faults):
            console.print(f"clusters {seeds[0]}-{seeds[-1]}: {line}", markup=False)
    took = time.monotonic() - began
    console.print(
        f"{clusters} random clusters, {pods} pods: {differing} workloads differ; {otherwise} pods "
        "were evicted instead of deleted or the reverse, "
        f"{raced} bound between notice and cordon ({took:.0f} s)"
    )
