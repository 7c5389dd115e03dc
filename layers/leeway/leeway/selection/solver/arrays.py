"""The arrays of the solver, and its problem.

Shapes: G groups of pods, O offerings, R resources, K counters.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

type Proceed = Callable[[], bool]
"""Whether there is time for another improvement. Without it, the plan so far is used."""


@dataclass(frozen=True)
class Problem:
    """Groups of pods, and the offerings that they may use.

    Amounts are integers stored as floats (exact below 2**53, more bytes than any node has). A
    counter counts pods on one node: `matches` is the number that one pod of the group adds, `caps`
    the maximum on a node with a pod of the group (inf: none). `max_per_node` is the maximum number
    of pods of the group on one node. A counter that is not `strict` is an estimate, not a rule.
    `allowed`: the offerings that match the group's requirements, regardless of size.
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
        """G x O: the offerings that fit one pod of the group."""
        found: Bools = self.allowed.copy()
        for requested, held in zip(self.by_resource, self.capacity.T, strict=True):
            found &= requested[:, None] <= held
        return found

    @cached_property
    def by_resource(self) -> list[Floats]:
        """`sizes` by resource, each G. There are few resources, and numpy reduces a list of arrays
        many times faster than an array along so short an axis."""
        return list(np.ascontiguousarray(self.sizes.T))

    @cached_property
    def divisors(self) -> list[Floats]:
        """The same, but always above 0."""
        return [np.maximum(requested, 1e-12) for requested in self.by_resource]

    @cached_property
    def per_counter(self) -> list[tuple[Ints, Floats, Floats, Ints, Floats]]:
        """For each counter, the groups that add to it with their numbers and caps, and the groups
        that only cap it with their caps. See `by_resource` for the reason of the list."""
        found = []
        for adds, caps in zip(self.matches.T, self.caps.T, strict=True):
            adding = np.flatnonzero(adds)
            capping = np.flatnonzero((adds == 0) & np.isfinite(caps))
            found.append((adding, adds[adding], caps[adding], capping, caps[capping]))
        return found

    @cached_property
    def costs(self) -> Floats:
        """G x O: the cost of one pod of the group on an offering that other pods fill; inf if it
        does not fit."""
        costs = np.zeros(self.allowed.shape)
        for requested, held in zip(self.by_resource, self.capacity.T, strict=True):
            np.maximum(costs, requested[:, None] / np.maximum(held, 1e-12), out=costs)
        costs *= np.maximum(self.prices, 1e-12)
        costs[~self.fits] = np.inf
        return costs

    @cached_property
    def usable(self) -> Floats:
        """O x R: the capacity of each offering up to the total requests."""
        return np.minimum(self.capacity, self.counts @ self.sizes)

    @cached_property
    def undominated(self) -> Ints:
        """The offerings, cheapest first, for which no cheaper one is as large and has the same
        groups."""
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
        """The problem restricted to some offerings."""
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
        """The problem restricted to some groups, with other counts."""
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
    """Whether an earlier row is at least as large in every column."""
    count = len(held)
    beats = np.triu(np.ones((count, count), dtype=bool), 1)
    for amounts in held.T:
        beats &= amounts[:, None] >= amounts
    found: Bools = beats.any(axis=0)
    return found
