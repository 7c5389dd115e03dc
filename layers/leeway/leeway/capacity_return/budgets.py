"""Disruption budgets of pools: how many more nodes may be disrupted now."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from leeway.capacity_return import reasons
from leeway.capacity_return.protection import Blocker
from leeway.capacity_return.rules import Cause, ReturnRules
from leeway.capacity_return.snapshot import Snapshot
from leeway.reasons import Reason


@dataclass
class Allowances:
    """What the budgets of all pools and of the cluster still allow in one run. The budget of the
    cluster, spec.churn, bounds disruptions of pods: empty nodes do not count."""

    now: datetime
    rules: Mapping[str, ReturnRules]
    totals: dict[str, int]
    disrupted: dict[str, int]
    left: int | None

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Allowances":
        """Count the nodes of each pool without those that are gone; a node that goes or is not
        Ready is disrupted.

        Source: Karpenter documentation, "Disruption budgets".
        """
        totals: dict[str, int] = {}
        disrupted: dict[str, int] = {}
        for one in snapshot.own:
            if one.gone:
                continue
            totals[one.pool] = totals.get(one.pool, 0) + 1
            if one.going or not one.ready:
                disrupted[one.pool] = disrupted.get(one.pool, 0) + 1
        return cls(snapshot.now, snapshot.rules, totals, disrupted, snapshot.most)

    def left_in(self, pool: str, cause: Cause) -> int:
        """Return how many more nodes of a pool may be disrupted for a cause."""
        in_cluster = None if cause is Cause.EMPTY else self.left
        left = [self.totals.get(pool, 0) if in_cluster is None else in_cluster]
        left += [
            budget.limit(self.totals.get(pool, 0)) - self.disrupted.get(pool, 0)
            for budget in self.rules[pool].budgets
            if budget.applies(cause, self.now)
        ]
        return max(min(left), 0)

    def exhausted(self, pool: str, cause: Cause) -> Iterator[Blocker]:
        """Yield the budgets that allow no further disruption of a pool's node for a cause."""
        if cause is not Cause.EMPTY and self.left is not None and self.left <= 0:
            yield Blocker(reasons.CLUSTER_BUDGET_USED())
        disrupted = self.disrupted.get(pool, 0)
        for budget in self.rules[pool].budgets:
            limit = budget.limit(self.totals.get(pool, 0))
            if budget.applies(cause, self.now) and disrupted >= limit:
                reason = reasons.DISRUPTION_BUDGET_USED(
                    pool=pool, limit=limit, cause=cause, disrupted=disrupted
                )
                yield Blocker(reason, budget.ends(self.now))

    def why_not(self, pool: str, cause: Cause) -> Reason | None:
        """Return why no further node of a pool may be disrupted for a cause; None if one may."""
        first = next(self.exhausted(pool, cause), None)
        return first.reason if first else None

    def take(self, pool: str, cause: Cause) -> Reason | None:
        """Take one disruption of a pool's node; None if it is allowed, else why it is not."""
        if refused := self.why_not(pool, cause):
            return refused
        self.disrupted[pool] = self.disrupted.get(pool, 0) + 1
        if cause is not Cause.EMPTY and self.left is not None:
            self.left -= 1
        return None
