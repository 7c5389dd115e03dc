"""The free resources of nodes: a quick draft of where pods fit, which packing confirms later."""

from collections.abc import Collection, Sequence

import numpy as np

from leeway.selection.pods import ExistingNode, PodSpec
from leeway.selection.resources import Resources
from leeway.selection.solver.problem import Bools, Floats


class Room:
    """The free resources of nodes (R x N), each as a share of what the largest node has."""

    def __init__(self, nodes: Sequence[ExistingNode]) -> None:
        self._nodes = nodes
        names = sorted({name for node in nodes for pod in node.pods for name in pod.requests})
        largest = [max((node.allocatable.of(name) for node in nodes), default=1) for name in names]
        self._of_amounts: dict[Resources, Floats] = {}
        self._sums: dict[Resources, float] = {}
        self._scale = {name: max(most, 1) for name, most in zip(names, largest, strict=True)}
        left = np.array([self._left(node) for node in nodes]).reshape(len(nodes), len(names))
        self._free = np.ascontiguousarray(left.T)
        self._here = np.ones(len(nodes), dtype=bool)
        self._admitted: dict[object, Bools] = {}

    def _left(self, node: ExistingNode) -> Floats:
        left = self._shares(node.allocatable) - self._shares(node.terminating)
        for pod in node.pods:
            left -= self._shares(pod.requests)
        return left

    def _shares(self, amounts: Resources) -> Floats:
        if amounts not in self._of_amounts:
            shares = [amounts.of(name) / most for name, most in self._scale.items()]
            self._of_amounts[amounts] = np.array(shares)
        return self._of_amounts[amounts]

    def _sum(self, amounts: Resources) -> float:
        if amounts not in self._sums:
            self._sums[amounts] = float(self._shares(amounts).sum())
        return self._sums[amounts]

    def place(self, pods: Sequence[PodSpec], row: int) -> set[int] | None:
        """Place the pods of a node on the others, each where the least room is left; return their
        rows, and None, changing nothing, if one does not fit."""
        before = self._free.copy()
        self._here[row] = False
        rows: set[int] = set()
        for pod in self._largest_first(pods):
            best = self._place(pod)
            if best is None:
                self._free, self._here[row] = before, True
                return None
            rows.add(best)
        return rows

    def leftover(self, pods: Sequence[PodSpec], gone: Collection[int]) -> list[PodSpec]:
        """Return the pods of nodes, by their rows, that fit on no other node; change nothing."""
        before = self._free.copy()
        self._here[list(gone)] = False
        left: list[PodSpec] = []
        without_room: set[object] = set()
        for pod in self._largest_first(pods):
            kind = (pod.requests, pod.terms, pod.tolerations)
            if kind in without_room or self._place(pod) is None:
                without_room.add(kind)
                left.append(pod)
        self._free, self._here[list(gone)] = before, True
        return left

    def _largest_first(self, pods: Sequence[PodSpec]) -> list[PodSpec]:
        return sorted(pods, key=lambda pod: -self._sum(pod.requests))

    def _place(self, pod: PodSpec) -> int | None:
        size = self._shares(pod.requests)
        fits = self._here & self._admits(pod)
        for free, requested in zip(self._free, size.tolist(), strict=True):
            fits &= free >= requested - 1e-9
        found = np.flatnonzero(fits)
        if not len(found):
            return None
        best = int(found[np.argmin(self._free[:, found].sum(axis=0))])
        self._free[:, best] -= size
        return best

    def _admits(self, spec: PodSpec) -> Bools:
        key = (spec.terms, spec.tolerations)
        if key not in self._admitted:
            self._admitted[key] = np.array([_admits(spec, node) for node in self._nodes])
        return self._admitted[key]


def _admits(spec: PodSpec, node: ExistingNode) -> bool:
    if spec.untolerated(node.taints, soft=True) is not None:
        return False
    return not spec.terms or any(term.admits(node.labels) for term in spec.terms)
