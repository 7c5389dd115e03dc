"""A plan → requests for EC2 fleets of type instant.

Planned nodes with the same choices are one request for several instances.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby, islice
from math import inf, isnan
from typing import Protocol

from leeway.selection.labels import ON_DEMAND, RESERVED, SPOT, WELL_KNOWN
from leeway.selection.offers.allocatable import NodeClass
from leeway.selection.offers.catalog import Catalog, Unavailable
from leeway.selection.offers.machines import EFA
from leeway.selection.offers.reservations import CHEAPER, ReservedCapacity
from leeway.selection.packing.plan import Choice, Plan, PlannedNode
from leeway.selection.pods import NodePool


@dataclass(frozen=True, slots=True)
class FleetInstance:
    """An instance that a fleet launched. `reservation` is the one that it was launched into."""

    instance: str
    instance_type: str
    zone: str
    capacity_type: str
    reservation: ReservedCapacity | None = None


@dataclass(frozen=True, slots=True)
class Override:
    """An instance type in a subnet, and the subnet's zone. The lower its `priority`, the sooner EC2
    launches it; None lets EC2 choose by its own prices."""

    instance_type: str
    zone: str
    subnet: str
    priority: float | None = None


@dataclass(frozen=True, slots=True)
class FleetError:
    """An error of one override of a fleet, or of the whole call (`override` is None). `reservation`
    is the id of the one that the fleet requests."""

    code: str
    message: str
    capacity_type: str
    override: Override | None = None
    reservation: str = ""


@dataclass(frozen=True, slots=True)
class FleetAnswer:
    """The instances that a fleet launched, and the errors of its overrides."""

    instances: tuple[FleetInstance, ...]
    errors: tuple[FleetError, ...] = ()


@dataclass(frozen=True, slots=True)
class TemplateOverrides:
    """A launch template, and the overrides that boot with it. `template` is its name until it is
    created, and then its id."""

    template: str
    overrides: tuple[Override, ...]


@dataclass(frozen=True, slots=True)
class FleetRequest:
    """A request for `count` instances; EC2 may launch fewer. `capacity_type` is spot, on-demand or
    reserved, with the `reservation` that the templates name; `tags` are those of instances and
    volumes."""

    capacity_type: str
    count: int
    templates: tuple[TemplateOverrides, ...]
    tags: Mapping[str, str]
    reservation: ReservedCapacity | None = None

    @property
    def overrides(self) -> tuple[Override, ...]:
        """All overrides."""
        return tuple(one for each in self.templates for one in each.overrides)

    @property
    def prioritized(self) -> bool:
        """Whether EC2 launches by the priorities of the overrides."""
        return any(one.priority is not None for one in self.overrides)


class Fleets(Protocol):
    """Fleets of EC2 of type instant."""

    def create(self, request: FleetRequest, token: str) -> FleetAnswer:
        """Launch instances; the same request with the same token launches nothing again. A call
        that EC2 refuses is an answer with an error that has no override.

        Raises:
            CloudUnavailable: the instances may have been launched: repeat the call.
        """
        ...

    def launched_by(self, intent: str) -> Sequence[FleetInstance]:
        """List the instances with the tag of an intent that start or run."""
        ...

    def alive(self, instances: Collection[str]) -> frozenset[str]:
        """Return those of some instances that start or run."""
        ...


MOST_OVERRIDES = 300

LOWEST_PRIORITY = 1e5
"""The priority of an offering without a known price."""

MOST_TEMPLATES = 50
"""Overrides and launch templates of one request. Sources: EC2 user guide, "EC2 Fleet and Spot Fleet
quotas"; EC2 API reference, CreateFleet."""

MOST_NAMED = 200_000
"""Bytes of the pods and instances of one request. Its launch intent names them all, beside the
request itself, and is one item of the table: 400 KB at most."""

_PER_INSTANCE = 500
"""Bytes of an instance in a launch intent: what it is, the one that it replaces, and that its
admission was started."""


