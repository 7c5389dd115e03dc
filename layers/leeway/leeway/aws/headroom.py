"""The statuses of buffers and targets in the table, by boto3.

Keys: `pk` = HEADROOM#<cluster>; `sk` = <subject>, and ORIGINAL#<subject> for the original
scale of a target.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from leeway.aws.errors import aws_errors, conditional_write
from leeway.aws.query import query_partition
from leeway.headroom.status import HeadroomStatus, OriginalScale
from leeway.ports.table import RecordChanged
from leeway.typed_json import adapter_of

_ORIGINAL = "ORIGINAL#"


class DynamoHeadroom:
    """The HeadroomStates Protocol; `client` returns boto3's DynamoDB client."""

    def __init__(self, client: Callable[[], Any], table: str) -> None:
        self._client = client
        self._table = table

    def statuses(self, cluster: str) -> dict[str, HeadroomStatus]:
        """Read the statuses of a cluster, by subject."""
        items = query_partition(self._client(), self._table, _partition(cluster))
        originals = {
            item["sk"]["S"].removeprefix(_ORIGINAL): adapter_of(OriginalScale).validate_json(
                item["original"]["S"]
            )
            for item in items
            if "original" in item
        }
        statuses = [
            adapter_of(HeadroomStatus).validate_json(item["status"]["S"])
            for item in items
            if "status" in item
        ]
        return {one.subject: replace(one, original=originals.get(one.subject)) for one in statuses}

    def write(self, cluster: str, status: HeadroomStatus) -> None:
        """Write the status of one buffer or target; its original scale is not changed."""
        body = adapter_of(HeadroomStatus).dump_json(replace(status, original=None)).decode()
        key = _key(cluster, status.subject)
        with aws_errors():
            self._client().put_item(TableName=self._table, Item={**key, "status": {"S": body}})

    def write_original(self, cluster: str, subject: str, original: OriginalScale) -> None:
        """Write the original scale of a target unless one of the same object is stored.

        It has an item of its own and a condition: of two runs at the same time, the second may read
        the size that the first has just applied.
        """
        item = {
            **_key(cluster, f"{_ORIGINAL}{subject}"),
            "original": {"S": adapter_of(OriginalScale).dump_json(original).decode()},
            "uid": {"S": original.uid},
        }
        with suppress(RecordChanged), conditional_write(subject):
            self._client().put_item(
                TableName=self._table,
                Item=item,
                ConditionExpression="attribute_not_exists(pk) OR uid <> :uid",
                ExpressionAttributeValues={":uid": {"S": original.uid}},
            )

    def delete(self, cluster: str, subject: str) -> None:
        """Delete the status and the original scale of a subject."""
        with aws_errors():
            for key in (_key(cluster, f"{_ORIGINAL}{subject}"), _key(cluster, subject)):
                self._client().delete_item(TableName=self._table, Key=key)


def _key(cluster: str, sort_key: str) -> dict[str, Any]:
    return {"pk": {"S": _partition(cluster)}, "sk": {"S": sort_key}}


def _partition(cluster: str) -> str:
    return f"HEADROOM#{cluster}"
