"""The catalog: instance types, their offerings and their prices; which of them match requirements,
and why none does.

A set of types is an int whose bit i stands for type i. Filtering the catalog of a region is a few
bitwise operations; a type is built as a node only when it is used.
"""

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cached_property
from math import isnan, nan
from typing import Protocol

from leeway.selection.labels import (
    ARCH,
    CAPACITY_TYPE,
    FAMILY,
    INSTANCE_LABELS,
    INSTANCE_TYPE,
    ON_DEMAND,
    OS,
    REGION,
    RESERVATION_LABELS,
    RESERVED,
    SHARED,
    TENANCY,
    WELL_KNOWN,
    WINDOWS_BUILD,
    ZONE,
    ZONE_ID,
)
from leeway.selection.offers.allocatable import WINDOWS_BUILDS, AmiFamily, NodeClass
from leeway.selection.offers.machines import ACCELERATORS, Machine
from leeway.selection.offers.overlays import Overlay, with_promised
from leeway.selection.offers.reservations import CHEAPER, Reservation, ReservedCapacity
from leeway.selection.requirements import Requirement, Requirements, integer
from leeway.selection.resources import Resources

ANY = "*"
"""Every instance type, or every zone, in an unavailable offering."""

_COUNTED = {
    "All DL Spot Instance Requests": "dl",
    "All F Spot Instance Requests": "f",
    "All G and VT Spot Instance Requests": "g gr vt",
    "All Inf Spot Instance Requests": "inf",
    "All P4, P3 and P2 Spot Instance Requests": "p2 p3 p4",
    "All P5 Spot Instance Requests": "p5",
    "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests": "a c d h i im is m r t z",
    "All Trn Spot Instance Requests": "trn",
    "All X Spot Instance Requests": "x",
}
"""The families of types that each Spot quota of EC2 counts, some with a generation. Source: EC2
user guide, "Spot Instance quotas"."""

_QUOTAS = {family: quota for quota, families in _COUNTED.items() for family in families.split()}


def spot_quota(instance_type: str) -> str:
    """Return the name of the Spot quota that counts a type, such as m5.large; empty if none is
    known."""
    found = re.match(r"([a-z]+)\d*", instance_type)
    return "" if found is None else _QUOTAS.get(found[0]) or _QUOTAS.get(found[1], "")


@dataclass(frozen=True, slots=True)
class Unavailable:
    """An offering without capacity at present. `ANY` as the type or the zone means all of them, and
    the name of a Spot quota as the type means the types that the quota counts. Of reserved
    capacity, `instance_type` is the id of the reservation."""

    instance_type: str
    zone: str
    capacity_type: str


# Labels of types, and labels of offerings.
OF_TYPES = frozenset({INSTANCE_TYPE, ARCH, OS, REGION, TENANCY, WINDOWS_BUILD, *INSTANCE_LABELS})
OF_MARKETS = frozenset({ZONE, ZONE_ID, CAPACITY_TYPE, *RESERVATION_LABELS})


@dataclass(frozen=True, slots=True)
class Offering:
    """One type in one zone with one capacity type. `price` is in USD per hour, None if unknown.
    `zone_id` is the zone's ID, empty if unknown. `reservation` is that of a reserved offering."""

    zone: str
    capacity_type: str
    price: float | None
    available: bool = True
    zone_id: str = ""
    reservation: ReservedCapacity | None = None


@dataclass(frozen=True, slots=True)
class InstanceType:
    """One instance type as a node of one node class. `labels` exclude zone and capacity type, which
    depend on the offering."""

    name: str
    labels: Mapping[str, str]
    capacity: Resources
    allocatable: Resources
    offerings: tuple[Offering, ...]

    @property
    def exotic(self) -> bool:
        """Whether it is used only on request: bare metal, or with accelerators."""
        metal = self.name.rpartition(".")[2].startswith("metal")
        return metal or not ACCELERATORS.isdisjoint(self.capacity)


