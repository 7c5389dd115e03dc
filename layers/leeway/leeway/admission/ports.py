"""What admissions call, as Protocols."""

from typing import Protocol

from leeway.admission.record import Admission


class Admissions(Protocol):
    """The admission records in the table."""

    def admission(self, instance: str) -> Admission | None:
        """Read the admission record of an instance with a consistent read."""
        ...

    def write(self, record: Admission) -> None:
        """Write a record whose `version` is the stored version plus one; 1 for a new record.

        Raises:
            RecordChanged: the stored version is another one.
        """
        ...
