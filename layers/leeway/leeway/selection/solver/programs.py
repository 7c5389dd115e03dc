"""The linear programs, solved by HiGHS: a lower bound of the price, and patterns of nodes.

**The bound**, if nodes were divisible, and the value of each pod in it: shares y[g,o] >= 0 of each
group on the offerings that fit it, nodes x[o] >= 0, for every resource sum_g y[g,o] * size[g] <=
x[o] * capacity[o]; minimise sum_o price[o] * x[o]. With anti-affinity, sum_o x[o] is at least the
number of nodes that it requires. No plan with whole nodes costs less.

**Patterns**: how many nodes of which pattern to launch. The cutting-stock method (Gilmore and
Gomory, 1961): the program values the pods of each group, nodes are filled with the most valuable
pods, and patterns that are worth more than they cost become columns, until there are none.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import highspy
import numpy as np

from leeway.selection.solver.problem import (
    Bools,
    Floats,
    Ints,
    Problem,
    Proceed,
    by_balance,
    by_density,
    by_value,
    fill,
    fill_by_each,
)

UNMERGED = 30
"""Up to this number of groups, those of the same size are not merged: for 20 pods, merging takes
longer than the smaller program saves."""

ADDED_AT_ONCE = 16
"""Offerings that are added to the program at a time."""


@dataclass(frozen=True)
class Covering:
    """`bound` is in USD per hour, `values` (G) the increase of the bound per pod of each group.

    `nodes` is the number of nodes that anti-affinity requires.
    """

    bound: float
    values: Floats
    nodes: float


def cover(problem: Problem) -> Covering:
    """Solve the covering program of groups that all fit on an offering."""
    apart, floor = _apart(problem), required_nodes(problem)
    bound, values, node = _solve_with_few(problem, floor, _efficient(problem))
    # The value of required nodes is shared by the pods whose anti-affinity requires them.
    return Covering(bound, values + node * apart / np.maximum(problem.counts, 1), floor)


def least(problem: Problem) -> float:
    """Return a bound, in USD per hour, that is much faster to compute with many groups. For a small
    batch it is the higher bound, because it limits capacity to the total requests."""
    floor = required_nodes(problem)
    limited = replace(problem, capacity=problem.usable)
    if len(problem.counts) > UNMERGED:
        limited = _merged(limited)
        limited = limited.of_offerings(limited.undominated)
    else:
        limited = limited.of_offerings(problem.undominated)
    return _solve_with_few(limited, floor, np.unique(limited.costs.argmin(axis=1)))[0]


def _merged(problem: Problem) -> Problem:
    """The problem with one group of each size, which may use the offerings of all of that size."""
    alike: dict[bytes, list[int]] = {}
    for group, size in enumerate(problem.sizes):
        alike.setdefault(size.tobytes(), []).append(group)
    groups = list(alike.values())
    counts = np.array([problem.counts[members].sum() for members in groups])
    merged = problem.of_groups(np.array([members[0] for members in groups]), counts)
    allowed = np.array([problem.allowed[members].any(axis=0) for members in groups])
    return replace(merged, allowed=allowed)


def required_nodes(problem: Problem) -> float:
    """Return the number of nodes that anti-affinity requires."""
    return float(np.ceil(_apart(problem).sum() - 1e-9))


def _solve_with_few(problem: Problem, floor: float, used: Ints) -> tuple[float, Floats, float]:
    """Solve the program with a few offerings first, and add offerings that could lower the price
    until there are none. Return the bound, the value of each group (G) and the value of one more
    node."""
    if floor:
        cheapest = problem.prices[None] * np.where(problem.fits, 1, np.inf)
        used = np.union1d(used, cheapest.argmin(axis=1))
    while True:
        bound, values, worth, node = _solve(problem.of_offerings(used), floor)
        added = _improving(problem, used, values, worth, node)
        if not len(added):
            return bound, values, node
        used = np.union1d(used, added)


def solver() -> highspy.Highs:
    """Make a linear program solver without output, on one thread."""
    made = highspy.Highs()  # type: ignore[no-untyped-call]
    made.setOptionValue("output_flag", False)
    made.setOptionValue("threads", 1)
    return made


def _apart(problem: Problem) -> Floats:
    """The nodes that anti-affinity requires for each group: G. Only pods of one counter add up, so
    it is the counter, or the group, that requires the most nodes."""
    alone = problem.counts / problem.max_per_node
    alone = np.where(np.arange(len(alone)) == alone.argmax(), alone, 0)
    strict = problem.matches * problem.strict
    counted = problem.counts[:, None] * strict / np.maximum(problem.caps, 1e-12)
    each = np.concatenate([counted, alone[:, None]], axis=1)
    needed: Floats = each[:, each.sum(axis=0).argmax()]
    return needed


def _solve(problem: Problem, floor: float) -> tuple[float, Floats, Floats, float]:
    """Return the bound, the value of each group (G), the value of each resource in each offering (O
    x R), and the value of one node."""
    groups, offerings = np.nonzero(problem.fits)
    solving, unit = solver(), _unit(problem)
    in_units = replace(problem, prices=problem.prices / unit)
    solving.passModel(_program(in_units, floor, groups, offerings))
    solving.run()
    duals = unit * np.asarray(solving.getSolution().row_dual)
    g = len(problem.counts)
    worth = -duals[g:-1].reshape(problem.capacity.shape) / _scale(problem)
    bound = unit * float(solving.getInfo().objective_function_value)
    return bound, np.maximum(duals[:g], 0), np.maximum(worth, 0), max(0.0, float(duals[-1]))


def _improving(problem: Problem, used: Ints, values: Floats, worth: Floats, node: float) -> Ints:
    """The offerings that may hold pods for less than their values.

    An offering cannot if there are resource values for which every pod on it pays for itself, and
    the node is worth no more than its price. The values of the used offerings are tried.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        unpaid = values / (worth @ problem.sizes.T)  # value of a pod per value of its resources
    unpaid = np.where(values > 0, np.nan_to_num(unpaid, nan=np.inf, posinf=np.inf), 0)
    least = np.full(len(problem.prices), np.inf)
    for valued, factors in zip(worth, unpaid, strict=True):
        factor = np.where(problem.fits, factors[:, None], 0).max(axis=0)
        with np.errstate(invalid="ignore"):
            least = np.fmin(least, factor * (problem.capacity @ valued))
    excess = (least + node) / np.maximum(problem.prices, 1e-12)
    excess[used] = 0
    excess[~problem.fits.any(axis=0)] = 0
    worst = np.argsort(-excess)[:ADDED_AT_ONCE]
    return worst[excess[worst] > 1 + 1e-6]


