"""Explains what a cluster costs, what the next step saves, and what protects the rest.

Pure: it asks the decision of return_capacity.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from leeway.capacity_return.course import Course, Step, follow
from leeway.capacity_return.decision import ReturnDecision
from leeway.capacity_return.foreign_nodes import (
    ForeignNode,
    GroupSize,
    SpareInGroup,
    as_kept,
    spare_in_groups,
)
from leeway.capacity_return.moving import pods_of
from leeway.capacity_return.snapshot import OwnNode, Snapshot
from leeway.instances.owners import OwnerKind
from leeway.reasons import Reason
from leeway.selection.packing.planning import always, pack
from leeway.selection.packing.pod_groups import fully_relaxed
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import Pod
from leeway.selection.solver.problem import Proceed

MONTH_HOURS = 730
"""Hours of a month in prices per month, as AWS counts them. Source: AWS Pricing Calculator."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The price of some nodes in USD per hour, without those whose price is not known
    (`without_price`)."""

    nodes: int = 0
    per_hour: float = 0.0
    without_price: int = 0

    @classmethod
    def of(cls, nodes: Iterable[OwnNode]) -> "Cost":
        """Add up the prices of nodes."""
        prices = [one.price for one in nodes]
        known = [price for price in prices if price is not None]
        return cls(len(prices), sum(known), len(prices) - len(known))


@dataclass(frozen=True, slots=True)
class Protected:
    """The nodes that are kept for one reason code. `example` is the reason of the first."""

    example: Reason
    nodes: tuple[str, ...]
    cost: Cost


@dataclass(frozen=True, slots=True)
class ClusterExplanation:
    """What could be saved in a cluster.

    - `own`: the cost of Leeway's nodes now; `end`: after all steps. `foreign`: the cost of the
      other nodes by the kind of their owner.
    - `next`: of the steps that are allowed now, the one that saves most; without any, the first one
      that is allowed later; None if none follows.
    - `course`: all steps that would follow.
    - `protected`: why Leeway's other nodes are kept then, the most expensive first.
    - `bound`: no nodes of the cluster's pools can hold the pods of Leeway's nodes for less, in USD
      per hour; None without pools. It does not count room on nodes of others.
    - `groups`: Auto Scaling groups that could be smaller after all steps.
    """

    own: Cost
    end: Cost
    foreign: Mapping[OwnerKind, Cost]
    next: Step | None
    course: Course
    protected: tuple[Protected, ...]
    bound: float | None
    groups: tuple[SpareInGroup, ...] = field(default=())


def explain_cluster(
    snapshot: Snapshot,
    decision: ReturnDecision,
    foreign: Sequence[ForeignNode] = (),
    sizes: Mapping[str, GroupSize] | None = None,
    proceed: Proceed = always,
) -> ClusterExplanation:
    """Explain a decision. `foreign` are the nodes of other owners, `sizes` the sizes of Auto
    Scaling groups by name. Later steps are simulated while `proceed` returns True."""
    names = {one.name for one in foreign}
    course = follow(as_kept(snapshot, foreign), decision, proceed)
    left = [one for one in course.end.own if one.name not in names]
    kept = {name: why for name, why in course.kept.items() if name not in names}
    return ClusterExplanation(
        own=Cost.of(snapshot.own),
        end=Cost.of(one for one in left if not one.going),
        foreign=_by_kind(foreign),
        next=_next(course),
        course=course,
        protected=_protected(left, kept),
        bound=_bound(snapshot),
        groups=spare_in_groups(course.end, foreign, sizes or {}),
    )


def _by_kind(foreign: Sequence[ForeignNode]) -> dict[OwnerKind, Cost]:
    kinds = sorted({one.owner.kind for one in foreign})
    return {kind: Cost.of(one.one for one in foreign if one.owner.kind is kind) for kind in kinds}


def _next(course: Course) -> Step | None:
    now = [step for step in course.steps if step.allowed]
    best = max(now, key=lambda step: (step.saving, -step.returned.moves), default=None)
    return best or next(iter(course.steps), None)


def _protected(left: Sequence[OwnNode], kept: Mapping[str, Reason]) -> tuple[Protected, ...]:
    by_code: dict[str, list[OwnNode]] = {}
    for one in left:
        if why := kept.get(one.name):
            by_code.setdefault(why.code, []).append(one)
    found = (
        Protected(kept[nodes[0].name], tuple(one.name for one in nodes), Cost.of(nodes))
        for nodes in by_code.values()
    )
    return tuple(sorted(found, key=lambda one: -one.cost.per_hour))


def _bound(snapshot: Snapshot) -> float | None:
    """Return the bound for the pods of Leeway's nodes, from any pool without its limits."""
    if not snapshot.pools:
        return None
    pools = [replace(pool, limits=None, weight=0) for pool in snapshot.pools]
    supply = Supply(pools, snapshot.catalog, snapshot.unavailable, snapshot.daemons)
    return pack([_alone(pod) for pod in pods_of(snapshot.own)], supply).bound


def _alone(pod: Pod) -> Pod:
    """Return a pod with the constraints that it would have alone, and without preferences: the
    zones that packing chooses for pods that depend on others would make the bound too high."""
    free = replace(
        fully_relaxed(pod.spec, soft_taints=True),
        labels={},
        spreads=(),
        pod_affinity=(),
        pod_anti_affinity=(),
        ports=frozenset(),
    )
    return Pod(pod.name, free)
