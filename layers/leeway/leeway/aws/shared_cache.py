"""What one function read and all others may know, in the table, by boto3.

Keys: `pk` = RECALLED#<what>, `sk` = VALUE, and ASKING while somebody reads it.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError

from leeway.aws.errors import aws_errors, code_of
from leeway.ports.table import CachedValue

KEPT_FOR = timedelta(hours=1)
"""How long the table keeps what nobody believes any more."""


class DynamoSharedCache:
    """The Memory and Claims Protocols; `client` makes boto3's DynamoDB client when first asked."""

    def __init__(self, client: Callable[[], Any], table: str) -> None:
        self._client = client
        self._table = table

    def get(self, what: str) -> CachedValue | None:
        """Read what is remembered; None where nothing is. It may be a second old."""
        with aws_errors():
            answer = self._client().get_item(TableName=self._table, Key=_key(what, "VALUE"))
        item = answer.get("Item")
        if item is None:
            return None
        return CachedValue(item["body"]["S"], datetime.fromisoformat(item["read_at"]["S"]))

    def claim(self, what: str, now: datetime, until: datetime) -> bool:
        """Say that one does it; False where another one has said so until later than now."""
        item = {
            **_key(what, "ASKING"),
            "until": {"N": str(until.timestamp())},
            "expires": {"N": str(int((now + KEPT_FOR).timestamp()))},
        }
        with aws_errors():
            try:
                self._client().put_item(
                    TableName=self._table,
                    Item=item,
                    ConditionExpression="attribute_not_exists(pk) OR #until < :now",
                    ExpressionAttributeNames={"#until": "until"},
                    ExpressionAttributeValues={":now": {"N": str(now.timestamp())}},
                )
            except ClientError as error:
                if code_of(error) == "ConditionalCheckFailedException":
                    return False
                raise
        return True

    def put(self, what: str, value: CachedValue) -> None:
        """Write down what was read."""
        item = {
            **_key(what, "VALUE"),
            "body": {"S": value.body},
            "read_at": {"S": value.read_at.isoformat()},
            "expires": {"N": str(int((value.read_at + KEPT_FOR).timestamp()))},
        }
        with aws_errors():
            self._client().put_item(TableName=self._table, Item=item)


def _key(what: str, sort: str) -> dict[str, Any]:
    return {"pk": {"S": f"RECALLED#{what}"}, "sk": {"S": sort}}
