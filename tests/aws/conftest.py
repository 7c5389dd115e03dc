"""One sandbox for the tests of all AWS adapters, with Leeway's table."""

from collections.abc import Iterator

import pytest
from leeway.aws.table import DynamoTable

from tests.aws.stored import create_table, table_in
from tests.sandbox.aws.started import Sandbox, started


@pytest.fixture(scope="session")
def aws() -> Iterator[Sandbox]:
    """The sandbox's AWS with Leeway's table."""
    with started() as (_, url):
        sandbox = Sandbox(url)
        create_table(sandbox.client("dynamodb"))
        yield sandbox
        sandbox.close()


@pytest.fixture
def dynamo(aws: Sandbox) -> DynamoTable:
    """The table in DynamoDB."""
    return table_in(aws)


@pytest.fixture(autouse=True)
def without_faults(aws: Sandbox) -> Iterator[None]:
    """Remove all faults after each test."""
    yield
    aws.control("PUT", "faults", {"faults": []})
