"""Surveys of regions in the table, by boto3.

Keys: `pk` = OFFERINGS#<region>, `sk` = CATALOG.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from leeway.aws.errors import aws_errors
from leeway.ports.aws import CloudRefused

LARGEST = 390_000
"""Bytes of a survey. A DynamoDB item holds 400 KB with its keys; a region of 1,400 types in 6 zones
takes a tenth of that."""


class DynamoSurveys:
    """The Surveys Protocol; `client` returns boto3's DynamoDB client."""

    def __init__(self, client: Callable[[], Any], table: str) -> None:
        self._client = client
        self._table = table

    def packed(self, region: str) -> bytes | None:
        """Read a region's survey; None if none is stored."""
        with aws_errors():
            answer = self._client().get_item(TableName=self._table, Key=_key(region))
        item = answer.get("Item")
        return bytes(item["packed"]["B"]) if item else None

    def write(self, region: str, packed: bytes) -> None:
        """Write a region's survey; it replaces the stored one.

        Raises:
            CloudRefused: the survey is larger than LARGEST.
        """
        if len(packed) > LARGEST:
            raise CloudRefused(f"the survey of {region} has {len(packed)} bytes, over {LARGEST}")
        item = {
            **_key(region),
            "packed": {"B": packed},
            "written_at": {"S": datetime.now(UTC).isoformat(timespec="seconds")},
        }
        with aws_errors():
            self._client().put_item(TableName=self._table, Item=item)


def _key(region: str) -> dict[str, Any]:
    return {"pk": {"S": f"OFFERINGS#{region}"}, "sk": {"S": "CATALOG"}}
