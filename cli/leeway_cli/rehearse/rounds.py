"""Which nodes each round loses, and the results of many rounds by workload."""

import math
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from statistics import median_high

from leeway.printable import printable
from leeway.retirement.pods import DAEMONSET
from leeway.retirement.progress import RemovalMethod

from leeway_cli.rehearse.cluster import Budget, Cluster, NodeFacts, Workload
from leeway_cli.rehearse.storm import SETTLED_AFTER, Fate, Storm
from leeway_cli.rehearse.world import moments_below, number_at

_PERCENT = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)%", re.ASCII)
_MOST_NAMED = 12

_KINDS: dict[str, Callable[[NodeFacts], tuple[str, ...]]] = {
    "zone": lambda node: (node.zone,),
    "type": lambda node: (node.instance_type,),
    "group": lambda node: node.groups,
}


class UnknownLoss(ValueError):
    """A loss that is invalid, or that no node matches. Its text is what was expected."""


@dataclass(frozen=True, slots=True)
class Losses:
    """The nodes that are lost in every round (`named`), and how many others a round draws."""

    named: frozenset[str]
    drawn: int
    nodes: tuple[str, ...]

    def draw(self, rng: random.Random) -> frozenset[str]:
        """Return the lost nodes of one round."""
        others = [name for name in self.nodes if name not in self.named]
        return self.named | set(rng.sample(others, min(self.drawn, len(others))))


def read_losses(given: Sequence[str], nodes: Iterable[NodeFacts]) -> Losses:
    """Read the values of --lose: `30%`, a node, `zone/NAME`, `type/NAME`, `group/NAME`, or several
    of these with commas.

    Raises:
        UnknownLoss: a value is invalid, or no node matches it.
    """
    known = sorted(nodes, key=lambda node: node.name)
    values = [value.strip() for one in given for value in one.split(",") if value.strip()]
    if not values:
        raise UnknownLoss("a share such as 30%, a node, zone/NAME, type/NAME or group/NAME")
    named: set[str] = set()
    drawn = 0
    for value in values:
        if "%" in value:
            drawn += _count(value, len(known))
        else:
            named |= _matching(value, known)
    return Losses(frozenset(named), drawn, tuple(node.name for node in known))


def _count(value: str, nodes: int) -> int:
    """Return how many nodes a share is; a share is at least one node."""
    found = _PERCENT.fullmatch(value)
    if found is None or not 0 < float(found[1]) <= 100:
        raise UnknownLoss(f"a share above 0% and up to 100%, got {printable(value)}")
    return max(1, math.floor(nodes * float(found[1]) / 100 + 0.5))


def _matching(value: str, nodes: Sequence[NodeFacts]) -> set[str]:
    kind, slash, name = value.partition("/")
    if slash and kind not in _KINDS:
        raise UnknownLoss(f"zone/NAME, type/NAME, group/NAME or a node, got {printable(value)}")
    values_of = _KINDS[kind] if slash else lambda node: (node.name,)
    found = {node.name for node in nodes if (name if slash else value) in values_of(node)}
    if found and (name if slash else value):
        return found
    there = sorted({one for node in nodes for one in values_of(node) if one})
    what = {"zone": "a zone", "type": "an instance type", "group": "a node group or pool"}
    expected = f"{what[kind]} of the nodes" if slash else "a node of the cluster"
    raise UnknownLoss(f"{expected} ({_listed(there, name or value)}), got {printable(value)}")


def _listed(there: Sequence[str], wanted: str) -> str:
    """List what there is; of many names, the most similar first."""
    if not there:
        return "no node has a label that names one"
    similar = get_close_matches(wanted, there, n=3, cutoff=0.6)
    names = [*similar, *(one for one in there if one not in similar)]
    names = names if len(names) > _MOST_NAMED else list(there)
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(map(printable, names[:_MOST_NAMED])) + more


SHOWN_SECONDS = 150
"""The length of a picture: the two minutes, and how it goes on."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A number in the median and in the worst round."""

    median: float
    worst: float

    @classmethod
    def of(cls, numbers: Sequence[float], *, lowest: bool = False) -> "Spread":
        """Return the spread; the worst is the largest number, or the `lowest`."""
        return cls(median_high(numbers), min(numbers) if lowest else max(numbers))


@dataclass(frozen=True, slots=True)
class Outage:
    """What one round does to a workload. Durations are in seconds, and end with the rehearsal.

    `lost` pods were on lost nodes. `lowest` is the fewest Ready pods. `back` is when as many are
    Ready as before, None for never.
    """

    lost: int
    lowest: int
    below_budget: float
    none_ready: float
    back: float | None
    ready: tuple[int, ...]


@dataclass(frozen=True)
class WorkloadResult:
    """A workload over all rounds. `least` is what its budget asks for, None without a budget.

    `ready` and `fewest` are the Ready pods at each second, in the median and at the worst.
    """

    workload: Workload
    before: int
    least: int | None
    lost: Spread
    lowest: Spread
    below_budget: Spread
    none_ready: Spread
    back: Spread | None
    ready: tuple[int, ...]
    fewest: tuple[int, ...]

    @property
    def severity(self) -> tuple[float, float, float]:
        """A sort key: the worst first."""
        never = self.back is None
        return -float(never), -self.none_ready.worst, -self.below_budget.worst


