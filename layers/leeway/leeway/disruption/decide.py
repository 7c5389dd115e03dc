"""Decides which nodes of a cluster are given back now. Pure: it reads a snapshot only."""

from datetime import datetime

from leeway.disruption import reasons
from leeway.disruption.consolidation import Consolidation
from leeway.disruption.moves import Moving
from leeway.disruption.protection import (
    Allowances,
    against_consolidation,
    may_be_forced,
    may_move,
    why_not_consolidated,
    why_protected,
)
from leeway.disruption.rules import Cause
from leeway.disruption.snapshot import NodeReturn, OwnNode, ReturnDecision, Snapshot
from leeway.durations import render_duration
from leeway.reasons import Reason


def decide_returns(snapshot: Snapshot) -> ReturnDecision:
    """Decide what is given back: expired and drifted nodes, empty ones, and, if there is none of
    these, what consolidation finds.

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
    run.replace_outdated()
    run.remove_empty()
    if not run.returns:
        run.consolidate()
    returned = {name for one in run.returns for name in one.nodes}
    for one in run.free:
        if one.name not in returned:
            run.kept.setdefault(
                one.name, reasons.NODE_NOT_EXAMINED(node=one.name, pods=len(one.pods))
            )
    kept = {name: why for name, why in run.kept.items() if name not in returned}
    due_at = min(run.due, default=None)
    return ReturnDecision(tuple(run.returns), tuple(run.waiting), due_at, kept)


class _Run:
    """One decision in the making. `free` are the nodes that nothing protects, `forced` those that
    only stay until they expire or drift."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._moving = Moving(snapshot)
        self._allowances = Allowances.of(snapshot)
        self.free: list[OwnNode] = []
        self.forced: list[OwnNode] = []
        self.returns: list[NodeReturn] = []
        self.waiting: list[NodeReturn] = []
        self.due: list[datetime] = []
        self.kept: dict[str, Reason] = {}

    def replace_outdated(self) -> None:
        """Replace nodes that have expired or drifted, or whose pool was deleted: the empty ones
        first, which have nothing to replace, so that no pod moves to them; then the oldest."""
        outdated = [*self.free, *self.forced]
        for one in sorted(outdated, key=lambda each: (bool(each.pods), each.created_at)):
            rules = self._snapshot.rules[one.pool]
            if rules.deleted_at is not None:
                reason = reasons.POOL_DELETED(node=one.name, pool=one.pool, at=rules.deleted_at)
                self._take(one, Cause.POOL_DELETED, reason, replaced=bool(one.pods))
            elif rules.expires is not None and rules.expired(one.created_at, self._snapshot.now):
                reason = reasons.NODE_EXPIRED(
                    node=one.name, pool=one.pool, expires=render_duration(rules.expires)
                )
                self._take(one, Cause.EXPIRED, reason, replaced=bool(one.pods))
            elif one.drift:
                drift = " ".join(one.drift)
                reason = reasons.NODE_DRIFTED(node=one.name, pool=one.pool, drift=drift)
                self._take(one, Cause.DRIFTED, reason, replaced=bool(one.pods))

    def remove_empty(self) -> None:
        """Give back nodes without pods that have been quiet for long enough."""
        for one in self._left():
            if one.pods or self._snapshot.rules[one.pool].deleted_at is not None:
                continue
            blocker = next(against_consolidation(one, self._snapshot), None)
            expected = self._why_expected(one)
            if why := blocker.reason if blocker else expected:
                self.kept.setdefault(one.name, why)  # it may wait for a budget, as an expired one
                if blocker and blocker.until and not expected:
                    self.due.append(blocker.until)
                continue
            reason = reasons.NODE_EMPTY(
                node=one.name, since=one.quiet_since, saving=one.price or 0.0
            )
            self._take(one, Cause.EMPTY, reason, saving=one.price or 0.0)

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

    def _left(self) -> list[OwnNode]:
        returned = {name for one in self.returns for name in one.nodes}
        return [one for one in self.free if one.name not in returned]

    def _why_expected(self, one: OwnNode) -> Reason | None:
        pods = self._moving.expected.get(one.name, 0)
        return reasons.NODE_IS_EXPECTED(node=one.name, pods=pods) if pods else None

    def _take(
        self,
        one: OwnNode,
        cause: Cause,
        reason: Reason,
        saving: float = 0.0,
        replaced: bool = False,
    ) -> None:
        decided = NodeReturn((one.name,), cause, reason, saving, len(one.pods), replaced)
        if refused := self._allowances.take(one.pool, cause, may_move(one, cause)):
            self.kept[one.name] = refused
            self.waiting.append(decided)
        else:
            self.returns.append(decided)
