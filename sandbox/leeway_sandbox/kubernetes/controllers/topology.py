"""Counts pods by topology domain, for spread constraints and pod (anti-)affinity.

A count is created at the first use of a constraint and then updated with each change, so that the
scheduling of a pod does not read all other pods.
"""

from __future__ import annotations

import collections
from collections.abc import Callable

from leeway_sandbox.kubernetes.controllers.scheduling_info import NodeInfo, PodInfo, Spread
from leeway_sandbox.kubernetes.objects import encode
from leeway_sandbox.kubernetes.selectors import LabelTest, label_selector

type _Key = tuple[str, str, bytes, bytes, bool]
_MOST_COUNTS = 1000
MISSING_LABEL = "node(s) didn't match pod topology spread constraints (missing required label)"
NO_AFFINITY_MATCH = "node(s) didn't match pod affinity rules"


class _Count:
    """The number of pods in a namespace that match a selector, by domain of a topology key.

    Only nodes that count for `requester`, a pod with this constraint, are included.
    """

    def __init__(self, spread: Spread, requester: PodInfo) -> None:
        self.spread = spread
        self.topology_key = spread.topology_key
        self.namespace = spread.namespace
        self.test: LabelTest = label_selector(spread.selector)
        self.domains: collections.Counter[str] = collections.Counter()
        self.places: frozenset[str] | None = None
        self._requester = requester

    def has(self, node: NodeInfo) -> bool:
        return not self.spread.scope or self._requester.counts(self.spread, node)

    def move(self, info: PodInfo, node: NodeInfo, by: int) -> bool:
        """Add or remove a pod; return whether it counts."""
        domain = node.labels.get(self.topology_key)
        if (
            domain
            and info.namespace == self.namespace
            and self.test(info.labels)
            and self.has(node)
        ):
            self.domains[domain] += by
            if not self.domains[domain]:
                del self.domains[domain]
            return True
        return False

    def at(self, node: NodeInfo) -> int:
        return self.domains[domain] if (domain := node.labels.get(self.topology_key)) else 0


class Topology:
    """The counts of all constraints."""

    def __init__(self, nodes: dict[str, NodeInfo]) -> None:
        self._nodes = nodes
        self._counts: dict[_Key, _Count] = {}
        # The pods with a required anti-affinity term, and their nodes, by term.
        self._anti_affinity: dict[_Key, dict[str, tuple[Spread, NodeInfo]]] = {}

    def changed(self, node: NodeInfo, before: dict[str, str]) -> None:
        """Handle a new or deleted node, or a change of its labels."""
        keys = {count.topology_key for count in self._counts.values()}
        if any(before.get(key) != node.labels.get(key) for key in keys) and node.pods:
            self._counts.clear()
        self._forget(lambda spread: bool(node.pods and spread.scope))
        for count in self._counts.values():
            count.places = None

    def tainted(self, node: NodeInfo) -> None:
        """Handle a change of a node's taints or cordon."""
        self._forget(lambda spread: spread.honors_taints)

    def _forget(self, which: Callable[[Spread], bool]) -> None:
        for key in [key for key, count in self._counts.items() if which(count.spread)]:
            del self._counts[key]

    def placed(self, info: PodInfo, node: NodeInfo) -> None:
        """Handle a pod that is bound to a node."""
        for count in self._counts.values():
            if count.spread.counts_terminating or not info.terminating:
                count.move(info, node, 1)
        for term in info.anti_affinity:
            self._anti_affinity.setdefault(_key(term), {})[info.uid] = (term, node)

    def left(self, info: PodInfo, node: NodeInfo) -> None:
        """Handle a pod that is deleted from a node."""
        for count in self._counts.values():
            if count.spread.counts_terminating or not info.terminating:
                count.move(info, node, -1)
        for term in info.anti_affinity:
            terms = self._anti_affinity.get(_key(term), {})
            terms.pop(info.uid, None)
            if not terms:
                self._anti_affinity.pop(_key(term), None)

    def leaves(self, info: PodInfo, node: NodeInfo) -> bool:
        """Handle a pod that is terminating; return whether other pods may fit now."""
        info.terminating = True
        spreads = [one for one in self._counts.values() if not one.spread.counts_terminating]
        return sum(count.move(info, node, -1) for count in spreads) > 0

    def refusal(self, info: PodInfo, node: NodeInfo) -> str | None:
        """Return why spread or pod affinity refuse a pod on a node, or None."""
        if any(spread.topology_key not in node.labels for spread in info.spreads):
            return MISSING_LABEL
        for spread in info.spreads:
            if not self._spreads(spread, info, node):
                return "node(s) didn't match pod topology spread constraints"
        for term in info.anti_affinity:
            if self._count(term, info).at(node):
                return "node(s) didn't match pod anti-affinity rules"
        for term in info.affinity:
            count = self._count(term, info)
            # The first pod with an affinity to itself fits any node.
            first = not count.domains.total() and count.test(info.labels)
            if not count.at(node) and not first:
                return NO_AFFINITY_MATCH
        if self._violates_existing_anti_affinity(info, node):
            return "node(s) didn't satisfy existing pods anti-affinity rules"
        return None

    def soft_spread_score(self, info: PodInfo, node: NodeInfo) -> int:
        """Return the number of matching pods in the domain, by the soft spread constraints."""
        return sum(self._count(spread, info).at(node) for spread in info.soft_spreads)

    def _spreads(self, spread: Spread, info: PodInfo, node: NodeInfo) -> bool:
        count = self._count(spread, info)
        domains = self._domains(count)
        fewest = min((count.domains[one] for one in domains), default=0)
        if len(domains) < spread.min_domains:
            fewest = 0
        return count.at(node) + count.test(info.labels) - fewest <= spread.max_skew

    def _domains(self, count: _Count) -> frozenset[str]:
        if count.places is None:
            nodes = (node for node in self._nodes.values() if count.has(node))
            found = (node.labels.get(count.topology_key) for node in nodes)
            count.places = frozenset(filter(None, found))
        return count.places

    def _violates_existing_anti_affinity(self, info: PodInfo, node: NodeInfo) -> bool:
        for (namespace, topology_key, *_), found in self._anti_affinity.items():
            domain = node.labels.get(topology_key)
            first, _ = next(iter(found.values()))
            if not domain or namespace != info.namespace:
                continue
            if label_selector(first.selector)(info.labels) and any(
                other.labels.get(topology_key) == domain for _, other in found.values()
            ):
                return True
        return False

    def _count(self, spread: Spread, requester: PodInfo) -> _Count:
        key = _key(spread)
        count = self._counts.get(key)
        if count is None:
            if len(self._counts) >= _MOST_COUNTS:
                self._counts.clear()
            count = self._counts[key] = _Count(spread, requester)
            for node in self._nodes.values():
                for info in node.pods.values():
                    if spread.counts_terminating or not info.terminating:
                        count.move(info, node, 1)
        return count


def _key(spread: Spread) -> _Key:
    selector = encode(spread.selector)
    return spread.namespace, spread.topology_key, selector, spread.scope, spread.counts_terminating