def _efficient(problem: Problem) -> Ints:
    """The offerings that no other offering exceeds in every resource per dollar, for all groups at
    once."""
    gain = problem.capacity / np.maximum(problem.prices, 1e-12)[:, None]
    fits = np.packbits(problem.fits, axis=0)
    kept: Bools = problem.fits.any(axis=0)
    order = np.argsort(-(gain / np.maximum(gain.max(axis=0, initial=0), 1e-12)).sum(axis=1))
    for best in order:
        if kept[best]:
            beaten = (gain[best] >= gain).all(axis=1)
            beaten &= ((fits[:, best, None] & fits) == fits).all(axis=0)
            beaten[best] = False
            kept &= ~beaten
    return np.flatnonzero(kept)


def _program(problem: Problem, floor: float, groups: Ints, offerings: Ints) -> highspy.HighsLp:
    """Columns: y of each (group, offering) that fits, then x. Rows: each group's count, then each
    offering's resources, then the number of nodes."""
    g, (o, r) = len(problem.counts), problem.capacity.shape
    columns = len(groups) + o
    resource_rows = np.arange(r)
    index = np.empty((columns, r + 1), np.int32)
    value = np.empty((columns, r + 1))
    index[: len(groups), 0], value[: len(groups), 0] = groups, 1
    index[: len(groups), 1:] = g + offerings[:, None] * r + resource_rows
    value[: len(groups), 1:] = problem.sizes[groups] / _scale(problem)
    index[len(groups) :, 0], value[len(groups) :, 0] = g + o * r, 1
    index[len(groups) :, 1:] = g + np.arange(o)[:, None] * r + resource_rows
    value[len(groups) :, 1:] = -problem.capacity / _scale(problem)
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = columns, g + o * r + 1
    program.col_cost_ = np.concatenate([np.zeros(len(groups)), problem.prices])
    program.col_lower_, program.col_upper_ = np.zeros(columns), np.full(columns, np.inf)
    program.row_lower_ = np.concatenate([problem.counts, np.full(o * r, -np.inf), [floor]])
    program.row_upper_ = np.concatenate([np.full(g, np.inf), np.zeros(o * r), [np.inf]])
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = np.arange(columns + 1, dtype=np.int32) * (r + 1)
    program.a_matrix_.index_, program.a_matrix_.value_ = index.ravel(), value.ravel()
    return program


