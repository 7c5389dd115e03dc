"""Decisions that wait until a later run confirms them. A warm function remembers them."""

from datetime import datetime, timedelta

from leeway.capacity_return.decision import NodeReturn, ReturnDecision
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
        self, cluster: str, decision: ReturnDecision, now: datetime
    ) -> tuple[tuple[NodeReturn, ...], datetime | None]:
        """Return those that an earlier run has decided in the same way, and when the next of the
        others can be confirmed; remember them all.

        What the last run decided and this one does not is forgotten. What only a budget forbids is
        remembered, too, so that it goes as soon as the budget allows it.
        """
        recent = now - self._decided.get(cluster, now) < FORGOTTEN_AFTER
        before = self._held.get(cluster, {}) if recent else {}
        everything = (*decision.returns, *decision.waiting)
        self._held[cluster] = {key: before.get(key, now) for key in map(_key, everything)}
        self._decided[cluster] = now
        due = {_key(one): self._held[cluster][_key(one)] + HELD_FOR for one in decision.returns}
        later = (at for at in due.values() if at > now)
        confirmed = (one for one in decision.returns if due[_key(one)] <= now)
        return tuple(confirmed), min(later, default=None)


def _key(one: NodeReturn) -> _Key:
    return frozenset(one.nodes), one.cause
