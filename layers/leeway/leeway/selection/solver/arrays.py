"""The array types of packing, and packing's problem as arrays.

Shapes are written with these letters: G groups of pods, O offerings, R resources, K counters.
"""

from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Problem:
    """Groups of pods, and the offerings they may go to.

    Amounts are whole numbers held as floats (exact below 2**53: more bytes than any node has).
    A counter counts pods on one node: `matches` says how many one pod of the group adds to it,
    `caps` what it may have come to on a node that has a pod of the group (inf: anything). `alone`
    is the most pods of the group that one node may have. A counter that is not `firm` is a guess at
    what can be loaded, not a rule. `allowed` says where a group's
    requirements let it go, whatever its size.
    """

    sizes: Floats  # G x R
    counts: Floats  # G
    matches: Floats  # G x K
    caps: Floats  # G x K
    max_per_node: Floats  # G
    strict: Bools  # K
    capacity: Floats  # O x R
    prices: Floats  # O, USD per hour
    allowed: Bools  # G x O

    @cached_property
    def fits(self) -> Bools:
        """G x O: where one pod of the group may go."""
        return self.allowed & (self.sizes[:, None, :] <= self.capacity[None]).all(axis=2)

    @cached_property
    def by_resource(self) -> list[Floats]:
        """`sizes` of one resource after the other, each G. There are few resources, and to reduce
        arrays along so short an axis takes many times as long as to take them one by one."""
        return list(np.ascontiguousarray(self.sizes.T))

    @cached_property
    def divisors(self) -> list[Floats]:
        """The same, and never nothing."""
        return [np.maximum(requested, 1e-12) for requested in self.by_resource]

    @cached_property
    def per_counter(self) -> list[tuple[Ints, Floats, Floats, Ints, Floats]]:
        """For each counter the groups that add to it, how much, and what they let it come to; and
        the groups that only mind it, and what those let it come to. Counters concern few groups,
        and are few themselves: see `by_resource`."""
        found = []
        for adds, caps in zip(self.matches.T, self.caps.T, strict=True):
            adding = np.flatnonzero(adds)
            capping = np.flatnonzero((adds == 0) & np.isfinite(caps))
            found.append((adding, adds[adding], caps[adding], capping, caps[capping]))
        return found

    @cached_property
    def costs(self) -> Floats:
        """G x O: what a pod of the group costs on an offering of which others pay for the rest; inf
        where it may not go."""
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = [
                np.nan_to_num(requested[:, None] / held)
                for requested, held in zip(self.by_resource, self.capacity.T, strict=True)
            ]
        costs = reduce(np.maximum, parts) * np.maximum(self.prices, 1e-12)
        return np.where(self.fits, costs, np.inf)

    @cached_property
    def usable(self) -> Floats:
        """O x R: what each offering holds of all that is asked for. More counts for nothing."""
        return np.minimum(self.capacity, self.counts @ self.sizes)

    @cached_property
    def undominated(self) -> Ints:
        """The offerings, cheapest first, for which no cheaper one is as useful and may be used by
        the same groups."""
        feasible = np.flatnonzero(self.fits.any(axis=0))
        feasible = feasible[np.argsort(self.prices[feasible], kind="stable")]
        choices: dict[bytes, list[int]] = {}
        for at, choice in zip(
            feasible.tolist(), np.packbits(self.allowed[:, feasible], axis=0).T, strict=True
        ):
            choices.setdefault(choice.tobytes(), []).append(at)
        kept = [rows[~_dominated(self.usable[rows])] for rows in map(np.array, choices.values())]
        found: Ints = np.concatenate(kept)
        return found[np.argsort(self.prices[found], kind="stable")]

    def of_offerings(self, index: Ints) -> "Problem":
        """The same with some of the offerings."""
        return Problem(
            self.sizes,
            self.counts,
            self.matches,
            self.caps,
            self.max_per_node,
            self.strict,
            self.capacity[index],
            self.prices[index],
            self.allowed[:, index],
        )

    def of_groups(self, index: Ints, counts: Floats) -> "Problem":
        """The same with some of the groups, and other counts of them."""
        return Problem(
            self.sizes[index],
            counts,
            self.matches[index],
            self.caps[index],
            self.max_per_node[index],
            self.strict,
            self.capacity,
            self.prices,
            self.allowed[index],
        )


def _dominated(held: Floats) -> Bools:
    """Whether one of those before holds as much of everything."""
    count = len(held)
    beats = np.triu(np.ones((count, count), dtype=bool), 1)
    for amounts in held.T:
        beats &= amounts[:, None] >= amounts
    found: Bools = beats.any(axis=0)
    return found
