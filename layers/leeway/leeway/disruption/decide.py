"""Decides which nodes of a cluster are given back now. Pure: it reads a snapshot only."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property

from leeway.disruption import reasons
from leeway.disruption.consolidation import (
    Consolidation,
    in_turn,
    may_go_together,
    share_needs,
)
from leeway.disruption.drift import DRIFTS_AFTER
from leeway.disruption.moves import Moving
from leeway.disruption.protection import (
    Allowances,
    StaticPools,
    against_consolidation,
    bare_pods,
    may_be_forced,
    may_move,
    pending_cause,
    why_not_consolidated,
    why_protected,
)
from leeway.disruption.rules import Cause
from leeway.disruption.snapshot import NodeReturn, OwnNode, ReturnDecision, Snapshot
from leeway.reasons import Reason
from leeway.retirement.record import Retirement
from leeway.selection.labels import SPOT
from leeway.selection.resources import printed

TRIED_AGAIN_AFTER = timedelta(minutes=10)
"""How long after a retirement that was declined its node is not given back again: what kept it is
likely to keep it still. Meanwhile others go."""

MOST_SIMULATED = 20
"""Outdated nodes whose pods' destinations are simulated one by one in one run. Half of them are the
oldest, and most of the others change with the time: those that have no place to move to must not
keep the younger ones for ever."""

MOST_TOGETHER = 3
"""Plans in one run for all drifted nodes that budgets let go, each without the nodes whose pods had
no place in the plan before."""

MOST_RESTORED = 3
"""Spot nodes of a pool that are tried in one run, until one can be replaced by on-demand."""


def decide_returns(snapshot: Snapshot) -> ReturnDecision:
    """Decide what is given back: what static pools have too much, expired and drifted nodes, empty
    ones, and, if there is none of these, what consolidation finds.

    Sources: Karpenter documentation, "Disruption"; its order of methods is drift, emptiness,
    consolidation.
    """
    run = _Run(snapshot)
    for one in snapshot.own:
        if why := why_protected(one, snapshot):
            run.kept[one.name] = why
            if may_be_forced(one, snapshot):
                run.forced.append(one)
        else:
            run.free.append(one)
    run.hibernate()
    run.scale_down()
    run.replace_outdated()
    run.await_others()
    run.remove_empty()
    if not run.returns:
        run.consolidate()
    run.restore_shares()
    run.bound_drains()
    returned = {name for one in run.returns for name in one.nodes}
    for one in run.free:
        if one.name not in returned:
            is_static = snapshot.rules[one.pool].replicas is not None
            why = why_not_consolidated(one, snapshot) if is_static else None
            run.kept.setdefault(
                one.name, why or reasons.NODE_NOT_EXAMINED(node=one.name, pods=len(one.pods))
            )
    kept = {name: why for name, why in run.kept.items() if name not in returned}
    due_at = min(run.due, default=None)
    return ReturnDecision(tuple(run.returns), tuple(run.waiting), due_at, kept)


def decide_without_declined(
    snapshot: Snapshot, declined_until: Callable[[str], datetime | None]
) -> tuple[Snapshot, ReturnDecision]:
    """Decide, and decide again without the nodes whose retirement was declined shortly before, so
    that they do not use the budgets of others, until none of them is left; return the last snapshot
    too. `declined_until` says of an instance until when it stays, None if nothing was declined; it
    is asked about nodes that would go."""
    while True:
        decision = decide_returns(snapshot)
        going = {name for one in decision.returns for name in one.nodes} - snapshot.declined.keys()
        declined = {
            one.name: until
            for one in snapshot.own
            if one.name in going and (until := declined_until(one.instance)) is not None
        }
        if not declined:
            return snapshot, decision
        snapshot = replace(snapshot, declined={**snapshot.declined, **declined})


def stays_until(stored: Retirement | None, now: datetime) -> datetime | None:
    """Return until when a node stays because its last retirement was declined; None if it was not,
    or that time is over."""
    if stored is None or stored.ended_at is None or not stored.had_no_effect:
        return None
    until = stored.ended_at + TRIED_AGAIN_AFTER
    return until if until > now else None


class _Run:
    """One decision in the making. `free` are the nodes that nothing protects, `forced` those that
    only stay until they expire or drift. `_destinations` counts the pods of simulated nodes that
    come to others. `_placed` are the names of nodes for whose pods one plan has found places;
    `_emptied` are these nodes, and those that go."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._moving = Moving(snapshot)
        self._allowances = Allowances.of(snapshot)
        self._static = StaticPools(snapshot)
        self.free: list[OwnNode] = []
        self.forced: list[OwnNode] = []
        self.returns: list[NodeReturn] = []
        self.waiting: list[NodeReturn] = []
        self.due: list[datetime] = []
        self.kept: dict[str, Reason] = {}
        self._destinations: Counter[str] = Counter()
        self._emptied: list[OwnNode] = []
        self._placed: Collection[str] = ()
        self._simulated = 0

    def hibernate(self) -> None:
        """Give back the nodes of pools that hibernate, the empty ones first. One that has expired
        goes for that."""
        asleep = [one for one in self.free if self._goes_asleep(one)]
        for one in sorted(asleep, key=lambda each: (len(each.pods), each.name)):
            if bare := next(bare_pods(one), None):
                self.kept[one.name] = bare.reason
                continue
            hibernates, saving = self._snapshot.rules[one.pool].hibernates, one.price or 0.0
            reason = reasons.NODE_HIBERNATES(
                node=one.name, pool=one.pool, until=hibernates and hibernates.until, saving=saving
            )
            self._take(one, Cause.HIBERNATION, reason, saving)

    def _goes_asleep(self, one: OwnNode) -> bool:
        return pending_cause(one, self._snapshot) is Cause.HIBERNATION

    def await_others(self) -> None:
        """Let nodes of pools that hibernate go when other nodes are ready for their pods, if all
        pods of the node fit there beside those of all nodes that go with it. Otherwise nothing is
        awaited, and the pods are pending until the pool is awake. Preferences for where the pods
        are do not count."""
        own = {one.name: one for one in self._snapshot.own}
        going = [own[name] for returned in self.returns for name in returned.nodes]
        rules = self._snapshot.rules
        asleep = {one.name for one in going if one.pods and rules[one.pool].hibernates}
        if not asleep:
            return
        pods = {one.name: frozenset(m.pod.name for m in one.pods) for one in going}
        loose = frozenset().union(*(pods[name] for name in asleep))
        plan = self._moving.without(going, launch=True, loose=loose)
        left = {each.pod for each in plan.unschedulable}
        fit = {name for name in asleep if left.isdisjoint(pods[name])}
        self.returns = [
            replace(one, replaced=one.nodes[0] in fit, loose=pods[one.nodes[0]])
            if one.nodes[0] in asleep
            else one
            for one in self.returns
        ]

    def scale_down(self) -> None:
        """Give back what static pools have too much."""
        forced = (
            one
            for one in self._snapshot.own
            if self._static.surplus_of.get(one.pool)
            and not self._snapshot.rules[one.pool].hibernates
            and may_be_forced(one, self._snapshot, Cause.SCALED_DOWN)
        )
        awake = (one for one in self.free if not self._snapshot.rules[one.pool].hibernates)
        for one in self._static.surplus([*awake, *forced]):
            reason = reasons.STATIC_POOL_SCALED_DOWN(
                node=one.name,
                pool=one.pool,
                count=self._static.surplus_of[one.pool],
                replicas=self._snapshot.rules[one.pool].replicas,
            )
            saving, replaced = one.price or 0.0, bool(one.pods)
            if self._take(one, Cause.SCALED_DOWN, reason, saving, replaced=replaced):
                self._static.gone[one.pool] += 1

    def replace_outdated(self) -> None:
        """Replace nodes that have expired or drifted, or whose pool was deleted: the empty ones
        first, which have nothing to replace, so that no pod moves to them; those of pools in doubt
        last; and the oldest before younger ones."""
        going = {name for one in self.returns for name in one.nodes}
        outdated = [
            one
            for one in (*self.free, *self.forced)
            if one.name not in going and not self._goes_asleep(one)
        ]
        doubted = self._snapshot.doubted
        outdated.sort(key=lambda one: (bool(one.pods), one.pool in doubted, one.created_at))
        if not doubted:
            self._place_together(outdated)
        oldest = MOST_SIMULATED // 2
        left = [one for one in outdated if not self._replace_outdated(one, oldest)]
        for one in in_turn(left, MOST_SIMULATED - oldest, self._snapshot.now):
            self._replace_outdated(one, MOST_SIMULATED)

    def _replace_outdated(self, one: OwnNode, most: int) -> bool:
        """Replace a node, if it is outdated; False if it is not examined because this run has made
        `most` simulations."""
        rules = self._snapshot.rules[one.pool]
        if rules.deleted_at is not None:
            reason = reasons.POOL_DELETED(node=one.name, pool=one.pool, at=rules.deleted_at)
            self._take(one, Cause.POOL_DELETED, reason, replaced=bool(one.pods))
        elif rules.expires is not None and rules.expired(one.created_at, self._snapshot.now):
            reason = reasons.NODE_EXPIRED(node=one.name, pool=one.pool, expires=rules.expires)
            in_place = self._static.takes_its_place(one)
            return self._replace(one, Cause.EXPIRED, reason, in_place, most)
        elif one.drift and (why := self._static.why_not_replaced(one)):
            self.kept[one.name] = why
        elif one.drift:
            drift = " ".join(one.drift)
            reason = reasons.NODE_DRIFTED(node=one.name, pool=one.pool, drift=drift)
            return self._replace(one, Cause.DRIFTED, reason, True, most)
        return True

    def _place_together(self, outdated: Iterable[OwnNode]) -> None:
        """Simulate in one plan all drifted nodes that budgets let go: mostly all their pods have a
        place, and no node needs a simulation of its own. Those whose pods have none are left out of
        the next plan."""
        drifted = [one for one in outdated if self._may_as_well_stay(one)]
        most = {one.pool: self._allowances.left_in(one.pool, Cause.DRIFTED) for one in drifted}
        going = may_go_together(drifted, most, self._allowances.left)
        if len(going) < 2:
            return
        for _ in range(MOST_TOGETHER):
            pods = frozenset(movable.pod.name for one in going for movable in one.pods)
            plan = self._moving.without(going, launch=True, loose=pods, consolidates=False)
            homeless = pods.intersection(each.pod for each in plan.unschedulable)
            if not homeless:
                self._placed = {one.name for one in going}
                self._emptied += going
                for each in plan.existing:
                    self._destinations[each.node] += len(pods.intersection(each.pods))
                return
            going = [one for one in going if homeless.isdisjoint(m.pod.name for m in one.pods)]

    def _may_as_well_stay(self, one: OwnNode) -> bool:
        """Whether a node goes because it has drifted, and has pods that need another place."""
        rules = self._snapshot.rules[one.pool]
        drifts = pending_cause(one, self._snapshot) is Cause.DRIFTED
        return drifts and bool(one.pods) and rules.replicas is None and rules.hibernates is None

    def _replace(
        self, one: OwnNode, cause: Cause, reason: Reason, in_place: bool, most: int
    ) -> bool:
        """Replace a node; False if it is not examined because this run has made `most` simulations.
        `in_place`: if its pool is static, there is room for another node."""
        rules = self._snapshot.rules[one.pool]
        in_place = in_place and rules.replicas is not None and not rules.hibernates
        places: Mapping[str, int] = {}
        if self._is_simulated(one, cause, in_place):
            if self._simulated >= most:
                return False
            self._simulated += 1
            why, places = self._destinations_of(one, cause, in_place)
            if why is not None:
                self.kept[one.name] = why
                return True
        if in_place:
            self._static.begun[one.pool] += 1
        else:
            self._static.gone[one.pool] += 1
        taken = self._take(one, cause, reason, replaced=bool(one.pods), in_place=in_place)
        if taken and one.name not in self._placed:
            self._emptied.append(one)
            self._destinations.update(places)
        return True

    def _is_simulated(self, one: OwnNode, cause: Cause, in_place: bool) -> bool:
        """Whether it is examined first where the pods of a node that a budget lets go would go: if
        it has drifted, it may as well stay, and any node may need an instance of a pool in doubt.
        """
        drifts = cause is Cause.DRIFTED and bool(one.pods) and not in_place
        drifts = drifts and one.name not in self._placed
        if self._snapshot.rules[one.pool].hibernates or not (
            drifts or self._is_doubtful(one, cause, in_place)
        ):
            return False
        return self._allowances.why_not(one.pool, cause, may_move(one, cause)) is None

    def _is_doubtful(self, one: OwnNode, cause: Cause, in_place: bool) -> bool:
        """Whether a node may need an instance of a pool in doubt. Whoever has the pool end its
        nodes in any case gets that."""
        doubted, rules = self._snapshot.doubted, self._snapshot.rules[one.pool]
        if not doubted or rules.is_forced(cause):
            return False
        return one.pool in doubted if in_place else bool(one.pods)

    def _destinations_of(
        self, one: OwnNode, cause: Cause, in_place: bool
    ) -> tuple[Reason | None, Mapping[str, int]]:
        """Return why a node has to stay, None if its pods have a place, or its place in a static
        pool has a node; and how many of its pods come to which node."""
        if in_place:
            return self._in_doubt(one, cause, {one.pool}), {}
        doubtful = self._is_doubtful(one, cause, in_place)
        gone, pods = [*self._emptied, one], frozenset(movable.pod.name for movable in one.pods)
        moving = self._moving if doubtful else self._trusting
        plan = moving.without(gone, launch=True, loose=pods, consolidates=False)
        left = pods & {each.pod for each in plan.unschedulable}
        if not left:
            found = {each.node: len(pods.intersection(each.pods)) for each in plan.existing}
            return None, found
        if doubtful:
            plan = self._trusting.without(gone, launch=True, loose=pods, consolidates=False)
        without = [each for each in plan.unschedulable if each.pod in left]
        if cause is Cause.DRIFTED and without:
            first = min(without, key=lambda each: each.pod)
            why = first.reason.message
            return reasons.NO_PLACE_TO_MOVE_TO(node=one.name, pod=first.pod, why=why), {}
        if len(left) == len(without):
            return None, {}
        used = {each.pool for each in plan.launches} & self._snapshot.doubted
        return self._in_doubt(one, cause, used or self._snapshot.doubted), {}

    def _in_doubt(self, one: OwnNode, cause: Cause, pools: Collection[str]) -> Reason:
        names = ", ".join(sorted(pools))
        return reasons.DESTINATION_IN_DOUBT(node=one.name, cause=cause, pools=names)

    @cached_property
    def _trusting(self) -> Moving:
        """The same cluster with no pool in doubt."""
        if not self._snapshot.doubted:
            return self._moving
        return Moving(replace(self._snapshot, doubted=frozenset(), awaited=frozenset()))

    def remove_empty(self) -> None:
        """Give back nodes without pods that have been quiet for long enough."""
        gone = [one for one in self._snapshot.own if any(one.name in r.nodes for r in self.returns)]
        left = self._left()
        if self._moving.balances.of:
            left.sort(key=lambda each: each.capacity_type != SPOT)  # they never break a share
        for one in left:
            if one.pods or self._snapshot.rules[one.pool].deleted_at is not None:
                continue
            blocker = next(against_consolidation(one, self._snapshot), None)
            expected = self._why_expected(one)
            if why := blocker.reason if blocker else expected:
                self.kept.setdefault(one.name, why)  # it may wait for a budget, as an expired one
                if blocker and blocker.until and not expected:
                    self.due.append(blocker.until)
                continue
            if not self._moving.keeping_shares([one], gone):
                self.kept.setdefault(one.name, share_needs(one, self._moving))
                continue
            reason = reasons.NODE_EMPTY(
                node=one.name, since=one.quiet_since, saving=one.price or 0.0
            )
            if self._take(one, Cause.EMPTY, reason, saving=one.price or 0.0):
                gone.append(one)

    def consolidate(self) -> None:
        """Give back nodes that are not needed, or that a cheaper one replaces."""
        candidates = []
        for one in self._left():
            if one.name in self.kept:
                continue
            why = why_not_consolidated(one, self._snapshot) or self._why_expected(one)
            if why is None and self._snapshot.rules[one.pool].only_empty:
                why = reasons.POOL_ONLY_EMPTY(node=one.name, pods=len(one.pods), pool=one.pool)
            if why is not None:
                self.kept[one.name] = why
            else:
                candidates.append(one)
        consolidation = Consolidation(self._moving, self._allowances, self.kept)
        self.returns += consolidation.run(candidates)

    def restore_shares(self) -> None:
        """Replace one Spot node of each pool that misses on-demand capacity and of which no other
        node goes: of those that are quiet, and old enough to drift, the one with the fewest pods
        that can be replaced, or another one in turn."""
        shares = self._moving.balances
        returned = {name for one in self.returns for name in one.nodes}
        busy = {one.pool for one in self._snapshot.own if one.name in returned}
        for pool in (name for name, each in shares.of.items() if each.missing and name not in busy):
            spot = [one for one in self._left() if one.pool == pool and self._may_become(one)]
            spot.sort(key=lambda each: (len(each.pods), each.name))
            for one in in_turn(spot, MOST_RESTORED, self._snapshot.now):
                plan = self._moving.without([one], launch=True)
                after = self._moving.after([one], plan)
                if not plan.unschedulable and after.missing(pool) < shares.missing(pool):
                    drift = (
                        "It is Spot, and the on-demand share of the pool misses "
                        f"vCPUs: {printed('cpu', shares.missing(pool))}."
                    )
                    reason = reasons.NODE_DRIFTED(node=one.name, pool=pool, drift=drift)
                    self._take(one, Cause.DRIFTED, reason, replaced=True)
                    break

    def bound_drains(self) -> None:
        """Let nodes that are drained because their pool hibernates go as expired ones when they
        expire, if the pool bounds the drain of these: their own drain may wait all night. They go
        already, so that no other decision depends on this one."""
        for one in self._snapshot.own:
            rules = self._snapshot.rules.get(one.pool)
            if not one.asleep or rules is None or rules.drain_within is None:
                continue
            if pending_cause(one, self._snapshot) is Cause.EXPIRED:
                reason = reasons.NODE_EXPIRED(node=one.name, pool=one.pool, expires=rules.expires)
                self._take(one, Cause.EXPIRED, reason)

    def _may_become(self, one: OwnNode) -> bool:
        """Whether a node that nothing protects may be replaced by an on-demand one."""
        old = self._snapshot.now - one.created_at >= DRIFTS_AFTER
        if not (old and one.pods and one.capacity_type == SPOT):
            return False
        blocked = why_not_consolidated(one, self._snapshot) or self._why_expected(one)
        return blocked is None

    def _left(self) -> list[OwnNode]:
        returned = {name for one in self.returns for name in one.nodes}
        rules = self._snapshot.rules
        return [
            one for one in self.free if one.name not in returned and not rules[one.pool].hibernates
        ]

    def _why_expected(self, one: OwnNode) -> Reason | None:
        pods = self._moving.expected.get(one.name, 0) + self._destinations[one.name]
        return reasons.NODE_IS_EXPECTED(node=one.name, pods=pods) if pods else None

    def _take(
        self,
        one: OwnNode,
        cause: Cause,
        reason: Reason,
        saving: float = 0.0,
        replaced: bool = False,
        in_place: bool = False,
    ) -> bool:
        decided = NodeReturn(
            (one.name,), cause, reason, saving, len(one.pods), replaced, in_place=in_place
        )
        if refused := self._allowances.take(one.pool, cause, may_move(one, cause), one.going):
            self.kept[one.name] = refused
            self.waiting.append(decided)
        else:
            self.returns.append(decided)
        return not refused
