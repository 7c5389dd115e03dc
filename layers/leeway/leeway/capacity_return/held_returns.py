"""Decisions that wait until a later run confirms them. A warm function remembers them."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from leeway.capacity_return.decision import NodeReturn
from leeway.capacity_return.rules import Cause

HELD_FOR = timedelta(seconds=15)
"""How long after the first decision a second one has to agree. Source: Karpenter,
`consolidation.go`, consolidationTTL."""

FORGOTTEN_AFTER = timedelta(minutes=5)
"""A decision that no run has confirmed for so long is a first one again."""

type _Key = tuple[frozenset[str], Cause]


class HeldReturns:
    """The latest decisions for clusters."""

    def __init__(self) -> None:
        self._held: dict[str, dict[_Key, datetime]] = {}
        self._decided: dict[str, datetime] = {}

    def confirmed(
        self, cluster: str, decided: Iterable[NodeReturn], now: datetime
    ) -> tuple[NodeReturn, ...]:
        """Return those that an earlier run has decided in the same way, and remember the others.

        What the last run decided and this one does not is forgotten.
        """
        recent = now - self._decided.get(cluster, now) < FORGOTTEN_AFTER
        before = self._held.get(cluster, {}) if recent else {}
        by_key = {(frozenset(one.nodes), one.cause): one for one in decided}
        self._held[cluster] = {key: before.get(key, now) for key in by_key}
        self._decided[cluster] = now
        since = self._held[cluster]
        return tuple(one for key, one in by_key.items() if now - since[key] >= HELD_FOR)