@dataclass(frozen=True, slots=True)
class Column:
    """The values of one label for all types."""

    by_value: Mapping[str, int]
    absent: int

    def matching(self, requirement: Requirement) -> int:
        """Return the types that match a requirement on this label."""
        found = self.absent if requirement.absent else 0
        if not requirement.complement:
            for value in requirement.values:
                if requirement.has(value):
                    found |= self.by_value.get(value, 0)
            return found
        for value, types in self.by_value.items():
            if requirement.has(value):
                found |= types
        return found


@dataclass(frozen=True, slots=True)
class Market:
    """One zone and capacity type: the types offered there, and USD per hour by type (NaN if unknown
    or not offered). Each reservation is a market of its own, with one type."""

    zone: str
    capacity_type: str
    offered: int
    prices: "array[float]"
    reservation: ReservedCapacity | None = None


class TypeSource(Protocol):
    """The source of a catalog's instance types."""

    @property
    def names(self) -> Sequence[str]:
        """The types' names, in the order of their bits."""
        ...

    def label(self, key: str) -> Sequence[str | None]:
        """Return one label of all types, in their order."""
        ...

    def labels(self, index: int) -> Mapping[str, str]:
        """Return all labels of one type."""
        ...

    def bootable(self) -> int:
        """Return the types that a supported operating system can boot."""
        ...

    def fractional_gpus(self) -> int:
        """Return the types with a fraction of a GPU."""
        ...

    def resources(self, index: int, node_class: NodeClass) -> tuple[Resources, Resources]:
        """Return capacity and allocatable of one type."""
        ...

    def machine(self, index: int) -> Machine | None:
        """Return one type as EC2 describes it; None without a description."""
        ...


MOST_OVERLAID = 32
"""Prices by overlays that a catalog keeps: those of the pools of some clusters."""


