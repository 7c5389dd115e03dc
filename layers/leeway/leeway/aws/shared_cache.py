"""The cache that all functions share, in the table, by boto3.

Keys: `pk` = CACHE#<name>; `sk` = VALUE for the value, CLAIM while a function refreshes it.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from leeway.aws.errors import aws_errors, conditional_write
from leeway.ports.table import CachedValue, RecordChanged

KEPT_FOR = timedelta(hours=1)
"""How long DynamoDB keeps a value or a claim after its last write; readers check its age."""


class DynamoClaims:
    """The Claims Protocol; `client` returns boto3's DynamoDB client."""

    def __init__(self, client: Callable[[], Any], table: str) -> None:
        self._client = client
        self._table = table

    def claim(self, what: str, now: datetime, until: datetime) -> bool:
        """Claim a task by one conditional PutItem; False if another claim lasts beyond `now`."""
        item = {
            **_key(what, "CLAIM"),
            "until": {"N": str(until.timestamp())},
            "expires": {"N": str(int((now + KEPT_FOR).timestamp()))},
        }
        try:
            with conditional_write(what):
                self._client().put_item(
                    TableName=self._table,
                    Item=item,
                    ConditionExpression="attribute_not_exists(pk) OR #until < :now",
                    ExpressionAttributeNames={"#until": "until"},
                    ExpressionAttributeValues={":now": {"N": str(now.timestamp())}},
                )
        except RecordChanged:
            return False
        return True


class DynamoSharedCache(DynamoClaims):
    """The CacheStore Protocol."""

    def get(self, what: str) -> CachedValue | None:
        """Read a value by an eventually consistent GetItem: it may be a second old."""
        with aws_errors():
            answer = self._client().get_item(TableName=self._table, Key=_key(what, "VALUE"))
        item = answer.get("Item")
        if item is None:
            return None
        return CachedValue(item["body"]["S"], datetime.fromisoformat(item["read_at"]["S"]))

    def put(self, what: str, value: CachedValue) -> None:
        """Write a value; it replaces the stored one without a condition."""
        item = {
            **_key(what, "VALUE"),
            "body": {"S": value.body},
            "read_at": {"S": value.read_at.isoformat()},
            "expires": {"N": str(int((value.read_at + KEPT_FOR).timestamp()))},
        }
        with aws_errors():
            self._client().put_item(TableName=self._table, Item=item)


def _key(what: str, sort: str) -> dict[str, Any]:
    return {"pk": {"S": f"CACHE#{what}"}, "sk": {"S": sort}}
