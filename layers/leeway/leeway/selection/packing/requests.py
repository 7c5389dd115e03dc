"""Makes launch requests of packed nodes: the cheapest types that fit the pods, with their zones and
capacity types, ranked.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from leeway.reasons import Reason
from leeway.selection.labels import CAPACITY_TYPES, ON_DEMAND, SPOT
from leeway.selection.offers.catalog import OF_MARKETS
from leeway.selection.on_demand import Balances
from leeway.selection.packing.min_values import enough, too_few_types, unmet_min_values, value
from leeway.selection.packing.new_nodes import Limits, NewNode, load_of
from leeway.selection.packing.plan import POOL_LIMIT_REACHED, Choice, PlannedNode
from leeway.selection.packing.pod_classes import Classifier
from leeway.selection.packing.supply import UNKNOWN_PRICE, Candidate, Supply
from leeway.selection.resources import Resources
from leeway.selection.solver.problem import Bools, Ints

MAX_TYPES = 60
"""Maximum number of types in one request. EC2 Fleet accepts 300 overrides (types times subnets),
and further types would cost more than waiting. Source: Karpenter's MaxInstanceTypes."""


def rank(supply: Supply, feasible: Ints) -> tuple[Choice, ...]:
    """Rank the offerings of one pool that fit the pods of a node; at most one of them is reserved.

    The order of capacity types is reserved, spot, on-demand. A Spot offering that costs more than
    the cheapest on-demand offering is dropped, unless the pool has minValues, which may count it.
    Each capacity type has up to 60 types, the cheapest first, and as many label values as the
    minValues of the pool require.
    """
    usable = np.zeros(len(supply), dtype=bool)
    usable[feasible] = True
    return tuple(_choice(supply, found, usable) for found in _by_capacity_type(supply, feasible))


def _by_capacity_type(supply: Supply, feasible: Ints) -> Iterator[Ints]:
    """Yield the offerings of each capacity type that a request names, sorted by price."""
    feasible = supply.by_price(feasible)
    capped = not supply.candidates[feasible[0]].pool.has_min_values
    capacity_types = supply.capacity_types[feasible]
    on_demand = feasible[capacity_types == CAPACITY_TYPES.index(ON_DEMAND)]
    for number, capacity_type in enumerate(CAPACITY_TYPES):
        found = feasible[capacity_types == number]
        if capacity_type == SPOT and len(on_demand) and capped:
            found = found[supply.prices[found] <= supply.prices[on_demand[0]]]
        if len(found):
            yield found


def _choice(supply: Supply, found: Ints, usable: Bools) -> Choice:
    """The launch request for offerings of one capacity type that are sorted by price. `usable` (O)
    are all offerings that fit the pods."""
    types = supply.of_type[found]
    cheapest = found[_first_of_each(types, len(supply.type_names))]
    pool = supply.candidates[found[0]].pool
    wanted = {k: r.min_values for k, r in pool.requirements.items() if r.min_values}
    if len(cheapest) > MAX_TYPES:
        cheapest = _diverse(supply, cheapest, wanted) if wanted else cheapest[:MAX_TYPES]
    kept = np.zeros(len(supply.type_names), dtype=bool)
    kept[supply.of_type[cheapest]] = True
    zones = supply.zones[found[kept[types]]]
    price = float(supply.prices[found[0]])
    similar = kept[supply.of_type] & np.isin(supply.zones, zones) & ~usable & ~supply.reserved
    similar &= supply.capacity_types == supply.capacity_types[found[0]]
    similar &= supply.of_pool == supply.of_pool[found[0]]
    return Choice(
        CAPACITY_TYPES[supply.capacity_types[found[0]]],
        tuple(supply.type_names[i] for i in supply.of_type[cheapest]),
        tuple(supply.zone_names[i] for i in zones[_first_of_each(zones, len(supply.zone_names))]),
        None if price >= UNKNOWN_PRICE else price,
        supply.candidates[found[0]].offering.reservation,
        frozenset(
            (supply.type_names[supply.of_type[at]], supply.zone_names[supply.zones[at]])
            for at in np.flatnonzero(similar)
        ),
    )


def _first_of_each(numbers: Ints, count: int) -> Ints:
    """The positions at which each of the numbers below `count` occurs first, in their order."""
    first = np.full(count, len(numbers))
    first[numbers[::-1]] = np.arange(len(numbers))[::-1]  # the last assignment counts
    return np.sort(first[first < len(numbers)])


def _diverse(supply: Supply, cheapest: Ints, wanted: Mapping[str, int]) -> Ints:
    """The cheapest types, with places reserved for types that add a missing label value."""
    missing = {key: n for key, n in wanted.items() if key not in OF_MARKETS}
    available: dict[str, set[str]] = {key: set() for key in missing}
    kept: list[int] = []
    for at, index in enumerate(cheapest.tolist()):
        values = {key: value(supply.candidates[index], key) for key in missing}
        if any(len(available[k]) < missing[k] and v not in available[k] for k, v in values.items()):
            kept.append(at)
            for key, found in values.items():
                available[key].add(found)
    others = [at for at in range(len(cheapest)) if at not in set(kept)]
    return cheapest[sorted([*kept, *others][:MAX_TYPES])]


