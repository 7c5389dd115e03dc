"""What keeps a node: annotations, budgets of pods and of pools, windows, times, and the number of a
static pool (NodePool, spec.replicas)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from leeway.disruption import reasons
from leeway.disruption.moves import Moving
from leeway.disruption.rules import Budget, Cause, ReturnRules
from leeway.disruption.snapshot import MovablePod, OwnNode, Snapshot
from leeway.ports.kubernetes_objects import (
    DO_NOT_CONSOLIDATE,
    DO_NOT_DISRUPT,
    FOREVER,
    PROTECTS_POD,
)
from leeway.reasons import Reason, clause, some
from leeway.selection.labels import RESERVED


@dataclass(frozen=True, slots=True)
class Blocker:
    """One thing that keeps a node. `until` is when it ends by itself (UTC), None if it stays until
    somebody changes something."""

    reason: Reason
    until: datetime | None = None


def why_protected(one: OwnNode, snapshot: Snapshot) -> Reason | None:
    """Return why a node is kept whatever speaks against it; None if nothing protects it."""
    first = next(protections(one, snapshot), None)
    return first.reason if first else None


def may_be_forced(one: OwnNode, snapshot: Snapshot, why: Cause | None = None) -> bool:
    """Whether a protected node goes nevertheless when it has expired or drifted, because its pool
    bounds the drain, or expires its nodes forcefully. An annotation of the Node itself, not of a
    pod, keeps it until it expires. `why`: it would go for this cause, not for the pending one.
    Sources: Karpenter documentation, "TerminationGracePeriod" and "Node-Level Controls"."""
    rules = snapshot.rules.get(one.pool)
    if rules is None or one.going or _kept_until(one, snapshot) is not None:
        return False
    cause = why or pending_cause(one, snapshot)
    kept = one.protected and cause in {Cause.DRIFTED, Cause.SCALED_DOWN}
    return rules.is_forced(cause) and not kept


def _kept_until(one: OwnNode, snapshot: Snapshot) -> datetime | None:
    """Until when a node stays because its last return was declined; None if it may go."""
    until = snapshot.declined.get(one.name)
    return until if until is not None and until > snapshot.now else None


def why_not_consolidated(one: OwnNode, snapshot: Snapshot) -> Reason | None:
    """Return why a node is not consolidated now, before it is known whether that would pay; None if
    it may be."""
    first = next(against_consolidation(one, snapshot), None)
    return first.reason if first else None


def protections(one: OwnNode, snapshot: Snapshot) -> Iterator[Blocker]:
    """Yield everything that protects a node."""
    rules = snapshot.rules.get(one.pool)
    if rules is None:
        count = sum(each.pool == one.pool for each in snapshot.own)
        yield Blocker(reasons.POOL_UNKNOWN(pool=one.pool, count=count))
    elif rules.drained_from is not None and snapshot.now < rules.drained_from:
        count = sum(each.pool == one.pool for each in snapshot.own)
        reason = reasons.POOL_HAS_NODES(
            pool=one.pool, at=rules.deleted_at, count=count, due=rules.drained_from
        )
        yield Blocker(reason, rules.drained_from)
    if one.going:
        yield Blocker(reasons.NODE_GOES_ALREADY(node=one.name))
    if until := _kept_until(one, snapshot):
        yield Blocker(reasons.NODE_WAS_KEPT(node=one.name, until=until), until)
    if one.protected:
        yield Blocker(reasons.NODE_IS_PROTECTED(node=one.name, annotation=DO_NOT_DISRUPT))
    for movable in (*one.pods, *one.staying):
        yield from _protections_by(movable, one, snapshot)
        # A pool that hibernates launches no node for the additional pod.
        if not movable.surges or rules is None or rules.hibernates is not None:
            yield from _budgets_of(movable, one)


def _protections_by(movable: MovablePod, one: OwnNode, snapshot: Snapshot) -> Iterator[Blocker]:
    pod, until = movable.pod.name, movable.protected_until
    if until is not None and snapshot.now < until:
        reason = reasons.POD_IS_PROTECTED(pod=pod, node=one.name, annotation=PROTECTS_POD)
        yield Blocker(reason, until if until < FOREVER else None)
    if (unmet := movable.pod.spec.unmet) is not None:
        yield Blocker(reasons.POD_NOT_PLANNED(pod=pod, node=one.name, why=clause(unmet)))


def _budgets_of(movable: MovablePod, one: OwnNode) -> Iterator[Blocker]:
    for budget in movable.blocked_by:
        reason = reasons.POD_IS_BLOCKED(budget=budget, pod=movable.pod.name, node=one.name)
        yield Blocker(reason)


def against_consolidation(one: OwnNode, snapshot: Snapshot) -> Iterator[Blocker]:
    """Yield everything that keeps a node of a pool with rules from being consolidated now, before
    it is known whether that would pay."""
    rules = snapshot.rules[one.pool]
    if not one.ready:
        unhealthy = one.unhealthy and reasons.NODE_UNHEALTHY(node=one.name, why=one.unhealthy)
        yield Blocker(unhealthy or reasons.NODE_STARTS(node=one.name))
    if one.busy:
        yield Blocker(reasons.NODE_IS_BUSY(node=one.name))
    yield from bare_pods(one)
    if rules.replicas is not None:
        yield Blocker(reasons.POOL_IS_STATIC(node=one.name, pool=one.pool, replicas=rules.replicas))
        return
    # Karpenter's v1alpha5 ended empty nodes after ttlSecondsAfterEmpty in spite of the annotation.
    if not (one.consolidated or rules.only_empty):
        yield Blocker(reasons.NODE_IS_PROTECTED(node=one.name, annotation=DO_NOT_CONSOLIDATE))
    if rules.after is None:
        yield Blocker(reasons.POOL_NEVER_CONSOLIDATED(pool=one.pool))
        return
    quiet = snapshot.now - one.quiet_since
    if quiet < rules.after:
        reason = reasons.NODE_NOT_QUIET(node=one.name, ago=quiet, pool=one.pool, after=rules.after)
        yield Blocker(reason, one.quiet_since + rules.after)
    age, least = snapshot.now - one.created_at, snapshot.worth.least_age
    if one.pods and age < least:
        reason = reasons.NODE_TOO_YOUNG(node=one.name, age=age, least=least)
        yield Blocker(reason, one.created_at + least)


def bare_pods(one: OwnNode) -> Iterator[Blocker]:
    """Yield the pods that nothing would create again: they keep a node that could stay."""
    for movable in one.pods:
        if movable.bare:
            yield Blocker(reasons.POD_IS_BARE(pod=movable.pod.name, node=one.name))


@dataclass
class Allowances:
    """What the budgets of all pools and of the cluster still allow in one run. The budget of the
    cluster, spec.churn, bounds disruptions that may move pods (`moves`)."""

    now: datetime
    rules: Mapping[str, ReturnRules]
    totals: dict[str, int]
    disrupted: dict[str, int]
    left: int | None
    unready: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Allowances":
        """Count the nodes of each pool without those that are gone or start; a node that goes or
        is not Ready is disrupted.

        Source: Karpenter documentation, "Disruption budgets".
        """
        totals: dict[str, int] = {}
        disrupted: dict[str, int] = {}
        unready: dict[str, list[str]] = {}
        for one in snapshot.own:
            if one.gone or not one.initialized:
                continue
            totals[one.pool] = totals.get(one.pool, 0) + 1
            if one.going or not one.ready:
                disrupted[one.pool] = disrupted.get(one.pool, 0) + 1
            if not (one.going or one.ready):
                unready.setdefault(one.pool, []).append(one.name)
        return cls(snapshot.now, snapshot.rules, totals, disrupted, snapshot.most, unready)

    def left_in(self, pool: str, cause: Cause) -> int:
        """Return how many more nodes of a pool may be disrupted for a cause."""
        left = [self.totals.get(pool, 0) if self.left is None else self.left]
        left += [
            budget.limit(self.totals.get(pool, 0)) - self.disrupted.get(pool, 0)
            for budget in self._budgets(pool, cause)
        ]
        return max(min(left), 0)

    def exhausted(
        self, pool: str, cause: Cause, moves: bool = True, going: bool = False
    ) -> Iterator[Blocker]:
        """Yield the budgets that allow no further disruption of a pool's node for a cause, or not
        that of one that is `going` for another cause, and counts already."""
        if moves and self.left is not None and self.left <= 0:
            yield Blocker(reasons.CLUSTER_BUDGET_USED())
        disrupted = self.disrupted.get(pool, 0) - going
        for budget in self._budgets(pool, cause):
            limit = budget.limit(self.totals.get(pool, 0))
            if disrupted >= limit:
                reason = reasons.DISRUPTION_BUDGET_USED(
                    pool=pool,
                    limit=limit,
                    cause=cause,
                    disrupted=disrupted,
                    unready=self._among_them(pool),
                )
                yield Blocker(reason, budget.ends(self.now))

    def _budgets(self, pool: str, cause: Cause) -> Iterator[Budget]:
        rules = self.rules[pool]
        if not rules.is_forceful(cause):
            yield from (one for one in rules.budgets if one.applies(cause, self.now))

    def _among_them(self, pool: str) -> str:
        """Return a part of a sentence about the nodes that use the budget without a retirement."""
        unready = self.unready.get(pool)
        return f", among them {some(unready)}, not Ready" if unready else ""

    def why_not(
        self, pool: str, cause: Cause, moves: bool = True, going: bool = False
    ) -> Reason | None:
        """Return why no further node of a pool may be disrupted for a cause; None if one may."""
        first = next(self.exhausted(pool, cause, moves, going), None)
        return first.reason if first else None

    def take(
        self, pool: str, cause: Cause, moves: bool = True, going: bool = False
    ) -> Reason | None:
        """Take one disruption of a pool's node; None if it is allowed, else why it is not."""
        if refused := self.why_not(pool, cause, moves, going):
            return refused
        self.disrupted[pool] = self.disrupted.get(pool, 0) + (not going)
        if moves and self.left is not None:
            self.left -= 1
        return None


