"""The table's record of one retirement."""

from dataclasses import dataclass, field

from leeway.retirement.record import Retirement
from leeway.table import RecordChanged


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


@dataclass
class RecordsInMemory:
    """The Records Protocol."""

    stored: dict[str, Retirement] = field(default_factory=dict)

    def retirement(self, instance: str) -> Retirement | None:
        return self.stored.get(instance)

    def write(self, record: Retirement) -> None:
        before = self.stored.get(record.instance)
        if record.version != (before.version if before else 0) + 1:
            raise RecordChanged(record.instance)
        self.stored[record.instance] = record