@dataclass(frozen=True)
class Result:
    """The results of a rehearsal: a storm for each round, and the workloads, the worst first."""

    cluster: Cluster
    storms: tuple[Storm, ...]
    workloads: tuple[WorkloadResult, ...]

    @property
    def worst(self) -> Storm:
        """The round that is worst for the pods."""
        return max(self.storms, key=_badness)

    def spread(self, what: str) -> Spread:
        """Return how a count of pods varies over the rounds; see `counts`."""
        return Spread.of([counts(storm)[what] for storm in self.storms])


def counts(storm: Storm) -> dict[str, int]:
    """Count the pods of a round that have to move, by what happens to them."""
    moving = [fate for fate in storm.fates if not fate.left and not fate.returned]
    return {
        "pods": len(moving),
        "evicted": sum(_by(fate) is RemovalMethod.EVICT for fate in moving),
        "deleted": sum(_by(fate) is RemovalMethod.DELETE for fate in moving),
        "cut": sum(fate.cut for fate in moving),
        "died": sum(fate.died for fate in storm.fates if not fate.left),
        "notReadyAgain": sum(fate.ready_at is None for fate in moving),
        "launched": len(storm.placements.launches),
        "withoutPlace": len(storm.placements.without),
    }


def _by(fate: Fate) -> RemovalMethod | None:
    return fate.progress.method if fate.progress is not None else None


def _badness(storm: Storm) -> tuple[float, ...]:
    found = counts(storm)
    never = SETTLED_AFTER.total_seconds()
    late = sum(never if fate.ready_at is None else fate.ready_at for fate in storm.fates)
    return found["died"], found["notReadyAgain"], found["deleted"], found["cut"], late


def combine(cluster: Cluster, storms: Sequence[Storm]) -> Result:
    """Combine the rounds of a rehearsal."""
    found = []
    for key, workload in cluster.workloads.items():
        if workload.kind in {DAEMONSET, "Node"}:
            continue
        outages = [_outage(cluster, storm, key) for storm in storms]
        if any(outage.lost for outage in outages):
            found.append(_combined(cluster, workload, outages))
    found.sort(key=lambda one: (one.severity, one.workload.key))
    return Result(cluster, tuple(storms), tuple(found))


def budgets_of(cluster: Cluster, workload: str) -> list[Budget]:
    """Return the budgets that select pods of a workload."""
    keys = {key for one in cluster.pods if one.workload == workload for key in one.budgets}
    return [cluster.budgets[key] for key in sorted(keys)]


def ready_before(cluster: Cluster, workload: str) -> int:
    """Return how many pods of a workload are Ready before the rehearsal."""
    pods = (one for one in cluster.pods if one.workload == workload)
    return sum(one.ready and one.pod.deletion is None for one in pods)


def below(storm: Storm, budget: Budget) -> float:
    """Return for how many seconds a budget is not met."""
    if budget.key not in storm.healthy:
        return 0.0
    return moments_below(storm.healthy[budget.key], budget.desired, storm.until)[0]


def _outage(cluster: Cluster, storm: Storm, key: str) -> Outage:
    before = ready_before(cluster, key)
    if key not in storm.ready:
        return Outage(0, before, 0.0, 0.0, 0.0, (before,) * (SHOWN_SECONDS + 1))
    series = storm.ready[key]
    lost = sum(fate.workload == key and not fate.left and not fate.returned for fate in storm.fates)
    back = next(
        (
            (at - storm.notice).total_seconds()
            for place, (at, number) in enumerate(series.steps)
            if number >= before and all(later >= before for _, later in series.steps[place:])
        ),
        None,
    )
    return Outage(
        lost=lost,
        lowest=min((number for _, number in series.steps), default=before),
        below_budget=max((below(storm, one) for one in budgets_of(cluster, key)), default=0.0),
        none_ready=moments_below(series, 1, storm.until)[0] if before else 0.0,
        back=back,
        ready=tuple(
            number_at(series, storm.notice + timedelta(seconds=second))
            for second in range(SHOWN_SECONDS + 1)
        ),
    )


def _combined(cluster: Cluster, workload: Workload, outages: Sequence[Outage]) -> WorkloadResult:
    budgets = budgets_of(cluster, workload.key)
    backs = [outage.back for outage in outages]
    known = [back for back in backs if back is not None]
    by_second = list(zip(*(outage.ready for outage in outages), strict=True))
    return WorkloadResult(
        workload=workload,
        before=ready_before(cluster, workload.key),
        least=max((budget.desired for budget in budgets), default=None),
        lost=Spread.of([outage.lost for outage in outages]),
        lowest=Spread.of([outage.lowest for outage in outages], lowest=True),
        below_budget=Spread.of([outage.below_budget for outage in outages]),
        none_ready=Spread.of([outage.none_ready for outage in outages]),
        back=Spread.of(known) if len(known) == len(backs) else None,
        ready=tuple(median_high(numbers) for numbers in by_second),
        fewest=tuple(min(numbers) for numbers in by_second),
    )
