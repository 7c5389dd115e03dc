"""Finds nodes whose pods fit on the other nodes: all of them in one plan.

A quick draft counts resources only. Packing, which knows every constraint, then confirms it, and
the nodes of pods that it does not place are taken out of the draft until it places all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leeway.capacity_return.moving import Moving, pods_of
from leeway.capacity_return.room import Room
from leeway.capacity_return.snapshot import OwnNode
from leeway.selection.packing.plan import Plan
from leeway.selection.pods import ExistingNode

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
    in_all: int | None,
) -> SpareNodes | None:
    """Return the nodes, the first candidates first, whose pods fit on nodes that stay; None if
    there are none. `others` are the nodes that stay in any case, `most` the number of nodes of each
    pool that may go, `in_all` that of the cluster, None for any number."""
    drafted = _draft(candidates, others, most, in_all)
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
    candidates: Sequence[OwnNode],
    others: Sequence[ExistingNode],
    most: Mapping[str, int],
    in_all: int | None,
) -> list[OwnNode]:
    """Draft which candidates can go, by resources, taints and node requirements."""
    room = Room([*(one.node for one in candidates), *others])
    going: list[OwnNode] = []
    receiving: set[int] = set()
    left = dict(most)
    for row, one in enumerate(candidates):
        if len(going) == in_all:
            break
        if row in receiving or not left[one.pool]:
            continue
        taken = room.place([m.pod.spec for m in one.pods], row)
        if taken is not None:
            going.append(one)
            receiving |= taken
            left[one.pool] -= 1
    return going