def _scale(problem: Problem) -> Floats:
    """Units in which the largest request is 1, because the solver's tolerances are absolute."""
    return np.maximum(problem.sizes.max(axis=0, initial=0), 1)


def _unit(problem: Problem) -> float:
    """What a pod costs in the mean, in USD per hour, for the same reason: a reserved offering costs
    less than the tolerances."""
    return float(problem.counts @ problem.costs.min(axis=1) / problem.counts.sum()) or 1.0


ROUNDS = 30
MIN_GAIN = 1e-4
"""The minimum gain of a new pattern as a share of its node's price."""

FULL_ROUND_EVERY, PROMISING = 4, 0.6
"""One of this many rounds fills all offerings; the others fill only offerings whose nodes reached
this share of the best value."""

MAX_COLUMNS = 4000

DIVES = 40
ROUND_UP_FROM = 0.7
"""The fraction of a node from which it is rounded up."""

MAX_BRANCHES = 200
"""Limit of the search for integer numbers of patterns."""

MAX_WHOLE = 200
"""The patterns of that search: those that lose the least by the values of the program. With 600, it
may take seconds, and finds hardly more."""

MIN_VALUE_SHARE = 0.85
"""The share of a pattern's value that must remain for it to be used."""

POWERS = (np.inf, 2.0, 0.5)
"""The ways of filling nodes by value. Each finds patterns that the others miss."""

STABILIZATION = 0.5
"""The weight of the best values so far in the target values. The values of the program vary widely
while it has few patterns (Wentges' smoothing)."""


@dataclass(frozen=True)
class Pattern:
    """A number of nodes of one offering with the same pods of each group (G)."""

    offering: int
    pods: Floats
    times: int


