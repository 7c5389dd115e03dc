"""The rules of a node pool for giving nodes back, and the rule for what a move is worth."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice

from leeway.headroom.cron import Cron


class Cause(StrEnum):
    """Why a node is given back; the names are those of disruption budgets.

    Source: Karpenter documentation, "Disruption".
    """

    EMPTY = "Empty"
    EXPIRED = "Expired"
    DRIFTED = "Drifted"
    UNDERUTILIZED = "Underutilized"


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
        if self.causes is not None and cause not in self.causes:
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
    - `expires`: the age at which a node is replaced, None for never.
    - `drain_within`: the most that a drain may take, None for no limit. With a limit, expired and
      drifted nodes go although annotations or PodDisruptionBudgets forbid to disrupt their pods.
    - `budgets`: all that apply must allow a disruption.

    Source: Karpenter documentation, "TerminationGracePeriod".
    """

    after: timedelta | None = timedelta(0)
    only_empty: bool = False
    expires: timedelta | None = None
    drain_within: timedelta | None = None
    budgets: tuple[Budget, ...] = (Budget(),)

    def expired(self, created_at: datetime, now: datetime) -> bool:
        """Whether a node that was created at this time has expired."""
        return self.expires is not None and now - created_at >= self.expires


@dataclass(frozen=True, slots=True)
class Worth:
    """What a move of pods is worth: `saving per hour x horizon` must exceed `per_pod x pods moved`.

    `horizon` is how long a plan is expected to hold; `per_pod` is the price in USD of moving one
    pod. `share` is the least part of the old price that a replacement saves: prices change by a
    few percent all the time, and a move must not be undone by the next one.
    """

    horizon: timedelta = timedelta(hours=4)
    per_pod: float = 0.005
    share: float = 0.05

    def pays(self, saving: float, pods: int) -> bool:
        """Whether it is worth to move this many pods in order to save so many USD per hour."""
        hours = self.horizon / timedelta(hours=1)
        return saving > 0 and saving * hours >= self.per_pod * pods

    def pays_replacement(self, saving: float, price: float, pods: int) -> bool:
        """The same for nodes of this price in USD per hour, if a new one is launched for them."""
        return saving >= self.share * price and self.pays(saving, pods)

    def least_saving(self, pods: int, price: float = 0.0) -> float:
        """Return the USD per hour from which it pays to move this many pods. `price` is that of
        the nodes in USD per hour if a new one is launched for them."""
        return max(self.share * price, self.per_pod * pods / (self.horizon / timedelta(hours=1)))
