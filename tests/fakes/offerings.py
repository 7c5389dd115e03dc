"""The unavailable offerings in a table in memory."""

from datetime import datetime

from leeway.catalog.unavailable import Offering, UnavailableOfferings

from tests.fakes.table import TableInMemory


class OfferingsInMemory(UnavailableOfferings):
    """The offerings; `marked` are the calls of `mark`."""

    def __init__(self) -> None:
        super().__init__(TableInMemory())
        self.marked: dict[Offering, tuple[str, datetime]] = {}

    def mark(self, offering: Offering, reason: str, until: datetime) -> None:
        super().mark(offering, reason, until)
        self.marked[offering] = (reason, until)
