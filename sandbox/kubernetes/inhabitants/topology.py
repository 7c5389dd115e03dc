"""Counts pods by topology domain, for spread constraints and pod (anti-)affinity.

A count is made when a constraint is first met and kept up to date from then on, so that placing
a pod never looks at all the others.
"""

from __future__ import annotations

import collections
from collections.abc import Callable

from sandbox.kubernetes.inhabitants.needs import Need, NodeRoom, Spread
from sandbox.kubernetes.matching import LabelTest, label_selector
from sandbox.kubernetes.objects import encode

type _Key = tuple[str, str, bytes, bytes, bool]
_MOST_COUNTS = 1000
MISSING_LABEL = "node(s) didn't match pod topology spread constraints (missing required label)"
NO_KIN = "node(s) didn't match pod affinity rules"


class _Count:
    """The pods of one namespace that one selector matches, by domain of one topology key.

    Only nodes count that count for `asker`, one of the pods that ask for this count.
    """

    def __init__(self, spread: Spread, asker: Need) -> None:
        self.spread = spread
        self.topology_key = spread.topology_key
        self.namespace = spread.namespace
        self.test: LabelTest = label_selector(spread.selector)
        self.domains: collections.Counter[str] = collections.Counter()
        self.places: frozenset[str] | None = None
        self._asker = asker

    def has(self, node: NodeRoom) -> bool:
        return not self.spread.scope or self._asker.counts(self.spread, node)

    def move(self, need: Need, node: NodeRoom, by: int) -> bool:
        """Count a pod in or out; says whether it is one that counts."""
        domain = node.labels.get(self.topology_key)
        if (
            domain
            and need.namespace == self.namespace
            and self.test(need.labels)
            and self.has(node)
        ):
            self.domains[domain] += by
            if not self.domains[domain]:
                del self.domains[domain]
            return True
        return False

    def at(self, node: NodeRoom) -> int:
        return self.domains[domain] if (domain := node.labels.get(self.topology_key)) else 0


class Topology:
    """Where the pods are that constraints speak of."""

    def __init__(self, nodes: dict[str, NodeRoom]) -> None:
        self._nodes = nodes
        self._counts: dict[_Key, _Count] = {}
        # By what they keep away: the pods that keep others away, and where.
        self._repelling: dict[_Key, dict[str, tuple[Spread, NodeRoom]]] = {}

    def changed(self, node: NodeRoom, before: dict[str, str]) -> None:
        """Take in that a node came or went, or that it had other labels before."""
        keys = {count.topology_key for count in self._counts.values()}
        if any(before.get(key) != node.labels.get(key) for key in keys) and node.pods:
            self._counts.clear()
        self._forget(lambda spread: bool(node.pods and spread.scope))
        for count in self._counts.values():
            count.places = None

    def tainted(self, node: NodeRoom) -> None:
        """Take in that a node's taints are others, or its cordon."""
        self._forget(lambda spread: spread.heeds_taints)

    def _forget(self, which: Callable[[Spread], bool]) -> None:
        for key in [key for key, count in self._counts.items() if which(count.spread)]:
            del self._counts[key]

    def placed(self, need: Need, node: NodeRoom) -> None:
        """Take in that a pod is on a node."""
        for count in self._counts.values():
            if count.spread.counts_leaving or not need.leaving:
                count.move(need, node, 1)
        for term in need.anti_affinity:
            self._repelling.setdefault(_key(term), {})[need.uid] = (term, node)

    def left(self, need: Need, node: NodeRoom) -> None:
        """Take in that a pod is gone from a node."""
        for count in self._counts.values():
            if count.spread.counts_leaving or not need.leaving:
                count.move(need, node, -1)
        for term in need.anti_affinity:
            repelling = self._repelling.get(_key(term), {})
            repelling.pop(need.uid, None)
            if not repelling:
                self._repelling.pop(_key(term), None)

    def leaves(self, need: Need, node: NodeRoom) -> bool:
        """Take in that a pod on a node is being deleted; says whether that may let others in."""
        need.leaving = True
        spreads = [one for one in self._counts.values() if not one.spread.counts_leaving]
        return sum(count.move(need, node, -1) for count in spreads) > 0

    def refusal(self, need: Need, node: NodeRoom) -> str | None:
        """Say why spread or pod affinity keep a pod off a node; None when they do not."""
        if any(spread.topology_key not in node.labels for spread in need.spreads):
            return MISSING_LABEL
        for spread in need.spreads:
            if not self._spreads(spread, need, node):
                return "node(s) didn't match pod topology spread constraints"
        for term in need.anti_affinity:
            if self._count(term, need).at(node):
                return "node(s) didn't match pod anti-affinity rules"
        for term in need.affinity:
            count = self._count(term, need)
            # The first pod of a group that wants to be together may go anywhere.
            first = not count.domains.total() and count.test(need.labels)
            if not count.at(node) and not first:
                return NO_KIN
        if self._repelled(need, node):
            return "node(s) didn't satisfy existing pods anti-affinity rules"
        return None

    def crowding(self, need: Need, node: NodeRoom) -> int:
        """Return how many of its kind a pod would meet, by its soft spread constraints."""
        return sum(self._count(spread, need).at(node) for spread in need.soft_spreads)

    def _spreads(self, spread: Spread, need: Need, node: NodeRoom) -> bool:
        count = self._count(spread, need)
        domains = self._domains(count)
        fewest = min((count.domains[one] for one in domains), default=0)
        if len(domains) < spread.min_domains:
            fewest = 0
        return count.at(node) + count.test(need.labels) - fewest <= spread.max_skew

    def _domains(self, count: _Count) -> frozenset[str]:
        if count.places is None:
            nodes = (node for node in self._nodes.values() if count.has(node))
            found = (node.labels.get(count.topology_key) for node in nodes)
            count.places = frozenset(filter(None, found))
        return count.places

    def _repelled(self, need: Need, node: NodeRoom) -> bool:
        for (namespace, topology_key, *_), found in self._repelling.items():
            domain = node.labels.get(topology_key)
            first, _ = next(iter(found.values()))
            if not domain or namespace != need.namespace:
                continue
            if label_selector(first.selector)(need.labels) and any(
                other.labels.get(topology_key) == domain for _, other in found.values()
            ):
                return True
        return False

    def _count(self, spread: Spread, asker: Need) -> _Count:
        key = _key(spread)
        count = self._counts.get(key)
        if count is None:
            if len(self._counts) >= _MOST_COUNTS:
                self._counts.clear()
            count = self._counts[key] = _Count(spread, asker)
            for node in self._nodes.values():
                for need in node.pods.values():
                    if spread.counts_leaving or not need.leaving:
                        count.move(need, node, 1)
        return count


def _key(spread: Spread) -> _Key:
    selector = encode(spread.selector)
    return spread.namespace, spread.topology_key, selector, spread.scope, spread.counts_leaving
