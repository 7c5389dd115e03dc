"""Sends a storm of Spot interruptions to a sandbox and follows it to its end."""

import json
import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from leeway.reasons import counted
from leeway_sandbox.installed import ROOT
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import Manifest, Scenario
from rich.console import Console

from leeway_cli.report.evaluation import drained_in_time
from leeway_cli.report.from_journal import pools_of, report_from_journal
from leeway_cli.report.model import Outcome, StormPlan, StormReport, Target, Workload
from leeway_cli.report.scale_up import ScaleUpPlan, ScaleUpReport
from leeway_cli.terminal import ProgressBars


class Progress(ProgressBars):
    """A context that shows progress on the given console."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, "{task.fields[now]}")
        self._task = self._bars.add_task("Sandbox", total=None, now="")
        self._ends_at = 0.0

    def show_start(self, what: str, done: int = 0, total: int | None = None) -> None:
        """Show what the sandbox does, and its progress if the total is known."""
        self._bars.update(self._task, now=what, completed=done, total=total)
        if not self._console.is_terminal and total is None:
            self._console.print(f"Sandbox: {what}")

    def storm(self, plan: StormPlan) -> None:
        """Show that the storm begins."""
        left = plan.warning - plan.late
        self._ends_at = time.monotonic() + left
        self._bars.update(self._task, visible=False)
        self._task = self._bars.add_task("Storm", total=1, now="")
        if not self._console.is_terminal:
            self._console.print(
                f"Storm: EC2 reclaims {counted(len(plan.targets), 'node')} in {left:.0f} s; their "
                "pods move"
            )

    def show_storm(self, report: StormReport) -> None:
        """Show the progress of the storm."""
        pods = report.moving
        in_time = {Outcome.MOVED, Outcome.ENDED, Outcome.CUT}
        moved = sum(1 for pod in pods if pod.evaluation.outcome in in_time)
        nodes = sum(1 for node in report.nodes if drained_in_time(node))
        left = max(0.0, self._ends_at - time.monotonic())
        now = (
            f"{moved}/{len(pods)} pods moved, {nodes}/{len(report.nodes)} nodes empty,"
            f" {left:.0f} s left"
        )
        if report.launches:
            fallbacks = sum(launch.fallback for launch in report.launches)
            short = f", {fallbacks} on-demand because Spot is short" if fallbacks else ""
            now += f"; Leeway launched {len(report.launches)}{short}"
        elif report.shortages:
            now += "; capacity is short"
        self._bars.update(self._task, completed=moved, total=max(len(pods), 1), now=now)

    def scale_up(self, plan: ScaleUpPlan) -> None:
        """Show that the scale-up begins."""
        self._bars.update(self._task, visible=False)
        self._task = self._bars.add_task("Scale-up", total=plan.after, now="")
        if not self._console.is_terminal:
            self._console.print(
                f"Scale-up: {plan.owner} is scaled from {plan.before} to {plan.after};"
                " Leeway launches nodes"
            )

    def show_scale_up(self, report: ScaleUpReport) -> None:
        """Show the progress of the scale-up."""
        last, launched = report.last, len(report.launches)
        ready = sum(one.ready_at is not None for one in report.launches)
        now = f"{last.pending} pending, {last.running} running"
        if launched:
            now += f"; {ready}/{launched} new nodes Ready, {report.price:.2f} USD per hour"
        elif report.shortages:
            now += "; capacity is short"
        self._bars.update(self._task, completed=last.running, now=now)


WARNING = 120.0  # seconds between the time in a warning and the reclaim, as in EC2
REPEAT_AFTER = 1.5  # seconds between a notice and its duplicate
REPEATED = 0.4  # the share of targets whose notice is delivered twice
SETTLE_TIMEOUT = 15.0  # seconds after the last reclaim within which the storm must be over
SPOT_SHORTAGE = {
    "service": "ec2",
    "action": "Launch",
    "capacity_type": "spot",
    "error": "InsufficientInstanceCapacity",
    "message": "There is no Spot capacity available that matches your request.",
}
"""The fault of the storm: fleets find no Spot capacity. Groups still launch Spot instances."""
EVENT = ROOT / "events" / "spot-interruption.json"


@dataclass(frozen=True)
class CandidateNode:
    """A node that can be interrupted, and the owners of its pods.

    A group or one of Leeway's pools launched it: the other name is empty.
    """

    node: str
    instance: str
    group: str
    owners: frozenset[str]
    pool: str = ""

    @property
    def launched_by(self) -> tuple[str, str]:
        """The group and the pool."""
        return self.group, self.pool


def workloads_of(scenario: Scenario) -> dict[str, Workload]:
    """Read the workloads of the demo cluster's manifests, by owner."""
    found = {}
    of_pools = [manifest for pool in scenario.pools for manifest in pool.workloads]
    for manifest in (*scenario.workloads, *of_pools):
        spec = _pod_spec(manifest)
        if spec is None:
            continue
        metadata = manifest["metadata"]
        owner = f"{manifest['kind']}/{metadata['namespace']}/{metadata['name']}"
        found[owner] = Workload(
            owner=owner,
            grace=spec["terminationGracePeriodSeconds"],
            critical=spec.get("priorityClassName", "").startswith("system-"),
            daemon=manifest["kind"] == "DaemonSet",
        )
    return found


