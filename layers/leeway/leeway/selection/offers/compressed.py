"""Serializes a survey as compressed columns, so that a region opens in about a millisecond.

The format: zlib over the length of a JSON header (4 bytes), the header, and the columns that it
lists. Labels are small integers that index their distinct values, 0 for none. Sets of types are
hexadecimal.
"""

import json
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from math import isnan, nan
from typing import Any

from leeway.selection.labels import ARCH, INSTANCE_TYPE, ON_DEMAND, SPOT
from leeway.selection.offers.allocatable import allocatable, capacity
from leeway.selection.offers.catalog import Catalog, Market, bits, mask
from leeway.selection.offers.machines import Machine
from leeway.selection.offers.node_class import NodeClass
from leeway.selection.offers.survey import Part, Survey
from leeway.selection.resources import Resources

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
    columns: dict[str, array[Any]] = {name: _integers(machines, name) for name in _NUMBERS}
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


def _integers(machines: Sequence[Machine], name: str) -> "array[int]":
    return array("q", (getattr(m, name) for m in machines))


def _usd(prices: Mapping[str, float], names: Sequence[str]) -> "array[float]":
    return array("d", (prices.get(name, nan) for name in names))
