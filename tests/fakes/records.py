"""The table's record of one retirement."""

from dataclasses import dataclass

from leeway.ports.table import RecordChanged
from leeway.retirement.record import Retirement


@dataclass
class RecordInMemory:
    """The Records Protocol for one instance."""

    record: Retirement

    def retirement(self, instance: str) -> Retirement | None:
        return self.record if instance == self.record.instance else None

    def write(self, record: Retirement) -> None:
        if record.version != self.record.version + 1:
            raise RecordChanged(record.instance)
        self.record = record
