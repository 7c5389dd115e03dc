"""One AWS for the tests of all adapters, with Leeway's table in it."""

from collections.abc import Iterator
from functools import partial

import pytest
from leeway.aws.records import DynamoRecords

from tests.aws.stored import TABLE, create_table
from tests.sandbox.aws.started import Sandbox, started


@pytest.fixture(scope="session")
def aws() -> Iterator[Sandbox]:
    """AWS with Leeway's table in it."""
    with started() as (_, url):
        sandbox = Sandbox(url)
        create_table(sandbox.client("dynamodb"))
        yield sandbox
        sandbox.close()


@pytest.fixture
def records(aws: Sandbox) -> DynamoRecords:
    """The table's records, through the adapter."""
    return DynamoRecords(partial(aws.client, "dynamodb"), TABLE)


@pytest.fixture(autouse=True)
def without_faults(aws: Sandbox) -> Iterator[None]:
    """Leave no fault behind."""
    yield
    aws.control("PUT", "faults", {"faults": []})
