"""What admissions call, as Protocols."""

from typing import Protocol

from leeway.admission.outcome import AdmissionOutcome
from leeway.admission.record import Admission
from leeway.instances.observed import ObservedInstance
from leeway.pool_pauses import PoolRecord
from leeway.reasons import Reason


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


class LaunchedInstances(Protocol):
    """The instances of EC2, as the admission of a launched one reads and ends them."""

    def observe(self, instance: str) -> ObservedInstance | None:
        """Read an instance. None if EC2 has no such instance, or if its tags do not name exactly
        one cluster."""
        ...

    def terminate(self, instance: str) -> None:
        """Terminate an instance. An instance that does not exist any more is not an error.

        Raises:
            CloudRefused: also if the instance is protected from termination.
        """
        ...


class Telemetry(Protocol):
    """Logs and metrics of admissions."""

    def admitted(self, outcome: AdmissionOutcome) -> None:
        """Log and measure an admission that has ended."""
        ...

    def pool_paused(self, record: PoolRecord, reason: Reason) -> None:
        """Log that a pool is paused."""
        ...

    def admission_not_reported(self, outcome: AdmissionOutcome, problem: Reason) -> None:
        """Log that a report of an admission was not delivered."""
        ...