def may_move(one: OwnNode, cause: Cause) -> bool:
    """Whether pods may move if a node goes. After the cordon, a node that goes because it is empty,
    or empty and drifted, one too many or of a pool that hibernates, is kept if a pod has come to
    it."""
    keeps = {Cause.EMPTY, Cause.DRIFTED, Cause.SCALED_DOWN, Cause.HIBERNATION}
    return bool(one.pods) or cause not in keeps


def pending_cause(one: OwnNode, snapshot: Snapshot) -> Cause:
    """Return the cause for which a node would be given back. Its pool has rules. No node stays
    longer because its pool hibernates: one that has expired goes for that, and so does a drifted
    one that would not go otherwise."""
    rules = snapshot.rules[one.pool]
    if rules.deleted_at is not None:
        return Cause.POOL_DELETED
    if rules.expired(one.created_at, snapshot.now):
        return Cause.EXPIRED
    if rules.hibernates is not None and not (one.drift and _stays_awake(one, snapshot)):
        return Cause.HIBERNATION
    if one.drift:
        return Cause.DRIFTED
    return Cause.UNDERUTILIZED if one.pods else Cause.EMPTY


def _stays_awake(one: OwnNode, snapshot: Snapshot) -> bool:
    """Whether something keeps a node although its pool hibernates."""
    return why_protected(one, snapshot) is not None or any(bare_pods(one))


