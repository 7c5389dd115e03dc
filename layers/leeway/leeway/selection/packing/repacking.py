"""Packs the new nodes that hold least for their price once more, and keeps what is cheaper."""

from collections.abc import Callable, Sequence

import numpy as np

from leeway.selection.packing.groups import Lot
from leeway.selection.packing.kinds import Sorter
from leeway.selection.packing.launching import NewNode, load_of
from leeway.selection.packing.requests import finish

SHARES = (0.15, 0.15)
"""The part of the nodes that is packed again, turn by turn."""

FEWEST = 12

type Launching = Callable[[Sequence[Lot]], list[NewNode] | None]
"""Packs lots onto new nodes; None where some find no place."""


def repack(nodes: list[NewNode], sorter: Sorter, launching: Launching) -> list[NewNode]:
    """Return nodes for the same pods that cost no more."""
    for share in SHARES:
        count = max(FEWEST, round(share * len(nodes)))
        if count >= len(nodes):
            return nodes
        ranked = _ranked(nodes, sorter)
        worst, kept = ranked[:count], ranked[count:]
        again = launching(_lots(worst))
        if again is not None and _price(again, sorter) < _price(worst, sorter) - 1e-9:
            nodes = [*kept, *again]
    return nodes


def _ranked(nodes: Sequence[NewNode], sorter: Sorter) -> list[NewNode]:
    """Those first whose pods ask for least of what all ask for, for the price."""
    asked = np.array([load_of(node, sorter) for node in nodes])
    part = (asked / np.maximum(asked.sum(axis=0), 1)).sum(axis=1)
    prices = sorter.supply.prices[[node.offering for node in nodes]]
    order = np.argsort(part / np.maximum(prices, 1e-12), kind="stable")
    return [nodes[at] for at in order]


def _lots(nodes: Sequence[NewNode]) -> list[Lot]:
    """The lots of nodes, those of one lot together again."""
    found: dict[object, Lot] = {}
    for node in nodes:
        for lot, units in node.load:
            key = (lot.zone, tuple(id(group) for group, _ in lot.parts))
            known = found.get(key)
            found[key] = lot.having((*known.units, *units) if known else units)
    return list(found.values())


def _price(nodes: Sequence[NewNode], sorter: Sorter) -> float:
    return sum(node.cheapest.price for node in finish(nodes, sorter)[0])
