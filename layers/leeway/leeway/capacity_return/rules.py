"""The rules of a node pool for giving nodes back, and the rule for what a move is worth."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from leeway.headroom.cron import Cron


class Cause(StrEnum):
    """Why a node is given back; the names are those of disruption budgets.

    Source: Karpenter documentation, "Disruption".
    """

    EMPTY = "Empty"
    EXPIRED = "Expired"
    DRIFTED = "Drifted"
    UNDERUTILIZED = "Underutilized"


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
    - `budgets`: all that apply must allow a disruption.
    """

    after: timedelta | None = timedelta(0)
    only_empty: bool = False
    expires: timedelta | None = None
    budgets: tuple[Budget, ...] = (Budget(),)


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

    def gain(self, saving: float, pods: int) -> float:
        """Return what it gains in USD to move this many pods to save so many USD per hour."""
        return saving * (self.horizon / timedelta(hours=1)) - self.per_pod * pods

    def pays(self, saving: float, pods: int) -> bool:
        """Whether it is worth to move this many pods in order to save so many USD per hour."""
        return saving > 0 and self.gain(saving, pods) >= 0

    def pays_replacement(self, saving: float, price: float, pods: int) -> bool:
        """The same for nodes of this price in USD per hour, if a new one is launched for them."""
        return saving >= self.share * price and self.pays(saving, pods)
