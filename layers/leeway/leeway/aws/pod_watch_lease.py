"""The lease of the pod watches in the table, by boto3.

Key: `pk` = LEASE#watch_pods, `sk` = LEASE. `expires` is the table's time to live.
"""

from collections.abc import Callable
from datetime import UTC, timedelta
from typing import Any

from leeway.aws.errors import aws_errors
from leeway.aws.versions import put_version
from leeway.pod_watch.lease import Lease

KEPT_FOR = timedelta(days=1)
"""How long DynamoDB keeps the lease after its last renewal."""

_KEY = {"pk": {"S": "LEASE#watch_pods"}, "sk": {"S": "LEASE"}}


class DynamoPodWatchLease:
    """The Leases Protocol; `client` returns boto3's DynamoDB client."""

    def __init__(self, client: Callable[[], Any], table: str) -> None:
        self._client = client
        self._table = table

    def read(self) -> Lease | None:
        """Read the lease by a consistent GetItem."""
        with aws_errors():
            answer = self._client().get_item(TableName=self._table, Key=_KEY, ConsistentRead=True)
        item = answer.get("Item")
        return Lease.model_validate_json(item["record"]["S"]) if item else None

    def write(self, lease: Lease) -> None:
        """Write the lease under the lock of its version.

        Raises:
            RecordChanged: the stored version is not one below this one's.
        """
        expires = lease.renewed_at.astimezone(UTC) + KEPT_FOR
        item = {
            **_KEY,
            "expires": {"N": str(int(expires.timestamp()))},
            "record": {"S": lease.model_dump_json()},
        }
        put_version(self._client(), self._table, item, lease.version)
