"""The records of instances that give capacity back, in memory."""

from dataclasses import dataclass, field

from leeway.admission.record import Admission
from leeway.reconciliation.find_lost_events import OpenRecords
from leeway.retirement.record import Retirement
from leeway.table import RecordChanged


@dataclass
class Records:
    """The ReturnRecords Protocol."""

    retirements: dict[str, Retirement] = field(default_factory=dict)
    admissions: dict[str, Admission] = field(default_factory=dict)

    def retirement(self, instance: str) -> Retirement | None:
        return self.retirements.get(instance)

    def admission(self, instance: str) -> Admission | None:
        return self.admissions.get(instance)

    def open_records(self, cluster: str) -> OpenRecords:
        found = (one for one in self.retirements.values() if one.facts.cluster == cluster)
        return OpenRecords(tuple(one for one in found if one.is_open))

    def write(self, record: Retirement) -> None:
        known = self.retirements.get(record.instance)
        if (known.version if known else 0) != record.version - 1:
            raise RecordChanged(record.instance)
        self.retirements[record.instance] = record
