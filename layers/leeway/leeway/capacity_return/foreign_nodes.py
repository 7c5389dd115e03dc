"""Nodes that somebody else launched: what could be saved with them. Leeway does nothing to them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from leeway.capacity_return import reasons
from leeway.capacity_return.consolidation import prospect
from leeway.capacity_return.moving import Moving
from leeway.capacity_return.protection import Blocker, protections, why_protected
from leeway.capacity_return.rules import ReturnRules
from leeway.capacity_return.snapshot import OwnNode, Snapshot
from leeway.capacity_return.spare_nodes import find_spare_nodes
from leeway.instances.owners import Owner, OwnerKind
from leeway.printable import printable
from leeway.reasons import Reason


@dataclass(frozen=True, slots=True)
class GroupSize:
    """The minimum and the desired capacity of an Auto Scaling group, in its own units, and how many
    units one of its instances is."""

    minimum: int
    desired: int
    units: int = 1


@dataclass(frozen=True, slots=True)
class ForeignNode:
    """A node of another owner. `node` is among `others` of the snapshot; its pool is not used."""

    one: OwnNode
    owner: Owner

    @property
    def name(self) -> str:
        """The name of its Node."""
        return self.one.name

    @property
    def reason(self) -> Reason:
        """Why Leeway does nothing to it."""
        if self.owner.kind is OwnerKind.LEEWAY:
            return reasons.NODE_NOT_CONFIRMED(node=self.name, pool=printable(self.owner.name))
        if self.owner.kind is OwnerKind.NONE:
            return reasons.NODE_WITHOUT_OWNER(node=self.name)
        return reasons.NODE_OF_OTHER_OWNER(node=self.name, owner=title_of(self.owner))


@dataclass(frozen=True, slots=True)
class SpareInGroup:
    """The nodes of one Auto Scaling group whose pods fit on the other nodes of the cluster.

    `saving` is in USD per hour, without the nodes whose price is not known (`without_price`).
    `size` is None if it is not known.
    """

    group: str
    nodes: tuple[str, ...]
    saving: float
    without_price: int = 0
    size: GroupSize | None = None

    @property
    def lower_minimum(self) -> int | None:
        """The minimum that the group has to get before all of these nodes can go; None if the
        present one allows it, or is not known."""
        if self.size is None:
            return None
        left = max(self.size.desired - len(self.nodes) * self.size.units, 0)
        return left if left < self.size.minimum else None


_TITLES = {
    OwnerKind.AUTO_SCALING_GROUP: "Auto Scaling group",
    OwnerKind.MANAGED_NODE_GROUP: "managed node group",
    OwnerKind.AUTO_MODE: "EKS Auto Mode",
    OwnerKind.KARPENTER: "Karpenter",
    OwnerKind.LEEWAY: "pool",
    OwnerKind.FARGATE: "Fargate",
    OwnerKind.NONE: "no known owner",
}


def title_of(owner: Owner) -> str:
    """Return an owner as a part of a sentence, on one printable line."""
    return f"{_TITLES[owner.kind]} {printable(owner.name)}".strip()


def as_kept(snapshot: Snapshot, foreign: Sequence[ForeignNode]) -> Snapshot:
    """Return the snapshot with these nodes as nodes of pools without rules: they are kept, and it
    is known which pods they have."""
    names = {one.name for one in foreign}
    own = (replace(one.one, pool=_key(one.owner)) for one in foreign)
    others = tuple(node for node in snapshot.others if node.name not in names)
    return replace(snapshot, own=(*snapshot.own, *own), others=others)


def spare_in_groups(
    end: Snapshot, foreign: Sequence[ForeignNode], sizes: Mapping[str, GroupSize]
) -> tuple[SpareInGroup, ...]:
    """Return the groups that could be smaller, those that save most first. `end` is a snapshot
    with these nodes `as_kept`."""
    groups = [one for one in foreign if one.owner.kind is OwnerKind.AUTO_SCALING_GROUP]
    spare = spare_among(groups, end)
    by_group: dict[str, list[OwnNode]] = {}
    for one in groups:
        if one.name in spare:
            by_group.setdefault(one.owner.name, []).append(spare[one.name])
    found = [_of_group(name, nodes, sizes.get(name)) for name, nodes in by_group.items()]
    return tuple(sorted(found, key=lambda one: (-one.saving, one.group)))


def _of_group(group: str, nodes: Sequence[OwnNode], size: GroupSize | None) -> SpareInGroup:
    return SpareInGroup(
        group=group,
        nodes=tuple(one.name for one in nodes),
        saving=sum(one.price or 0.0 for one in nodes),
        without_price=sum(one.price is None for one in nodes),
        size=size,
    )


def spare_among(foreign: Iterable[ForeignNode], end: Snapshot) -> dict[str, OwnNode]:
    """Return the nodes, by name, that nothing protects and whose pods fit on all other nodes
    together: as if they were Leeway's, and the others had to stay."""
    asked, keys = _as_candidates(foreign, end)
    moving = Moving(asked)
    candidates = [
        one
        for one in asked.own
        if one.name in keys
        and one.ready
        and why_protected(one, asked) is None
        and not moving.expected.get(one.name)
        and (one.price is None or asked.worth.pays(one.price, len(one.pods), asked.quiet([one])))
    ]
    names = {one.name for one in candidates}
    staying = [one.node for one in asked.own if one.name not in names and not one.going]
    most = {keys[name]: len(names) for name in names}
    ordered = sorted(candidates, key=prospect)
    spare = find_spare_nodes(moving, ordered, [*asked.others, *staying], most, None)
    return {one.name: one for one in spare.nodes} if spare else {}


def protecting(foreign: ForeignNode, end: Snapshot) -> tuple[Blocker, ...]:
    """Return what protects a node besides its owner."""
    asked, _ = _as_candidates([foreign], end)
    one = next(each for each in asked.own if each.name == foreign.name)
    return tuple(protections(one, asked))


def _as_candidates(
    foreign: Iterable[ForeignNode], end: Snapshot
) -> tuple[Snapshot, dict[str, str]]:
    """Return the snapshot in which only these nodes may go, and the pool of each of them."""
    keys = {one.name: _key(one.owner) for one in foreign}
    rules = ReturnRules(after=timedelta(0), budgets=())
    return replace(end, rules=dict.fromkeys(keys.values(), rules)), keys


def _key(owner: Owner) -> str:
    """The name of the pool that stands for an owner. Names of pools have no spaces."""
    return f"{owner.kind} {owner.name}"