class Catalog:
    """The instance types of one region, their offerings and prices."""

    def __init__(
        self,
        region: str,
        source: TypeSource,
        markets: Iterable[Market],
        unavailable: Iterable[Unavailable] = (),
        zone_ids: Mapping[str, str] | None = None,
    ) -> None:
        self.region = region
        self.zone_ids = zone_ids or {}
        self.unavailable = tuple(unavailable)
        self.source = source
        self.markets = tuple(markets)
        self.zones = tuple(sorted({market.zone for market in self.markets}))
        self._columns: dict[str, Column] = {}
        self._overlaid: dict[object, tuple[Market, ...]] = {}

    @classmethod
    def of(cls, region: str, types: Iterable[InstanceType]) -> "Catalog":
        """Make a catalog of finished types, independent of the node class."""
        given = tuple(types)
        ids = {o.zone: o.zone_id for each in given for o in each.offerings if o.zone_id}
        return cls(region, _GivenTypes(given), _markets(given), zone_ids=ids)

    def without(self, unavailable: Iterable[Unavailable]) -> "Catalog":
        """Return the catalog with these offerings unavailable."""
        return Catalog(self.region, self.source, self.markets, unavailable, self.zone_ids)

    @property
    def names(self) -> Sequence[str]:
        """The types' names, in the order of their bits."""
        return self.source.names

    @cached_property
    def index(self) -> Mapping[str, int]:
        """The bit of each type by name."""
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def _counted(self) -> Mapping[str, int]:
        """The types of each Spot quota."""
        found: dict[str, int] = {}
        for name, index in self.index.items():
            quota = spot_quota(name)
            found[quota] = found.get(quota, 0) | 1 << index
        return found

    def machine(self, name: str) -> Machine | None:
        """Return a type as EC2 describes it; None without a description."""
        index = self.index.get(name)
        return None if index is None else self.source.machine(index)

    def column(self, key: str) -> Column:
        """Return one label of all types, built at first use."""
        if key not in self._columns:
            self._columns[key] = _column(self.source.label(key))
        return self._columns[key]

    def for_node_class(
        self,
        node_class: NodeClass,
        unavailable: Iterable[Unavailable] = (),
        reservations: Iterable[Reservation] = (),
    ) -> "TypeTable":
        """Return the types as nodes of a node class, without unavailable offerings, at the prices
        of its overlays, and with the reservations that have free capacity."""
        unavailable_offerings = (*self.unavailable, *unavailable)
        ordinary = tuple(
            self._available(m, unavailable_offerings) for m in self._priced(node_class)
        )
        reserved = tuple(self._reserved(reservations, unavailable_offerings))
        return TypeTable(self, node_class, (*ordinary, *reserved))

    def _reserved(
        self, reservations: Iterable[Reservation], unavailable_offerings: Sequence[Unavailable]
    ) -> Iterator[tuple[Market, int]]:
        """The markets of reservations. EC2 offers a type to who has reserved it, wherever that
        is."""
        for one in reservations:
            index = self.index.get(one.instance_type)
            full = Unavailable(one.id, one.zone, RESERVED) in unavailable_offerings
            if index is not None and one.free > 0 and not full:
                yield (
                    Market(one.zone, RESERVED, 1 << index, self._reserved_prices, one.capacity),
                    1 << index,
                )

    @cached_property
    def _reserved_prices(self) -> "array[float]":
        """USD per hour by type, which only orders reserved offerings: all zones have one price."""
        found = array("d", [nan]) * len(self.names)
        for market in self.markets:
            if market.capacity_type == ON_DEMAND:
                for index, price in enumerate(market.prices):
                    if not isnan(price):
                        found[index] = price / CHEAPER
        return found

    def _priced(self, node_class: NodeClass) -> tuple[Market, ...]:
        """The markets at the prices of a node class, which are computed once for its overlays."""
        overlays = tuple(one for one in node_class.overlays if one.price)
        if not overlays:
            return self.markets
        key = (overlays, node_class.family)
        if key not in self._overlaid:
            if len(self._overlaid) >= MOST_OVERLAID:
                self._overlaid.clear()
            plain = self.for_node_class(replace(node_class, overlays=()))
            self._overlaid[key] = plain.priced(overlays)
        return self._overlaid[key]

    def _available(
        self, market: Market, unavailable_offerings: Sequence[Unavailable]
    ) -> tuple[Market, int]:
        available = market.offered
        for entry in unavailable_offerings:
            if entry.capacity_type != market.capacity_type or entry.zone not in {market.zone, ANY}:
                continue
            if entry.instance_type == ANY:
                return market, 0
            if (index := self.index.get(entry.instance_type)) is not None:
                available &= ~(1 << index)
            else:
                available &= ~self._counted.get(entry.instance_type, 0)
        return market, available


