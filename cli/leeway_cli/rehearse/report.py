"""The report of a rehearsal: its values, and their rendering as JSON."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from leeway_cli.rehearse.cluster import Cluster
from leeway_cli.rehearse.findings import Finding, find
from leeway_cli.rehearse.pace import Pace
from leeway_cli.rehearse.placement import Launch
from leeway_cli.rehearse.rounds import Result, Spread, WorkloadResult, combine
from leeway_cli.rehearse.storm import Fate, Storm

COUNTS = {
    "pods": "pods to move",
    "evicted": "evicted",
    "deleted": "deleted in spite of a budget",
    "cut": "with a shortened grace period",
    "died": "still running when EC2 ends the node",
    "notReadyAgain": "without a successor that is Ready",
    "withoutPlace": "for which no node has room",
    "launched": "nodes launched",
}
"""What is counted in a round, in the order of the report."""


@dataclass(frozen=True)
class Rehearsal:
    """A rehearsal with its options. `priced`: the prices of launches are known."""

    result: Result
    findings: tuple[Finding, ...]
    pace: Pace
    lose: tuple[str, ...]
    seed: int
    source: str
    priced: bool

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        storms: Sequence[Storm],
        pace: Pace,
        lose: Sequence[str],
        seed: int,
        source: str,
        priced: bool,
    ) -> "Rehearsal":
        """Combine the rounds, and find what to change."""
        result = combine(cluster, storms)
        return cls(result, find(cluster, storms, pace), pace, tuple(lose), seed, source, priced)

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return len(self.result.storms)

    @property
    def price(self) -> Spread | None:
        """The price of launched nodes in USD per hour; None if it is not known."""
        prices = [storm.placements.price for storm in self.result.storms]
        known = [price for price in prices if price is not None]
        return Spread.of(known) if self.priced and len(known) == len(prices) else None


def as_data(found: Rehearsal) -> dict[str, Any]:
    """Render a rehearsal as JSON. Durations are seconds from the warning, null for never."""
    result, worst = found.result, found.result.worst
    return {
        "source": found.source,
        "nodes": len(result.cluster.nodes),
        "pods": len(result.cluster.pods),
        "lose": list(found.lose),
        "rounds": found.rounds,
        "seed": found.seed,
        "assumptions": asdict(found.pace),
        "counts": {name: asdict(result.spread(name)) for name in COUNTS},
        "pricePerHour": asdict(found.price) if found.price else None,
        "workloads": [_workload(one) for one in result.workloads],
        "findings": [_finding(one) for one in found.findings],
        "worstRound": {
            "lost": sorted(worst.lost),
            "onExistingNodes": worst.placements.on_existing,
            "launches": [_launch(one) for one in worst.placements.launches],
            "withoutPlace": {
                pod: asdict(reason) for pod, reason in sorted(worst.placements.without.items())
            },
            "pods": [_fate(one) for one in worst.fates if not one.left],
        },
    }


def _workload(one: WorkloadResult) -> dict[str, Any]:
    return {
        "workload": one.workload.key,
        "replicas": one.workload.replicas,
        "ready": one.before,
        "mustBeHealthy": one.least,
        "managedBy": one.workload.manager or None,
        "lost": asdict(one.lost),
        "lowestReady": asdict(one.lowest),
        "belowBudget": asdict(one.below_budget),
        "noneReady": asdict(one.none_ready),
        "readyAgain": asdict(one.back) if one.back else None,
        "readyBySecond": {"median": list(one.ready), "worst": list(one.fewest)},
    }


def _finding(one: Finding) -> dict[str, Any]:
    return {
        "code": one.reason.code,
        "message": one.reason.message,
        "object": one.change.object,
        "field": one.change.field,
        "value": one.change.value or None,
        "managedBy": one.change.manager or None,
        "command": one.change.command or None,
        "pods": list(one.pods),
        "rounds": one.rounds,
    }


def _launch(one: Launch) -> dict[str, Any]:
    return {
        "pool": one.pool or None,
        "insteadOf": one.instead_of or None,
        "instanceTypes": list(one.instance_types),
        "zones": list(one.zones),
        "capacityType": one.capacity_type or None,
        "pricePerHour": one.price,
        "pods": list(one.pods),
    }


def _fate(one: Fate) -> dict[str, Any]:
    progress = one.progress
    return {
        "pod": one.pod,
        "node": one.node,
        "workload": one.workload,
        "stage": progress.stage.value if progress else None,
        "method": progress.method.value if progress and progress.method else None,
        "reason": asdict(progress.reason) if progress else None,
        "warning": progress.warning if progress else "",
        "gracePeriodSeconds": one.granted,
        "endedAt": one.ended_at,
        "readyAgainAt": one.ready_at,
        "shortened": one.cut,
        "diedWithNode": one.died,
        "returned": one.returned,
    }
