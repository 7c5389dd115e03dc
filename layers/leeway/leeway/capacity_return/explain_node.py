"""Explains why a node is kept or given back, what is in the way, and what would replace it.

Pure: it asks the decision of return_capacity about one node.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from leeway.capacity_return import reasons
from leeway.capacity_return.blockers import blockers_of
from leeway.capacity_return.budgets import Allowances
from leeway.capacity_return.consolidation import Consolidation
from leeway.capacity_return.course import Course, Step, follow
from leeway.capacity_return.decision import ReturnDecision
from leeway.capacity_return.foreign_nodes import (
    ForeignNode,
    as_kept,
    protecting,
    spare_among,
)
from leeway.capacity_return.moving import Moving, pods_of
from leeway.capacity_return.protection import Blocker
from leeway.capacity_return.snapshot import OwnNode, Snapshot
from leeway.instances.owners import Owner, OwnerKind
from leeway.reasons import Reason
from leeway.selection.packing.plan import Placement, PlannedNode, Unschedulable
from leeway.selection.packing.planning import always
from leeway.selection.packing.supply import UNKNOWN_PRICE
from leeway.selection.solver.problem import Proceed


@dataclass(frozen=True, slots=True)
class Instead:
    """Where the pods of a node would go without it: on nodes that exist, on new ones, or nowhere.

    `price` is that of the new nodes in USD per hour.
    """

    existing: tuple[Placement, ...]
    launches: tuple[PlannedNode, ...]
    homeless: tuple[Unschedulable, ...]
    price: float


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What is missing until a move pays: it saves `saving` and would have to save `least`, both in
    USD per hour, for `pods` pods that move."""

    saving: float
    least: float
    pods: int

    @property
    def missing(self) -> float:
        """USD per hour."""
        return self.least - self.saving


@dataclass(frozen=True, slots=True)
class NodeExplanation:
    """Why a node is kept or goes.

    - `one`: the node with its pods and its price. `owner`: who launched it.
    - `reason`: why it is given back now, or why it is kept now.
    - `step`: what gives it back, now or later; None if nothing does.
    - `spare`: it is another owner's, and its pods fit on other nodes.
    - `blockers`: everything that keeps it now, whether or not it would pay to give it back.
    - `instead`: where its pods would go; None if it has none, or goes already.
    - `shortfall`: what is missing until the move of its pods pays; None if nothing is.
    """

    one: OwnNode
    owner: Owner
    reason: Reason
    step: Step | None = None
    spare: bool = False
    blockers: tuple[Blocker, ...] = ()
    instead: Instead | None = None
    shortfall: Shortfall | None = None


def explain_node(
    name: str,
    snapshot: Snapshot,
    decision: ReturnDecision,
    foreign: Sequence[ForeignNode] = (),
    proceed: Proceed = always,
) -> NodeExplanation:
    """Explain a decision for one node. `foreign` are the nodes of other owners. Later steps are
    simulated while `proceed` returns True.

    Raises:
        KeyError: the node is neither Leeway's nor among `foreign`.
    """
    for other in foreign:
        if other.name == name:
            return _explain_foreign(other, as_kept(snapshot, foreign))
    one = {each.name: each for each in snapshot.own}[name]
    moving = Moving(snapshot)
    course = follow(snapshot, decision, proceed)
    step = next((each for each in course.steps if name in each.returned.nodes), None)
    reason = step.returned.reason if step and step.allowed else decision.kept[name]
    if step is None and reason.code == reasons.NODE_NOT_EXAMINED.name:
        reason, step = _examined_alone(name, reason, course)
    instead = None if one.going or not one.pods else _instead(one, moving)
    allowed = step is not None and step.allowed
    allowances = _allowances_after(decision, snapshot)
    return NodeExplanation(
        one=one,
        owner=Owner(OwnerKind.LEEWAY, one.pool),
        reason=reason,
        step=step,
        blockers=() if allowed else blockers_of(one, moving, allowances),
        instead=instead,
        shortfall=None if step else _shortfall(one, instead, snapshot),
    )


def _examined_alone(name: str, why: Reason, course: Course) -> tuple[Reason, Step | None]:
    """Return why a node is kept, or the step that gives it back, of a node that a decision has not
    examined: it examines only the best prospects for a replacement."""
    one = next(each for each in course.end.own if each.name == name)
    kept: dict[str, Reason] = {}
    found = Consolidation(Moving(course.end), Allowances.of(course.end), kept).run([one])
    if found:
        return found[0].reason, Step(course.end.now, found[0], found[0].saving)
    return kept.get(name, why), None


def _allowances_after(decision: ReturnDecision, snapshot: Snapshot) -> Allowances:
    """Return what the budgets allow besides the returns of a decision."""
    allowances, pools = Allowances.of(snapshot), {one.name: one.pool for one in snapshot.own}
    for returned in decision.returns:
        for name in returned.nodes:
            allowances.take(pools[name], returned.cause)
    return allowances


def _instead(one: OwnNode, moving: Moving) -> Instead:
    pods = {movable.pod.name for movable in one.pods}
    plan = moving.without({one.name}, pods_of([one]), launch=True)
    existing = (
        Placement(place.node, tuple(name for name in place.pods if name in pods))
        for place in plan.existing
    )
    return Instead(
        existing=tuple(place for place in existing if place.pods),
        launches=plan.launches,
        homeless=tuple(each for each in plan.unschedulable if each.pod in pods),
        price=sum(new.cheapest.price for new in plan.launches),
    )


def _shortfall(one: OwnNode, instead: Instead | None, snapshot: Snapshot) -> Shortfall | None:
    if instead is None or instead.homeless or one.price is None:
        return None
    if instead.price >= UNKNOWN_PRICE:
        return None
    saving, pods = one.price - instead.price, len(one.pods)
    price = one.price if instead.launches else None
    least = snapshot.worth.least_saving(pods, snapshot.quiet([one]), price)
    return Shortfall(saving, least, pods) if least is not None and saving < least else None


def _explain_foreign(other: ForeignNode, kept: Snapshot) -> NodeExplanation:
    moving = Moving(kept)
    one = other.one
    return NodeExplanation(
        one=one,
        owner=other.owner,
        reason=other.reason,
        spare=other.name in spare_among([other], kept),
        blockers=protecting(other, kept),
        instead=None if one.going or not one.pods else _instead(one, moving),
    )