class Master:
    """The program over patterns: the cheapest fractional mix that holds all pods."""

    def __init__(self, counts: Floats) -> None:
        self.patterns: list[tuple[int, Floats]] = []
        self._known: set[tuple[int, bytes]] = set()
        self._solver = solver()
        none = np.empty(0)
        rows, starts = len(counts), np.zeros(len(counts), np.int32)
        infinite = np.full(rows, np.inf)
        self._solver.addRows(rows, counts, infinite, 0, starts, none.astype(np.int32), none)

    def add(self, problem: Problem, offerings: Ints, pods: Floats) -> bool:
        """Add patterns, one for each of the offerings. Returns False if all are known already."""
        fresh = []
        for row, offering in enumerate(offerings.tolist()):
            key = (offering, pods[row].tobytes())
            if key not in self._known and pods[row].any():
                self._known.add(key)
                self.patterns.append((offering, pods[row]))
                fresh.append(row)
        columns = pods[fresh]
        which, groups = np.nonzero(columns)
        starts = np.searchsorted(which, np.arange(len(fresh))).astype(np.int32)
        prices = problem.prices[offerings[fresh]]
        zeros, infinite = np.zeros(len(fresh)), np.full(len(fresh), np.inf)
        values = columns[which, groups]
        self._solver.addCols(
            len(fresh), prices, zeros, infinite, len(which), starts, groups.astype(np.int32), values
        )
        return bool(fresh)

    def set_counts(self, counts: Floats) -> None:
        """Change the numbers of pods."""
        rows = np.arange(len(counts), dtype=np.int32)
        self._solver.changeRowsBounds(  # type: ignore[attr-defined]
            len(counts), rows, counts, np.full(len(counts), np.inf)
        )

    def whole(self) -> list[tuple[int, Floats]]:
        """Return patterns in integer numbers that hold all pods, as cheap as a limited search
        finds; none if it finds none."""
        _, values = self.solve()
        prices = np.asarray(self._solver.getLp().col_cost_)
        lost = prices - np.array([pods for _, pods in self.patterns]) @ values
        unlikely = np.argsort(lost, kind="stable")[MAX_WHOLE:].astype(np.int32)
        none = np.zeros(len(unlikely))
        self._solver.changeColsBounds(len(unlikely), unlikely, none, none)
        columns = np.arange(len(self.patterns), dtype=np.int32)
        kinds = np.full(len(columns), int(highspy.HighsVarType.kInteger), np.uint8)
        self._solver.changeColsIntegrality(len(columns), columns, kinds)
        self._solver.setOptionValue("mip_max_nodes", MAX_BRANCHES)
        self._solver.setOptionValue("mip_rel_gap", 1e-3)
        self._solver.run()
        times = np.asarray(self._solver.getSolution().col_value)
        if np.abs(times - times.round()).max(initial=0) > 1e-6:
            return []
        return [
            pattern
            for pattern, share in zip(self.patterns, times.tolist(), strict=True)
            for _ in range(round(share))
        ]

    def solve(self) -> tuple[Floats, Floats]:
        """Return the fractional number of each pattern, and the value of each group."""
        self._solver.run()
        solution = self._solver.getSolution()
        return np.asarray(solution.col_value), np.maximum(np.asarray(solution.row_dual), 0)


def improve(
    problem: Problem,
    offerings: Ints,
    known: Iterable[Pattern],
    values: Floats,
    proceed: Proceed,
) -> tuple[list[Pattern], Floats]:
    """Return whole nodes of the best mix of patterns, and the value of each group in it. Looks for
    patterns while `proceed` returns True.

    The nodes hold most of the pods and never more than exist; the caller packs the rest. `known`
    are the patterns of an existing plan; `values` are those of the covering bound.
    """
    master = Master(problem.counts)
    for pattern in known:
        master.add(problem, np.array([pattern.offering]), pattern.pods[None])
    stabilized, weight, best = values, STABILIZATION, 0.0
    _, current = master.solve()
    promising_offerings = offerings
    for round_number in range(ROUNDS):
        target = weight * stabilized + (1 - weight) * current
        full_round = round_number % FULL_ROUND_EVERY == 0
        gains, grown = generate(
            problem, offerings if full_round else promising_offerings, master, target, current
        )
        gain = max(float(gains.max()), 1.0)
        if full_round:
            promising_offerings = offerings[gains >= PROMISING * gains.max()]
            if (bound := float(problem.counts @ target) / gain) > best:
                best, stabilized = bound, target / gain
        if grown:
            _, current = master.solve()
        elif weight == 0:
            break
        else:
            weight = weight / 2 if weight > 0.2 else 0.0
        if len(master.patterns) > MAX_COLUMNS or not proceed():
            break
    return list(_dive(problem, offerings, master)), current


