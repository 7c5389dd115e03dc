"""Offerings that EC2 has too little capacity for at present."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from leeway.table import Record, Table

if TYPE_CHECKING:
    from leeway.selection.offers.catalog import Unavailable

REFRESHED_AFTER = timedelta(seconds=30)
"""A mark is written again only if its end moves by this much. EC2 may interrupt a thousand
instances of one offering at once, and DynamoDB accepts a thousand writes per second of one item."""


@dataclass(frozen=True, slots=True)
class Offering:
    """An instance type in a zone of a region; of the `capacity_type` reserved, the id of the
    reservation in place of the type."""

    region: str
    instance_type: str
    zone: str
    capacity_type: str


@dataclass(frozen=True, slots=True)
class _Mark:
    """An offering without capacity, and why; it counts as available from `until` on."""

    region: str
    instance_type: str
    zone: str
    capacity_type: str
    reason: str
    until: datetime


_MARK = Record(
    _Mark,
    "OFFERINGS#{region}",
    "UNAVAILABLE#{capacity_type}#{instance_type}#{zone}",
    kept_for=lambda mark: mark.until,
)


class UnavailableOfferings:
    """The marks of unavailable offerings. Keep the instance while a function is warm: it caches the
    marks that it writes."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._marked: dict[Offering, datetime] = {}

    def mark(self, offering: Offering, reason: str, until: datetime) -> None:
        """Mark an offering as unavailable until then, or up to REFRESHED_AFTER less. One Query and
        one PutItem, or neither if a cached mark is recent.

        In a storm each function marks an offering for the first time, and usually another function
        has marked it already.
        """
        key = {
            "region": offering.region,
            "instance_type": offering.instance_type,
            "zone": offering.zone,
            "capacity_type": offering.capacity_type,
        }
        known = self._marked.get(offering)
        if known is None or until - known >= REFRESHED_AFTER:
            found = self._table.list(_MARK, consistent=False, unreadable=None, **key)
            known = found[0].until if found else None
        if known is None or until - known >= REFRESHED_AFTER:
            self._table.put(_MARK, _Mark(**key, reason=reason, until=until))
            known = until
        self._marked[offering] = known

    def now(self, region: str, at: datetime) -> "frozenset[Unavailable]":
        """Read the offerings of a region that are unavailable at this time. The result may be a
        second old."""
        # receive_notice only marks: it starts without the catalog of instance types.
        from leeway.selection.offers.catalog import Unavailable

        marks = self._table.list(_MARK, consistent=False, region=region)
        return frozenset(
            Unavailable(one.instance_type, one.zone, one.capacity_type)
            for one in marks
            if one.until > at
        )
