"""The table in DynamoDB, by boto3.

The attributes of an item: `pk` and `sk`; `record`, a JSON text or packed bytes; `version`;
`expires`, the table's time to live; and the attributes of the indexes.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import batched
from typing import Any

from botocore.exceptions import ClientError

from leeway.aws.errors import aws_errors, code_of
from leeway.clock import Clock, SystemClock
from leeway.execution.retrying import WhileUnavailable
from leeway.ports.aws import CloudUnavailable
from leeway.table import Index, Item, Key, RecordChanged, Table

WRITES_PER_CALL = 25
KEYS_PER_CALL = 100
"""Source: DynamoDB API reference, "BatchWriteItem" and "BatchGetItem"."""

_SYSTEM_CLOCK = SystemClock()


class DynamoTable(Table):
    """The table of this name; `client` returns boto3's DynamoDB client."""

    def __init__(self, client: Callable[[], Any], name: str, clock: Clock = _SYSTEM_CLOCK) -> None:
        super().__init__(clock.now)
        self._clock = clock
        self._client = client
        self._name = name

    def _get(self, key: Key, consistent: bool) -> Item | None:
        with aws_errors():
            answer = self._client().get_item(
                TableName=self._name, Key=_key(key), ConsistentRead=consistent
            )
        return _item(answer["Item"]) if "Item" in answer else None

    def _get_many(self, keys: Sequence[Key], consistent: bool) -> Iterator[Item]:
        for batch in batched(keys, KEYS_PER_CALL, strict=False):
            wanted = {"Keys": [*map(_key, batch)], "ConsistentRead": consistent}
            requests = {self._name: wanted}
            for answer in self._complete("batch_get_item", requests, "UnprocessedKeys"):
                yield from map(_item, answer["Responses"].get(self._name, []))

    def _query(self, pk: str, prefix: str, consistent: bool) -> Iterator[Item]:
        return self._pages("pk = :key", pk, prefix, ConsistentRead=consistent)

    def _query_index(self, index: Index, value: str, prefix: str) -> Iterator[Item]:
        named = {"#attribute": index.attribute}
        return self._pages(
            "#attribute = :key",
            value,
            prefix,
            IndexName=index.name,
            ExpressionAttributeNames=named,
        )

    def _pages(self, condition: str, key: str, prefix: str, **parameters: Any) -> Iterator[Item]:
        values = {":key": {"S": key}}
        if prefix:
            condition += " AND begins_with(sk, :prefix)"
            values[":prefix"] = {"S": prefix}
        parameters |= {
            "KeyConditionExpression": condition,
            "ExpressionAttributeValues": values,
            "TableName": self._name,
        }
        with aws_errors():
            for page in self._client().get_paginator("query").paginate(**parameters):
                yield from map(_item, page["Items"])

    def _write(self, key: Key, item: Item | None, replaces: int | None) -> None:
        now = self._clock.now().timestamp()
        condition = {} if replaces is None else _stored(replaces, now)
        with aws_errors():
            dynamodb = self._client()
            try:
                if item is None:
                    dynamodb.delete_item(TableName=self._name, Key=_key(key), **condition)
                else:
                    attributes = _attributes(item)
                    dynamodb.put_item(TableName=self._name, Item=attributes, **condition)
            except ClientError as error:
                if code_of(error) == "ConditionalCheckFailedException":
                    raise RecordChanged(" ".join(key)) from error
                raise

    def _change(self, put: Sequence[Item], delete: Sequence[Key]) -> None:
        puts = [{"PutRequest": {"Item": _attributes(item)}} for item in put]
        deletes = [{"DeleteRequest": {"Key": _key(key)}} for key in delete]
        for batch in batched([*puts, *deletes], WRITES_PER_CALL, strict=False):
            self._complete("batch_write_item", {self._name: [*batch]}, "UnprocessedItems")

    def _complete(self, operation: str, requests: Any, left: str) -> list[dict[str, Any]]:
        """Call a batch operation until nothing is left unprocessed; return all answers.

        botocore retries a call that fails, but not what a call that succeeds leaves unprocessed.
        Source: DynamoDB developer guide, "Error handling with DynamoDB".

        Raises:
            CloudUnavailable: something is unprocessed at the retry timeout.
        """
        answers: list[dict[str, Any]] = []
        again = WhileUnavailable(self._clock)
        while True:
            with again:
                with aws_errors():
                    answers.append(getattr(self._client(), operation)(RequestItems=requests))
                if not (requests := answers[-1].get(left)):
                    return answers
                raise CloudUnavailable(f"{operation} left a part of a batch unprocessed")


def _stored(version: int, now: float) -> dict[str, Any]:
    """Return the condition that a version is stored. 0: no item, or an item without a version, or
    an item whose time is over, which DynamoDB deletes only some time later."""
    names = {"ExpressionAttributeNames": {"#version": "version"}}
    if version == 0:
        return {
            "ConditionExpression": "attribute_not_exists(#version) OR expires <= :now",
            "ExpressionAttributeValues": {":now": {"N": str(now)}},
            **names,
        }
    return {
        "ConditionExpression": "#version = :read",
        "ExpressionAttributeValues": {":read": {"N": str(version)}},
        **names,
    }


def _key(key: Key) -> dict[str, Any]:
    return {"pk": {"S": key[0]}, "sk": {"S": key[1]}}


def _attributes(item: Item) -> dict[str, Any]:
    attributes = {
        **_key(item.key),
        "record": {"B" if isinstance(item.body, bytes) else "S": item.body},
        **{name: {"S": value} for name, value in item.indexed.items()},
    }
    if item.version:
        attributes["version"] = {"N": str(item.version)}
    if item.expires is not None:
        attributes["expires"] = {"N": str(item.expires)}
    return attributes


def _item(attributes: dict[str, Any]) -> Item:
    """Translate an item. One that was written by hand may lack any attribute but its key."""
    record = attributes.get("record", {})
    return Item(
        (attributes["pk"]["S"], attributes["sk"]["S"]),
        bytes(record["B"]) if "B" in record else record.get("S"),
        _number(attributes, "version") or 0,
        _number(attributes, "expires"),
    )


def _number(attributes: dict[str, Any], name: str) -> int | None:
    text = attributes.get(name, {}).get("N", "")
    return int(text) if text.isdigit() else None