def blockers_of(one: OwnNode, moving: Moving, allowances: Allowances) -> tuple[Blocker, ...]:
    """Return everything that keeps a node, whether or not it would pay to give it back."""
    snapshot = moving.snapshot
    found = list(protections(one, snapshot))
    if one.pool not in snapshot.rules or one.going:
        return tuple(found)
    cause = pending_cause(one, snapshot)
    if cause in {Cause.EMPTY, Cause.UNDERUTILIZED}:
        found += _against_saving(one, moving)
    elif cause is Cause.HIBERNATION:
        found += bare_pods(one)
    elif may_be_forced(one, snapshot):
        found = []
    if cause is Cause.DRIFTED and (why := StaticPools(snapshot).why_not_replaced(one)):
        found.append(Blocker(why))
    return (*found, *allowances.exhausted(one.pool, cause, may_move(one, cause)))


def _against_saving(one: OwnNode, moving: Moving) -> Iterator[Blocker]:
    snapshot = moving.snapshot
    yield from against_consolidation(one, snapshot)
    if expected := moving.expected.get(one.name, 0):
        yield Blocker(reasons.NODE_IS_EXPECTED(node=one.name, pods=expected))
    if snapshot.rules[one.pool].only_empty and one.pods:
        reason = reasons.POOL_ONLY_EMPTY(node=one.name, pods=len(one.pods), pool=one.pool)
        yield Blocker(reason)
    if one.pods and one.capacity_type == RESERVED:
        yield Blocker(reasons.NODE_IS_RESERVED(node=one.name, pods=len(one.pods)))
    if one.pods and one.price is None:
        reason = reasons.NODE_WITHOUT_PRICE(
            type=one.instance_type, capacity_type=one.capacity_type, zone=one.zone
        )
        yield Blocker(reason)


