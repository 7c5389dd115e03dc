"""What pauses of pools are stored in, as a Protocol.

Every method may raise CloudUnavailable or CloudRefused.
"""

from collections.abc import Sequence
from typing import Protocol

from leeway.pool_pauses.record import PoolRecord


class PoolRecords(Protocol):
    """The table's records of pools."""

    def pools_of(self, cluster: str) -> Sequence[PoolRecord]:
        """Read the records of a cluster's pools consistently, by name."""
        ...

    def pool(self, cluster: str, pool: str) -> PoolRecord | None:
        """Read the record of a pool with a consistent read; None if there is none."""
        ...

    def write_pool(self, record: PoolRecord) -> None:
        """Write a record whose `version` is one above the stored one (1: there is none).

        Raises:
            RecordChanged: the stored version is another one.
        """
        ...
