"""The table's admission records."""

from dataclasses import dataclass, field

from leeway.admission.record import Admission
from leeway.table import RecordChanged


@dataclass
class AdmissionsInMemory:
    """The Admissions Protocol."""

    stored: dict[str, Admission] = field(default_factory=dict)

    def admission(self, instance: str) -> Admission | None:
        return self.stored.get(instance)

    def write(self, record: Admission) -> None:
        before = self.stored.get(record.instance)
        if record.version != (before.version if before else 0) + 1:
            raise RecordChanged(record.instance)
        self.stored[record.instance] = record