def _dive(problem: Problem, offerings: Ints, master: Master) -> Iterator[Pattern]:
    """Round the fractions of the program: fix nearly whole patterns, then solve for the remaining
    pods."""
    left = problem.counts.copy()
    for _ in range(DIVES):
        times, values = master.solve()
        fixed = 0
        for at in np.argsort(-(times % 1 + (times >= 1)), kind="stable").tolist():
            share = times[at]
            if share < (ROUND_UP_FROM if fixed else 1e-6):
                continue
            offering, pods = master.patterns[at]
            taken = np.minimum(pods, left)
            if taken @ values < MIN_VALUE_SHARE * (pods @ values):
                continue
            full = np.floor(left[pods > 0] / pods[pods > 0]).min()
            nodes = max(1, int(min(full, share + 1 - ROUND_UP_FROM)))
            taken = pods if full >= 1 else taken
            left -= nodes * taken
            fixed += nodes
            yield Pattern(offering, taken, nodes)
        if not fixed or not left.any():
            return
        master.set_counts(left)
        part = replace(problem, counts=left)
        generate(part, offerings, master, values, values)


def generate(
    problem: Problem, offerings: Ints, master: Master, target: Floats, current: Floats
) -> tuple[Floats, bool]:
    """Fill nodes by the target values, and add those that are worth more than they cost by the
    current values. Returns the highest value per price of each offering's nodes, and whether a
    pattern was added."""
    gains, grown = np.zeros(len(offerings)), False
    wanted = np.where(target > 1e-12, problem.counts, 0)
    prices = np.maximum(problem.prices[offerings], 1e-12)
    scores = [*(by_value(target, power) for power in POWERS), by_density(problem, target)]
    for pods in fill_by_each(problem, wanted, offerings, scores):
        gains = np.maximum(gains, pods @ target / prices)
        worth = pods @ current > prices * (1 + MIN_GAIN)
        if worth.any():
            grown |= master.add(problem, offerings[worth], pods[worth])
    return gains, grown


POLISHED_NODES = 12
"""The number of nodes that are packed again together."""

POLISHING_ROUNDS = 8


def polish(
    problem: Problem,
    patterns: Sequence[Pattern],
    offerings: Ints,
    values: Floats,
) -> list[Pattern]:
    """Return a plan that costs no more, with the least efficient nodes replaced if others cost
    less."""
    worst, kept = _parted(sorted(patterns, key=lambda p: _worth(problem, p, values)))
    counts = np.sum([pattern.pods for pattern in worst], axis=0)
    some = np.flatnonzero(counts)
    part = problem.of_groups(some, counts[some])
    master = Master(part.counts)
    for pattern in worst:
        master.add(part, np.array([pattern.offering]), pattern.pods[None, some])
    able = offerings[part.fits[:, offerings].any(axis=0)]
    master.add(part, able, fill(part, part.counts, able, by_balance))
    for _ in range(POLISHING_ROUNDS):
        _, current = master.solve()
        if not generate(part, able, master, current, current)[1]:
            break
    again = list(_spread(problem, some, master.whole(), counts))
    if again and _price(problem, again) < _price(problem, worst) - 1e-9:
        return [*kept, *again]
    return list(patterns)


def _parted(ranked: Sequence[Pattern]) -> tuple[list[Pattern], list[Pattern]]:
    """The first nodes individually, and the other patterns."""
    first: list[Pattern] = []
    others: list[Pattern] = []
    for pattern in ranked:
        taken = min(pattern.times, POLISHED_NODES - len(first))
        first += [Pattern(pattern.offering, pattern.pods, 1)] * taken
        if taken < pattern.times:
            others.append(Pattern(pattern.offering, pattern.pods, pattern.times - taken))
    return first, others


def _worth(problem: Problem, pattern: Pattern, values: Floats) -> float:
    return float(pattern.pods @ values) / max(float(problem.prices[pattern.offering]), 1e-12)


def _price(problem: Problem, patterns: Sequence[Pattern]) -> float:
    return float(sum(problem.prices[p.offering] for p in patterns))


def _spread(
    problem: Problem, some: Ints, chosen: Sequence[tuple[int, Floats]], counts: Floats
) -> Iterator[Pattern]:
    """Nodes of patterns that together hold more pods than exist: each pod is on one node."""
    left = counts.copy()
    for offering, pods in chosen:
        taken = np.zeros(len(left))
        taken[some] = pods
        taken = np.minimum(taken, left)
        left -= taken
        if taken.any():
            yield Pattern(offering, taken, 1)
