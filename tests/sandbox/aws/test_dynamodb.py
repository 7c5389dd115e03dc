"""The frequent calls of DynamoDB, which the sandbox encodes itself, answer as moto does."""

from typing import Any

from leeway_sandbox.aws.dynamodb import PartitionedTable, expire


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