def meeting_min_values(
    nodes: Sequence[NewNode], classifier: Classifier, limits: Limits | None = None
) -> tuple[list[NewNode], dict[str, Reason]]:
    """Return the nodes, those with fewer types than the minValues of their pool need split until
    enough types fit, and the pods for which too few types exist, each with the reason. `limits` are
    those that other nodes leave: each node takes of them, in order, as much as the largest type
    that its minValues need. None: no limits, to compare prices."""
    supply = classifier.supply
    if not any(pool.has_min_values for pool in supply.pools):
        return list(nodes), {}
    if limits is not None:
        for node in nodes:
            if not supply.candidates[node.offering].pool.has_min_values:
                limits.take(supply.candidates[node.offering])
    kept: list[NewNode] = []
    rejected: dict[str, Reason] = {}
    waiting = list(reversed(nodes))
    while waiting:
        node = waiting.pop()
        found = _with_min_values(node, classifier, limits)
        if isinstance(found, NewNode):
            kept.append(found)
        elif halves := _halves(node, classifier):
            waiting += reversed(halves)
        else:
            rejected |= dict.fromkeys(_names(node), found)
    return kept, rejected


def _with_min_values(
    node: NewNode, classifier: Classifier, limits: Limits | None
) -> NewNode | Reason:
    """The node, counted in the limits with the largest of the types that its minValues need; on the
    cheapest other offering if its own has no room. Or why it cannot be launched."""
    supply = classifier.supply
    pool = supply.candidates[node.offering].pool
    if not pool.has_min_values:
        return node
    _, fitting = _fitting(node, classifier)
    if unmet := unmet_min_values(supply, fitting):
        return too_few_types({pool.name: unmet})
    if limits is None:
        return node
    names = _limited(node, classifier)
    left = np.array([limits.remaining[pool.name][name] for name in names])
    counted = classifier.limited(names)
    within = fitting[(counted[fitting] <= left).all(axis=1)]
    offering = _with_room(node, within, supply, limits)
    if offering is None:
        return POOL_LIMIT_REACHED()
    whole = np.maximum([(pool.limits or {})[name] for name in names], 1)
    sizes = (counted[within] / whole).max(axis=1, initial=0)
    smallest = np.array([offering, *within[np.argsort(sizes, kind="stable")]])
    needed = enough(supply, smallest)
    if needed is None:
        return POOL_LIMIT_REACHED()
    amounts = counted[smallest[: max(needed, 1)]].max(axis=0).astype(int).tolist()
    most = Resources(dict(zip(names, amounts, strict=True)))
    limits.take(supply.candidates[offering], most)
    return replace(node, offering=offering, most=most)


def _with_room(node: NewNode, within: Ints, supply: Supply, limits: Limits) -> int | None:
    """The offering of the node, or else the cheapest one without a reservation, that is `within`
    the limits and has room in its reservation."""
    if node.offering in within and limits.has_room(supply.candidates[node.offering]):
        return node.offering
    others = supply.by_price(within[~supply.reserved[within]])
    return int(others[0]) if len(others) else None


def make_requests(
    nodes: Sequence[NewNode], classifier: Classifier, balances: Balances | None = None
) -> list[PlannedNode]:
    """Return the planned nodes. `balances` are those of pools with an on-demand share: as many
    nodes as they need are on-demand."""
    supply = classifier.supply
    requests: dict[object, tuple[Candidate, tuple[Choice, ...]]] = {}
    launched: list[PlannedNode] = []
    offered: list[Ints] = []
    for node in nodes:
        key, feasible = _feasible(node, classifier)
        if key not in requests:
            usable = _usable(node, feasible, supply)
            requests[key] = supply.candidates[_first(supply, usable)], rank(supply, usable)
        cheapest, choices = requests[key]
        launched.append(PlannedNode(cheapest, _names(node), _requests(node), choices))
        offered.append(feasible)
    if balances is not None and balances.of:
        launched = _with_shares(launched, offered, supply, balances)
    return launched


def first_offerings(nodes: Sequence[NewNode], classifier: Classifier) -> list[int]:
    """Return the offering of each node that its request names first: a cheaper one than planned if
    the node lost pods."""
    supply = classifier.supply
    return [_first(supply, _usable(node, _feasible(node, classifier)[1], supply)) for node in nodes]


def _usable(node: NewNode, feasible: Ints, supply: Supply) -> Ints:
    """The feasible offerings without reservations, which have room for so many nodes: each is
    launched into the planned one."""
    found: Ints = feasible[~supply.reserved[feasible] | (feasible == node.offering)]
    return found


def _first(supply: Supply, usable: Ints) -> int:
    """The cheapest offering of the capacity type that is tried first."""
    return int(next(_by_capacity_type(supply, usable))[0])