@dataclass(frozen=True, slots=True)
class LaunchGroup:
    """Planned nodes of one pool that have the same choices, so that each is any of them. Their pods
    request EFAs on each of them or on none. One launch intent can name all their pods."""

    pool: NodePool
    nodes: tuple[PlannedNode, ...]

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The choices of each node."""
        return self.nodes[0].choices

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of every node: the pool's, and those of which its requirements leave one
        value."""
        required = {
            key: next(iter(requirement.values))
            for key, requirement in self.pool.requirements.items()
            if not requirement.complement and len(requirement.values) == 1
        }
        own = {key: value for key, value in required.items() if key not in WELL_KNOWN}
        return {**own, **self.pool.labels}

    @property
    def efa(self) -> bool:
        """Whether pods request EFAs."""
        return bool(self.nodes[0].requests.of(EFA))

    @property
    def promised(self) -> tuple[str, ...]:
        """The resources that only overlays promise and that pods request."""
        overlays = self.pool.node_class.overlays
        names = {name for one in overlays for name in one.capacity}
        return tuple(sorted(names & {name for node in self.nodes for name in node.requests}))

    @property
    def pods(self) -> tuple[str, ...]:
        """The pods that the nodes are planned for."""
        return tuple(pod for node in self.nodes for pod in node.pods)


@dataclass(frozen=True, slots=True)
class Selected:
    """The overrides of a choice, in the order of preference."""

    choice: Choice
    overrides: tuple[Override, ...]


class Offers:
    """Prices of a catalog's offerings that are available, at which Leeway compares them: those of
    the overlays of a node class, or else those of AWS."""

    def __init__(
        self,
        catalog: Catalog,
        unavailable: Sequence[Unavailable] = (),
        node_class: NodeClass | None = None,
    ) -> None:
        self._index = catalog.index
        table = catalog.for_node_class(node_class or NodeClass(), unavailable)
        self._markets = {
            (market.zone, market.capacity_type): (market, available)
            for market, available in table.markets
        }
        plain = catalog.for_node_class(NodeClass()).markets
        self._plain = {(one.zone, one.capacity_type): one.prices for one, _ in plain}

    def price(self, instance_type: str, zone: str, capacity_type: str) -> float | None:
        """Return USD per hour, infinity if the price is unknown; None if it is not available.
        Reserved capacity is paid for anyway: its price only orders it."""
        reserved = capacity_type == RESERVED
        key = (zone, ON_DEMAND if reserved else capacity_type)
        market, available = self._markets.get(key, (None, 0))
        index = self._index.get(instance_type)
        if market is None or index is None or not available >> index & 1:
            return 0.0 if reserved else None
        price = market.prices[index]
        if reserved:
            return 0.0 if isnan(price) else price / CHEAPER
        return inf if isnan(price) else price

    def is_overlaid(self, override: Override, capacity_type: str) -> bool:
        """Whether an overlay sets the price of an available offering."""
        kind, place = override.instance_type, (override.zone, capacity_type)
        plain = self._plain[place][self._index[kind]]
        return self.price(kind, *place) != (inf if isnan(plain) else plain)


def groups_of(plan: Plan) -> tuple[LaunchGroup, ...]:
    """Group the planned nodes of a plan, in its order. Users choose the names of pods: equal nodes
    become several groups if one launch intent can't name all their pods."""
    found: dict[tuple[NodePool, tuple[Choice, ...], bool], list[PlannedNode]] = {}
    for node in plan.launches:
        key = (node.cheapest.pool, node.choices, bool(node.requests.of(EFA)))
        found.setdefault(key, []).append(node)
    return tuple(
        LaunchGroup(pool, part) for (pool, _, _), nodes in found.items() for part in _parts(nodes)
    )


def _parts(nodes: Iterable[PlannedNode]) -> Iterator[tuple[PlannedNode, ...]]:
    part, named = list[PlannedNode](), 0
    for node in nodes:
        size = _PER_INSTANCE + sum(len(f'"{pod}",') for pod in node.pods)
        if part and named + size > MOST_NAMED:
            yield tuple(part)
            part, named = [], 0
        part.append(node)
        named += size
    yield tuple(part)


