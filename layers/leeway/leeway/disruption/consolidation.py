"""Consolidation: fewer or cheaper nodes for the same pods.

First all nodes whose pods fit on the other nodes go, then the nodes that one cheaper node replaces.
For both, a quick draft counts resources only. Packing, which knows every constraint, confirms it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

import numpy as np

from leeway.disruption import reasons
from leeway.disruption.moves import Moving, Room, pods_of
from leeway.disruption.protection import Allowances
from leeway.disruption.rules import Cause
from leeway.disruption.snapshot import NodeReturn, OwnNode
from leeway.launch.prices import ROUNDING, Prices
from leeway.reasons import Reason, some
from leeway.selection.labels import CAPACITY_TYPES, RESERVED, SPOT
from leeway.selection.on_demand import Balances
from leeway.selection.packing.min_values import unmet_min_values
from leeway.selection.packing.plan import Plan, PlannedNode
from leeway.selection.packing.supply import UNKNOWN_PRICE, Candidate, Supply
from leeway.selection.pods import ExistingNode, NodePool, Pod, PodSpec
from leeway.selection.resources import Resources, printed
from leeway.selection.solver.problem import Bools

MOST_CONFIRMATIONS = 8
"""How often a draft is confirmed; the draft is halved where taking single nodes out does not
help."""


@dataclass(frozen=True, slots=True)
class SpareNodes:
    """Nodes that are not needed, in order, and the plan for their pods, of which `loose` lose
    preferences that hold where they are."""

    nodes: tuple[OwnNode, ...]
    plan: Plan
    loose: frozenset[str] = frozenset()


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
    drafted = _draft(candidates, others, most, in_all, moving.balances)
    loose: frozenset[str] = frozenset()
    for _ in range(MOST_CONFIRMATIONS):
        drafted = moving.keeping_shares(drafted)
        if not drafted:
            return None
        plan = moving.without(drafted, launch=False, loose=loose)
        homeless = {one.pod for one in plan.unschedulable}
        if not homeless:
            return SpareNodes(tuple(drafted), plan, loose & {pod.name for pod in pods_of(drafted)})
        if breaking := _worth_breaking(moving, drafted, homeless - loose):
            loose |= breaking
            continue
        kept = [one for one in drafted if not homeless & {m.pod.name for m in one.pods}]
        # Pods that have no place may be others' than those whose nodes take the place away.
        drafted = kept if len(kept) < len(drafted) else drafted[: len(drafted) // 2]
    return None


def _worth_breaking(
    moving: Moving, nodes: Iterable[OwnNode], homeless: Collection[str]
) -> frozenset[str]:
    """Return the pods without a place on nodes whose saving pays for breaking the preferences of
    these pods."""
    found: set[str] = set()
    for one in nodes:
        pods = [m.pod for m in one.pods if m.pod.name in homeless]
        hoping = [pod.name for pod in pods if moving.prefers(pod, one.node)]
        if hoping and moving.pays(one, broken=len(hoping)):
            found.update(hoping)
    return frozenset(found)


def _draft(
    candidates: Sequence[OwnNode],
    others: Sequence[ExistingNode],
    most: Mapping[str, int],
    in_all: int | None,
    balances: Balances,
) -> list[OwnNode]:
    """Draft which candidates can go, by resources, taints, node requirements and on-demand
    shares."""
    room = Room([*(one.node for one in candidates), *others])
    going: list[OwnNode] = []
    receiving: set[int] = set()
    left = dict(most)
    for row, one in enumerate(candidates):
        if len(going) == in_all:
            break
        after = balances.changed([one.node], -1)
        if row in receiving or not left[one.pool] or not balances.are_kept_by(after):
            continue
        taken = room.place([m.pod.spec for m in one.pods], row)
        if taken is not None:
            going.append(one)
            balances = after
            receiving |= taken
            left[one.pool] -= 1
    return going


LEAST_SPOT_TYPES = 15
"""Cheaper Spot types that one Spot node is replaced with: with fewer of them the cheapest, which is
interrupted the most, would be launched again and again. Source: Karpenter documentation, "Spot
consolidation"."""

GROUPS = (2, 3, 4, 5, 6, 8, 10, 13, 17, 22, 29, 38, 50, 65, 85, 100)
"""How many nodes of some pools, of one pool, or of one type in it, one node may replace together.
Whether it can is not monotone (three nodes may save where two do not), so each size is drafted: no
bisection."""

