"""Finds nodes whose pods fit on the other nodes: all of them in one plan.

A quick draft counts resources only. Packing, which knows every constraint, then confirms it, and
the nodes of pods that it does not place are taken out of the draft until it places all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from leeway.capacity_return.moving import Moving, pods_of
from leeway.capacity_return.snapshot import OwnNode
from leeway.selection.packing.plan import Plan
from leeway.selection.pods import ExistingNode, PodSpec
from leeway.selection.resources import Resources
from leeway.selection.solver.arrays import Bools, Floats

MOST_CONFIRMATIONS = 8
"""How often a draft is confirmed; the draft is halved where taking single nodes out does not
help."""


@dataclass(frozen=True, slots=True)
class SpareNodes:
    """Nodes that are not needed, in order, and the plan for their pods."""

    nodes: tuple[OwnNode, ...]
    plan: Plan


def find_spare_nodes(
    moving: Moving,
    candidates: Sequence[OwnNode],
    others: Sequence[ExistingNode],
    most: Mapping[str, int],
) -> SpareNodes | None:
    """Return the nodes, the first candidates first, whose pods fit on nodes that stay; None if
    there are none. `others` are the nodes that stay in any case, `most` the number of nodes of each
    pool that may go."""
    drafted = _draft(candidates, others, most)
    for _ in range(MOST_CONFIRMATIONS):
        if not drafted:
            return None
        pods = pods_of(drafted)
        plan = moving.without({one.name for one in drafted}, pods, launch=False)
        homeless = {one.pod for one in plan.unschedulable}
        if not homeless:
            return SpareNodes(tuple(drafted), plan)
        kept = [one for one in drafted if not homeless & {m.pod.name for m in one.pods}]
        # Pods that have no place may be others' than those whose nodes take the place away.
        drafted = kept if len(kept) < len(drafted) else drafted[: len(drafted) // 2]
    return None


def _draft(
    candidates: Sequence[OwnNode], others: Sequence[ExistingNode], most: Mapping[str, int]
) -> list[OwnNode]:
    """Draft which candidates can go, by resources, taints and node requirements."""
    room = _Room([*(one.node for one in candidates), *others])
    going: list[OwnNode] = []
    receiving: set[int] = set()
    left = dict(most)
    for row, one in enumerate(candidates):
        if row in receiving or not left[one.pool]:
            continue
        taken = room.place([m.pod.spec for m in one.pods], row)
        if taken is not None:
            going.append(one)
            receiving |= taken
            left[one.pool] -= 1
    return going


class _Room:
    """The free resources of nodes (N x R), each as a share of what the largest node has."""

    def __init__(self, nodes: Sequence[ExistingNode]) -> None:
        self._nodes = nodes
        names = sorted({name for node in nodes for pod in node.pods for name in pod.requests})
        largest = [max((node.allocatable.of(name) for node in nodes), default=1) for name in names]
        self._scale = {name: max(most, 1) for name, most in zip(names, largest, strict=True)}
        self._free = np.array([self._left(node) for node in nodes]).reshape(len(nodes), len(names))
        self._here = np.ones(len(nodes), dtype=bool)
        self._admitted: dict[object, Bools] = {}

    def _left(self, node: ExistingNode) -> Floats:
        left = self._shares(node.allocatable) - self._shares(node.terminating)
        for pod in node.pods:
            left -= self._shares(pod.requests)
        return left

    def _shares(self, amounts: Resources) -> Floats:
        return np.array([amounts.of(name) / most for name, most in self._scale.items()])

    def place(self, pods: Sequence[PodSpec], row: int) -> set[int] | None:
        """Place the pods of a node on the others, each where the least room is left; return their
        rows, and None, changing nothing, if one does not fit."""
        before = self._free.copy()
        self._here[row] = False
        rows: set[int] = set()
        sizes = [self._shares(pod.requests) for pod in pods]
        for number in sorted(range(len(pods)), key=lambda n: -float(sizes[n].sum())):
            fits = self._here & self._admits(pods[number])
            fits &= (self._free >= sizes[number] - 1e-9).all(axis=1)
            found = np.flatnonzero(fits)
            if not len(found):
                self._free, self._here[row] = before, True
                return None
            best = int(found[np.argmin(self._free[found].sum(axis=1))])
            self._free[best] -= sizes[number]
            rows.add(best)
        return rows

    def _admits(self, spec: PodSpec) -> Bools:
        key = (spec.terms, spec.tolerations)
        if key not in self._admitted:
            self._admitted[key] = np.array([_admits(spec, node) for node in self._nodes])
        return self._admitted[key]


def _admits(spec: PodSpec, node: ExistingNode) -> bool:
    if spec.untolerated(node.taints, soft=True) is not None:
        return False
    return not spec.terms or any(term.admits(node.labels) for term in spec.terms)
