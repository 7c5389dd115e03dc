"""The steps that would follow if nothing but Leeway changed the cluster."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from leeway.disruption.decide import decide_returns
from leeway.disruption.moves import Moving
from leeway.disruption.protection import Allowances, blockers_of
from leeway.disruption.rules import Cause
from leeway.disruption.snapshot import MovablePod, NodeReturn, OwnNode, ReturnDecision, Snapshot
from leeway.reasons import Reason
from leeway.selection.labels import HOSTNAME
from leeway.selection.packing.plan import Plan, PlannedNode
from leeway.selection.packing.planning import always
from leeway.selection.pods import ExistingNode, PodSpec
from leeway.selection.solver.problem import Proceed


@dataclass(frozen=True, slots=True)
class Outcome:
    """A cluster after one or more returns, and the nodes that are launched for each of them: None
    for those that there was no time to simulate."""

    snapshot: Snapshot
    launches: tuple[tuple[PlannedNode, ...] | None, ...]


def outcome_of(
    snapshot: Snapshot, returns: Iterable[NodeReturn], proceed: Proceed = always
) -> Outcome:
    """Return the cluster after these returns, which a decision about `snapshot` has found. Nodes
    are replaced as long as `proceed` returns True: each replacement is a plan of its own.

    Pods of nodes that are not replaced move to the places of one common plan, as the decision has
    confirmed it. A pod that has no place then waits for a node.
    """
    returns = tuple(returns)
    together = [one for one in returns if not one.replaced]
    now, launches = snapshot, list[tuple[PlannedNode, ...] | None]()
    if together:
        now, _ = _without(now, together, launch=False)
    for one in returns:
        new: tuple[PlannedNode, ...] | None = None if one.replaced else ()
        if one.replaced and proceed():
            now, new = _without(now, [one], launch=True)
        launches.append(new)
    return Outcome(now, tuple(launches))


def _without(
    snapshot: Snapshot, returns: Sequence[NodeReturn], launch: bool
) -> tuple[Snapshot, tuple[PlannedNode, ...]]:
    names = {name for one in returns for name in one.nodes}
    gone = [one for one in snapshot.own if one.name in names]
    in_place = {name for one in returns if one.in_place for name in one.nodes}
    new = [_in_place(one, snapshot) for one in gone if one.name in in_place]
    snapshot = replace(snapshot, own=(*snapshot.own, *new))
    loose = frozenset().union(*(one.loose for one in returns))
    consolidates = all(one.cause is Cause.UNDERUTILIZED for one in returns)
    plan = Moving(snapshot).without(gone, launch, loose, consolidates)
    moving = {movable.pod.name: movable for one in gone for movable in one.pods}
    coming = {one.node: [moving[n] for n in one.pods if n in moving] for one in plan.existing}
    own = [
        _received(one, coming.get(one.name, ()), snapshot)
        for one in snapshot.own
        if one.name not in names
    ]
    own += _launched(plan, moving, snapshot)
    others = [_with_pods(one, coming.get(one.name, ())) for one in snapshot.others]
    unplaced = {one.pod for one in plan.unschedulable}
    waiting = [movable.pod for name, movable in moving.items() if name in unplaced]
    after = replace(
        snapshot,
        own=tuple(own),
        others=tuple(others),
        waiting=(*snapshot.waiting, *waiting),
    )
    return after, plan.launches


def _in_place(one: OwnNode, snapshot: Snapshot) -> OwnNode:
    """The node that a static pool launches in the place of another one."""
    name = f"in-place-of-{one.name}"
    return replace(
        one,
        node=replace(one.node, name=name, labels={**one.node.labels, HOSTNAME: name}, pods=()),
        instance="",
        created_at=snapshot.now,
        quiet_since=snapshot.now,
        pods=(),
        drift=(),
    )


def _received(one: OwnNode, pods: Collection[MovablePod], snapshot: Snapshot) -> OwnNode:
    if not pods:
        return one
    node = _with_pods(one.node, pods)
    return replace(one, node=node, pods=(*one.pods, *pods), quiet_since=snapshot.now)


def _with_pods(node: ExistingNode, pods: Iterable[MovablePod]) -> ExistingNode:
    added: tuple[PodSpec, ...] = tuple(movable.pod.spec for movable in pods)
    return replace(node, pods=(*node.pods, *added)) if added else node


def _launched(plan: Plan, moving: dict[str, MovablePod], snapshot: Snapshot) -> Iterator[OwnNode]:
    taken = {one.name for one in snapshot.own} | {one.name for one in snapshot.others}
    names = (name for n in range(1, 10**9) if (name := f"new-{n}") not in taken)
    for new, name in zip(plan.launches, names, strict=False):
        offered, kind = new.cheapest.offering, new.cheapest.type
        pods = tuple(moving[pod] for pod in new.pods if pod in moving)
        node = ExistingNode(
            name=name,
            labels={**new.cheapest.labels, HOSTNAME: name},
            allocatable=kind.allocatable,
            capacity=kind.capacity,
            taints=new.cheapest.pool.taints,
            pods=tuple(movable.pod.spec for movable in pods),
            pool=new.pool,
        )
        yield OwnNode(
            node=node,
            instance="",
            pool=new.pool,
            instance_type=kind.name,
            zone=offered.zone,
            capacity_type=offered.capacity_type,
            price=offered.price,
            created_at=snapshot.now,
            quiet_since=snapshot.now,
            pods=pods,
        )


MOST_ROUNDS = 30
"""How many decisions are simulated, each on the outcome of the one before."""


@dataclass(frozen=True, slots=True)
class Step:
    """One return, and the nodes that are launched for it. `allowed`: it is allowed now. Otherwise
    it is from the time `at` (UTC) on, after the steps before it. `saving` is in USD per hour: also
    that of expired and drifted nodes, which are not given back for it, if there was time to
    simulate their replacements."""

    at: datetime
    returned: NodeReturn
    saving: float
    launches: tuple[PlannedNode, ...] = ()
    allowed: bool = False


@dataclass(frozen=True, slots=True)
class Course:
    """The steps that would follow, and the cluster after them.

    `kept` has the reason for each node that is kept then. `complete`: no further step follows
    within the horizon.
    """

    steps: tuple[Step, ...]
    end: Snapshot
    kept: Mapping[str, Reason]
    complete: bool = True


def follow(snapshot: Snapshot, decision: ReturnDecision, proceed: Proceed = always) -> Course:
    """Simulate a decision and those that follow it, for the horizon of `snapshot.worth`, as long as
    `proceed` returns True.

    When nothing is allowed any more, the simulation goes on at the time at which the next blocker
    ends. The budgets of pools hold for each decision. The budget of the cluster, which only delays
    steps, holds for the first one.
    """
    steps: list[Step] = []
    now, until = snapshot, snapshot.now + snapshot.worth.horizon
    for number in range(MOST_ROUNDS):
        if decision.returns:
            outcome = outcome_of(now, decision.returns, proceed)
            for one, new in zip(decision.returns, outcome.launches, strict=True):
                saving = one.saving if new is None else _saving(one, new, now)
                steps.append(Step(now.now, one, saving, new or (), allowed=number == 0))
            now = replace(outcome.snapshot, most=None)
        elif now.most is not None:
            now = replace(now, most=None)
        else:
            later = min((at for at in _ends(now) if now.now < at <= until), default=None)
            if later is None:
                return Course(tuple(steps), now, decision.kept)
            now = replace(now, now=later)
        if not proceed():
            break
        decision = decide_returns(now)
    return Course(tuple(steps), now, decision.kept, complete=False)


def _saving(one: NodeReturn, launches: Sequence[PlannedNode], before: Snapshot) -> float:
    prices = {each.name: each.price or 0.0 for each in before.own}
    gone = sum(prices[name] for name in one.nodes)
    return gone - sum(new.cheapest.offering.price or 0.0 for new in launches)


def _ends(snapshot: Snapshot) -> Iterator[datetime]:
    """Yield the times at which something that keeps a node ends."""
    moving, allowances = Moving(snapshot), Allowances.of(snapshot)
    for one in snapshot.own:
        blockers = blockers_of(one, moving, allowances)
        # A node that also waits for something without an end gains nothing by a later time.
        if blockers and all(blocker.until for blocker in blockers):
            yield from (blocker.until for blocker in blockers if blocker.until)
