"""Which nodes a rehearsal loses: a share, nodes by name, a zone, an instance type, a group."""

import math
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from leeway.printable import printable

from leeway_cli.rehearse.cluster import NodeFacts

_PERCENT = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)%", re.ASCII)
_MOST_NAMED = 12

_KINDS: dict[str, Callable[[NodeFacts], tuple[str, ...]]] = {
    "zone": lambda node: (node.zone,),
    "type": lambda node: (node.instance_type,),
    "group": lambda node: node.groups,
}


class UnknownLoss(ValueError):
    """A loss that is invalid, or that no node matches. Its text is what was expected."""


@dataclass(frozen=True, slots=True)
class Losses:
    """The nodes that are lost in every round (`named`), and how many others a round draws."""

    named: frozenset[str]
    drawn: int
    nodes: tuple[str, ...]

    def draw(self, rng: random.Random) -> frozenset[str]:
        """Return the lost nodes of one round."""
        others = [name for name in self.nodes if name not in self.named]
        return self.named | set(rng.sample(others, min(self.drawn, len(others))))


def read_losses(given: Sequence[str], nodes: Iterable[NodeFacts]) -> Losses:
    """Read the values of --lose: `30%`, a node, `zone/NAME`, `type/NAME`, `group/NAME`, or several
    of these with commas.

    Raises:
        UnknownLoss: a value is invalid, or no node matches it.
    """
    known = sorted(nodes, key=lambda node: node.name)
    values = [value.strip() for one in given for value in one.split(",") if value.strip()]
    if not values:
        raise UnknownLoss("a share such as 30%, a node, zone/NAME, type/NAME or group/NAME")
    named: set[str] = set()
    drawn = 0
    for value in values:
        if "%" in value:
            drawn += _count(value, len(known))
        else:
            named |= _matching(value, known)
    return Losses(frozenset(named), drawn, tuple(node.name for node in known))


def _count(value: str, nodes: int) -> int:
    """Return how many nodes a share is; a share is at least one node."""
    found = _PERCENT.fullmatch(value)
    if found is None or not 0 < float(found[1]) <= 100:
        raise UnknownLoss(f"a share above 0% and up to 100%, got {printable(value)}")
    return max(1, math.floor(nodes * float(found[1]) / 100 + 0.5))


def _matching(value: str, nodes: Sequence[NodeFacts]) -> set[str]:
    kind, slash, name = value.partition("/")
    if slash and kind not in _KINDS:
        raise UnknownLoss(f"zone/NAME, type/NAME, group/NAME or a node, got {printable(value)}")
    values_of = _KINDS[kind] if slash else _name
    found = {node.name for node in nodes if (name if slash else value) in values_of(node)}
    if found and (name if slash else value):
        return found
    there = sorted({one for node in nodes for one in values_of(node) if one})
    what = {"zone": "a zone", "type": "an instance type", "group": "a node group or pool"}
    expected = f"{what[kind]} of the nodes" if slash else "a node of the cluster"
    raise UnknownLoss(f"{expected} ({_listed(there, name or value)}), got {printable(value)}")


def _name(node: NodeFacts) -> tuple[str, ...]:
    return (node.name,)


def _listed(there: Sequence[str], wanted: str) -> str:
    """List what there is; of many names, the most similar first."""
    if not there:
        return "no node has a label that names one"
    similar = get_close_matches(wanted, there, n=3, cutoff=0.6)
    names = [*similar, *(one for one in there if one not in similar)]
    names = names if len(names) > _MOST_NAMED else list(there)
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(map(printable, names[:_MOST_NAMED])) + more
