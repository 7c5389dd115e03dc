"""What retirements must agree on, in the table, by boto3.

Keys: `pk` = CHURN#<cluster>, `sk` = CHURN.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError

from leeway.aws.errors import aws_errors, code_of
from leeway.ports.table import RecordChanged
from leeway.retirement.disruption_budget import DisruptionLedger

KEPT_FOR = timedelta(days=7)
"""How long after its last write an item is kept: longer than a retirement lasts."""

_TAKEN = "ConditionalCheckFailedException"


class DynamoDisruptionLedgers:
    """The Ledgers Protocol; `client` makes boto3's DynamoDB client when first asked."""

    def __init__(self, client: Callable[[], Any], table: str) -> None:
        self._client = client
        self._table = table

    def ledger(self, cluster: str) -> DisruptionLedger:
        """Read consistently which of a cluster's instances went voluntarily of late."""
        key = _churn_key(cluster)
        with aws_errors():
            answer = self._client().get_item(TableName=self._table, Key=key, ConsistentRead=True)
        item = answer.get("Item")
        if not item:
            return DisruptionLedger(cluster=cluster)
        return DisruptionLedger.model_validate_json(item["ledger"]["S"])

    def write(self, ledger: DisruptionLedger) -> None:
        """Write a ledger whose `version` is one above what was read.

        Raises:
            RecordChanged: the stored version is another one.
        """
        key = _churn_key(ledger.cluster)
        body = {"version": {"N": str(ledger.version)}, "ledger": {"S": ledger.model_dump_json()}}
        condition: dict[str, Any] = {
            "ConditionExpression": "attribute_not_exists(pk) OR #version = :read",
            "ExpressionAttributeNames": {"#version": "version"},
            "ExpressionAttributeValues": {":read": {"N": str(ledger.version - 1)}},
        }
        expires = int((datetime.now(UTC) + KEPT_FOR).timestamp())
        item = {**key, **body, "expires": {"N": str(expires)}}
        with aws_errors():
            try:
                self._client().put_item(TableName=self._table, Item=item, **condition)
            except ClientError as error:
                if code_of(error) == _TAKEN:
                    raise RecordChanged(key["pk"]["S"]) from error
                raise


def _churn_key(cluster: str) -> dict[str, Any]:
    return {"pk": {"S": f"CHURN#{cluster}"}, "sk": {"S": "CHURN"}}
