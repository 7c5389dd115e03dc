"""What Leeway keeps in its table, as Protocols; `ports` has the errors that they may raise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

# Only shapes: a function that uses one port need not import what the others speak of.
if TYPE_CHECKING:
    from datetime import datetime

    from leeway.selection.offers.unavailable import Unavailable


@dataclass(frozen=True, slots=True)
class Offering:
    """An instance type in a zone of a region, as spot or on-demand."""

    region: str
    instance_type: str
    zone: str
    capacity_type: str


class RecordChanged(Exception):
    """Somebody else wrote the record since it was read."""


@dataclass(frozen=True, slots=True)
class CachedValue:
    """Something that somebody read, as JSON, and when."""

    body: str
    read_at: datetime


class Claims(Protocol):
    """What one of many does for all, or for now."""

    def claim(self, what: str, now: datetime, until: datetime) -> bool:
        """Say that one does it; False where another one has said so until later than now."""
        ...


class CacheStore(Claims, Protocol):
    """What the table remembers by name, so that many functions need not all ask for it."""

    def get(self, what: str) -> CachedValue | None:
        """Read what is remembered; None where nothing is. It may be a second old."""
        ...

    def put(self, what: str, value: CachedValue) -> None:
        """Write down what was read."""
        ...


class UnavailableOfferings(Protocol):
    """Offerings that EC2 has not enough of for the moment."""

    def mark(self, offering: Offering, reason: str, until: datetime) -> None:
        """Note that an offering is not to be launched until then."""
        ...

    def now(self, region: str, at: datetime) -> frozenset[Unavailable]:
        """Read which offerings of a region are not to be launched at this time."""
        ...
