"""The table's retirement records and disruption ledger, as Protocols."""

from typing import Protocol

from leeway.retirement.disruption_budget import DisruptionLedger
from leeway.retirement.record import Retirement


class Records(Protocol):
    """The table's retirement records."""

    def retirement(self, instance: str) -> Retirement | None:
        """Read the retirement record consistently."""
        ...

    def write(self, record: Retirement) -> None:
        """Write a record whose `version` is one above what was read (1: there was none).

        Raises:
            RecordChanged: the stored version is another one.
        """
        ...


class DisruptionLedgers(Protocol):
    """What retirements must agree on, kept in the table."""

    def ledger(self, cluster: str) -> DisruptionLedger:
        """Read consistently which of a cluster's instances went voluntarily of late."""
        ...

    def write(self, ledger: DisruptionLedger) -> None:
        """Write a ledger whose `version` is one above what was read.

        Raises:
            RecordChanged: the stored version is another one.
        """
        ...
