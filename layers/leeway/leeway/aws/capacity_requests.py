"""Capacity requests in the table, by boto3.

Keys: `pk` = CAPACITY#<cluster>, `sk` = RETIREMENT#<instance id>. `expires` is the table's time to
live.
"""

from collections.abc import Callable
from datetime import UTC, timedelta
from typing import Any

from leeway.aws.errors import aws_errors
from leeway.aws.query import query_partition
from leeway.aws.versions import put_version
from leeway.capacity_requests import CapacityRequest

KEPT_FOR = timedelta(days=1)
"""How long DynamoDB keeps a request after its end, for `leeway status`."""


class DynamoCapacityRequests:
    """The CapacityRequests Protocol; `client` returns boto3's DynamoDB client."""

    def __init__(self, client: Callable[[], Any], table: str) -> None:
        self._client = client
        self._table = table

    def of_cluster(self, cluster: str) -> list[CapacityRequest]:
        """Read the requests of a cluster by consistent Queries."""
        items = query_partition(self._client(), self._table, f"CAPACITY#{cluster}", "RETIREMENT#")
        return [CapacityRequest.model_validate_json(item["record"]["S"]) for item in items]

    def of_instance(self, cluster: str, instance: str) -> CapacityRequest | None:
        """Read the request of an instance by a consistent GetItem."""
        key = _key(cluster, instance)
        with aws_errors():
            answer = self._client().get_item(TableName=self._table, Key=key, ConsistentRead=True)
        item = answer.get("Item")
        return CapacityRequest.model_validate_json(item["record"]["S"]) if item else None

    def write(self, request: CapacityRequest) -> None:
        """Write a request under the lock of its version.

        Raises:
            RecordChanged: the stored version is not one below this one's.
        """
        item = {
            **_key(request.cluster, request.instance),
            "expires": {"N": str(int((request.ends_at.astimezone(UTC) + KEPT_FOR).timestamp()))},
            "record": {"S": request.model_dump_json()},
        }
        put_version(self._client(), self._table, item, request.version)


def _key(cluster: str, instance: str) -> dict[str, Any]:
    return {"pk": {"S": f"CAPACITY#{cluster}"}, "sk": {"S": f"RETIREMENT#{instance}"}}
