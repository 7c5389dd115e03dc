"""The table's shared cache."""

from dataclasses import dataclass, field
from datetime import datetime

from leeway.ports.table import CachedValue


@dataclass
class CacheStoreInMemory:
    """The CacheStore Protocol."""

    values: dict[str, CachedValue] = field(default_factory=dict)
    claimed_until: dict[str, datetime] = field(default_factory=dict)

    def get(self, what: str) -> CachedValue | None:
        return self.values.get(what)

    def claim(self, what: str, now: datetime, until: datetime) -> bool:
        if what in self.claimed_until and now <= self.claimed_until[what]:
            return False
        self.claimed_until[what] = until
        return True

    def put(self, what: str, value: CachedValue) -> None:
        self.values[what] = value
