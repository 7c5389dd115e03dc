"""A Query of the table, in as many pages as it takes."""

from typing import Any

from leeway.aws.errors import aws_errors


def query_all(client: Any, table: str, condition: str, **more: Any) -> list[dict[str, Any]]:
    """Return all items that meet a key condition, each attribute with its type.

    `client` is boto3's DynamoDB client, `more` what else its `query` takes.

    Raises:
        CloudUnavailable, CloudRefused: a page could not be read.
    """
    with aws_errors():
        pages = client.get_paginator("query").paginate(
            TableName=table, KeyConditionExpression=condition, **more
        )
        return [item for page in pages for item in page["Items"]]


def query_partition(
    client: Any, table: str, partition: str, prefix: str = ""
) -> list[dict[str, Any]]:
    """Return the items under a partition key, as they are now: all, or those whose sort key begins
    with a prefix.

    Raises:
        CloudUnavailable, CloudRefused: a page could not be read.
    """
    condition, values = "pk = :pk", {":pk": {"S": partition}}
    if prefix:
        condition, values = (
            f"{condition} AND begins_with(sk, :prefix)",
            {
                **values,
                ":prefix": {"S": prefix},
            },
        )
    return query_all(
        client, table, condition, ExpressionAttributeValues=values, ConsistentRead=True
    )