class TypeTable:
    """A catalog's types as nodes of one node class."""

    def __init__(
        self, catalog: Catalog, node_class: NodeClass, markets: tuple[tuple[Market, int], ...]
    ) -> None:
        self.catalog = catalog
        self.node_class = node_class
        self.markets = markets
        """Each with the types that are available there."""
        self._built: dict[int, InstanceType] = {}
        self._fixed = {REGION: catalog.region, TENANCY: SHARED, **_system(node_class)}

    def __len__(self) -> int:
        return len(self.catalog.names)

    @cached_property
    def _promised(self) -> list[tuple[Resources, int]]:
        """What overlays promise, and of which types, the first that counts last."""
        promising = (one for one in reversed(self.node_class.overlays) if one.capacity)
        return [(one.capacity, self.reach(one)) for one in promising]

    @property
    def all(self) -> int:
        """Every type."""
        return (1 << len(self)) - 1

    def matching(self, requirements: Requirements) -> int:
        """Return the types that match requirements and have an available offering that does.

        Labels that no type has (a pool's own labels) are ignored.
        """
        found = self.matching_labels(requirements) & self._bootable()
        if not found:
            return 0
        return found & self.offered(requirements)

    def _bootable(self) -> int:
        """The types that the operating system of the class can boot. Windows does not support
        ARM, and AL2023 needs a newer ARM than that of a1. Source: Amazon Linux 2023 User Guide,
        "System requirements"."""
        found = self.catalog.source.bootable()
        if self.node_class.family is AmiFamily.AL2023:
            found &= ~self.catalog.column(FAMILY).by_value.get("a1", 0)
        if self.node_class.family.windows:
            found &= ~self.catalog.column(ARCH).by_value.get("arm64", 0)
        return found

    def matching_labels(self, requirements: Requirements) -> int:
        """Return the types whose own labels match requirements, regardless of offerings."""
        found = self.all
        for key, requirement in requirements.items():
            if key in OF_TYPES:
                found &= self.matching_requirement(requirement)
        return found

    def excluded_fractional_gpus(self, requirements: Requirements) -> int:
        """Return the types with a fraction of a GPU that requirements do not name by type or
        family. A pod that requests a GPU expects a whole one."""
        named = 0
        for key in (INSTANCE_TYPE, FAMILY):
            requirement = requirements.get(key)
            if requirement is not None and not requirement.complement:
                named |= self.matching_requirement(requirement)
        return self.catalog.source.fractional_gpus() & ~named

    def offered(self, requirements: Requirements) -> int:
        """Return the types with an available offering that matches the zone and capacity type."""
        found = 0
        for _, available in self.markets_of(requirements):
            found |= available
        return found

    def markets_of(self, requirements: Requirements) -> Iterator[tuple[Market, int]]:
        """Return the markets that match requirements, each with the types that are available
        there."""
        for (market, available), market_matches in zip(
            self.markets, self.market_matches(requirements), strict=True
        ):
            if market_matches:
                yield market, available

    def market_matches(self, requirements: Requirements) -> Iterator[bool]:
        """Return for each market whether its zone and capacity type match requirements."""
        zone, capacity_type = requirements.of_key(ZONE), requirements.of_key(CAPACITY_TYPE)
        zone_id = requirements.of_key(ZONE_ID)
        others = [requirements[key] for key in RESERVATION_LABELS if key in requirements]
        for market, _ in self.markets:
            yield (
                zone.has(market.zone)
                and capacity_type.has(market.capacity_type)
                and zone_id.admits(self.catalog.zone_ids.get(market.zone))
                and all(one.admits(_reservation_label(market, one.key)) for one in others)
            )

    def reach(self, overlay: Overlay) -> int:
        """Return the types that an overlay applies to: with an offering that matches, available or
        not."""
        return _any_of(self.reach_by_market(overlay))

    def reach_by_market(self, overlay: Overlay) -> list[int]:
        """Return the types of the offerings that an overlay applies to, of each market."""
        types = self.matching_labels(overlay.requirements)
        matches = self.market_matches(overlay.requirements)
        pairs = zip(self.markets, matches, strict=True)
        return [types & market.offered if found else 0 for (market, _), found in pairs]

    def priced(self, overlays: Sequence[Overlay]) -> tuple[Market, ...]:
        """Return the markets at the prices of overlays, of which the first one counts."""
        before = [market.prices for market, _ in self.markets]
        prices = [array("d", one) for one in before]
        for overlay in reversed(overlays):
            for position, types in enumerate(self.reach_by_market(overlay)):
                for index in bits(types):
                    prices[position][index] = overlay.priced(before[position][index])
        pairs = zip(self.markets, prices, strict=True)
        return tuple(replace(market, prices=each) for (market, _), each in pairs)

    def matching_requirement(self, requirement: Requirement) -> int:
        """Return the types that match one requirement on their own labels."""
        if requirement.key in self._fixed:
            return self.all if requirement.has(self._fixed[requirement.key]) else 0
        return self.catalog.column(requirement.key).matching(requirement)

    def values(self, key: str) -> Mapping[str, int]:
        """Return the values of a label, each with the types that have it."""
        if key in self._fixed:
            return {self._fixed[key]: self.all}
        if key in OF_MARKETS:
            return self._values_of_markets(key)
        return self.catalog.column(key).by_value

    def _values_of_markets(self, key: str) -> Mapping[str, int]:
        values: dict[str, int] = {}
        for market, _ in self.markets:
            zone_id = self.catalog.zone_ids.get(market.zone, "")
            if key in RESERVATION_LABELS:
                value = _reservation_label(market, key)
            else:
                value = {ZONE: market.zone, ZONE_ID: zone_id}.get(key, market.capacity_type)
            if value:
                values[value] = values.get(value, 0) | market.offered
        return values

    def type(self, index: int) -> InstanceType:
        """Return one type as a node of the class."""
        if index not in self._built:
            capacity, allocatable = self.catalog.source.resources(index, self.node_class)
            promised: dict[str, int] = {}
            for amounts, types in self._promised:
                promised |= amounts if types >> index & 1 else {}
            if promised:
                capacity = Resources({**capacity, **promised})
                allocatable = with_promised(allocatable, promised)
            self._built[index] = InstanceType(
                self.catalog.names[index],
                {**self._fixed, **self.catalog.source.labels(index)},
                capacity,
                allocatable,
                tuple(self._offerings(index)),
            )
        return self._built[index]

    def types(self, found: int | None = None) -> list[InstanceType]:
        """Return the types of a set in the order of the catalog; all types without a set."""
        return [self.type(i) for i in bits(self.all if found is None else found)]

    def _offerings(self, index: int) -> Iterator[Offering]:
        for market, available in self.markets:
            if market.offered >> index & 1:
                price = market.prices[index]
                yield Offering(
                    market.zone,
                    market.capacity_type,
                    None if isnan(price) else price,
                    bool(available >> index & 1),
                    self.catalog.zone_ids.get(market.zone, ""),
                    market.reservation,
                )


