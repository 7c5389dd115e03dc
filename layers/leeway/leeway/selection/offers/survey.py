"""The data of a region: its instance types, their offerings and their prices; and its compressed
form, so that a region opens in about a millisecond.

The format: zlib over the length of a JSON header (4 bytes), the header, and the columns that it
lists. Labels are small integers that index their distinct values, 0 for none. Sets of types are
hexadecimal.
"""

import json
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from math import isnan, nan
from typing import Any

from leeway.selection.labels import ARCH, INSTANCE_TYPE, ON_DEMAND, SPOT
from leeway.selection.offers.allocatable import NodeClass, allocatable, capacity
from leeway.selection.offers.catalog import Catalog, Market, bits, mask
from leeway.selection.offers.machines import Machine
from leeway.selection.resources import Resources


class Part(StrEnum):
    """The parts of a survey. Each comes from its own API and may have a different age."""

    TYPES = "types"
    OFFERINGS = "offerings"
    ON_DEMAND_PRICES = "on-demand prices"
    SPOT_PRICES = "spot prices"
    ZONES = "zones"


@dataclass(frozen=True, slots=True)
class Survey:
    """The data of one region. Prices are in USD per hour for Linux. `read_at` is the time at which
    each part was read."""

    region: str
    machines: Sequence[Machine] = ()
    offered: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Names of types by zone."""
    on_demand: Mapping[str, float] = field(default_factory=dict)
    """Prices by type."""
    spot: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Prices by zone and type."""
    read_at: Mapping[Part, datetime] = field(default_factory=dict)
    zone_ids: Mapping[str, str] = field(default_factory=dict)
    """Zone IDs by zone name."""

    def renewed(self, part: Part, found: Any, at: datetime) -> "Survey":
        """Return the survey with a new version of one part."""
        name = _FIELDS[part]
        return replace(self, **{name: found, "read_at": {**self.read_at, part: at}})

    def of_what_is_offered(self) -> "Survey":
        """Return the survey without the types that no zone offers."""
        offered = frozenset(name for names in self.offered.values() for name in names)
        return replace(self, machines=tuple(m for m in self.machines if m.name in offered))

    def size(self, part: Part) -> int:
        """Return the number of entries of a part: types, or types by zone."""
        match part:
            case Part.TYPES:
                return len(self.machines)
            case Part.ZONES:
                return len(self.zone_ids)
            case Part.ON_DEMAND_PRICES:
                return len(self.on_demand)
            case Part.OFFERINGS:
                return sum(map(len, self.offered.values()))
            case Part.SPOT_PRICES:
                return sum(map(len, self.spot.values()))

    @property
    def complete(self) -> bool:
        """Whether nodes can be chosen from it: types and offerings are required, prices are not."""
        return bool(self.machines) and bool(self.offered)


_FIELDS = {
    Part.TYPES: "machines",
    Part.OFFERINGS: "offered",
    Part.ZONES: "zone_ids",
    Part.ON_DEMAND_PRICES: "on_demand",
    Part.SPOT_PRICES: "spot",
}


VERSION = 4

_NUMBERS = (
    "vcpus",
    "memory_mib",
    "interfaces",
    "addresses",
    "branches",
    "volumes",
    "disks",
    "efa_card",
)
_SETS = ("bootable", "spot", "on_demand", "shares_gpu")
_HEADER = 4  # bytes of the header length


class UnknownForm(ValueError):
    """The data has another format version. The next refresh replaces it."""


def compressed(survey: Survey) -> bytes:
    """Serialize a survey."""
    machines = sorted(survey.machines, key=lambda m: m.name)
    names = [m.name for m in machines]
    columns: dict[str, array[Any]] = {
        name: array("q", (getattr(m, name) for m in machines)) for name in _NUMBERS
    }
    labels: dict[str, list[str]] = {}
    for key in sorted({key for m in machines for key in m.labels} - {INSTANCE_TYPE}):
        values = [m.labels.get(key) for m in machines]
        labels[key] = sorted({value for value in values if value is not None})
        codes = {value: code for code, value in enumerate(labels[key], 1)}
        columns[key] = array("H", (codes.get(value or "", 0) for value in values))
    columns[ON_DEMAND] = _usd(survey.on_demand, names)
    for zone, prices in survey.spot.items():
        columns[f"{SPOT}/{zone}"] = _usd(prices, names)
    header = {
        "version": VERSION,
        "region": survey.region,
        "names": names,
        "labels": labels,
        "sets": {name: f"{mask(getattr(m, name) for m in machines):x}" for name in _SETS},
        "offered": {
            zone: f"{mask(name in types for name in names):x}"
            for zone, types in sorted(survey.offered.items())
        },
        "zone_ids": dict(survey.zone_ids),
        "devices": {str(i): dict(m.devices) for i, m in enumerate(machines) if m.devices},
        "read_at": {part: at.isoformat() for part, at in survey.read_at.items()},
        "columns": [[name, column.typecode] for name, column in columns.items()],
    }
    head = json.dumps(header, separators=(",", ":")).encode()
    body = b"".join(column.tobytes() for column in columns.values())
    return zlib.compress(len(head).to_bytes(_HEADER) + head + body, 9)


