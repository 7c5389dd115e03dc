"""Launch intents in the table, by boto3.

Keys: `pk` = LAUNCH#<cluster>, `sk` = INTENT#<time of creation>#<id>. `expires` is the table's time
to live.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from leeway.aws.query import query_partition
from leeway.aws.versions import put_version
from leeway.launch.intent import LaunchIntent

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
            "expires": {"N": str(int((created + KEPT_FOR).timestamp()))},
            "record": {"S": intent.model_dump_json()},
        }
        put_version(self._client(), self._table, item, intent.version)
