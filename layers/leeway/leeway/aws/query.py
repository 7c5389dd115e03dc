"""Queries of the table that read all pages."""

from typing import Any

from leeway.aws.errors import aws_errors


def query_all(client: Any, table: str, condition: str, **parameters: Any) -> list[dict[str, Any]]:
    """Return all items that meet a key condition, each attribute with its type.

    `client` is boto3's DynamoDB client; `parameters` are further parameters of its `query`.

    Raises:
        CloudUnavailable, CloudRefused: a page could not be read.
    """
    with aws_errors():
        pages = client.get_paginator("query").paginate(
            TableName=table, KeyConditionExpression=condition, **parameters
        )
        return [item for page in pages for item in page["Items"]]


def query_partition(
    client: Any, table: str, partition: str, prefix: str = ""
) -> list[dict[str, Any]]:
    """Return the items of a partition key by a consistent Query: all items, or the items whose sort
    key begins with a prefix.

    Raises:
        CloudUnavailable, CloudRefused: a page could not be read.
    """
    condition, values = "pk = :pk", {":pk": {"S": partition}}
    if prefix:
        condition += " AND begins_with(sk, :prefix)"
        values[":prefix"] = {"S": prefix}
    return query_all(
        client, table, condition, ExpressionAttributeValues=values, ConsistentRead=True
    )
