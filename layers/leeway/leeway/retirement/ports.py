"""The retirement records and the disruption ledgers in the table, as Protocols.

Every method may raise CloudUnavailable or CloudRefused.
"""

from typing import Protocol

from leeway.retirement.disruption_budget import DisruptionLedger
from leeway.retirement.record import Retirement


class Records(Protocol):
    """The retirement records in the table."""

    def retirement(self, instance: str) -> Retirement | None:
        """Read the record of an instance with a consistent read; None if there is none."""
        ...

    def write(self, record: Retirement) -> None:
        """Write a record whose `version` is the stored version plus one; 1 for a new record.

        Raises:
            RecordChanged: the stored version is another one: another writer was faster.
        """
        ...


class DisruptionLedgers(Protocol):
    """The disruption ledgers of clusters in the table."""

    def ledger(self, cluster: str) -> DisruptionLedger:
        """Read the ledger of a cluster with a consistent read; an empty one if there is none."""
        ...

    def write(self, ledger: DisruptionLedger) -> None:
        """Write a ledger whose `version` is the stored version plus one.

        Raises:
            RecordChanged: the stored version is another one: another writer was faster.
        """
        ...
