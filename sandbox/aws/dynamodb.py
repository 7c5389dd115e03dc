"""Answers DynamoDB's everyday calls without moto's detours, which grow with the table.

moto sorts a whole table to query one partition, and looks at each value of an answer several times
to write it as JSON, which it is already.
"""

import base64
import json
import re
import time
from collections.abc import Iterable, Iterator
from typing import Any

from moto.core.common_types import TYPE_RESPONSE
from moto.core.responses import ActionResult
from moto.dynamodb import models as moto_dynamodb
from moto.dynamodb.models import dynamodb_backends
from moto.dynamodb.models.dynamo_type import DynamoType, Item
from moto.dynamodb.models.table import Table
from moto.dynamodb.responses import DynamoHandler

from sandbox.aws.calls import Call
from sandbox.aws.cloud import ACCOUNT, Cloud

INDEX = 6  # place of the index's name in what follows the hash key of moto's query
LATE, SWEPT_EVERY = 3600, 60  # seconds
EVERYDAY = {"GetItem", "PutItem", "UpdateItem", "DeleteItem", "Query"}


class PartitionedTable(Table):
    """moto's table, in which a query looks at the partition that it asks for."""

    _asked: DynamoType | None = None

    def query(self, hash_key: DynamoType | None, *args: Any, **kwargs: Any) -> Any:
        """As moto does."""
        index = kwargs.get("index_name", args[INDEX] if len(args) > INDEX else None)
        self._asked = None if index else hash_key
        try:
            return super().query(hash_key, *args, **kwargs)
        finally:
            self._asked = None

    def all_items(self) -> list[Item]:
        """All items in order, or those of the partition that is asked for."""
        if self._asked is None or not self.range_key_attr:
            return super().all_items()
        partition = self.items.get(self._asked, {})
        return sorted(partition.values(), key=lambda item: item.range_key)


class Records(DynamoHandler):
    """moto's actions, whose everyday answers are written as they are."""

    def serialized(self, action_result: ActionResult) -> TYPE_RESPONSE:
        """As moto does."""
        said = action_result.result
        if not isinstance(said, dict) or self._get_action() not in EVERYDAY:
            answer: TYPE_RESPONSE = super().serialized(action_result)
            return answer
        content = {key: value for key, value in said.items() if value is not None}
        headers = {**self.response_headers, "Content-Type": "application/x-amz-json-1.0"}
        return 200, headers, json.dumps(content, default=_plain)


def _plain(value: DynamoType | bytes) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return {value.type: value.value}


def expire(tables: Iterable[Table], before: float) -> None:
    """Delete the items whose time to live ended before this moment (epoch seconds)."""
    for table in tables:
        attribute = table.ttl.get("AttributeName")
        if table.ttl.get("TimeToLiveStatus") != "ENABLED" or not table.range_key_attr:
            continue
        for partition in list(table.items.values()):
            for key, item in list(partition.items()):
                end = item.attrs.get(attribute)
                if end is not None and end.type == "N" and float(end.value) < before:
                    del partition[key]


def kinds_reached(call: Call, body: bytes) -> set[str]:
    """How the partition keys begin that a call reaches in a table, up to their first `#`: what IAM
    compares with `dynamodb:LeadingKeys`. Empty for other services, and for indexes."""
    if call.service != "dynamodb":
        return set()
    return {key.partition("#")[0] + "#" for key in _partition_keys(call.action, json.loads(body))}


def _partition_keys(action: str, asked: dict[str, Any]) -> Iterator[str]:
    match action:
        case "GetItem" | "DeleteItem" | "UpdateItem":
            yield asked["Key"]["pk"]["S"]
        case "PutItem":
            yield asked["Item"]["pk"]["S"]
        case "Query" if "IndexName" not in asked:
            if named := re.search(r"\bpk = (:\w+)", asked["KeyConditionExpression"]):
                yield asked["ExpressionAttributeValues"][named.group(1)]["S"]
        case "BatchGetItem":
            for wanted in asked["RequestItems"].values():
                yield from (key["pk"]["S"] for key in wanted["Keys"])
        case "BatchWriteItem":
            for request in (one for some in asked["RequestItems"].values() for one in some):
                ((_, what),) = request.items()
                yield (what.get("Item") or what["Key"])["pk"]["S"]


def install(cloud: Cloud) -> None:
    """Put these tables in moto's place, and let what is past its time go, an hour late.

    DynamoDB may take days for that: nobody can rely on it.
    """
    moto_dynamodb.Table = PartitionedTable  # type: ignore[attr-defined]

    def sweep() -> None:
        expire(dynamodb_backends[ACCOUNT][cloud.region].tables.values(), time.time() - LATE)
        cloud.timers.after(SWEPT_EVERY, sweep)

    cloud.timers.after(SWEPT_EVERY, sweep)
