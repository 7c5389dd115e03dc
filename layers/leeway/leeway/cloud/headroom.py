"""What is remembered of headroom, in the table, by boto3.

Keys: `pk` = HEADROOM#<cluster>, `sk` = <subject>.
"""

from collections.abc import Callable
from typing import Any

from leeway.cloud.errors import aws_errors
from leeway.cloud.query import query_partition
from leeway.headroom.kept import Kept
from leeway.typed_json import adapter_of


class DynamoHeadroom:
    """The HeadroomStates Protocol; `client` makes boto3's DynamoDB client when first asked."""

    def __init__(self, client: Callable[[], Any], table: str) -> None:
        self._client = client
        self._table = table

    def of(self, cluster: str) -> dict[str, Kept]:
        """Read what is remembered of a cluster, by subject."""
        items = query_partition(self._client(), self._table, _partition(cluster))
        kept = [adapter_of(Kept).validate_json(item["kept"]["S"]) for item in items]
        return {one.subject: one for one in kept}

    def write(self, cluster: str, kept: Kept) -> None:
        """Remember how it stands with one buffer or target."""
        body = adapter_of(Kept).dump_json(kept).decode()
        with aws_errors():
            self._client().put_item(
                TableName=self._table, Item={**_key(cluster, kept.subject), "kept": {"S": body}}
            )

    def forget(self, cluster: str, subject: str) -> None:
        """Forget one that is no longer wanted."""
        with aws_errors():
            self._client().delete_item(TableName=self._table, Key=_key(cluster, subject))


def _key(cluster: str, subject: str) -> dict[str, Any]:
    return {"pk": {"S": _partition(cluster)}, "sk": {"S": subject}}


def _partition(cluster: str) -> str:
    return f"HEADROOM#{cluster}"
