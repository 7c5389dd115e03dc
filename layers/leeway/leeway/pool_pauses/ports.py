"""What is stored about launches of pools, as a Protocol.

Every method may raise CloudUnavailable or CloudRefused.
"""

from collections.abc import Sequence
from typing import Protocol

from leeway.pool_pauses.join_times import JoinTime
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

    def join_times(self, cluster: str) -> Sequence[JoinTime]:
        """Read the latest join times of a cluster's pools."""
        ...

    def write_join_time(self, join_time: JoinTime) -> None:
        """Write a join time over an older one of its pool."""
        ...
