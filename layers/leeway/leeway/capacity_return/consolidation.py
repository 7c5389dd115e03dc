"""Consolidation: fewer or cheaper nodes for the same pods."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from leeway.capacity_return import reasons
from leeway.capacity_return.budgets import Allowances
from leeway.capacity_return.decision import NodeReturn
from leeway.capacity_return.moving import Moving, pods_of
from leeway.capacity_return.rules import Cause
from leeway.capacity_return.snapshot import OwnNode
from leeway.capacity_return.spare_nodes import find_spare_nodes
from leeway.reasons import Reason
from leeway.selection.labels import SPOT
from leeway.selection.packing.plan import PlannedNode
from leeway.selection.packing.supply import UNKNOWN_PRICE

LEAST_SPOT_TYPES = 15
"""Cheaper Spot types that one Spot node is replaced with: with fewer of them the cheapest, which is
interrupted the most, would be launched again and again. Source: Karpenter documentation, "Spot
consolidation"."""

MOST_TOGETHER = 100
"""Nodes that one node may replace: more of them are found by the next runs."""

MOST_SINGLE = 20
"""Nodes whose replacement by one node is simulated in a run, the best prospects first."""


@dataclass
class Consolidation:
    """Consolidates candidates within `allowances`. `kept` collects why candidates stay as they
    are."""

    moving: Moving
    allowances: Allowances
    kept: dict[str, Reason] = field(default_factory=dict)

    def run(self, candidates: Sequence[OwnNode]) -> tuple[NodeReturn, ...]:
        """Return what is given back now: all nodes that are not needed, else the replacement that
        saves the most nodes. The next run sees what became of it."""
        known = [one for one in candidates if self._has_price(one)]
        ordered = sorted(known, key=prospect)
        if spare := self._spare(ordered):
            return spare
        replacement = self._many_to_one(ordered) or self._one_to_one(ordered)
        return (replacement,) if replacement is not None else ()

    def _has_price(self, one: OwnNode) -> bool:
        if one.price is None:
            self.kept[one.name] = reasons.NODE_WITHOUT_PRICE(
                type=one.instance_type, capacity_type=one.capacity_type, zone=one.zone
            )
        return one.price is not None

    def _spare(self, candidates: Sequence[OwnNode]) -> tuple[NodeReturn, ...]:
        worth = self.moving.snapshot.worth
        paying = [one for one in candidates if worth.pays(one.price or 0, len(one.pods))]
        names = {one.name for one in paying}
        own = [one.node for one in self.moving.snapshot.own if one.name not in names]
        others = [*self.moving.snapshot.others, *own]
        pools = {one.pool for one in paying}
        most = {name: self.allowances.left_in(name, Cause.UNDERUTILIZED) for name in pools}
        spare = find_spare_nodes(self.moving, paying, others, most)
        if spare is None:
            return ()
        found = []
        target_of = {pod: place.node for place in spare.plan.existing for pod in place.pods}
        for one in spare.nodes:
            if refused := self._refused(one):
                self.kept[one.name] = refused
                continue
            targets = list(dict.fromkeys(target_of[m.pod.name] for m in one.pods))
            reason = reasons.NODE_NOT_NEEDED(
                node=one.name,
                pods=len(one.pods),
                targets=_named(targets),
                saving=one.price,
            )
            returned = NodeReturn(
                (one.name,), Cause.UNDERUTILIZED, reason, one.price or 0, len(one.pods)
            )
            found.append(returned)
        return tuple(found)

    def _many_to_one(self, candidates: Sequence[OwnNode]) -> NodeReturn | None:
        """Replace as many of the first candidates as one node can: by bisection, as each simulation
        plans for all of their pods."""
        best: NodeReturn | None = None
        least, most = 2, min(len(candidates), MOST_TOGETHER)
        while least <= most:
            middle = (least + most) // 2
            found = self._replacement(candidates[:middle])
            if found is None:
                most = middle - 1
            else:
                best, least = found, middle + 1
        return best if best is not None and self._all_allowed(best, candidates) else None

    def _one_to_one(self, candidates: Sequence[OwnNode]) -> NodeReturn | None:
        for one in candidates[:MOST_SINGLE]:
            found = self._replacement([one])
            if found is None:
                self.kept.setdefault(
                    one.name, reasons.NOTHING_CHEAPER(node=one.name, pods=len(one.pods))
                )
            elif self._all_allowed(found, [one]):
                return found
        return None

    def _all_allowed(self, found: NodeReturn, candidates: Sequence[OwnNode]) -> bool:
        by_name = {one.name: one for one in candidates}
        for name in found.nodes:
            if refused := self._refused(by_name[name]):
                self.kept[name] = refused
                return False
        return True

    def _refused(self, one: OwnNode) -> Reason | None:
        return self.allowances.take(one.pool, Cause.UNDERUTILIZED)

    def _replacement(self, nodes: Sequence[OwnNode]) -> NodeReturn | None:
        """Return the replacement of nodes by one new node, if there is one that pays."""
        plan = self.moving.without({one.name for one in nodes}, pods_of(nodes), launch=True)
        if plan.unschedulable or len(plan.launches) != 1:
            return None
        (new,) = plan.launches
        if new.cheapest.price >= UNKNOWN_PRICE:
            return None  # the price of a plan leaves unknown prices out
        price, moves = sum(one.price or 0 for one in nodes), sum(len(one.pods) for one in nodes)
        saving = price - plan.price
        if not self.moving.snapshot.worth.pays_replacement(saving, price, moves):
            if len(nodes) == 1 and saving > 0:
                self.kept[nodes[0].name] = reasons.MOVE_NOT_WORTH(pods=moves, saving=saving)
            return None
        if not self._is_flexible(nodes, new):
            return None
        choice = new.choices[0]
        reason = reasons.NODES_REPLACEABLE(
            pods=moves,
            nodes=_named([one.name for one in nodes]),
            type=choice.instance_types[0],
            capacity_type=choice.capacity_type,
            price=plan.price,
            saving=saving,
        )
        names = tuple(one.name for one in nodes)
        return NodeReturn(names, Cause.UNDERUTILIZED, reason, saving, moves, replaced=True)

    def _is_flexible(self, nodes: Sequence[OwnNode], new: PlannedNode) -> bool:
        """Whether a Spot node is replaced with enough other Spot types. Several nodes become fewer,
        so that they cannot go round in a circle."""
        choice = new.choices[0]
        spot = choice.capacity_type == SPOT and nodes[0].capacity_type == SPOT
        if len(nodes) > 1 or not spot or len(choice.instance_types) >= LEAST_SPOT_TYPES:
            return True
        self.kept[nodes[0].name] = reasons.SPOT_NOT_FLEXIBLE(
            types=len(choice.instance_types), node=nodes[0].name, least=LEAST_SPOT_TYPES
        )
        return False


def prospect(one: OwnNode) -> tuple[float, str]:
    """Order candidates by what each saves for each pod that moves, the most first."""
    return (-(one.price or 0) / (len(one.pods) + 1), one.name)


def _named(names: Sequence[str], most: int = 3) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
