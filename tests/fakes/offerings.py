"""The table's unavailable offerings."""

from dataclasses import dataclass, field
from datetime import datetime

from leeway.ports.table import Offering
from leeway.selection.offers.catalog import Unavailable


@dataclass
class OfferingsInMemory:
    """The UnavailableOfferings Protocol."""

    marked: dict[Offering, tuple[str, datetime]] = field(default_factory=dict)

    def mark(self, offering: Offering, reason: str, until: datetime) -> None:
        self.marked[offering] = (reason, until)

    def now(self, region: str, at: datetime) -> frozenset[Unavailable]:
        return frozenset(
            Unavailable(one.instance_type, one.zone, one.capacity_type)
            for one, (_, until) in self.marked.items()
            if one.region == region and until > at
        )
