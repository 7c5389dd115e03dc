"""The data of a region: its instance types, their offerings and their prices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from leeway.selection.offers.machines import Machine


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
