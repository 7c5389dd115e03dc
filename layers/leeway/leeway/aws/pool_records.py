"""Records of pools in the table, by boto3.

Keys: `pk` = POOLS#<cluster>; `sk` = POOL#<pool>, and JOIN#<pool>#<slot> for join times. `expires`
is the table's time to live; the record of a paused pool has none.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from leeway.aws.errors import aws_errors
from leeway.aws.query import query_partition
from leeway.aws.versions import put_version
from leeway.pool_pauses import JoinTime, PoolRecord

KEPT_FOR = timedelta(days=30)
"""How long DynamoDB keeps a join time, and the record of a pool that is not paused, after its last
write."""


class DynamoPoolRecords:
    """The PoolRecords Protocol; `client` makes boto3's DynamoDB client when it is first used."""

    def __init__(self, client: Callable[[], Any], table: str) -> None:
        self._client = client
        self._table = table

    def pools_of(self, cluster: str) -> list[PoolRecord]:
        """Read the records of a cluster's pools by consistent Queries."""
        items = query_partition(self._client(), self._table, _partition(cluster), "POOL#")
        return [PoolRecord.model_validate_json(item["record"]["S"]) for item in items]

    def pool(self, cluster: str, pool: str) -> PoolRecord | None:
        """Read the record of a pool by a consistent GetItem."""
        key = _key(cluster, pool)
        with aws_errors():
            answer = self._client().get_item(TableName=self._table, Key=key, ConsistentRead=True)
        item = answer.get("Item")
        return PoolRecord.model_validate_json(item["record"]["S"]) if item else None

    def write_pool(self, record: PoolRecord) -> None:
        """Write a record under the lock of its version.

        Raises:
            RecordChanged: the stored version is not one below this one's.
        """
        item = {
            **_key(record.cluster, record.pool),
            "record": {"S": record.model_dump_json()},
        }
        if record.paused is None:
            item |= _expiry()
        put_version(self._client(), self._table, item, record.version)

    def join_times(self, cluster: str) -> list[JoinTime]:
        """Read the latest join times of a cluster's pools by consistent Queries."""
        items = query_partition(self._client(), self._table, _partition(cluster), "JOIN#")
        return [JoinTime.model_validate_json(item["record"]["S"]) for item in items]

    def write_join_time(self, join_time: JoinTime) -> None:
        """Write a join time over the one in its slot."""
        item = {
            "pk": {"S": _partition(join_time.cluster)},
            "sk": {"S": f"JOIN#{join_time.pool}#{join_time.slot}"},
            "record": {"S": join_time.model_dump_json()},
            **_expiry(),
        }
        with aws_errors():
            self._client().put_item(TableName=self._table, Item=item)


def _key(cluster: str, pool: str) -> dict[str, Any]:
    return {"pk": {"S": _partition(cluster)}, "sk": {"S": f"POOL#{pool}"}}


def _partition(cluster: str) -> str:
    return f"POOLS#{cluster}"


def _expiry() -> dict[str, Any]:
    return {"expires": {"N": str(int((datetime.now(UTC) + KEPT_FOR).timestamp()))}}
