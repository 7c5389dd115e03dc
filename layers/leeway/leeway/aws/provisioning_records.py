"""The records of provisioning in the table, by boto3.

Keys: `pk` = PROVISIONING#<cluster>, `sk` = STATUS and TOLD.
"""

import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from leeway.aws.errors import aws_errors
from leeway.provisioning.report import ProvisioningStatus
from leeway.provisioning.tell import KEY_BYTES

_ENTRY = struct.Struct(f">{KEY_BYTES}sI")
"""A key, and the time in seconds since 1970."""


class DynamoProvisioningRecords:
    """The Protocol ProvisioningRecords; `client` returns a DynamoDB client."""

    def __init__(self, client: Callable[[], Any], table: str) -> None:
        self._client = client
        self._table = table

    def status(self, cluster: str) -> ProvisioningStatus | None:
        """Read the status by a consistent GetItem."""
        item = self._item(cluster, "STATUS")
        return ProvisioningStatus.model_validate_json(item["record"]["S"]) if item else None

    def write_status(self, status: ProvisioningStatus) -> None:
        """Replace the status."""
        self._put(status.cluster, "STATUS", {"record": {"S": status.model_dump_json()}})

    def told(self, cluster: str) -> Mapping[bytes, datetime]:
        """Read the keys of the Events that were written."""
        item = self._item(cluster, "TOLD")
        packed = bytes(item["told"]["B"]) if item else b""
        return {key: datetime.fromtimestamp(at, UTC) for key, at in _ENTRY.iter_unpack(packed)}

    def write_told(self, cluster: str, told: Mapping[bytes, datetime]) -> None:
        """Replace these keys."""
        packed = b"".join(_ENTRY.pack(key, int(at.timestamp())) for key, at in told.items())
        self._put(cluster, "TOLD", {"told": {"B": packed}})

    def _item(self, cluster: str, kind: str) -> dict[str, Any] | None:
        with aws_errors():
            answer = self._client().get_item(
                TableName=self._table, Key=_key(cluster, kind), ConsistentRead=True
            )
        found: dict[str, Any] | None = answer.get("Item")
        return found

    def _put(self, cluster: str, kind: str, attributes: Mapping[str, Any]) -> None:
        with aws_errors():
            self._client().put_item(
                TableName=self._table, Item={**_key(cluster, kind), **attributes}
            )


def _key(cluster: str, kind: str) -> dict[str, Any]:
    return {"pk": {"S": f"PROVISIONING#{cluster}"}, "sk": {"S": kind}}
