"""A Query of the table, in as many pages as it takes."""

from typing import Any

from leeway.cloud.errors import aws_errors


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


def query_cluster(client: Any, table: str, cluster: str, prefix: str) -> list[dict[str, Any]]:
    """Return the items kept of a cluster whose sort key begins so, as they are now.

    Raises:
        CloudUnavailable, CloudRefused: a page could not be read.
    """
    return query_all(
        client,
        table,
        "pk = :pk AND begins_with(sk, :prefix)",
        ExpressionAttributeValues={
            ":pk": {"S": f"CLUSTER#{cluster}"},
            ":prefix": {"S": prefix},
        },
        ConsistentRead=True,
    )