def _pod_spec(manifest: Manifest) -> Mapping[str, Any] | None:
    spec: Mapping[str, Any] = manifest.get("spec", {})
    if manifest["kind"] == "Pod":
        return spec
    template: Mapping[str, Any] = spec.get("template", {})
    return template.get("spec")


def candidate_nodes(entries: Sequence[Mapping[str, Any]]) -> list[CandidateNode]:
    """Read the nodes of groups and pools, and the owners of their pods, from the journals."""
    pool = pools_of(entries)
    joined: dict[str, str] = {}
    group: dict[str, str] = {}
    pods: dict[str, tuple[str, str]] = {}
    for entry in entries:
        match entry["kind"]:
            case "node-joined":
                joined[entry["node"]] = entry["instance"]
            case "instance-state" if entry.get("group"):
                group[entry["instance"]] = entry["group"]
            case "pod-bound":
                pods[entry["uid"]] = (
                    entry["node"],
                    entry.get("owner") or f"Pod/{entry['pod']}",
                )
            case "pod-ended":
                pods.pop(entry["uid"], None)
    owners: dict[str, set[str]] = defaultdict(set)
    for node, owner in pods.values():
        owners[node].add(owner)
    return [
        CandidateNode(
            node,
            instance,
            group.get(instance, ""),
            frozenset(owners[node]),
            pool.get(instance, ""),
        )
        for node, instance in sorted(joined.items())
        if instance in group or instance in pool
    ]


def choose_targets(
    candidates: Sequence[CandidateNode], count: int, workloads: Mapping[str, Workload], seed: int
) -> tuple[Target, ...]:
    """Choose the nodes to interrupt: nodes with rare workloads first, from the groups and pools in
    turn.

    A workload has more weight if fewer nodes run it, so that the storm reaches every kind of
    workload before it reaches one twice. Some targets get their notice twice.
    """
    rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
    left = rng.sample(list(candidates), len(candidates))
    spread = _node_counts(candidates, workloads)
    seen: set[str] = set()
    interrupted: dict[tuple[str, str], int] = defaultdict(int)
    chosen: list[CandidateNode] = []
    while left and len(chosen) < count:
        best = max(
            left,
            key=lambda place: (
                -interrupted[place.launched_by],
                sum(1.0 / spread[one] for one in place.owners - seen if one in spread),
                len(place.owners),
            ),
        )
        left.remove(best)
        chosen.append(best)
        seen |= best.owners
        interrupted[best.launched_by] += 1
    twice = set(rng.sample(range(len(chosen)), math.ceil(len(chosen) * REPEATED)))
    return tuple(
        Target(
            place.instance,
            place.node,
            place.group,
            copies=2 if at in twice else 1,
            pool=place.pool,
        )
        for at, place in enumerate(chosen)
    )


def _node_counts(
    candidates: Iterable[CandidateNode], workloads: Mapping[str, Workload]
) -> dict[str, int]:
    """Count the nodes that run each workload, without DaemonSets."""
    spread: dict[str, int] = defaultdict(int)
    for place in candidates:
        for owner in place.owners:
            if not workloads.get(owner, Workload(owner)).daemon:
                spread[owner] += 1
    return dict(spread)


def send_warnings(sandbox: Sandbox, plan: StormPlan) -> None:
    """Send the warnings of the storm, and some duplicates a moment later."""
    instances = [target.instance for target in plan.targets]
    begun = sandbox.interrupt([*instances, *plan.unmanaged], late=plan.late)
    time.sleep(REPEAT_AFTER)
    repeated = {target.instance for target in plan.targets if target.copies > 1}
    for warning in begun:
        if warning["instance"] in repeated:
            sandbox.send(_duplicate(warning))


def _duplicate(warning: Mapping[str, Any]) -> dict[str, Any]:
    """Build the same event again: EventBridge delivers at least once."""
    event: dict[str, Any] = json.loads(EVENT.read_text())
    instance = warning["instance"]
    sent_at = datetime.fromtimestamp(warning["reclaim_at"] - WARNING, UTC)
    event["id"], event["time"] = warning["event"], sent_at.strftime("%Y-%m-%dT%H:%M:%SZ")
    event["detail"]["instance-id"] = instance
    event["resources"] = [
        resource.rpartition("/")[0] + f"/{instance}" for resource in event["resources"]
    ]
    return event


def follow_storm(
    sandbox: Sandbox, plan: StormPlan, show: Callable[[StormReport], None]
) -> StormReport:
    """Follow the storm until it is over or the timeout ends."""
    until = time.monotonic() + plan.warning - plan.late + SETTLE_TIMEOUT
    report = report_from_journal(sandbox.journal(), plan)
    while time.monotonic() < until and not is_over(report):
        show(report)
        time.sleep(0.4)
        report = report_from_journal(sandbox.journal(), plan)
    show(report)
    return report


def is_over(report: StormReport) -> bool:
    """Return whether every node is gone and replaced, every pod runs again, and Leeway has reported
    every retirement."""
    return all(
        node.trace.instance_gone_at is not None
        and node.trace.replacement is not None
        and node.trace.replacement.ready_at is not None
        and node.trace.leeway_events
        and all(pod.evaluation.outcome is not Outcome.NOT_RESCHEDULED for pod in node.moving)
        for node in report.nodes
    )
