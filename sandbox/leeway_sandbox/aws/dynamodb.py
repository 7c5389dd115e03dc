"""Speeds up DynamoDB's frequent calls, whose cost in moto grows with the table.

moto sorts a whole table to query one partition, and its serializer walks through each value of an
answer several times.
"""

import base64
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from moto.core.common_types import TYPE_RESPONSE
from moto.core.responses import ActionResult
from moto.dynamodb import models as moto_dynamodb
from moto.dynamodb.models import dynamodb_backends
from moto.dynamodb.models.dynamo_type import DynamoType, Item
from moto.dynamodb.models.table import Table
from moto.dynamodb.responses import DynamoHandler

from leeway_sandbox.aws.calls import Call
from leeway_sandbox.aws.cloud import ACCOUNT, Cloud

TTL_DELAY, TTL_INTERVAL = 3600, 60  # seconds
FREQUENT_ACTIONS = {"GetItem", "PutItem", "UpdateItem", "DeleteItem", "Query"}


class PartitionedTable(Table):
    """moto's table; a query of the table itself reads only the partition that it names.

    `query` and `all_items` are public methods of moto's Table: this class overrides them and calls
    no private member. A query of an index reads the whole table.
    """

    _partition: DynamoType | None = None

    def query(
        self,
        hash_key: DynamoType | None,
        range_comparison: str | None,
        range_objs: list[DynamoType],
        limit: int,
        exclusive_start_key: dict[str, Any],
        scan_index_forward: bool,
        projection_expressions: list[list[str]] | None,
        index_name: str | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[list[Item], int, dict[str, Any] | None]:
        """Query the table, or one of its indexes."""
        self._partition = None if index_name else hash_key
        try:
            return super().query(
                hash_key,
                range_comparison,
                range_objs,
                limit,
                exclusive_start_key,
                scan_index_forward,
                projection_expressions,
                index_name,
                *args,
                **kwargs,
            )
        finally:
            self._partition = None

    def all_items(self) -> list[Item]:
        """Return all items in order; during a query, those of the partition."""
        if self._partition is None or not self.range_key_attr:
            return super().all_items()
        partition = self.items.get(self._partition, {})
        return sorted(partition.values(), key=lambda item: item.range_key)


class DynamoDbResponse(DynamoHandler):
    """moto's DynamoDB actions; the answers of frequent actions are encoded directly."""

    def serialized(self, action_result: ActionResult) -> TYPE_RESPONSE:
        """Encode an answer; moto's serializer walks through each value several times."""
        result = action_result.result
        if not isinstance(result, dict) or self._get_action() not in FREQUENT_ACTIONS:
            answer: TYPE_RESPONSE = super().serialized(action_result)
            return answer
        content = {key: value for key, value in result.items() if value is not None}
        headers = {**self.response_headers, "Content-Type": "application/x-amz-json-1.0"}
        return 200, headers, json.dumps(content, default=_plain)


def _plain(value: DynamoType | bytes) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return {value.type: value.value}


def expire(tables: Iterable[Table], before: float) -> None:
    """Delete the items whose time to live ended before a time (epoch seconds)."""
    for table in tables:
        attribute = table.ttl.get("AttributeName")
        if table.ttl.get("TimeToLiveStatus") != "ENABLED" or not table.range_key_attr:
            continue
        for partition in list(table.items.values()):
            for key, item in list(partition.items()):
                end = item.attrs.get(attribute)
                if end is not None and end.type == "N" and float(end.value) < before:
                    del partition[key]


def keys_reached(call: Call, body: bytes) -> set[str]:
    """Return the partition keys that a call reads or writes, which IAM compares with
    `dynamodb:LeadingKeys`. Empty for other services and for indexes."""
    asked = json.loads(body) if call.service == "dynamodb" else {"IndexName": ""}
    return set() if "IndexName" in asked else {*_partition_keys(call.action, asked)}


_WORDS = {"add", "and", "attribute_exists", "attribute_not_exists", "begins_with", "between"}
_WORDS |= {"contains", "delete", "in", "not", "or", "remove", "set", "size"}


def conditions_of(call: Call, body: bytes) -> Mapping[str, list[str]]:
    """Return the condition keys of a call of DynamoDB: the partition keys, of the index if it reads
    one, and the attributes that it names. `*` is every attribute, of a read without a projection
    and of a call that writes several items.

    Source: DynamoDB developer guide, "Using IAM policy conditions for fine-grained access control".
    """
    asked = json.loads(body)
    attributes = sorted(_attributes(call.action, asked))
    keys = sorted({*_partition_keys(call.action, asked)})
    return {"dynamodb:LeadingKeys": keys, "dynamodb:Attributes": attributes}


def _attributes(action: str, asked: dict[str, Any]) -> set[str]:
    written = asked.get("Item") or asked.get("Key") or {}
    names = asked.get("ExpressionAttributeNames", {})
    expressions = " ".join(
        str(value) for name, value in asked.items() if "Expression" in name[-10:]
    )
    words = re.findall(r"(?<![:\w])#?\w+", expressions)
    named = {names.get(one, one) for one in words if one.lower() not in _WORDS}
    reads = action not in {"DeleteItem", "PutItem", "UpdateItem"}
    return {*written, *named, *(["*"] if reads and "ProjectionExpression" not in asked else [])}


def _partition_keys(action: str, asked: dict[str, Any]) -> Iterator[str]:
    match action:
        case "GetItem" | "DeleteItem" | "UpdateItem":
            yield asked["Key"]["pk"]["S"]
        case "PutItem":
            yield asked["Item"]["pk"]["S"]
        case "Query":
            if named := re.match(r"[#\w]+ = (:\w+)", asked["KeyConditionExpression"]):
                yield asked["ExpressionAttributeValues"][named.group(1)]["S"]
        case "BatchGetItem":
            for wanted in asked["RequestItems"].values():
                yield from (key["pk"]["S"] for key in wanted["Keys"])
        case "BatchWriteItem":
            for request in (one for some in asked["RequestItems"].values() for one in some):
                ((_, what),) = request.items()
                yield (what.get("Item") or what["Key"])["pk"]["S"]


def install(cloud: Cloud) -> None:
    """Let moto create tables of this class, and delete expired items one hour after their end.

    DynamoDB itself may take days, so no caller can rely on the deletion.
    """
    moto_dynamodb.Table = PartitionedTable  # type: ignore[attr-defined]

    def sweep() -> None:
        before = time.time() - TTL_DELAY
        expire(dynamodb_backends[ACCOUNT][cloud.region].tables.values(), before)
        cloud.timers.after(TTL_INTERVAL, sweep)

    cloud.timers.after(TTL_INTERVAL, sweep)
