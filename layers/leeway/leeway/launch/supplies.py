"""Keeps the supply of the last plans: a run of a warm function often plans with the same one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from leeway.selection.offers.catalog import Catalog, Unavailable
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import PodSpec
from leeway.selection.pools import NodePool

MOST_KEPT = 4
"""Supplies that are kept. One takes some megabytes."""

MOST_ARRAYS = 1000
"""A supply that holds more arrays is not kept: it has one for each requirement that a pod has had,
and whoever may create pods may write any."""


@dataclass
class Supplies:
    """The supplies of the last plans, the oldest first."""

    _kept: list[tuple[object, Catalog, Supply]] = field(default_factory=list)

    def of(
        self,
        pools: Sequence[NodePool],
        catalog: Catalog,
        unavailable: Iterable[Unavailable],
        daemons: Sequence[PodSpec],
    ) -> Supply:
        """Return the supply of these pools."""
        key = (tuple(pools), frozenset(unavailable), tuple(daemons))
        self._kept = [one for one in self._kept if one[2].arrays <= MOST_ARRAYS]
        for known in self._kept:
            if known[1] is catalog and known[0] == key:
                self._kept.remove(known)
                break
        else:
            known = (key, catalog, Supply(pools, catalog, key[1], daemons))
        self._kept = [*self._kept, known][-MOST_KEPT:]
        return known[2]