MOST_OF_TYPE = 10
"""How many nodes of one type are drafted together: drafts take time, and the next run goes on."""

MOST_SIMULATED, LEAST_SIMULATED = 10, 2
"""Replacements that are simulated in a run, at most and at least."""

NODES_SIMULATED = 1_000
"""Nodes of all simulations together: the time of one grows with the nodes of the cluster."""

TURN = timedelta(minutes=5)
"""How long the same ones are simulated: longer than a decision needs until it is confirmed."""


@dataclass(frozen=True, slots=True)
class _Draft:
    """Nodes that one node could replace, and the estimated gain in USD over the horizon."""

    nodes: tuple[OwnNode, ...]
    gain: float


@dataclass
class Replacements:
    """Replaces candidates. `kept` collects why candidates stay as they are."""

    moving: Moving
    kept: dict[str, Reason] = field(default_factory=dict)

    def best(
        self, candidates: Sequence[OwnNode], most: Mapping[str, int], in_all: int | None
    ) -> NodeReturn | None:
        """Return the replacement that gains the most; None if no draft of one is confirmed.

        `candidates` are ordered, the best prospects first. `most` is the number of nodes of each
        pool that may go, `in_all` that of the cluster, None for any number.
        """
        drafts = map(self._draft, self._groups(candidates, most, in_all))
        known = sorted((one for one in drafts if one is not None), key=_by_gain)
        for draft in self._in_turn(known):
            if found := self._simulated(draft.nodes):
                return found
            if len(draft.nodes) == 1:
                self._keep(draft.nodes[0])
        return None

    def _groups(
        self, candidates: Sequence[OwnNode], most: Mapping[str, int], in_all: int | None
    ) -> Iterable[Sequence[OwnNode]]:
        """Return single nodes and nodes that one may replace together, each combination once."""
        found: dict[tuple[str, ...], Sequence[OwnNode]] = {}
        for one in candidates:
            if most[one.pool]:
                found[(one.name,)] = [one]
        for alike, largest in (*_alike(candidates), *self._for_one_pool(candidates)):
            own = may_go_together(alike, most, in_all)[:largest]
            for group in (own[:size] for size in GROUPS if size <= len(own)):
                found[tuple(one.name for one in group)] = group
        return found.values()

    def _for_one_pool(
        self, candidates: Sequence[OwnNode]
    ) -> Iterator[tuple[Sequence[OwnNode], int]]:
        """Yield the nodes of several pools whose pods one pool could launch a node for."""
        if len({one.pool for one in candidates}) == 1:
            return
        kinds: dict[object, PodSpec] = {}
        asks = [{_kind_of_pod(m.pod.spec, kinds) for m in one.pods} for one in candidates]
        for pool in self.moving.snapshot.pools:
            taken = {key for key, spec in kinds.items() if _may_launch(pool, spec)}
            able = zip(candidates, asks, strict=True)
            yield [one for one, asked in able if asked <= taken], GROUPS[-1]

    def _keep(self, one: OwnNode) -> None:
        """Keep a node that was examined, unless a better reason is known."""
        why = reasons.NOTHING_CHEAPER(node=one.name, pods=len(one.pods))
        if closed := self.moving.closed:
            why = why.and_then(
                f"Nodes that start, or are inside their consolidateAfter, take none: {closed}."
            )
        self.kept.setdefault(one.name, why)

    def _in_turn(self, known: Sequence[_Draft]) -> Sequence[_Draft]:
        """Return the drafts that are simulated now."""
        affordable = NODES_SIMULATED // max(len(self.moving.nodes), 1)
        count = min(max(affordable, LEAST_SIMULATED), MOST_SIMULATED)
        return in_turn(known, count, self.moving.snapshot.now)

    def _draft(self, nodes: Sequence[OwnNode]) -> _Draft | None:
        draft = self._estimated(nodes)
        if draft is None and len(nodes) == 1:
            self._keep(nodes[0])
        return draft

    def _estimated(self, nodes: Sequence[OwnNode]) -> _Draft | None:
        specs = [movable.pod.spec for one in nodes for movable in one.pods]
        left = self._room.leftover(specs, [self._rows[one.name] for one in nodes])
        # If resources alone let all pods move, another constraint keeps at least one of them.
        holding = self._holding(left or specs[:1]) & ~self._same(nodes)
        if not holding.any():
            return None
        price, cheapest = _price(nodes), float(self._offers.prices[holding].min())
        if not self._pays(nodes, price - cheapest, price):
            return None
        if len(nodes) == 1 and not self._is_flexible(nodes[0], holding, cheapest):
            return None
        snapshot = self.moving.snapshot
        gain = snapshot.worth.gain(price - cheapest, len(specs), snapshot.quiet(nodes))
        return _Draft(tuple(nodes), gain)

    def _simulated(self, nodes: Sequence[OwnNode]) -> NodeReturn | None:
        """Return the replacement of nodes by one new node, if packing finds one that pays."""
        if found := self._on_one(nodes, frozenset()):
            return found
        hoping = (m.pod.name for one in nodes for m in one.pods if self._prefers(m.pod, one))
        return self._on_one(nodes, loose) if (loose := frozenset(hoping)) else None

    def _prefers(self, pod: Pod, one: OwnNode) -> bool:
        """Whether a pod of a node has preferences that a saving may break."""
        breakable = self.moving.snapshot.worth.per_preference is not None
        return breakable and self.moving.prefers(pod, one.node)

    def _on_one(self, nodes: Sequence[OwnNode], loose: frozenset[str]) -> NodeReturn | None:
        plan = self.moving.without(nodes, launch=True, loose=loose)
        if plan.unschedulable or len(plan.launches) != 1:
            return None
        (new,) = plan.launches
        if new.cheapest.price >= UNKNOWN_PRICE:
            return None  # the price of a plan leaves unknown prices out
        moves = sum(len(one.pods) for one in nodes)
        price = _price(nodes)
        if _kind(new.cheapest) in {_kind_of(one) for one in nodes}:
            return None
        if beyond := self._beyond_limit(nodes, new):
            self.kept |= dict.fromkeys((one.name for one in nodes if len(nodes) == 1), beyond)
            return None
        if not self.moving.balances.are_kept_by(self.moving.after(nodes, plan)):
            return None
        if not self._pays(nodes, price - plan.price, price, len(loose)):
            return None
        choice = self._choice(new)
        if len(nodes) == 1 and not self._is_flexible(nodes[0], choice, plan.price):
            return None
        if unmet := self._unmet_min_values(choice, price):
            if len(nodes) == 1:
                name, pool = nodes[0].name, new.pool
                self.kept[name] = reasons.TOO_FEW_CHEAPER(node=name, pool=pool, why=unmet)
            return None
        reason = reasons.NODES_REPLACEABLE(
            pods=moves,
            nodes=some([one.name for one in nodes]),
            type=new.cheapest.type.name,
            capacity_type=new.cheapest.offering.capacity_type,
            price=plan.price,
            saving=price - plan.price,
        )
        names, saving = tuple(one.name for one in nodes), price - plan.price
        return NodeReturn(
            names, Cause.UNDERUTILIZED, _with(reason, loose), saving, moves, True, loose
        )

    def _beyond_limit(self, nodes: Sequence[OwnNode], new: PlannedNode) -> Reason | None:
        """Return the limit in money that has no room for a new node when these go. At the prices
        of overlays it may cost less than they do, and more on the bill."""
        snapshot = self.moving.snapshot
        for limit in (one for one in snapshot.spending_limits if one.covers(new.pool)):
            prices = Prices(snapshot.catalog)
            gone = (one for one in nodes if limit.covers(one.pool))
            freed = sum(prices.of(o.instance_type, o.zone, o.capacity_type) for o in gone)
            price = prices.of_planned(new)
            if price > limit.left + freed + ROUNDING:
                return limit.reached(price)
        return None

    def _pays(self, nodes: Sequence[OwnNode], saving: float, price: float, broken: int = 0) -> bool:
        moves = sum(len(one.pods) for one in nodes)
        snapshot = self.moving.snapshot
        if snapshot.worth.pays_replacement(saving, price, moves, snapshot.quiet(nodes), broken):
            return True
        if len(nodes) == 1 and saving > 0:
            self.kept[nodes[0].name] = reasons.MOVE_NOT_WORTH(pods=moves, saving=saving)
        return False

    def _is_flexible(self, one: OwnNode, offered: Bools, price: float) -> bool:
        """Whether a Spot node is replaced by Spot only if enough Spot types are cheaper than it.
        Several nodes become fewer, so that they cannot go round in a circle."""
        supply, old = self._offers, one.price or 0.0
        spot = supply.capacity_types == CAPACITY_TYPES.index(SPOT)
        by_spot = (supply.prices[offered & spot] <= price).any()
        if one.capacity_type != SPOT or not by_spot:
            return True
        types = len(np.unique(supply.of_type[offered & spot & (supply.prices < old)]))
        if types >= LEAST_SPOT_TYPES:
            return True
        self.kept[one.name] = reasons.SPOT_NOT_FLEXIBLE(
            types=types, node=one.name, least=LEAST_SPOT_TYPES
        )
        return False

    def _unmet_min_values(self, choice: Bools, price: float) -> str | None:
        """Return which minValues of its pool a new node breaks if only offerings that cost less
        than the nodes it replaces are launched. Source: Karpenter,
        `RemoveInstanceTypeOptionsByPriceAndMinValues`."""
        cheaper = np.flatnonzero(choice & (self._offers.prices < price))
        return unmet_min_values(self._offers, cheaper)

    @cached_property
    def _offers(self) -> Supply:
        return self.moving.offers

    @cached_property
    def _room(self) -> Room:
        return Room(self.moving.nodes)

    @cached_property
    def _rows(self) -> Mapping[str, int]:
        return {node.name: row for row, node in enumerate(self.moving.nodes)}

    def _holding(self, specs: Sequence[PodSpec]) -> Bools:
        """The offerings on one node of which pods fit, by resources and node requirements: O."""
        total = _total(specs)
        names = sorted(total)
        found = np.ones(len(self._offers), dtype=bool)
        for name, held in zip(names, self._offers.capacity(names).T, strict=True):
            found &= held >= total.of(name)
        distinct = {(spec.terms, spec.tolerations, spec.ports): spec for spec in specs}
        for spec in distinct.values():
            found &= self._offers.allowed(spec, any_labels=True)
        return found

    def _same(self, nodes: Sequence[OwnNode]) -> Bools:
        """The offerings of the nodes' own types and capacity types, in any zone: O."""
        found = np.zeros(len(self._offers), dtype=bool)
        for kind in {_kind_of(one) for one in nodes}:
            found[self._of_kind.get(kind, [])] = True
        return found

    @cached_property
    def _of_kind(self) -> Mapping[tuple[str, str], list[int]]:
        """The positions of the offerings of each type and capacity type."""
        found: dict[tuple[str, str], list[int]] = {}
        for position, each in enumerate(self._offers.candidates):
            found.setdefault(_kind(each), []).append(position)
        return found

    def _choice(self, new: PlannedNode) -> Bools:
        """The offerings among which EC2 chooses the new node: O."""
        asked = {
            (new.pool, kind, choice.capacity_type, zone)
            for choice in new.choices
            for kind in choice.instance_types
            for zone in choice.zones
            if (kind, zone) not in choice.unusable
        }
        return np.array(
            [
                (each.pool.name, *_kind(each), each.offering.zone) in asked
                for each in self._offers.candidates
            ],
            dtype=bool,
        )


