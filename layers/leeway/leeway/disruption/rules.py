"""The rules of a node pool for giving nodes back."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice

from leeway.headroom.windows import Cron
from leeway.hibernation import HIBERNATION, Hibernation
from leeway.manifests import node_pool
from leeway.manifests.node_pool import EXPIRATION, FORCEFUL, NodePool


class Cause(StrEnum):
    """Why a node is given back; the names are those of disruption budgets. No budget names
    POOL_DELETED and HIBERNATION, and none holds back SCALED_DOWN.

    Source: Karpenter documentation, "Disruption".
    """

    EMPTY = "Empty"
    EXPIRED = "Expired"
    DRIFTED = "Drifted"
    UNDERUTILIZED = "Underutilized"
    POOL_DELETED = "PoolDeleted"
    SCALED_DOWN = "ScaledDown"
    HIBERNATION = HIBERNATION


OUTDATED = frozenset(
    {
        Cause.EXPIRED,
        Cause.DRIFTED,
        Cause.POOL_DELETED,
        Cause.SCALED_DOWN,
        Cause.HIBERNATION,
    }
)
"""The causes of nodes that go however many pods they have."""

DELETED_POOLS_STAY_FOR = timedelta(minutes=15)
"""How long the nodes of a deleted pool stay, so that somebody who deleted it by mistake can apply
it again. Karpenter drains them at once."""

MOST_WINDOWS = 100
"""Windows of a budget that may follow each other without a gap, before their end is not known."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How many nodes of a pool may be disrupted at once.

    `nodes` is a number, or a percentage of the pool's nodes, rounded up, such as `10%`. `causes`
    are those that it applies to, None for all. With a `cron` (UTC) it applies for `duration` after
    each of its times; without one, always.
    """

    nodes: str = "10%"
    causes: frozenset[Cause] | None = None
    cron: Cron | None = None
    duration: timedelta = timedelta(0)

    def applies(self, cause: Cause, now: datetime) -> bool:
        """Whether it limits disruptions for a cause at the time `now` (aware, UTC)."""
        if cause is Cause.SCALED_DOWN or (self.causes is not None and cause not in self.causes):
            return False
        if self.cron is None:
            return True
        local = now.replace(tzinfo=None)
        return self.cron.next(local - self.duration) <= local

    def ends(self, now: datetime) -> datetime | None:
        """Return when the window ends that holds the time `now` (aware, UTC), with the windows that
        follow it without a gap. None without a cron, and if there is no gap soon."""
        if self.cron is None:
            return None
        times = self.cron.times(now.replace(tzinfo=None) - self.duration)
        end = next(times) + self.duration
        for start in islice(times, MOST_WINDOWS):
            if start > end:
                return end.replace(tzinfo=now.tzinfo)
            end = start + self.duration
        return None

    def limit(self, nodes: int) -> int:
        """Return the number of nodes, of this many, that may be disrupted."""
        if self.nodes.endswith("%"):
            return -(-nodes * int(self.nodes[:-1]) // 100)
        return int(self.nodes)


@dataclass(frozen=True, slots=True)
class ReturnRules:
    """The rules of one pool.

    - `after`: for how long a node has to be quiet before it is consolidated, None for never.
    - `only_empty`: only empty nodes are consolidated.
    - `expires`: the age at which a node is replaced, None for never. `forceful`: neither the
      budgets of the pool nor annotations or PodDisruptionBudgets delay this.
    - `drain_within`: the most that a drain may take, None for no limit. With a limit, expired and
      drifted nodes go although annotations or PodDisruptionBudgets forbid to disrupt their pods.
    - `budgets`: all that apply must allow a disruption.
    - `deleted_at`: when the pool was deleted; None if it exists. Its nodes are drained later.
    - `replicas`: the number of nodes of a static pool; None for others.
    - `hibernates`: the pool hibernates, and all its nodes go. Protections keep them although the
      drain is bounded, what a person protects at night is to stay, until they expire or drift.

    Source: Karpenter documentation, "TerminationGracePeriod".
    """

    after: timedelta | None = timedelta(0)
    only_empty: bool = False
    expires: timedelta | None = None
    forceful: bool = False
    drain_within: timedelta | None = None
    budgets: tuple[Budget, ...] = (Budget(),)
    deleted_at: datetime | None = None
    replicas: int | None = None
    hibernates: Hibernation | None = None

    @property
    def drained_from(self) -> datetime | None:
        """From when on the nodes of a deleted pool are drained."""
        return None if self.deleted_at is None else self.deleted_at + DELETED_POOLS_STAY_FOR

    def is_forced(self, cause: Cause) -> bool:
        """Whether a node goes for this cause although its pods are protected."""
        bounded = self.drain_within is not None and cause is not Cause.HIBERNATION
        return cause in OUTDATED and (bounded or self.is_forceful(cause))

    def is_forceful(self, cause: Cause) -> bool:
        """Whether a node goes for this cause without regard to the budgets of its pool, too."""
        return self.forceful and cause is Cause.EXPIRED

    def expired(self, created_at: datetime, now: datetime) -> bool:
        """Whether a node that was created at this time has expired."""
        return self.expires is not None and now - created_at >= self.expires


def rules_of(manifest: NodePool, hibernates: Hibernation | None = None) -> ReturnRules:
    """Return the rules of a pool, also of one that was converted from an earlier API version."""
    disruption, replicas = manifest.spec.disruption, manifest.spec.replicas
    return ReturnRules(
        after=_unless_never(disruption.consolidate_after) if replicas is None else None,
        only_empty=disruption.consolidation_policy == "WhenEmpty",
        expires=_unless_never(manifest.spec.template.spec.expire_after),
        forceful=manifest.metadata.annotations.get(EXPIRATION) == FORCEFUL,
        drain_within=manifest.spec.template.spec.termination_grace_period,
        budgets=tuple(map(_budget, disruption.budgets)),
        replicas=replicas,
        hibernates=hibernates,
    )


def _budget(budget: node_pool.Budget) -> Budget:
    causes = None if budget.reasons is None else frozenset(map(Cause, budget.reasons))
    return Budget(budget.nodes, causes, budget.schedule, budget.duration or timedelta(0))


def _unless_never(duration: timedelta | str) -> timedelta | None:
    return duration if isinstance(duration, timedelta) else None