def select_overrides(
    choices: Sequence[Choice],
    subnets: Mapping[str, str],
    offers: Offers,
    below: float = inf,
    bills: Offers | None = None,
    billed: float = inf,
    dear_spot: bool = False,
) -> Selected | None:
    """Select the overrides of the first choice that can be requested; None if none can be.

    `subnets` has the subnet of each zone. A Spot offering that costs more than the cheapest
    on-demand choice is left out unless `dear_spot`, and an offering that does not cost less than
    `below`, in USD per hour; with `bills`, the prices of AWS, also one that is not billed
    with less than `billed`.
    """
    on_demand = [one.price for one in choices if one.capacity_type == ON_DEMAND]
    ceiling = inf if not on_demand or on_demand[0] is None else on_demand[0]
    for choice in choices:
        most = ceiling if choice.capacity_type == SPOT and not dear_spot else inf
        if choice.capacity_type == RESERVED:
            found = _reserved(choice, subnets, below)
        else:
            found = _overrides(choice, subnets, offers, most, below)
        if bills is not None and billed < inf:
            reserved = choice.capacity_type == RESERVED
            kind = ON_DEMAND if reserved else choice.capacity_type
            prices = ((one, bills.price(one.instance_type, one.zone, kind)) for one in found)
            found = (one for one, price in prices if price is not None and price < billed)
        if overrides := tuple(islice(found, MOST_OVERRIDES)):
            if choice.capacity_type == RESERVED:
                return Selected(choice, overrides)
            return Selected(choice, _prioritized(overrides, choice.capacity_type, offers))
    return None


def _reserved(choice: Choice, subnets: Mapping[str, str], below: float) -> Iterator[Override]:
    """The override of a reservation, in the subnet of its zone."""
    if (choice.price or 0.0) < below:
        for kind in choice.instance_types:
            for zone in choice.zones:
                if zone in subnets:
                    yield Override(kind, zone, subnets[zone])


def _overrides(
    choice: Choice, subnets: Mapping[str, str], offers: Offers, most: float, below: float
) -> Iterator[Override]:
    """The cheapest zone of each type first, then the second cheapest, and so on: each type stays
    if there are too many."""
    ranked = []
    for position, kind in enumerate(choice.instance_types):
        priced = [
            (price, zone)
            for zone in choice.zones
            if zone in subnets
            and (kind, zone) not in choice.unusable
            and (price := offers.price(kind, zone, choice.capacity_type)) is not None
            and price <= most
            and (price < below or below == inf)
        ]
        for rank, (_, zone) in enumerate(sorted(priced)):
            ranked.append((rank, position, Override(kind, zone, subnets[zone])))
    for _, _, override in sorted(ranked, key=lambda one: one[:2]):
        yield override


def _prioritized(
    overrides: tuple[Override, ...], capacity_type: str, offers: Offers
) -> tuple[Override, ...]:
    """EC2 does not know the prices of overlays: with one among them, the price is the priority."""
    if not any(offers.is_overlaid(one, capacity_type) for one in overrides):
        return overrides

    def priority(one: Override) -> float:
        price = offers.price(one.instance_type, one.zone, capacity_type)
        return LOWEST_PRIORITY if price is None else min(price, LOWEST_PRIORITY)

    return tuple(replace(one, priority=priority(one)) for one in overrides)


def request_of(
    selected: Selected,
    count: int,
    template_of: Callable[[str], str],
    tags: Mapping[str, str],
) -> FleetRequest:
    """Make the request. `template_of` returns the name of the launch template of an instance type.

    Overrides beyond EC2's number of launch templates are left out, the least preferred first.
    """
    names: dict[str, None] = {}
    kept = []
    for override in selected.overrides:
        name = template_of(override.instance_type)
        if name in names or len(names) < MOST_TEMPLATES:
            names[name] = None
            kept.append((name, override))
    ordered = sorted(kept, key=lambda one: list(names).index(one[0]))
    templates = tuple(
        TemplateOverrides(name, tuple(override for _, override in group))
        for name, group in groupby(ordered, key=lambda one: one[0])
    )
    choice = selected.choice
    return FleetRequest(choice.capacity_type, count, templates, dict(tags), choice.reservation)


def token_of(intent: str, request: FleetRequest) -> str:
    """Return the client token of a request: 64 characters, which EC2 accepts at most. EC2 refuses
    another request with the same token."""
    text = json.dumps([intent, asdict(request)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
