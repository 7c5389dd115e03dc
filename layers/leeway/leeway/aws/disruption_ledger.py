"""The disruption ledgers of clusters in the table, by boto3.

Keys: `pk` = CHURN#<cluster>, `sk` = CHURN.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from leeway.aws.errors import aws_errors, conditional_write
from leeway.retirement.disruption_budget import DisruptionLedger

KEPT_FOR = timedelta(days=7)
"""How long DynamoDB keeps a ledger after its last write: longer than a retirement lasts."""


class DynamoDisruptionLedgers:
    """The Ledgers Protocol; `client` returns boto3's DynamoDB client."""

    def __init__(self, client: Callable[[], Any], table: str) -> None:
        self._client = client
        self._table = table

    def ledger(self, cluster: str) -> DisruptionLedger:
        """Read a cluster's ledger by a consistent GetItem; an empty one if none is stored."""
        key = _churn_key(cluster)
        with aws_errors():
            answer = self._client().get_item(TableName=self._table, Key=key, ConsistentRead=True)
        item = answer.get("Item")
        if not item:
            return DisruptionLedger(cluster=cluster)
        return DisruptionLedger.model_validate_json(item["ledger"]["S"])

    def write(self, ledger: DisruptionLedger) -> None:
        """Write a ledger whose `version` is one above the version that was read.

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
        with conditional_write(key["pk"]["S"]):
            self._client().put_item(TableName=self._table, Item=item, **condition)


def _churn_key(cluster: str) -> dict[str, Any]:
    return {"pk": {"S": f"CHURN#{cluster}"}, "sk": {"S": "CHURN"}}
