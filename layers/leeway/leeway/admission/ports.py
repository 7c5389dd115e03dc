"""admission.ports"""

from typing import Protocol

from leeway.admission.record import Admission


class Admissions(Protocol):
    """The table's records of admissions."""

    def arrival(self, instance: str) -> Admission | None:
        """Read the record of an instance's admission consistently."""
        ...

    def write(self, record: Admission) -> None:
        """Write a record whose `version` is one above what was read (1: there was none).

        Raises:
            RecordChanged: the stored version is another one.
        """
        ...
