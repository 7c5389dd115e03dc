"""One AWS for the tests of all adapters, with Leeway's table in it."""

from collections.abc import Iterator

import pytest

from tests.sandbox.aws.started import Sandbox, started

TABLE = "leeway"


@pytest.fixture(scope="session")
def aws() -> Iterator[Sandbox]:
    """AWS with Leeway's table in it."""
    with started() as (_, url):
        sandbox = Sandbox(url)
        sandbox.client("dynamodb").create_table(
            TableName=TABLE,
            KeySchema=[
                {"AttributeName": "pk", "KeyType": "HASH"},
                {"AttributeName": "sk", "KeyType": "RANGE"},
            ],
            AttributeDefinitions=[
                {"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk", "cluster")
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
            BillingMode="PAY_PER_REQUEST",
        )
        yield sandbox
        sandbox.close()


@pytest.fixture(autouse=True)
def without_faults(aws: Sandbox) -> Iterator[None]:
    """Leave no fault behind."""
    yield
    aws.control("PUT", "faults", {"faults": []})
