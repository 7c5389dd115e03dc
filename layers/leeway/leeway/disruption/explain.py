"""Explains why nodes are kept or go, what a cluster costs and could save, with all its nodes, and
which steps would follow if nothing but Leeway changed the cluster.

Pure: it asks the decision of return_capacity.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from leeway.disruption import reasons
from leeway.disruption.consolidation import Consolidation, find_spare_nodes, prospect
from leeway.disruption.decide import decide_returns
from leeway.disruption.moves import Moving, pods_of
from leeway.disruption.protection import (
    Allowances,
    Blocker,
    blockers_of,
    may_move,
    protections,
    why_protected,
)
from leeway.disruption.rules import Cause, ReturnRules
from leeway.disruption.snapshot import MovablePod, NodeReturn, OwnNode, ReturnDecision, Snapshot
from leeway.instances.facts import Owner, OwnerKind
from leeway.printable import printable
from leeway.reasons import Reason
from leeway.selection.labels import HOSTNAME
from leeway.selection.packing.plan import Placement, Plan, PlannedNode, Unschedulable
from leeway.selection.packing.planning import always, pack
from leeway.selection.packing.pod_groups import fully_relaxed
from leeway.selection.packing.supply import UNKNOWN_PRICE, Supply
from leeway.selection.pods import ExistingNode, Pod, PodSpec
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
        node=replace(
            one.node,
            name=name,
            labels={**one.node.labels, HOSTNAME: name},
            pods=(),
            terminating_pods=(),
        ),
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


@dataclass(frozen=True, slots=True)
class GroupSize:
    """The minimum and the desired capacity of an Auto Scaling group, in its own units, and how many
    units one of its instances is."""

    minimum: int
    desired: int
    units: int = 1


@dataclass(frozen=True, slots=True)
class ForeignNode:
    """A node of another owner. `node` is among `others` of the snapshot; its pool is not used."""

    one: OwnNode
    owner: Owner

    @property
    def name(self) -> str:
        """The name of its Node."""
        return self.one.name

    @property
    def reason(self) -> Reason:
        """Why Leeway does nothing to it."""
        why = f"belongs to {title_of(self.owner)}"
        if self.owner.kind is OwnerKind.NONE:
            why = "has no known owner"
        if self.owner.kind is OwnerKind.LEEWAY:
            tags = f"has the tags of pool {printable(self.owner.name)}"
            why = f"{tags}, but not those that EC2 and EKS write on nodes that Leeway launches"
        return reasons.NODE_NOT_OF_LEEWAY(node=self.name, why=why)


@dataclass(frozen=True, slots=True)
class SpareInGroup:
    """The nodes of one Auto Scaling group whose pods fit on the other nodes of the cluster.

    `saving` is in USD per hour, without the nodes whose price is not known (`without_price`).
    `size` is None if it is not known.
    """

    group: str
    nodes: tuple[str, ...]
    saving: float
    without_price: int = 0
    size: GroupSize | None = None

    @property
    def lower_minimum(self) -> int | None:
        """The minimum that the group has to get before all of these nodes can go; None if the
        present one allows it, or is not known."""
        if self.size is None:
            return None
        left = max(self.size.desired - len(self.nodes) * self.size.units, 0)
        return left if left < self.size.minimum else None


_TITLES = {
    OwnerKind.AUTO_SCALING_GROUP: "Auto Scaling group",
    OwnerKind.MANAGED_NODE_GROUP: "managed node group",
    OwnerKind.AUTO_MODE: "EKS Auto Mode",
    OwnerKind.KARPENTER: "Karpenter",
    OwnerKind.LEEWAY: "pool",
    OwnerKind.FARGATE: "Fargate",
    OwnerKind.NONE: "no known owner",
}


def title_of(owner: Owner) -> str:
    """Return an owner as a part of a sentence, on one printable line."""
    return f"{_TITLES[owner.kind]} {printable(owner.name)}".strip()


def as_kept(snapshot: Snapshot, foreign: Sequence[ForeignNode]) -> Snapshot:
    """Return the snapshot with these nodes as nodes of pools without rules: they are kept, and it
    is known which pods they have."""
    names = {one.name for one in foreign}
    own = (replace(one.one, pool=_key(one.owner)) for one in foreign)
    others = tuple(node for node in snapshot.others if node.name not in names)
    return replace(snapshot, own=(*snapshot.own, *own), others=others)


def spare_in_groups(
    end: Snapshot, foreign: Sequence[ForeignNode], sizes: Mapping[str, GroupSize]
) -> tuple[SpareInGroup, ...]:
    """Return the groups that could be smaller, those that save most first. `end` is a snapshot
    with these nodes `as_kept`."""
    groups = [one for one in foreign if one.owner.kind is OwnerKind.AUTO_SCALING_GROUP]
    spare = spare_among(groups, end)
    by_group: dict[str, list[OwnNode]] = {}
    for one in groups:
        if one.name in spare:
            by_group.setdefault(one.owner.name, []).append(spare[one.name])
    found = [_of_group(name, nodes, sizes.get(name)) for name, nodes in by_group.items()]
    return tuple(sorted(found, key=lambda one: (-one.saving, one.group)))


def _of_group(group: str, nodes: Sequence[OwnNode], size: GroupSize | None) -> SpareInGroup:
    return SpareInGroup(
        group=group,
        nodes=tuple(one.name for one in nodes),
        saving=sum(one.price or 0.0 for one in nodes),
        without_price=sum(one.price is None for one in nodes),
        size=size,
    )


def spare_among(foreign: Iterable[ForeignNode], end: Snapshot) -> dict[str, OwnNode]:
    """Return the nodes, by name, that nothing protects and whose pods fit on all other nodes
    together: as if they were Leeway's, and the others had to stay."""
    asked, keys = _as_candidates(foreign, end)
    moving = Moving(asked)
    candidates = [
        one
        for one in asked.own
        if one.name in keys
        and one.ready
        and why_protected(one, asked) is None
        and not moving.expected.get(one.name)
        and (one.price is None or moving.pays(one))
    ]
    names = {one.name for one in candidates}
    staying = [one.node for one in asked.own if one.name not in names and not one.going]
    most = {keys[name]: len(names) for name in names}
    ordered = sorted(candidates, key=prospect)
    spare = find_spare_nodes(moving, ordered, [*asked.others, *staying], most, None)
    return {one.name: one for one in spare.nodes} if spare else {}


