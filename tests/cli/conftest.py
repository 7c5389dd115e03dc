"""The command line against an AWS of the sandbox, with Leeway's table in it."""

from collections.abc import Iterator

import pytest
from leeway.wiring import clients

from tests.aws.stored import TABLE, create_table
from tests.sandbox.aws.started import Sandbox, started


@pytest.fixture(scope="session")
def embedded_aws() -> Iterator[Sandbox]:
    with started() as (_, url):
        sandbox = Sandbox(url)
        create_table(sandbox.client("dynamodb"))
        sandbox.client("cloudformation").describe_stacks()  # moto takes seconds to load it
        yield sandbox
        sandbox.close()


@pytest.fixture
def aws(embedded_aws: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    """AWS as the environment names it, without faults and with an empty table."""
    environment = {
        "AWS_ENDPOINT_URL": embedded_aws.url,
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "LEEWAY_TABLE": TABLE,
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "LEEWAY_CLUSTER", "LEEWAY_CLUSTERS"):
        monkeypatch.delenv(name, raising=False)
    forget_clients()
    yield embedded_aws
    embedded_aws.control("PUT", "faults", {"faults": []})
    table = embedded_aws.client("dynamodb")
    for item in table.scan(TableName=TABLE)["Items"]:
        table.delete_item(TableName=TABLE, Key={name: item[name] for name in ("pk", "sk")})
    forget_clients()


def forget_clients() -> None:
    """Have clients built anew, from the environment as it is then."""
    clients.client.cache_clear()
    clients.session.cache_clear()