@dataclass
class StaticPools:
    """The static pools of a snapshot: which nodes are surplus, and which may be replaced now.
    `begun` counts the replacements that were decided, `gone` the nodes that go for good.

    Consolidation and emptiness never take their nodes: somebody has chosen the number. A smaller
    number is the user's decision, which no disruption budget of the pool holds back.

    Source: Karpenter, `designs/static-capacity.md`, and its controllers `static/deprovisioning` and
    `disruption/staticdrift.go`.
    """

    snapshot: Snapshot
    begun: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    gone: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    @cached_property
    def _standing(self) -> dict[str, list[OwnNode]]:
        """The nodes of each static pool that do not go. One that only its tags name does not count:
        who may tag instances must not decide which nodes go."""
        found: dict[str, list[OwnNode]] = {
            name: [] for name, rules in self.snapshot.rules.items() if rules.replicas is not None
        }
        for one in self.snapshot.own:
            stays = not (one.going or one.gone) and one.node.pool in {one.pool, ""}
            if stays and one.pool in found:
                found[one.pool].append(one)
        return found

    @cached_property
    def surplus_of(self) -> dict[str, int]:
        """How many nodes each static pool has too many."""
        rules = self.snapshot.rules
        return {
            pool: max(0, len(nodes) - (rules[pool].replicas or 0))
            for pool, nodes in self._standing.items()
        }

    @cached_property
    def _room(self) -> dict[str, int]:
        """How many more nodes limits.nodes allows, besides those that a pool lacks already; pools
        without this limit are left out. An instance that goes counts until it has ended."""
        limits = {one.name: (one.limits or {}).get("nodes") for one in self.snapshot.pools}
        found = {}
        for pool, standing in self._standing.items():
            if (limit := limits.get(pool)) is None:
                continue
            own = {one.name for one in self.snapshot.own if one.pool == pool}
            others = {one.name for one in self.snapshot.others if one.pool == pool}
            lacks = (self.snapshot.rules[pool].replicas or 0) - len(standing) - len(others)
            found[pool] = max(0, limit - len(own | others) - max(0, lacks))
        return found

    def surplus(self, free: Iterable[OwnNode]) -> list[OwnNode]:
        """Return the nodes that are given back because their pools have more than their replicas,
        of the nodes that may go (`free`): those that nothing protects first, of these those without
        pods, then the cheapest to disrupt.

        Instances on their way count when they have joined: they are empty then, and go first.
        """
        may_go = {one.name for one in free}
        found = []
        for pool, count in sorted(self.surplus_of.items()):
            nodes = [one for one in self._standing[pool] if count and one.name in may_go]
            found += sorted(nodes, key=self._cost)[:count]
        return found

    def _cost(self, one: OwnNode) -> tuple[object, ...]:
        """What it costs to disrupt a node: its pods, and less for a node that expires soon. A node
        that is not Ready, or has drifted, goes before an equal one."""
        now, expires = self.snapshot.now, self.snapshot.rules[one.pool].expires
        protected = one.protected or any(
            pod.blocked_by or (pod.protected_until is not None and now < pod.protected_until)
            for pod in (*one.pods, *one.staying)
        )
        age = max(timedelta(0), now - one.created_at)
        lifetime = 1.0 if not expires else max(0.0, 1.0 - age / expires)
        cost = one.disruption_cost * lifetime
        last = (one.ready, not one.drift, cost, one.created_at, one.name)
        return (protected, bool(one.pods), *last)

    def why_not_replaced(self, one: OwnNode) -> Reason | None:
        """Return why a drifted node of a static pool is not replaced now; None if it may be, and
        for nodes of other pools and of pools that hibernate, which launch nothing in its place."""
        if self.snapshot.rules[one.pool].hibernates:
            return None
        if count := self.surplus_of.get(one.pool, 0):
            return reasons.STATIC_POOL_SHRINKS(node=one.name, pool=one.pool, count=count)
        if not self._has_room(one.pool):
            return reasons.NO_ROOM_TO_REPLACE(node=one.name, pool=one.pool)
        return None

    def takes_its_place(self, one: OwnNode) -> bool:
        """Whether another node takes the place of one that goes in any case, because it has
        expired: there is room for both, and the pool has none too many that still stay."""
        surplus = self.surplus_of.get(one.pool, 0) - self.gone[one.pool]
        return surplus <= 0 and self._has_room(one.pool)

    def _has_room(self, pool: str) -> bool:
        return pool not in self._room or self.begun[pool] < self._room[pool]
