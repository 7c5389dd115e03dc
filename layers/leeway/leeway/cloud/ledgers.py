"""What retirements must agree on, in the table, by boto3.

Keys: `pk` = CLUSTER#<name>, `sk` = CHURN; `pk` = GROUP#<name>, `sk` = SURGE; `pk` = INSTANCE#<id>,
`sk` = SUCCESSION.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError

from leeway.cloud.errors import aws_errors, code_of
from leeway.cloud.ports import RecordChanged
from leeway.records.surges import SurgeLedger
from leeway.records.turns import ChurnLedger

KEPT_FOR = timedelta(days=7)
"""How long after its last write an item is kept: longer than a retirement lasts."""

_TAKEN = "ConditionalCheckFailedException"


class DynamoLedgers:
    """The Ledgers Protocol; `client` makes boto3's DynamoDB client when first asked."""

    def __init__(self, client: Callable[[], Any], table: str) -> None:
        self._client = client
        self._table = table

    def churn(self, cluster: str) -> ChurnLedger:
        """Read consistently which of a cluster's instances went voluntarily of late."""
        stored = self._read(_churn_key(cluster))
        return ChurnLedger.model_validate_json(stored) if stored else ChurnLedger(cluster=cluster)

    def surge(self, group: str) -> SurgeLedger:
        """Read consistently for whom a group's desired capacity is or was raised."""
        stored = self._read(_surge_key(group))
        return SurgeLedger.model_validate_json(stored) if stored else SurgeLedger(group=group)

    def _read(self, key: dict[str, Any]) -> str | None:
        with aws_errors():
            answer = self._client().get_item(TableName=self._table, Key=key, ConsistentRead=True)
        item = answer.get("Item")
        return str(item["ledger"]["S"]) if item else None

    def write(self, ledger: ChurnLedger | SurgeLedger) -> None:
        """Write a ledger whose `version` is one above what was read.

        Raises:
            RecordChanged: the stored version is another one.
        """
        key = (
            _churn_key(ledger.cluster)
            if isinstance(ledger, ChurnLedger)
            else _surge_key(ledger.group)
        )
        body = {"version": {"N": str(ledger.version)}, "ledger": {"S": ledger.model_dump_json()}}
        condition: dict[str, Any] = {
            "ConditionExpression": "attribute_not_exists(pk) OR #version = :read",
            "ExpressionAttributeNames": {"#version": "version"},
            "ExpressionAttributeValues": {":read": {"N": str(ledger.version - 1)}},
        }
        if not self._put({**key, **body}, condition):
            raise RecordChanged(key["pk"]["S"])

    def claim(self, successor: str, retiring: str) -> bool:
        """Note that one instance succeeds another; False where it succeeds a third."""
        key = {"pk": {"S": f"INSTANCE#{successor}"}, "sk": {"S": "SUCCESSION"}}
        condition: dict[str, Any] = {
            "ConditionExpression": "attribute_not_exists(pk) OR succeeds = :retiring",
            "ExpressionAttributeValues": {":retiring": {"S": retiring}},
        }
        return self._put({**key, "succeeds": {"S": retiring}}, condition)

    def _put(self, item: dict[str, Any], condition: dict[str, Any]) -> bool:
        expires = int((datetime.now(UTC) + KEPT_FOR).timestamp())
        with aws_errors():
            try:
                self._client().put_item(
                    TableName=self._table,
                    Item={**item, "expires": {"N": str(expires)}},
                    **condition,
                )
            except ClientError as error:
                if code_of(error) == _TAKEN:
                    return False
                raise
        return True


def _churn_key(cluster: str) -> dict[str, Any]:
    return {"pk": {"S": f"CLUSTER#{cluster}"}, "sk": {"S": "CHURN"}}


def _surge_key(group: str) -> dict[str, Any]:
    return {"pk": {"S": f"GROUP#{group}"}, "sk": {"S": "SURGE"}}
