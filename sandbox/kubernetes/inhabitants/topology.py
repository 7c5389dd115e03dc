"""Counts pods by topology domain, for spread constraints and pod (anti-)affinity.

A count is made when a constraint is first met and kept up to date from then on, so that placing
a pod never looks at all the others.
"""

from __future__ import annotations

import collections

from sandbox.kubernetes.inhabitants.needs import Need, NodeRoom, Spread
from sandbox.kubernetes.matching import LabelTest, label_selector
from sandbox.kubernetes.objects import encode

type _Key = tuple[str, str, bytes]
_MOST_COUNTS = 1000


class _Count:
    """The pods of one namespace that one selector matches, by domain of one topology key."""

    def __init__(self, spread: Spread) -> None:
        self.topology_key = spread.topology_key
        self.namespace = spread.namespace
        self.test: LabelTest = label_selector(spread.selector)
        self.domains: collections.Counter[str] = collections.Counter()

    def move(self, need: Need, node: NodeRoom, by: int) -> None:
        domain = node.labels.get(self.topology_key)
        if domain and need.namespace == self.namespace and self.test(need.labels):
            self.domains[domain] += by
            if not self.domains[domain]:
                del self.domains[domain]

    def at(self, node: NodeRoom) -> int:
        return self.domains[domain] if (domain := node.labels.get(self.topology_key)) else 0


class Topology:
    """Where the pods are that constraints speak of."""

    def __init__(self, nodes: dict[str, NodeRoom]) -> None:
        self._nodes = nodes
        self._counts: dict[_Key, _Count] = {}
        # By what they keep away: the pods that keep others away, and where.
        self._repelling: dict[_Key, dict[str, tuple[Spread, NodeRoom]]] = {}
        # By owner and topology key: the domains of the nodes that its pods may be on.
        self._eligible: dict[tuple[str, str], frozenset[str]] = {}

    def changed(self, node: NodeRoom, before: dict[str, str]) -> None:
        """Take in that a node came or went, or that it had other labels before."""
        self._eligible.clear()
        keys = {count.topology_key for count in self._counts.values()}
        if any(before.get(key) != node.labels.get(key) for key in keys) and node.pods:
            self._counts.clear()

    def placed(self, need: Need, node: NodeRoom) -> None:
        """Take in that a pod is on a node."""
        for count in self._counts.values():
            count.move(need, node, 1)
        for term in need.anti_affinity:
            self._repelling.setdefault(_key(term), {})[need.uid] = (term, node)

    def left(self, need: Need, node: NodeRoom) -> None:
        """Take in that a pod is gone from a node."""
        for count in self._counts.values():
            count.move(need, node, -1)
        for term in need.anti_affinity:
            repelling = self._repelling.get(_key(term), {})
            repelling.pop(need.uid, None)
            if not repelling:
                self._repelling.pop(_key(term), None)

    def refusal(self, need: Need, node: NodeRoom) -> str | None:
        """Say why spread or pod affinity keep a pod off a node; None when they do not."""
        for spread in need.spreads:
            if not self._spreads(spread, need, node):
                return "node(s) didn't match pod topology spread constraints"
        for term in need.anti_affinity:
            if self._count(term).at(node):
                return "node(s) didn't match pod anti-affinity rules"
        for term in need.affinity:
            count = self._count(term)
            # The first pod of a group that wants to be together may go anywhere.
            first = not count.domains.total() and count.test(need.labels)
            if not count.at(node) and not first:
                return "node(s) didn't match pod affinity rules"
        if self._repelled(need, node):
            return "node(s) didn't satisfy existing pods anti-affinity rules"
        return None

    def crowding(self, need: Need, node: NodeRoom) -> int:
        """Return how many of its kind a pod would meet, by its soft spread constraints."""
        return sum(self._count(spread).at(node) for spread in need.soft_spreads)

    def _spreads(self, spread: Spread, need: Need, node: NodeRoom) -> bool:
        if spread.topology_key not in node.labels:
            return False
        count = self._count(spread)
        fewest = min((count.domains[one] for one in self._domains(spread, need)), default=0)
        return count.at(node) + count.test(need.labels) - fewest <= spread.max_skew

    def _domains(self, spread: Spread, need: Need) -> frozenset[str]:
        key = (need.shape, spread.topology_key)
        if key not in self._eligible:
            names = (
                node.labels.get(spread.topology_key)
                for node in self._nodes.values()
                if node.matches(need)
            )
            self._eligible[key] = frozenset(filter(None, names))
        return self._eligible[key]

    def _repelled(self, need: Need, node: NodeRoom) -> bool:
        for (namespace, topology_key, _), found in self._repelling.items():
            domain = node.labels.get(topology_key)
            first, _ = next(iter(found.values()))
            if not domain or namespace != need.namespace:
                continue
            if label_selector(first.selector)(need.labels) and any(
                other.labels.get(topology_key) == domain for _, other in found.values()
            ):
                return True
        return False

    def _count(self, spread: Spread) -> _Count:
        key = _key(spread)
        count = self._counts.get(key)
        if count is None:
            if len(self._counts) >= _MOST_COUNTS:
                self._counts.clear()
            count = self._counts[key] = _Count(spread)
            for node in self._nodes.values():
                for need in node.pods.values():
                    count.move(need, node, 1)
        return count


def _key(spread: Spread) -> _Key:
    return spread.namespace, spread.topology_key, encode(spread.selector)
