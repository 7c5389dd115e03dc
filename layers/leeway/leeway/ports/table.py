"""The items that Leeway keeps in its table besides records, as Protocols.

Every method may raise CloudUnavailable or CloudRefused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from leeway.table import RecordChanged as RecordChanged

# For annotations only: a function that uses one port does not import the types of the others.
if TYPE_CHECKING:
    from datetime import datetime

    from leeway.selection.offers.catalog import Unavailable


@dataclass(frozen=True, slots=True)
class Offering:
    """An instance type in a zone of a region. `capacity_type` is `spot` or `on-demand`."""

    region: str
    instance_type: str
    zone: str
    capacity_type: str


@dataclass(frozen=True, slots=True)
class CachedValue:
    """A cached value: `body` is its JSON, `read_at` is when it was read from its source."""

    body: str
    read_at: datetime


class Claims(Protocol):
    """Claims that expire: of many functions, one does the work."""

    def claim(self, what: str, now: datetime, until: datetime) -> bool:
        """Claim `what` until the time `until`; False if another claim has not expired at `now`.

        The check and the write are one conditional write: of concurrent calls, one succeeds.
        """
        ...


class CacheStore(Claims, Protocol):
    """A cache in the table that all functions share."""

    def get(self, what: str) -> CachedValue | None:
        """Read a cached value; None if there is none. The read is eventually consistent."""
        ...

    def put(self, what: str, value: CachedValue) -> None:
        """Write a cached value."""
        ...


class UnavailableOfferings(Protocol):
    """Offerings that EC2 has no capacity for at the moment."""

    def mark(self, offering: Offering, reason: str, until: datetime) -> None:
        """Mark an offering as unavailable until the time `until`."""
        ...

    def now(self, region: str, at: datetime) -> frozenset[Unavailable]:
        """Read the offerings of a region that are unavailable at the time `at`."""
        ...