def in_turn[T](ordered: Sequence[T], count: int, now: datetime) -> Sequence[T]:
    """Return `count` candidates (at least 2): the first one, and others that change with the time,
    so that candidates which no simulation lets go do not keep the others from their turn."""
    if len(ordered) <= count:
        return ordered
    first, *others = ordered
    turn = int(now.timestamp() / TURN.total_seconds())
    start = turn * (count - 1) % len(others)
    return [first, *(others[start:] + others[:start])[: count - 1]]


def may_go_together(
    nodes: Iterable[OwnNode], most: Mapping[str, int], in_all: int | None
) -> list[OwnNode]:
    """Return the first nodes that may go together."""
    left, found = dict(most), list[OwnNode]()
    for one in nodes:
        if len(found) == in_all:
            break
        if left[one.pool]:
            left[one.pool] -= 1
            found.append(one)
    return found


def _kind_of_pod(spec: PodSpec, kinds: dict[object, PodSpec]) -> object:
    key = spec.terms, spec.tolerations
    kinds.setdefault(key, spec)
    return key


def _may_launch(pool: NodePool, spec: PodSpec) -> bool:
    if spec.untolerated(pool.taints, soft=True) is not None:
        return False
    return not spec.terms or any(map(pool.requirements.compatible, spec.terms))


