"""Records of pools in memory."""

from dataclasses import dataclass, field

from leeway.pool_pauses import JoinTime, PoolRecord
from leeway.table import RecordChanged


@dataclass
class PoolRecordsInMemory:
    """The PoolRecords Protocol."""

    stored: dict[tuple[str, str], PoolRecord] = field(default_factory=dict)
    joined: dict[tuple[str, str, int], JoinTime] = field(default_factory=dict)

    def pools_of(self, cluster: str) -> list[PoolRecord]:
        return [one for (name, _), one in sorted(self.stored.items()) if name == cluster]

    def pool(self, cluster: str, pool: str) -> PoolRecord | None:
        return self.stored.get((cluster, pool))

    def write_pool(self, record: PoolRecord) -> None:
        known = self.pool(record.cluster, record.pool)
        if record.version != (known.version if known else 0) + 1:
            raise RecordChanged(record.pool)
        self.stored[record.cluster, record.pool] = record

    def join_times(self, cluster: str) -> list[JoinTime]:
        return [one for one in self.joined.values() if one.cluster == cluster]

    def write_join_time(self, join_time: JoinTime) -> None:
        self.joined[join_time.cluster, join_time.pool, join_time.slot] = join_time
