"""What is remembered of headroom, in the table, by boto3.

Keys: `pk` = HEADROOM#<cluster>; `sk` = <subject>, and ORIGINAL#<subject> for the size that a scaled
target had before Leeway scaled it first.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from botocore.exceptions import ClientError

from leeway.aws.errors import aws_errors, code_of
from leeway.aws.query import query_partition
from leeway.headroom.status import HeadroomStatus, Original
from leeway.typed_json import adapter_of

_ORIGINAL = "ORIGINAL#"


class DynamoHeadroom:
    """The HeadroomStates Protocol; `client` makes boto3's DynamoDB client when first asked."""

    def __init__(self, client: Callable[[], Any], table: str) -> None:
        self._client = client
        self._table = table

    def of(self, cluster: str) -> dict[str, HeadroomStatus]:
        """Read what is remembered of a cluster, by subject."""
        items = query_partition(self._client(), self._table, _partition(cluster))
        originals = {
            item["sk"]["S"].removeprefix(_ORIGINAL): adapter_of(Original).validate_json(
                item["original"]["S"]
            )
            for item in items
            if "original" in item
        }
        kept = [
            adapter_of(HeadroomStatus).validate_json(i["kept"]["S"]) for i in items if "kept" in i
        ]
        return {one.subject: replace(one, original=originals.get(one.subject)) for one in kept}

    def write(self, cluster: str, kept: HeadroomStatus) -> None:
        """Remember how it stands with one buffer or target; what was its original stays."""
        body = adapter_of(HeadroomStatus).dump_json(replace(kept, original=None)).decode()
        key = _key(cluster, kept.subject)
        with aws_errors():
            self._client().put_item(TableName=self._table, Item={**key, "kept": {"S": body}})

    def remember_original(self, cluster: str, subject: str, original: Original) -> None:
        """Remember the size that a target had, unless that of the same object is remembered.

        An item of its own, written on a condition: of two ticks at once, the later one may take a
        size that the other gave for the original.
        """
        item = {
            **_key(cluster, f"{_ORIGINAL}{subject}"),
            "original": {"S": adapter_of(Original).dump_json(original).decode()},
            "uid": {"S": original.uid},
        }
        with aws_errors():
            try:
                self._client().put_item(
                    TableName=self._table,
                    Item=item,
                    ConditionExpression="attribute_not_exists(pk) OR uid <> :uid",
                    ExpressionAttributeValues={":uid": {"S": original.uid}},
                )
            except ClientError as error:
                if code_of(error) != "ConditionalCheckFailedException":
                    raise

    def forget(self, cluster: str, subject: str) -> None:
        """Forget one that is no longer wanted."""
        with aws_errors():
            for key in (_key(cluster, f"{_ORIGINAL}{subject}"), _key(cluster, subject)):
                self._client().delete_item(TableName=self._table, Key=key)


def _key(cluster: str, sort_key: str) -> dict[str, Any]:
    return {"pk": {"S": _partition(cluster)}, "sk": {"S": sort_key}}


def _partition(cluster: str) -> str:
    return f"HEADROOM#{cluster}"
