"""The frequent calls of DynamoDB, which the sandbox encodes itself, answer as moto does."""

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError
from leeway_sandbox.aws.dynamodb import PartitionedTable, expire

from tests.sandbox.aws.started import Sandbox

TABLE = "records"
ITEM: dict[str, Any] = {
    "pk": {"S": "i-1"},
    "sk": {"S": "retirement"},
    "cluster": {"S": "demo"},
    "generation": {"N": "2"},
    "blob": {"B": b"\x00\xff"},
    "seen": {"SS": ["a", "b"]},
    "deep": {"M": {"list": {"L": [{"N": "1"}, {"BOOL": True}, {"NULL": True}]}}},
}


@pytest.fixture(scope="module")
def dynamodb(aws: Sandbox) -> Iterator[Any]:
    """A client of a table with an index and one item of another partition."""
    client = aws.client("dynamodb")
    client.create_table(
        TableName=TABLE,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[
            {"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk", "cluster")
        ],
        KeySchema=[
            {"AttributeName": "pk", "KeyType": "HASH"},
            {"AttributeName": "sk", "KeyType": "RANGE"},
        ],
        GlobalSecondaryIndexes=[
            {
                "IndexName": "by-cluster",
                "KeySchema": [
                    {"AttributeName": "cluster", "KeyType": "HASH"},
                    {"AttributeName": "sk", "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "ALL"},
            }
        ],
    )
    client.put_item(TableName=TABLE, Item={**ITEM, "pk": {"S": "i-2"}})
    yield client
    client.delete_table(TableName=TABLE)


def _key(sort: str = "retirement") -> dict[str, Any]:
    return {"pk": ITEM["pk"], "sk": {"S": sort}}


def _sorted(client: Any, **query: Any) -> list[str]:
    return [item["sk"]["S"] for item in client.query(TableName=TABLE, **query)["Items"]]


def test_an_item_comes_back_with_every_type_as_it_was_put(dynamodb: Any) -> None:
    dynamodb.put_item(TableName=TABLE, Item=ITEM)
    assert dynamodb.get_item(TableName=TABLE, Key=_key(), ConsistentRead=True)["Item"] == ITEM
    assert "Item" not in dynamodb.get_item(TableName=TABLE, Key=_key("none"))


def test_a_failed_condition_is_refused_and_returns_the_present_item(
    dynamodb: Any,
) -> None:
    dynamodb.put_item(TableName=TABLE, Item=ITEM)
    conditional: dict[str, Any] = {
        "TableName": TABLE,
        "Item": {**ITEM, "generation": {"N": "3"}},
        "ConditionExpression": "attribute_not_exists(pk) OR generation < :new",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    dynamodb.put_item(**conditional, ExpressionAttributeValues={":new": {"N": "3"}})
    with pytest.raises(ClientError, match="ConditionalCheckFailed") as refused:
        dynamodb.put_item(**conditional, ExpressionAttributeValues={":new": {"N": "3"}})
    there: dict[str, Any] = dict(refused.value.response)
    assert there["Item"]["generation"] == {"N": "3"}


def test_an_update_returns_the_requested_values(dynamodb: Any) -> None:
    dynamodb.put_item(TableName=TABLE, Item=ITEM)
    updated = dynamodb.update_item(
        TableName=TABLE,
        Key=_key(),
        UpdateExpression="ADD generation :one",
        ExpressionAttributeValues={":one": {"N": "1"}},
        ReturnValues="UPDATED_NEW",
    )
    assert updated["Attributes"] == {"generation": {"N": "3"}}
    deleted = dynamodb.delete_item(TableName=TABLE, Key=_key(), ReturnValues="ALL_OLD")
    assert deleted["Attributes"]["generation"] == {"N": "3"}


def test_a_query_returns_its_partition_in_order_and_in_pages(dynamodb: Any) -> None:
    for sort in ("c", "a", "b"):
        dynamodb.put_item(TableName=TABLE, Item={**ITEM, "sk": {"S": sort}})
    own = {
        "KeyConditionExpression": "pk = :pk",
        "ExpressionAttributeValues": {":pk": ITEM["pk"]},
    }
    assert _sorted(dynamodb, **own) == ["a", "b", "c"]
    assert _sorted(dynamodb, **own, ScanIndexForward=False) == ["c", "b", "a"]
    first = dynamodb.query(TableName=TABLE, Limit=2, **own)
    rest = _sorted(dynamodb, **own, ExclusiveStartKey=first["LastEvaluatedKey"])
    assert [item["sk"]["S"] for item in first["Items"]] + rest == ["a", "b", "c"]
    nobody = {**own, "ExpressionAttributeValues": {":pk": {"S": "nobody"}}}
    assert _sorted(dynamodb, **nobody) == []


def test_a_query_of_an_index_reads_every_partition(dynamodb: Any) -> None:
    dynamodb.put_item(TableName=TABLE, Item=ITEM)
    by_cluster = dynamodb.query(
        TableName=TABLE,
        IndexName="by-cluster",
        KeyConditionExpression="cluster = :c AND sk = :s",
        ExpressionAttributeValues={":c": {"S": "demo"}, ":s": {"S": "retirement"}},
    )
    assert {item["pk"]["S"] for item in by_cluster["Items"]} == {"i-1", "i-2"}


def test_items_are_deleted_an_hour_after_their_time_to_live() -> None:
    attributes = [{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")]
    schema = [
        {"AttributeName": "pk", "KeyType": "HASH"},
        {"AttributeName": "sk", "KeyType": "RANGE"},
    ]
    table: Any = PartitionedTable("t", "123456789012", "us-east-1", schema, attributes)  # type: ignore[abstract]
    table.ttl = {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires"}
    for number, end in enumerate(("100", "300", None)):
        item = {"pk": {"S": "a"}, "sk": {"S": str(number)}}
        table.put_item(item if end is None else item | {"expires": {"N": end}})
    expire([table], before=200)
    assert [item.attrs["sk"].value for item in table.all_items()] == ["1", "2"]
