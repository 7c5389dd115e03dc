"""Answers for DynamoDB what Leeway asks of it, from memory: the sandbox reads the whole table in
each Query, which takes too long with 50,000 records.

Source: Amazon DynamoDB API reference; a Query answers at most a megabyte.
"""

import json
import threading
from collections import defaultdict
from typing import Any

MOST_BYTES = 2**20
LARGEST_ITEM = 400 * 1024
INDEXES = {"by-cluster": "cluster", "open-by-cluster": "open"}
"""The attribute of each index."""

type Key = tuple[str, str]
type Item = dict[str, Any]


class TableRefused(Exception):
    """An operation is refused, with this code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class CannedTable:
    """One table. Safe for several threads."""

    def __init__(self) -> None:
        self._items: dict[str, dict[Key, Item]] = defaultdict(dict)
        self._indexed: dict[tuple[str, str], dict[Key, Item]] = defaultdict(dict)
        self._lock = threading.Lock()

    def answer(self, operation: str, asked: dict[str, Any]) -> dict[str, Any]:
        """Answer an operation.

        Raises:
            TableRefused: the condition of a write does not hold, or an item is too large.
        """
        with self._lock:
            match operation:
                case "GetItem":
                    item = self._get(asked["Key"])
                    return {"Item": item} if item else {}
                case "PutItem" | "DeleteItem":
                    key = asked.get("Key") or asked["Item"]
                    self._check(asked, self._get(key))
                    self._write(key, asked.get("Item"))
                    return {}
                case "BatchGetItem":
                    ((name, wanted),) = asked["RequestItems"].items()
                    found = [item for key in wanted["Keys"] if (item := self._get(key))]
                    return {"Responses": {name: found}, "UnprocessedKeys": {}}
                case "BatchWriteItem":
                    ((_, requests),) = asked["RequestItems"].items()
                    for one in requests:
                        item = one.get("PutRequest", {}).get("Item")
                        self._write(item or one["DeleteRequest"]["Key"], item)
                    return {"UnprocessedItems": {}}
                case "Query":
                    return self._query(asked)
        raise NotImplementedError(operation)

    def _get(self, key: Item) -> Item | None:
        pair = _pair(key)
        return self._items[pair[0]].get(pair)

    def _check(self, asked: dict[str, Any], stored: Item | None) -> None:
        if "ConditionExpression" not in asked:
            return
        version = stored["version"]["N"] if stored and "version" in stored else None
        values = asked["ExpressionAttributeValues"]
        if ":read" in values:
            holds = version == values[":read"]["N"]
        else:
            expires = stored["expires"]["N"] if stored and "expires" in stored else "inf"
            holds = version is None or float(expires) <= float(values[":now"]["N"])
        if not holds:
            raise TableRefused("ConditionalCheckFailedException", "The conditional request failed")

    def _write(self, key: Item, item: Item | None) -> None:
        if item and len(json.dumps(item)) > LARGEST_ITEM:
            message = "Item size has exceeded the maximum allowed size"
            raise TableRefused("ValidationException", message)
        pair = _pair(key)
        before = self._items[pair[0]].pop(pair, None) or {}
        for attribute in INDEXES.values():
            if attribute in before:
                del self._indexed[attribute, before[attribute]["S"]][pair]
            if item and attribute in item:
                self._indexed[attribute, item[attribute]["S"]][pair] = item
        if item:
            self._items[pair[0]][pair] = item

    def _query(self, asked: dict[str, Any]) -> dict[str, Any]:
        values = asked["ExpressionAttributeValues"]
        value, prefix = values[":key"]["S"], values.get(":prefix", {"S": ""})["S"]
        index = asked.get("IndexName")
        items = self._indexed[INDEXES[index], value] if index else self._items[value]
        keys = sorted(
            (key for key in items if key[1].startswith(prefix)), key=lambda one: one[::-1]
        )
        if start := asked.get("ExclusiveStartKey"):
            keys = keys[keys.index(_pair(start)) + 1 :]
        found, size = [], 0
        for key in keys:
            found.append(items[key])
            size += len(json.dumps(items[key]))
            if size > MOST_BYTES:
                last = {"pk": {"S": key[0]}, "sk": {"S": key[1]}}
                return {"Items": found, "Count": len(found), "LastEvaluatedKey": last}
        return {"Items": found, "Count": len(found)}


def _pair(key: Item) -> Key:
    return key["pk"]["S"], key["sk"]["S"]