def _with_shares(
    nodes: Sequence[PlannedNode], offered: Sequence[Ints], supply: Supply, balances: Balances
) -> list[PlannedNode]:
    """Return the nodes of which as many are on-demand as the shares of their pools require, those
    first whose CPU costs the least more. A node whose pods need Spot stays Spot: pods go first. No
    such node joins a reservation: those with room have the nodes that were planned for them."""
    found = list(nodes)
    for node in nodes:
        balances = _with(balances, node.cheapest)
    spot = supply.capacity_types == CAPACITY_TYPES.index(SPOT)
    changed: list[tuple[float, int, PlannedNode]] = []
    for at, (node, feasible) in enumerate(zip(nodes, offered, strict=True)):
        lasting = feasible[~spot[feasible] & ~supply.reserved[feasible]]
        if node.cheapest.offering.capacity_type != SPOT or not len(lasting):
            continue
        if (
            balances.missing(node.pool)
            and unmet_min_values(supply, feasible[~spot[feasible]]) is None
        ):
            cheapest = supply.candidates[_first(supply, lasting)]
            other = replace(node, cheapest=cheapest, choices=rank(supply, lasting))
            cpu = max(other.cheapest.type.capacity.of("cpu"), 1)
            changed.append(((other.cheapest.price - node.cheapest.price) / cpu, at, other))
    for _, at, other in sorted(changed, key=lambda each: each[:2]):
        if balances.missing(other.pool):
            balances = _with(_with(balances, found[at].cheapest, -1), other.cheapest)
            found[at] = other
    return found


def _with(balances: Balances, candidate: Candidate, sign: int = 1) -> Balances:
    capacity_type, cpu = candidate.offering.capacity_type, candidate.type.capacity.of("cpu")
    return balances.plus(candidate.pool.name, capacity_type, sign * cpu)


def _feasible(node: NewNode, classifier: Classifier) -> tuple[object, Ints]:
    """The offerings of the node's pool that fit its pods and use no more of the limits than the
    node may."""
    key, fitting = _fitting(node, classifier)
    names = _limited(node, classifier)
    if not names:
        return key, fitting
    counted = classifier.limited(names)
    most = counted[node.offering]
    if node.most is not None:
        most = np.array([node.most.of(name) for name in names], dtype=float)
    key = (key, most.tobytes())
    known = classifier.launchable
    if key not in known:
        known[key] = fitting[(counted[fitting] <= most).all(axis=1)]
    return key, known[key]


def _fitting(node: NewNode, classifier: Classifier) -> tuple[object, Ints]:
    """The offerings of the node's pool that fit its pods, whatever its limits."""
    requested = load_of(node, classifier)
    place = frozenset(classifier.place(batch) for batch, _ in node.batches)
    pool = classifier.supply.of_pool[node.offering]
    exotic = classifier.supply.exotic
    key = (
        requested.tobytes(),
        place,
        int(pool),
        bool(exotic[node.offering]),
        node.offering if classifier.supply.reserved[node.offering] else -1,
    )
    known = classifier.launchable
    if key not in known:
        # Pods that request no accelerator may share a node with one that does.
        of_pool: Bools = (classifier.supply.of_pool == pool) & (exotic == exotic[node.offering])
        feasible = classifier.holding(requested) & of_pool
        for batch, _ in node.batches:
            feasible &= classifier.fitting(batch, of_pool)
        known[key] = np.flatnonzero(feasible)
    return key, known[key]


def _limited(node: NewNode, classifier: Classifier) -> tuple[str, ...]:
    limits = classifier.supply.candidates[node.offering].pool.limits
    return tuple(limits) if limits else ()


def _names(node: NewNode) -> tuple[str, ...]:
    return tuple(name for _, units in node.batches for unit in units for name in unit)


def _requests(node: NewNode) -> Resources:
    total = Resources()
    for batch, units in node.batches:
        for group, pods in batch.parts:
            total = total + group.spec.requests.times(pods * len(units))
    return total


def _halves(node: NewNode, classifier: Classifier) -> list[NewNode]:
    """Two nodes, each with half of the units, on the cheapest offering; none if there is only one
    unit. A node in a reservation stays there."""
    units = [(batch, unit) for batch, units in node.batches for unit in units]
    if len(units) < 2:
        return []
    middle = len(units) // 2
    halves = [
        NewNode(node.offering, tuple((batch, (unit,)) for batch, unit in half))
        for half in (units[:middle], units[middle:])
    ]
    supply = classifier.supply
    if supply.reserved[node.offering]:
        return halves
    return [replace(half, offering=_cheapest_paid(half, classifier)) for half in halves]


def _cheapest_paid(node: NewNode, classifier: Classifier) -> int:
    """The cheapest offering without a reservation that fits the pods of a node."""
    supply = classifier.supply
    _, fitting = _fitting(node, classifier)
    return int(supply.by_price(fitting[~supply.reserved[fitting]])[0])
