"""Packs pods one by one, and improves the result by ruin and recreate (Schrimpf et al., 2000).

Some nodes are removed, their pods are placed again (`leeway.selection.solver.insertion`), and the
cheaper result is kept. Hundreds of equal pods are packed faster by patterns
(`leeway.selection.solver.columns`).
"""

import math
from collections.abc import Sequence

import numpy as np

from leeway.selection.solver.arrays import Bools, Floats, Problem, Proceed
from leeway.selection.solver.columns import Pattern
from leeway.selection.solver.covering import required_nodes
from leeway.selection.solver.insertion import Inserter, Nodes

SEED = 1
"""A fixed seed, so that the same pods have the same plan."""

RUINED = (2, 4)
"""The number of nodes that one round removes: from the first number to one below the second."""

MIN_CHANCE = 0.05
"""The relative chance of the most efficient node to be removed."""

SHUFFLE = 0.5
"""The maximum relative change of the rating of a group or an offering in one round."""

NEW_NODE_SHARE = 0.3
"""The share of rounds that put the removed pods onto new nodes instead of inserting them."""

MANY_REQUIRED = 0.9
"""The share of the nodes that anti-affinity requires, from which nodes are not chosen by their
value."""

NEAR_ENOUGH = 1.005
"""The improvement stops at this multiple of the bound."""

TEMPERATURE = 0.02
"""The accepted price increase in the first round, as a share of an average node's price. It falls
to zero in the last round (simulated annealing)."""


def ruin_and_recreate(
    problem: Problem,
    rounds: int,
    bound: float,
    proceed: Proceed,
    known: Sequence[Pattern] = (),
) -> list[Pattern]:
    """Return nodes that hold all pods of groups that fit on an offering.

    Starts from `known` patterns, if there are any, and improves them for this number of rounds,
    until they cost no more than the bound (USD per hour), or until `proceed` returns False.
    """
    inserter = Inserter(problem)
    rng = np.random.default_rng(SEED)
    if known:
        current = best = _nodes(inserter, known)
    else:
        current = best = _start(inserter, problem, proceed)
    for round_number in range(rounds):
        if best.price <= bound * NEAR_ENOUGH or not proceed():
            break
        ruined = _choose_ruined(current, rng)
        nodes = current.of(np.flatnonzero(~ruined))
        removed = [group for row in np.flatnonzero(ruined).tolist() for group in current.pods[row]]
        pods = _counted(removed, len(problem.counts))
        on_new_nodes = rng.random() < NEW_NODE_SHARE
        ratings = inserter.worth * _factors(rng, len(pods))
        if on_new_nodes:
            factors = _factors(rng, len(inserter.offerings))
            inserter.insert_on_new_nodes(nodes, pods, ratings, factors)
        else:
            inserter.insert(nodes, pods, ratings)
        temperature = TEMPERATURE * current.price / current.count * (1 - round_number / rounds)
        if nodes.price < current.price - temperature * math.log(1 - rng.random()):
            current = nodes
            best = current if current.price < best.price else best
    return [
        Pattern(int(inserter.offerings[chosen]), _counted(pods, len(problem.counts)), 1)
        for chosen, pods in zip(best.chosen[: best.count].tolist(), best.pods, strict=True)
    ]


def _nodes(inserter: Inserter, patterns: Sequence[Pattern]) -> Nodes:
    """The nodes of patterns."""
    nodes = inserter.no_nodes()
    for pattern in patterns:
        pods = [
            (group, round(pattern.pods[group])) for group in np.flatnonzero(pattern.pods).tolist()
        ]
        for _ in range(pattern.times):
            inserter.add(nodes, pods)
    return nodes


def _start(inserter: Inserter, problem: Problem, proceed: Proceed) -> Nodes:
    """The cheaper one of two first plans: pods in the order of their size; then, if anti-affinity
    requires most of the nodes, with the pods first whose number on one node is limited, and
    otherwise nodes by their value for their price."""
    pods = problem.counts
    best = inserter.no_nodes()
    inserter.insert(best, pods, inserter.worth)
    if not proceed():
        return best
    nodes = inserter.no_nodes()
    if required_nodes(problem) >= MANY_REQUIRED * best.count:
        ratings = inserter.worth + inserter.worth.max() * inserter.apart
        inserter.insert(nodes, pods, ratings)
    else:
        factors = np.ones(len(inserter.offerings))
        if not inserter.insert_on_new_nodes(nodes, pods, inserter.worth, factors, best.price):
            return best
    return min(best, nodes, key=lambda each: each.price)


def _counted(pods: Sequence[int], groups: int) -> Floats:
    """The number of pods of each group: G."""
    return np.bincount(pods, minlength=groups).astype(float)


def _factors(rng: np.random.Generator, count: int) -> Floats:
    return rng.uniform(1 - SHUFFLE, 1 + SHUFFLE, count)


def _choose_ruined(nodes: Nodes, rng: np.random.Generator) -> Bools:
    """Choose random nodes, preferably those with little value for their price: N."""
    gain = nodes.worth[: nodes.count] / np.maximum(nodes.costs[: nodes.count], 1e-12)
    chance = 1 + MIN_CHANCE - gain / max(float(gain.max()), 1e-12)
    count = min(nodes.count, int(rng.integers(*RUINED)))
    found = np.zeros(nodes.count, dtype=bool)
    found[rng.choice(nodes.count, count, replace=False, p=chance / chance.sum())] = True
    return found