def _alike(candidates: Iterable[OwnNode]) -> Iterator[tuple[Sequence[OwnNode], int]]:
    """Yield the nodes of each pool, those of one type, and those of one type in one zone, each in
    the given order, and how many of them are drafted together at most.

    A pool that grows pod by pod has many small nodes of one type, which one larger node replaces;
    pods that are spread over zones stay in theirs.
    """
    found: dict[tuple[str, ...], list[OwnNode]] = defaultdict(list)
    for one in candidates:
        of_type = (one.pool, *_kind_of(one))
        found[(one.pool,)].append(one)
        found[of_type].append(one)
        found[(*of_type, one.zone)].append(one)
    for key, nodes in found.items():
        yield nodes, GROUPS[-1] if len(key) == 1 else MOST_OF_TYPE


def _by_gain(draft: _Draft) -> tuple[float, tuple[str, ...]]:
    return -draft.gain, tuple(one.name for one in draft.nodes)


def _price(nodes: Iterable[OwnNode]) -> float:
    return sum(one.price or 0.0 for one in nodes)


def _kind(candidate: Candidate) -> tuple[str, str]:
    return candidate.type.name, candidate.offering.capacity_type


def _kind_of(one: OwnNode) -> tuple[str, str]:
    return one.instance_type, one.capacity_type


