"""The records of provisioning in the table, by boto3.

Keys: `pk` = PROVISIONING#<cluster>, `sk` = STATUS, TOLD and WATCHED.
"""

import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from leeway.aws.errors import aws_errors
from leeway.disruption.watched_nodes import KEY_BYTES as WATCHED_KEY_BYTES
from leeway.disruption.watched_nodes import WatchedNodes
from leeway.provisioning.status import ProvisioningStatus
from leeway.provisioning.told_pods import KEY_BYTES

_ENTRY = struct.Struct(f">{KEY_BYTES}sI")
"""A key, and the time in seconds since 1970."""

_WATCHED = struct.Struct(f">{WATCHED_KEY_BYTES}sd")
"""The same, to the microsecond. 2,000 nodes have 32 KB in an item of DynamoDB, which holds 400
KB."""


class DynamoProvisioningRecords:
    """The Protocols ProvisioningRecords and WatchedNodesRecords. `client` returns one of
    DynamoDB."""

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

    def watched(self, cluster: str) -> WatchedNodes | None:
        """Read the watched nodes by a consistent GetItem."""
        item = self._item(cluster, "WATCHED")
        if item is None:
            return None
        quiet, held = (_unpacked(bytes(item[name]["B"])) for name in ("quiet", "held"))
        return WatchedNodes(datetime.fromisoformat(item["seen_at"]["S"]), quiet, held)

    def write_watched(self, cluster: str, nodes: WatchedNodes) -> None:
        """Replace the watched nodes."""
        attributes = {
            "seen_at": {"S": nodes.seen_at.isoformat()},
            "quiet": {"B": _packed(nodes.quiet)},
            "held": {"B": _packed(nodes.held)},
        }
        self._put(cluster, "WATCHED", attributes)

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


def _packed(times: Mapping[bytes, datetime]) -> bytes:
    return b"".join(_WATCHED.pack(key, at.timestamp()) for key, at in times.items())


def _unpacked(packed: bytes) -> dict[bytes, datetime]:
    return {key: datetime.fromtimestamp(at, UTC) for key, at in _WATCHED.iter_unpack(packed)}