def _reservation_label(market: Market, key: str) -> str | None:
    """The value of a label of reservations; None in a market without one."""
    return market.reservation.labels[key] if market.reservation else None


def _any_of(sets: Iterable[int]) -> int:
    found = 0
    for one in sets:
        found |= one
    return found


def bits(found: int) -> Iterator[int]:
    """Return the positions of a set's members, lowest first."""
    digits = bin(found)[:1:-1]
    position = digits.find("1")
    while position >= 0:
        yield position
        position = digits.find("1", position + 1)


def mask(members: Iterable[bool]) -> int:
    """Make a set of the positions that are true."""
    digits = "".join("1" if member else "0" for member in members)
    return int(digits[::-1] or "0", 2)


def _column(values: Sequence[str | None]) -> Column:
    positions: dict[str | None, list[int]] = {}
    for position, value in enumerate(values):
        positions.setdefault(value, []).append(position)
    sets = {value: _set(found) for value, found in positions.items()}
    absent = sets.pop(None, 0)
    return Column({value: found for value, found in sets.items() if value is not None}, absent)


def _set(positions: Sequence[int]) -> int:
    packed = bytearray(positions[-1] // 8 + 1)
    for position in positions:
        packed[position >> 3] |= 1 << (position & 7)
    return int.from_bytes(packed, "little")


def _system(node_class: NodeClass) -> dict[str, str]:
    if node_class.family.windows:
        return {OS: "windows", WINDOWS_BUILD: WINDOWS_BUILDS[node_class.family]}
    return {OS: "linux"}


class _GivenTypes:
    """Finished types as a source."""

    def __init__(self, given: tuple[InstanceType, ...]) -> None:
        self.names = [each.name for each in given]
        self._given = given

    def label(self, key: str) -> Sequence[str | None]:
        if key == INSTANCE_TYPE:
            return self.names
        return [t.labels.get(key) for t in self._given]

    def labels(self, index: int) -> Mapping[str, str]:
        return {INSTANCE_TYPE: self.names[index], **self._given[index].labels}

    def bootable(self) -> int:
        return (1 << len(self._given)) - 1

    def fractional_gpus(self) -> int:
        return 0

    def resources(self, index: int, node_class: NodeClass) -> tuple[Resources, Resources]:
        return self._given[index].capacity, self._given[index].allocatable

    def machine(self, index: int) -> Machine | None:
        return None


def _markets(types: Sequence[InstanceType]) -> Iterator[Market]:
    places: dict[tuple[str, str], dict[int, Offering]] = {}
    for index, each in enumerate(types):
        for offering in each.offerings:
            key = (offering.zone, offering.capacity_type)
            places.setdefault(key, {})[index] = offering
    for (zone, capacity_type), offerings in sorted(places.items()):
        known = {i: o.price for i, o in offerings.items() if o.available}
        prices = array(
            "d", (nan if (usd := known.get(i)) is None else usd for i in range(len(types)))
        )
        yield Market(zone, capacity_type, mask(i in known for i in range(len(types))), prices)


def mismatch(table: TypeTable, requirements: Requirements) -> str:
    """Return the requirements that exclude all types.

    If single requirements exclude all types, these are named; otherwise each requirement with the
    number of types that it excludes, the strictest first.
    """
    known = [r for r in requirements.values() if r.key in WELL_KNOWN and table.values(r.key)]
    impossible = [r for r in known if not _meeting_only(table, r)]
    if impossible:
        return "; ".join(_impossible(table, r) for r in impossible)
    excluded = sorted(
        ((len(table) - _meeting_only(table, r).bit_count(), str(r)) for r in known), reverse=True
    )
    counts = ", ".join(f"{text} excludes {count}" for count, text in excluded if count)
    return f"none of the {len(table)} instance types meets all requirements: {counts}"


def unmatched(table: TypeTable, requirement: Requirement) -> str:
    """Return the values of a requirement that no type has, each with a suggestion; empty if every
    value is offered."""
    values = table.values(requirement.key)
    if not values:  # a label of the pool's own
        return ""
    missing = [] if requirement.complement else sorted(requirement.values - values.keys())
    return "; ".join(f"no instance type has {v}{_did_you_mean(v, values)}" for v in missing)


def _meeting_only(table: TypeTable, requirement: Requirement) -> int:
    if requirement.key in OF_MARKETS:
        return table.offered(Requirements([requirement]))
    return table.matching_requirement(requirement)


def _impossible(table: TypeTable, requirement: Requirement) -> str:
    values = table.values(requirement.key)
    if requirement.key == CAPACITY_TYPE and requirement.values == {RESERVED}:
        return f"{requirement}: no capacity reservation that the pool selects has free capacity"
    if requirement.key in OF_MARKETS:
        by_place = requirement.key != CAPACITY_TYPE
        cause = "nothing is offered there" if by_place else "nothing is offered so"
    elif requirement.key == INSTANCE_TYPE:
        cause = f"{table.catalog.region} does not offer it"
        if len(requirement.values) > 1:
            cause = f"{table.catalog.region} offers none of them"
    else:
        cause = "no instance type has it"
    requested = "" if requirement.complement else min(requirement.values, default="")
    if requirement.key == INSTANCE_TYPE:
        # A similar name of another family (d2 for p2) is not a suggestion.
        family = requested.partition(".")[0]
        values = {name: n for name, n in values.items() if name.partition(".")[0] == family}
    return f"{requirement}: {cause}{_did_you_mean(requested, values) or _range(values)}"


def _did_you_mean(requested: str, values: Mapping[str, int]) -> str:
    """Suggest the most similar value; among equally similar values, the one of the most types."""
    if not requested or not values or integer(requested) is not None:
        return ""
    best = max(
        values, key=lambda v: (SequenceMatcher(None, requested, v).ratio(), values[v].bit_count())
    )
    return f"; did you mean {best}?"


def _range(values: Mapping[str, int]) -> str:
    numbers = sorted(n for n in map(integer, values) if n is not None)
    return f"; there is {numbers[0]} to {numbers[-1]}" if numbers else ""