def _total(specs: Iterable[PodSpec]) -> Resources:
    total: dict[str, int] = {}
    for spec in specs:
        for name, amount in spec.requests.items():
            total[name] = total.get(name, 0) + amount
    return Resources(total)


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
        for one in ordered:
            if not self.moving.keeping_shares([one]):
                self.kept[one.name] = share_needs(one, self.moving)
        found = Replacements(self.moving, self.kept).best(ordered, most, self.allowances.left)
        return (found,) if found is not None else ()

    def _has_price(self, one: OwnNode) -> bool:
        if one.capacity_type == RESERVED:
            self.kept[one.name] = reasons.NODE_IS_RESERVED(node=one.name, pods=len(one.pods))
            return False
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
        return tuple(_not_needed(one, target_of, spare.loose) for one in spare.nodes)

    def _pays(self, one: OwnNode) -> bool:
        """Whether the price of a node is worth the moves of its pods, wherever they go."""
        pays = self.moving.pays(one)
        if not pays:
            self.kept[one.name] = reasons.MOVE_NOT_WORTH(
                pods=len(one.pods), saving=one.price or 0.0
            )
        return pays


def _not_needed(one: OwnNode, target_of: dict[str, str], loose: frozenset[str]) -> NodeReturn:
    loose &= {m.pod.name for m in one.pods}
    targets = list(dict.fromkeys(target_of[m.pod.name] for m in one.pods))
    saving, moves = one.price or 0.0, len(one.pods)
    reason = reasons.NODE_NOT_NEEDED(
        node=one.name, pods=moves, targets=some(targets), saving=saving
    )
    reason = _with(reason, loose)
    return NodeReturn((one.name,), Cause.UNDERUTILIZED, reason, saving, moves, loose=loose)


def _with(reason: Reason, loose: Collection[str]) -> Reason:
    return reason.and_then(f"Pods that lose preferences there: {len(loose)}.") if loose else reason


def share_needs(one: OwnNode, moving: Moving) -> Reason:
    """Return why the on-demand share of its pool needs a node."""
    balance = moving.balances.of[one.node.pool]
    return reasons.ON_DEMAND_SHARE(
        node=one.name,
        pool=one.pool,
        least=printed("cpu", balance.share.least(balance.total)),
        total=printed("cpu", balance.total),
        on_demand=printed("cpu", balance.on_demand),
    )


def prospect(one: OwnNode) -> tuple[float, str]:
    """Order candidates by what each saves for what its disruption costs, the most first. Source:
    Karpenter, `sortCandidates`."""
    return (-(one.price or 0) / one.disruption_cost, one.name)