def protecting(foreign: ForeignNode, end: Snapshot) -> tuple[Blocker, ...]:
    """Return what protects a node besides its owner."""
    asked, _ = _as_candidates([foreign], end)
    one = next(each for each in asked.own if each.name == foreign.name)
    return tuple(protections(one, asked))


def _as_candidates(
    foreign: Iterable[ForeignNode], end: Snapshot
) -> tuple[Snapshot, dict[str, str]]:
    """Return the snapshot in which only these nodes may go, and the pool of each of them."""
    keys = {one.name: _key(one.owner) for one in foreign}
    rules = ReturnRules(after=timedelta(0), budgets=())
    return replace(end, rules=dict.fromkeys(keys.values(), rules)), keys


def _key(owner: Owner) -> str:
    """The name of the pool that stands for an owner. Names of pools have no spaces."""
    return f"{owner.kind} {owner.name}"


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
    allowances, nodes = Allowances.of(snapshot), {one.name: one for one in snapshot.own}
    for returned in decision.returns:
        for one in map(nodes.__getitem__, returned.nodes):
            allowances.take(one.pool, returned.cause, may_move(one, returned.cause))
    return allowances


def _instead(one: OwnNode, moving: Moving) -> Instead:
    pods = {movable.pod.name for movable in one.pods}
    plan = moving.without([one], launch=True)
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
    pools = [replace(pool, limits=None, weight=0, replicas=None) for pool in snapshot.pools]
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
