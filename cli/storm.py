"""Lets a storm of Spot interruptions loose on a sandbox and watches until it is over."""

import json
import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cli.report.reading import read_story
from cli.report.story import Outcome, Plan, Story, Target, Workload
from sandbox.children import ROOT
from sandbox.sandbox import Sandbox
from sandbox.scenario import Manifest, Scenario

WARNING = 120.0  # seconds from a warning's time to the reclaim, EC2's own rule
REPEAT_AFTER = 1.5  # seconds until a duplicate of a notice arrives
REPEATED = 0.4  # the share of targets that are told twice
PATIENCE = 15.0  # seconds after the last reclaim by which everything must have settled
EVENT = ROOT / "events" / "spot-interruption.json"


@dataclass(frozen=True)
class Place:
    """A node that could be hit, and whose pods it runs."""

    node: str
    instance: str
    group: str
    owners: frozenset[str]


def workloads_of(world: Scenario) -> dict[str, Workload]:
    """What the world's manifests say of their pods, by owner."""
    found = {}
    for manifest in world.workloads:
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


def places(entries: Iterable[Mapping[str, Any]]) -> list[Place]:
    """The nodes there are and whose pods run on each, by the journals."""
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
        Place(node, instance, group[instance], frozenset(owners[node]))
        for node, instance in sorted(joined.items())
        if instance in group
    ]


def choose_targets(
    candidates: Sequence[Place], count: int, workloads: Mapping[str, Workload], seed: int
) -> tuple[Target, ...]:
    """Pick nodes to hit: where the rare workloads run first, from each group in turn.

    A workload counts the more, the fewer nodes run it; so the storm meets every awkward sort of
    pod before it meets one twice. Some of the targets are told twice.
    """
    rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
    left = rng.sample(list(candidates), len(candidates))
    spread = _spread(candidates, workloads)
    seen: set[str] = set()
    hits: dict[str, int] = defaultdict(int)
    chosen: list[Place] = []
    while left and len(chosen) < count:
        best = max(
            left,
            key=lambda place: (
                -hits[place.group],
                _worth(place.owners - seen, spread),
                len(place.owners),
            ),
        )
        left.remove(best)
        chosen.append(best)
        seen |= best.owners
        hits[best.group] += 1
    twice = set(rng.sample(range(len(chosen)), math.ceil(len(chosen) * REPEATED)))
    return tuple(
        Target(place.instance, place.node, place.group, copies=2 if at in twice else 1)
        for at, place in enumerate(chosen)
    )


def _spread(candidates: Iterable[Place], workloads: Mapping[str, Workload]) -> dict[str, int]:
    """On how many nodes each workload runs; DaemonSets do not count."""
    spread: dict[str, int] = defaultdict(int)
    for place in candidates:
        for owner in place.owners:
            if not workloads.get(owner, Workload(owner)).daemon:
                spread[owner] += 1
    return dict(spread)


def _worth(owners: Iterable[str], spread: Mapping[str, int]) -> float:
    return sum(1.0 / spread[owner] for owner in owners if owner in spread)


def let_loose(sandbox: Sandbox, plan: Plan) -> None:
    """Send the storm's warnings, and the duplicates a moment later."""
    instances = [target.instance for target in plan.targets]
    begun = sandbox.interrupt([*instances, *plan.strangers], late=plan.late)
    time.sleep(REPEAT_AFTER)
    repeated = {target.instance for target in plan.targets if target.copies > 1}
    for warning in begun:
        if warning["instance"] in repeated:
            sandbox.send(_duplicate(warning))


def _duplicate(warning: Mapping[str, Any]) -> dict[str, Any]:
    """The same event once more: EventBridge delivers at least once."""
    event: dict[str, Any] = json.loads(EVENT.read_text())
    instance = warning["instance"]
    said_at = datetime.fromtimestamp(warning["reclaim_at"] - WARNING, UTC)
    event["id"], event["time"] = warning["event"], said_at.strftime("%Y-%m-%dT%H:%M:%SZ")
    event["detail"]["instance-id"] = instance
    event["resources"] = [
        resource.rpartition("/")[0] + f"/{instance}" for resource in event["resources"]
    ]
    return event


def watch(sandbox: Sandbox, plan: Plan, tell: Callable[[Story], None]) -> Story:
    """Follow the storm until nothing is left to see, or until it should long be over."""
    until = time.monotonic() + plan.warning - plan.late + PATIENCE
    story = read_story(sandbox.journal(), plan)
    while time.monotonic() < until and not is_over(story):
        tell(story)
        time.sleep(0.4)
        story = read_story(sandbox.journal(), plan)
    tell(story)
    return story


def is_over(story: Story) -> bool:
    """Whether every node is gone and replaced, every pod settled, and Leeway has had its say."""
    return all(
        node.trace.dead_at is not None
        and node.trace.replacement is not None
        and node.trace.replacement.ready_at is not None
        and node.trace.claims
        and all(pod.verdict.outcome is not Outcome.UNPLACED for pod in node.moving)
        for node in story.nodes
    )
