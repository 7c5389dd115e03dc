"""Surveys of regions, in the table, by boto3.

Keys: `pk` = OFFERINGS#<region>, `sk` = CATALOG.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from leeway.aws.errors import aws_errors
from leeway.ports.aws import CloudRefused

LARGEST = 390_000
"""Bytes of a survey: an item of DynamoDB holds 400 KB with its keys. A region of 1,400 types in 6
zones takes a tenth of it."""


class DynamoSurveys:
    """The Surveys Protocol; `client` makes boto3's DynamoDB client when first asked."""

    def __init__(self, client: Callable[[], Any], table: str) -> None:
        self._client = client
        self._table = table

    def packed(self, region: str) -> bytes | None:
        """Read a region's survey; None where there has been none."""
        with aws_errors():
            answer = self._client().get_item(TableName=self._table, Key=_key(region))
        item = answer.get("Item")
        return bytes(item["packed"]["B"]) if item else None

    def write(self, region: str, packed: bytes) -> None:
        """Write a region's survey in place of what there was.

        Raises:
            CloudRefused: it is larger than an item of the table may be.
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
