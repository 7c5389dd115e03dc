"""Counts and durations of a storm."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from leeway_cli.report.model import (
    Launch,
    NodeReport,
    Outcome,
    PodTrace,
    Shortage,
    StormReport,
    Target,
)


@dataclass(frozen=True)
class Spread:
    """The median and the maximum of some durations, in seconds."""

    median: float
    maximum: float


@dataclass(frozen=True)
class Summary:
    """Counts and durations (seconds) of a storm; a duration without measurement is None."""

    nodes: int
    drained: int
    replaced: int
    pods: int
    moved: int
    ended: int
    cut: int
    lost: int
    refusals: int
    duplicates: int
    unmanaged: int
    to_cordon: Spread | None
    to_ready: Spread | None
    to_spare: float | None


def summarize(report: StormReport) -> Summary:
    """Count nodes, pods and notices, and compute durations."""
    outcomes = [pod.evaluation.outcome for pod in report.moving]
    spare = [
        node.trace.reclaim_at - node.drained_at
        for node in report.nodes
        if node.drained_at is not None and drained_in_time(node)
    ]
    return Summary(
        nodes=len(report.nodes),
        drained=sum(1 for node in report.nodes if drained_in_time(node)),
        replaced=sum(1 for node in report.nodes if ready_at(node) is not None),
        pods=len(outcomes),
        moved=outcomes.count(Outcome.MOVED),
        ended=outcomes.count(Outcome.ENDED),
        cut=outcomes.count(Outcome.CUT),
        lost=outcomes.count(Outcome.DIED) + outcomes.count(Outcome.NOT_RESCHEDULED),
        refusals=sum(pod.trace.refusals for pod in report.moving),
        duplicates=sum(max(0, len(node.trace.notices) - 1) for node in report.nodes),
        unmanaged=len(report.unmanaged),
        to_cordon=_spread(to_cordon(node) for node in report.nodes),
        to_ready=_spread(to_ready(node) for node in report.nodes),
        to_spare=min(spare, default=None),
    )


def drained_in_time(node: NodeReport) -> bool:
    """Return whether every pod that had to move ended before the instance did."""
    left = [pod for pod in node.moving if pod.evaluation.outcome is Outcome.DIED]
    return bool(node.trace.cordons) and not left


def to_cordon(node: NodeReport) -> float | None:
    """Return the seconds from the first delivery of the notice to the cordon."""
    if not node.trace.cordons or node.trace.noticed_at is None:
        return None
    return node.trace.cordons[0] - node.trace.noticed_at


def ready_at(node: NodeReport) -> float | None:
    """Return when the replacement was Ready."""
    return node.trace.replacement.ready_at if node.trace.replacement else None


def to_ready(node: NodeReport) -> float | None:
    """Return the seconds from the first delivery of the notice until the replacement was Ready."""
    ready = ready_at(node)
    if ready is None or node.trace.noticed_at is None:
        return None
    return ready - node.trace.noticed_at


def missing_for(pod: PodTrace) -> float | None:
    """Return the seconds between a pod's end and its replacement's start; 0 if they overlap."""
    if pod.successor is None or pod.successor.running_at is None or pod.ended_at is None:
        return None
    return max(0.0, pod.successor.running_at - pod.ended_at)


def owner_of(target: Target) -> str:
    """Return who owns a node: a group, or Leeway's pool."""
    return target.group or f"Leeway, pool {target.pool}"


def launch_lines(report: StormReport) -> list[str]:
    """Return sentences about capacity that was short, and about what Leeway launched."""
    return [shortage_text(one) for one in report.shortages] + launch_texts(report.launches)


def shortage_text(shortage: Shortage) -> str:
    """Return a shortage in one sentence."""
    kinds, zones = len(shortage.instance_types), len(shortage.zones)
    market = "Spot" if shortage.capacity_type == "spot" else "On-demand"
    types = shortage.instance_types[0] if kinds == 1 else f"{kinds} instance types"
    places = shortage.zones[0] if zones == 1 else f"{zones} zones"
    return (
        f"{market} capacity was short for pool {shortage.pool}: {types} in {places}"
        f" ({shortage.code})."
    )


def launch_texts(launches: Iterable[Launch]) -> list[str]:
    """Return what Leeway launched, one sentence for each pool, capacity type and instance type."""
    found = Counter(
        (one.pool, one.capacity_type, one.instance_type, one.fallback) for one in launches
    )
    return [
        f"Leeway launched {number} {capacity_type} {instance_type} for pool {pool}"
        + (", instead of Spot." if fallback else ".")
        for (pool, capacity_type, instance_type, fallback), number in found.items()
    ]


def _spread(values: Iterable[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return Spread(median(known), max(known)) if known else None
