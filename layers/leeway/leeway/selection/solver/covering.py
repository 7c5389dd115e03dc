"""A lower bound of the price if nodes were divisible, and the value of each pod in it.

A linear program (solved by HiGHS): shares y[g,o] >= 0 of each group on the offerings that fit it,
nodes x[o] >= 0, for every resource sum_g y[g,o] * size[g] <= x[o] * capacity[o]; minimise sum_o
price[o] * x[o]. With anti-affinity, sum_o x[o] is at least the number of nodes that it requires. No
plan with whole nodes costs less.
"""

from dataclasses import dataclass, replace

import highspy
import numpy as np

from leeway.selection.solver.problem import Bools, Floats, Ints, Problem

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
    """Return a bound, in USD per hour, that is much faster to compute with many groups. Groups of
    the same size are merged and may use the offerings of any of them. For a small batch it is the
    higher bound, because it limits capacity to the total requests."""
    floor = required_nodes(problem)
    alike: dict[bytes, list[int]] = {}
    for group, size in enumerate(problem.sizes):
        alike.setdefault(size.tobytes(), []).append(group)
    groups = list(alike.values())
    counts = np.array([problem.counts[members].sum() for members in groups])
    merged = problem.of_groups(np.array([members[0] for members in groups]), counts)
    allowed = np.array([problem.allowed[members].any(axis=0) for members in groups])
    merged = replace(merged, allowed=allowed, capacity=problem.usable)
    merged = merged.of_offerings(merged.undominated)
    return _solve_with_few(merged, floor, np.unique(merged.costs.argmin(axis=1)))[0]


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
    solving = solver()
    solving.passModel(_program(problem, floor, groups, offerings))
    solving.run()
    duals = np.asarray(solving.getSolution().row_dual)
    g = len(problem.counts)
    worth = -duals[g:-1].reshape(problem.capacity.shape) / _scale(problem)
    bound = float(solving.getInfo().objective_function_value)
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
