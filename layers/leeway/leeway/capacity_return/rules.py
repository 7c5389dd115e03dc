"""The rules of a node pool for giving nodes back."""

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
