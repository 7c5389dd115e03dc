"""Writes of items that have a version: the optimistic lock of the table."""

from typing import Any

from leeway.aws.errors import conditional_write


def put_version(client: Any, table: str, item: dict[str, Any], version: int) -> None:
    """Write an item as this version, if the stored version is one below it; version 1: if there is
    no item with its key.

    `client` is boto3's DynamoDB client; `item` has no attribute `version`.

    Raises:
        RecordChanged: the stored version is another one.
        CloudUnavailable, CloudRefused: the item could not be written.
    """
    condition: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(pk)"}
    if version > 1:
        condition = {
            "ConditionExpression": "#version = :read",
            "ExpressionAttributeNames": {"#version": "version"},
            "ExpressionAttributeValues": {":read": {"N": str(version - 1)}},
        }
    with conditional_write(item["pk"]["S"]):
        versioned = {**item, "version": {"N": str(version)}}
        client.put_item(TableName=table, Item=versioned, **condition)
