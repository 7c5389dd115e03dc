"""Counts pods by topology domain, for spread constraints and pod (anti-)affinity.

A count is made when a constraint is first met and kept up to date from then on, so that placing
a pod never looks at all the others.
"""

from __future__ import annotations

from collections.abc import Iterator

from sandbox.kubernetes.inhabitants.needs import Need, NodeRoom, Spread
from sandbox.kubernetes.matching import LabelTest, label_selector
from sandbox.kubernetes.objects import encode

type _Key = tuple[str, bytes]


class _Count:
    """The pods of one namespace that one selector matches, by node."""

    def __init__(self, namespace: str, test: LabelTest) -> None:
        self.namespace = namespace
        self.test = test
        self.on_node: dict[str, int] = {}

    def move(self, need: Need, node: str, by: int) -> None:
        if need.namespace == self.namespace and self.test(need.labels):
            self.on_node[node] = self.on_node.get(node, 0) + by


class Topology:
    """Where the pods are that constraints speak of."""

    def __init__(self, nodes: dict[str, NodeRoom]) -> None:
        self._nodes = nodes
        self._counts: dict[_Key, _Count] = {}
        # Pods that keep others away, by what they keep away.
        self._repelling: dict[_Key, dict[str, tuple[Spread, str]]] = {}

    def placed(self, need: Need, node: str) -> None:
        """Take in that a pod is on a node."""
        for count in self._counts.values():
            count.move(need, node, 1)
        for term in need.anti_affinity:
            self._repelling.setdefault(_key(term), {})[need.uid] = (term, node)

    def left(self, need: Need, node: str) -> None:
        """Take in that a pod is gone from a node."""
        for count in self._counts.values():
            count.move(need, node, -1)
        for term in need.anti_affinity:
            self._repelling.get(_key(term), {}).pop(need.uid, None)

    def refusal(self, need: Need, node: NodeRoom) -> str | None:
        """Say why spread or pod affinity keep a pod off a node; None when they do not."""
        for spread in need.spreads:
            if not self._spreads(spread, need, node):
                return "node(s) didn't match pod topology spread constraints"
        for term in need.anti_affinity:
            if self._in_domain(term, node):
                return "node(s) didn't match pod anti-affinity rules"
        for term in need.affinity:
            # The first pod of a group that wants to be together may go anywhere.
            alone = not any(self._count(term).on_node.values())
            itself = label_selector(term.selector)(need.labels)
            if not self._in_domain(term, node) and not (alone and itself):
                return "node(s) didn't match pod affinity rules"
        if self._repelled(need, node):
            return "node(s) didn't satisfy existing pods anti-affinity rules"
        return None

    def crowding(self, need: Need, node: NodeRoom) -> int:
        """Return how many of its kind a pod would meet, by its soft spread constraints."""
        return sum(self._in_domain(spread, node) for spread in need.soft_spreads)

    def _spreads(self, spread: Spread, need: Need, node: NodeRoom) -> bool:
        domain = node.labels.get(spread.topology_key)
        if domain is None:
            return False
        domains: dict[str, int] = {}
        on_node = self._count(spread).on_node
        for other in self._nodes.values():
            name = other.labels.get(spread.topology_key)
            if name is not None and other.matches(need):
                domains[name] = domains.get(name, 0) + on_node.get(other.name, 0)
        itself = label_selector(spread.selector)(need.labels)
        return domains.get(domain, 0) + itself - min(domains.values(), default=0) <= spread.max_skew

    def _in_domain(self, term: Spread, node: NodeRoom) -> int:
        """Count the pods a term speaks of in the node's domain."""
        domain = node.labels.get(term.topology_key)
        if domain is None:
            return 0
        total = 0
        for name, number in self._count(term).on_node.items():
            other = self._nodes.get(name)
            if number and other and other.labels.get(term.topology_key) == domain:
                total += number
        return total

    def _repelled(self, need: Need, node: NodeRoom) -> bool:
        for term, where in self._repellers(need):
            other = self._nodes.get(where)
            domain = node.labels.get(term.topology_key)
            if other and domain and other.labels.get(term.topology_key) == domain:
                return True
        return False

    def _repellers(self, need: Need) -> Iterator[tuple[Spread, str]]:
        for (namespace, _), found in self._repelling.items():
            if namespace != need.namespace or not found:
                continue
            first, _ = next(iter(found.values()))
            if label_selector(first.selector)(need.labels):
                yield from found.values()

    def _count(self, spread: Spread) -> _Count:
        key = _key(spread)
        count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = _Count(spread.namespace, label_selector(spread.selector))
            for node in self._nodes.values():
                for need in node.pods.values():
                    count.move(need, node.name, 1)
        return count


def _key(spread: Spread) -> _Key:
    return spread.namespace, encode(spread.selector)