def opened(packed: bytes) -> Catalog:
    """Open a serialized survey as a catalog.

    Raises:
        UnknownForm: the data has another format version.
    """
    columns = _Columns(packed)
    return Catalog(columns.region, columns, columns.markets(), zone_ids=columns.zone_ids)


def unpacked(packed: bytes) -> Survey:
    """Deserialize a survey, to renew parts of it.

    Raises:
        UnknownForm: the data has another format version.
    """
    return _Columns(packed).survey()


def read_times(packed: bytes) -> Mapping[Part, datetime]:
    """Return when each part of a serialized survey was read.

    Raises:
        UnknownForm: the data has another format version.
    """
    return _Columns(packed).read_at


class _Columns:
    """A compressed survey as a type source."""

    def __init__(self, packed: bytes) -> None:
        content = zlib.decompress(packed)
        size = int.from_bytes(content[:_HEADER])
        self._header = json.loads(content[_HEADER : _HEADER + size])
        if self._header.get("version") != VERSION:
            raise UnknownForm(f"version {self._header.get('version')}")
        self.region: str = self._header["region"]
        self.names: list[str] = self._header["names"]
        self.zone_ids: dict[str, str] = self._header["zone_ids"]
        self._sets = {name: int(digits, 16) for name, digits in self._header["sets"].items()}
        self._columns = dict(self._split_columns(memoryview(content)[_HEADER + size :]))

    def _split_columns(self, body: memoryview) -> Iterator[tuple[str, "array[Any]"]]:
        for name, kind in self._header["columns"]:
            column = array(kind)
            size = column.itemsize * len(self.names)
            column.frombytes(body[:size])
            body = body[size:]
            yield name, column

    @cached_property
    def _values(self) -> Mapping[str, Sequence[str | None]]:
        return {key: [None, *values] for key, values in self._header["labels"].items()}

    def label(self, key: str) -> Sequence[str | None]:
        if key == INSTANCE_TYPE:
            return self.names
        if key not in self._values:
            return [None] * len(self.names)
        return list(map(self._values[key].__getitem__, self._columns[key]))

    @cached_property
    def _label_columns(self) -> Sequence[tuple[str, Sequence[str | None], "array[int]"]]:
        return [(key, values, self._columns[key]) for key, values in self._values.items()]

    def labels(self, index: int) -> Mapping[str, str]:
        found = {INSTANCE_TYPE: self.names[index]}
        for key, values, column in self._label_columns:
            value = values[column[index]]
            if value is not None:
                found[key] = value
        return found

    def bootable(self) -> int:
        return self._sets["bootable"]

    def fractional_gpus(self) -> int:
        return self._sets["shares_gpu"]

    def resources(self, index: int, node_class: NodeClass) -> tuple[Resources, Resources]:
        # Of the labels, only the architecture matters here; all of them would take longer than
        # the rest.
        architecture = self._values[ARCH][self._columns[ARCH][index]]
        machine = self._machine(index, {ARCH: architecture or ""})
        whole = capacity(machine, node_class)
        return whole, allocatable(machine, node_class, whole)

    def machine(self, index: int) -> Machine:
        return self._machine(index, self.labels(index))

    def _machine(self, index: int, labels: Mapping[str, str]) -> Machine:
        return Machine(
            name=self.names[index],
            labels=labels,
            devices=self._header["devices"].get(str(index), {}),
            **{name: self._columns[name][index] for name in _NUMBERS},
            **{name: bool(self._sets[name] >> index & 1) for name in _SETS},
        )

    def markets(self) -> Iterator[Market]:
        unknown = array("d", [nan]) * len(self.names)
        for zone, digits in self._header["offered"].items():
            offered = int(digits, 16)
            yield Market(
                zone, ON_DEMAND, offered & self._sets["on_demand"], self._columns[ON_DEMAND]
            )
            prices = self._columns.get(f"{SPOT}/{zone}", unknown)
            yield Market(zone, SPOT, offered & self._sets["spot"], prices)

    def survey(self) -> Survey:
        return Survey(
            region=self.region,
            machines=tuple(map(self.machine, range(len(self.names)))),
            offered={
                zone: frozenset(self.names[i] for i in bits(int(digits, 16)))
                for zone, digits in self._header["offered"].items()
            },
            zone_ids=self.zone_ids,
            on_demand=dict(self._known(self._columns[ON_DEMAND])),
            spot={
                name.partition("/")[2]: dict(self._known(column))
                for name, column in self._columns.items()
                if name.startswith(f"{SPOT}/")
            },
            read_at=self.read_at,
        )

    @property
    def read_at(self) -> dict[Part, datetime]:
        """When each part was read."""
        times = self._header["read_at"].items()
        return {Part(part): datetime.fromisoformat(at) for part, at in times}

    def _known(self, prices: Iterable[float]) -> Iterator[tuple[str, float]]:
        for name, price in zip(self.names, prices, strict=True):
            if not isnan(price):
                yield name, price


def _usd(prices: Mapping[str, float], names: Sequence[str]) -> "array[float]":
    return array("d", (prices.get(name, nan) for name in names))
