"""The stored catalogs of regions, and one that is cached in a warm function."""

from datetime import datetime, timedelta

from leeway.clock import Clock
from leeway.selection.offers.catalog import Catalog
from leeway.selection.offers.survey import UnknownForm, opened
from leeway.table import Record, Table

SURVEY = Record(bytes, "CATALOG#{region}", "CATALOG", packed=(bytes, bytes))
"""The survey of a region in the form of `selection.offers.compressed`. A region of 1,400 types in 6
zones takes a tenth of the 400 KB that an item holds."""

FRESH_FOR = timedelta(minutes=10)
"""How long a read is cached. refresh_catalog writes every six hours."""


class StoredCatalog:
    """The catalog of one region."""

    def __init__(self, table: Table, region: str, clock: Clock) -> None:
        self._table = table
        self._region = region
        self._clock = clock
        self._known: Catalog | None = None
        self._until: datetime | None = None

    def read(self) -> Catalog | None:
        """Return the catalog, at most ten minutes old; None if the table has none that this version
        can read.

        Raises:
            CloudUnavailable, CloudRefused: the table cannot be read.
        """
        now = self._clock.now()
        if self._known is None or self._until is None or now >= self._until:
            packed = self._table.get(SURVEY, consistent=False, region=self._region)
            try:
                self._known = None if packed is None else opened(packed)
            except UnknownForm:
                self._known = None
            self._until = now + FRESH_FOR
        return self._known
