"""The table's claims."""

from dataclasses import dataclass, field
from datetime import datetime


@dataclass
class ClaimsInMemory:
    """The Claims Protocol."""

    until: dict[str, datetime] = field(default_factory=dict)

    def claim(self, what: str, now: datetime, until: datetime) -> bool:
        if what in self.until and now <= self.until[what]:
            return False
        self.until[what] = until
        return True
