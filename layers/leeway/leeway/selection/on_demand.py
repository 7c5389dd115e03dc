"""The on-demand share of pools: what is missing, and which changes keep it.

Capacity is the number of vCPUs, so that large and small nodes count by their size. Everything but
Spot counts as on-demand, reserved capacity too. A node that goes does not count.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from leeway.selection.labels import CAPACITY_TYPE, SPOT
from leeway.selection.pods import ExistingNode, NodePool, OnDemandShare


@dataclass(frozen=True, slots=True)
class Balance:
    """The millicores of a pool's nodes: those that are on-demand, and all."""

    share: OnDemandShare
    on_demand: int = 0
    total: int = 0

    @property
    def missing(self) -> int:
        """How many millicores have to become on-demand."""
        return max(self.share.least(self.total) - self.on_demand, 0)

    def plus(self, capacity_type: str, millicores: int) -> "Balance":
        """Return the balance with more capacity; with a negative amount, with less."""
        on_demand = 0 if capacity_type == SPOT else millicores
        return replace(self, on_demand=self.on_demand + on_demand, total=self.total + millicores)


@dataclass(frozen=True, slots=True)
class Balances:
    """The balance of each pool with a share. A change keeps the shares if no pool misses more after
    it than before: a pool without enough on-demand capacity may lose Spot nodes."""

    of: Mapping[str, Balance] = field(default_factory=dict)

    @classmethod
    def among(cls, pools: Iterable[NodePool], nodes: Iterable[ExistingNode]) -> "Balances":
        """Return the balances of these pools with those of these nodes that take pods: the others
        go (`ExistingNode.closed`)."""
        shares = {pool.name: Balance(pool.on_demand) for pool in pools if pool.on_demand}
        found = cls(shares)
        return found.changed(node for node in nodes if node.allocatable) if shares else found

    def missing(self, pool: str) -> int:
        """Return how many millicores of a pool have to become on-demand."""
        return self.of[pool].missing if pool in self.of else 0

    def plus(self, pool: str, capacity_type: str, millicores: int) -> "Balances":
        """Return the balances with more capacity of a pool; with a negative amount, with less."""
        if pool not in self.of:
            return self
        return Balances({**self.of, pool: self.of[pool].plus(capacity_type, millicores)})

    def changed(self, nodes: Iterable[ExistingNode], sign: int = 1) -> "Balances":
        """Return the balances with more nodes; with the sign -1, without them."""
        found = dict(self.of)
        for node in nodes:
            if node.pool in found:
                capacity_type = node.labels.get(CAPACITY_TYPE, "")
                amount = sign * node.capacity.of("cpu")
                found[node.pool] = found[node.pool].plus(capacity_type, amount)
        return Balances(found)

    def are_kept_by(self, after: "Balances") -> bool:
        """Whether no pool misses more after a change than before it."""
        return all(after.missing(pool) <= self.missing(pool) for pool in self.of)
