"""Consolidation: fewer or cheaper nodes for the same pods."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from leeway.capacity_return import reasons
from leeway.capacity_return.budgets import Allowances
from leeway.capacity_return.decision import NodeReturn
from leeway.capacity_return.moving import Moving
from leeway.capacity_return.replacements import Replacements
from leeway.capacity_return.rules import Cause
from leeway.capacity_return.snapshot import OwnNode
from leeway.capacity_return.spare_nodes import find_spare_nodes
from leeway.reasons import Reason


@dataclass
class Consolidation:
    """Consolidates candidates within `allowances`. `kept` collects why candidates stay as they
    are."""

    moving: Moving
    allowances: Allowances
    kept: dict[str, Reason] = field(default_factory=dict)

    def run(self, candidates: Sequence[OwnNode]) -> tuple[NodeReturn, ...]:
        """Return what is given back now: all nodes that are not needed, else the replacement that
        gains the most. The next run sees what became of it."""
        able = [one for one in candidates if self._has_price(one) and self._is_allowed(one)]
        ordered = sorted(able, key=prospect)
        pools = {one.pool for one in ordered}
        most = {name: self.allowances.left_in(name, Cause.UNDERUTILIZED) for name in pools}
        if spare := self._spare(ordered, most):
            return spare
        found = Replacements(self.moving, self.kept).best(ordered, most, self.allowances.left)
        return (found,) if found is not None else ()

    def _has_price(self, one: OwnNode) -> bool:
        if one.price is None:
            self.kept[one.name] = reasons.NODE_WITHOUT_PRICE(
                type=one.instance_type, capacity_type=one.capacity_type, zone=one.zone
            )
        return one.price is not None

    def _is_allowed(self, one: OwnNode) -> bool:
        if refused := self.allowances.why_not(one.pool, Cause.UNDERUTILIZED):
            self.kept[one.name] = refused
        return refused is None

    def _spare(self, candidates: Sequence[OwnNode], most: dict[str, int]) -> tuple[NodeReturn, ...]:
        paying = [one for one in candidates if self._pays(one)]
        names = {one.name for one in paying}
        others = [node for node in self.moving.nodes if node.name not in names]
        spare = find_spare_nodes(self.moving, paying, others, most, self.allowances.left)
        if spare is None:
            return ()
        target_of = {pod: place.node for place in spare.plan.existing for pod in place.pods}
        return tuple(_not_needed(one, target_of) for one in spare.nodes)

    def _pays(self, one: OwnNode) -> bool:
        """Whether the price of a node is worth the moves of its pods, wherever they go."""
        snapshot, price, moves = self.moving.snapshot, one.price or 0.0, len(one.pods)
        pays = snapshot.worth.pays(price, moves, snapshot.quiet([one]))
        if not pays:
            self.kept[one.name] = reasons.MOVE_NOT_WORTH(pods=moves, saving=price)
        return pays


def _not_needed(one: OwnNode, target_of: dict[str, str]) -> NodeReturn:
    targets = list(dict.fromkeys(target_of[m.pod.name] for m in one.pods))
    saving, moves = one.price or 0.0, len(one.pods)
    reason = reasons.NODE_NOT_NEEDED(
        node=one.name, pods=moves, targets=reasons.named(targets), saving=saving
    )
    return NodeReturn((one.name,), Cause.UNDERUTILIZED, reason, saving, moves)


def prospect(one: OwnNode) -> tuple[float, str]:
    """Order candidates by what each saves for each pod that moves, the most first."""
    return (-(one.price or 0) / (len(one.pods) + 1), one.name)
