"""Launch intents in the table, by boto3.

Keys: `pk` = LAUNCH#<cluster>, `sk` = INTENT#<time of creation>#<id>. `expires` is the table's time
to live.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError

from leeway.aws.errors import aws_errors, code_of
from leeway.aws.query import query_partition
from leeway.launch.intent import LaunchIntent
from leeway.ports.table import RecordChanged

KEPT_FOR = timedelta(hours=1)
"""How long after its creation an intent is kept: four times as long as a node may take to join."""


class DynamoLaunchIntents:
    """The LaunchIntents Protocol; `client` makes boto3's DynamoDB client when it is first used."""

    def __init__(self, client: Callable[[], Any], table: str) -> None:
        self._client = client
        self._table = table

    def of_cluster(self, cluster: str) -> list[LaunchIntent]:
        """Read the intents of a cluster consistently, the oldest first."""
        items = query_partition(self._client(), self._table, f"LAUNCH#{cluster}", "INTENT#")
        # DynamoDB removes expired items only some time after they expire.
        now = datetime.now(UTC).timestamp()
        kept = [item for item in items if int(item["expires"]["N"]) > now]
        return [LaunchIntent.model_validate_json(item["record"]["S"]) for item in kept]

    def write(self, intent: LaunchIntent) -> None:
        """Write an intent, under the lock of its version.

        Raises:
            RecordChanged: the stored version is not one below this one's.
        """
        created = intent.created_at.astimezone(UTC)
        item = {
            "pk": {"S": f"LAUNCH#{intent.cluster}"},
            "sk": {"S": f"INTENT#{created.isoformat(timespec='microseconds')}#{intent.id}"},
            "version": {"N": str(intent.version)},
            "expires": {"N": str(int((created + KEPT_FOR).timestamp()))},
            "record": {"S": intent.model_dump_json()},
        }
        condition: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(pk)"}
        if intent.version > 1:
            condition = {
                "ConditionExpression": "#version = :read",
                "ExpressionAttributeNames": {"#version": "version"},
                "ExpressionAttributeValues": {":read": {"N": str(intent.version - 1)}},
            }
        with aws_errors():
            try:
                self._client().put_item(TableName=self._table, Item=item, **condition)
            except ClientError as error:
                if code_of(error) == "ConditionalCheckFailedException":
                    raise RecordChanged(f"launch intent {intent.id}") from error
                raise
