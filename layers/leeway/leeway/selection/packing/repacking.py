"""Packs the least efficient new nodes again and keeps the cheaper result."""

from collections.abc import Callable, Sequence

import numpy as np

from leeway.selection.packing.new_nodes import NewNode, load_of
from leeway.selection.packing.pod_classes import Classifier
from leeway.selection.packing.pod_groups import PodBatch
from leeway.selection.packing.requests import make_requests

SHARES = (0.15, 0.15)
"""The share of the nodes that is packed again in each round."""

MIN_NODES = 12

type Pack = Callable[[Sequence[PodBatch]], list[NewNode] | None]
"""Packs batches onto new nodes; None if some batch remains."""


def repack(nodes: list[NewNode], classifier: Classifier, pack: Pack) -> list[NewNode]:
    """Return nodes for the same pods that cost no more."""
    for share in SHARES:
        count = max(MIN_NODES, round(share * len(nodes)))
        if count >= len(nodes):
            return nodes
        ranked = _ranked(nodes, classifier)
        worst, kept = ranked[:count], ranked[count:]
        again = pack(_lots(worst))
        if again is not None and _price(again, classifier) < _price(worst, classifier) - 1e-9:
            nodes = [*kept, *again]
    return nodes


def _ranked(nodes: Sequence[NewNode], classifier: Classifier) -> list[NewNode]:
    """The nodes in the order of their pods' share of all requests per price, the lowest first."""
    requested = np.array([load_of(node, classifier) for node in nodes])
    part = (requested / np.maximum(requested.sum(axis=0), 1)).sum(axis=1)
    prices = classifier.supply.prices[[node.offering for node in nodes]]
    order = np.argsort(part / np.maximum(prices, 1e-12), kind="stable")
    return [nodes[at] for at in order]


def _lots(nodes: Sequence[NewNode]) -> list[PodBatch]:
    """The batches of nodes, merged if they were one batch."""
    found: dict[object, PodBatch] = {}
    for node in nodes:
        for batch, units in node.batches:
            key = (batch.zone, tuple(id(group) for group, _ in batch.parts))
            known = found.get(key)
            found[key] = batch.having((*known.units, *units) if known else units)
    return list(found.values())


def _price(nodes: Sequence[NewNode], classifier: Classifier) -> float:
    return sum(node.cheapest.price for node in make_requests(nodes, classifier)[0])
