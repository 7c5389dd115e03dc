"""Fixtures: the AWS of a sandbox with Leeway's table."""

import json
from collections.abc import Callable, Iterator
from typing import Any

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
    """The AWS that the environment variables select, without faults, and with an empty table."""
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
    drop_clients()
    yield embedded_aws
    embedded_aws.control("PUT", "faults", {"faults": []})
    table = embedded_aws.client("dynamodb")
    for item in table.scan(TableName=TABLE)["Items"]:
        table.delete_item(TableName=TABLE, Key={name: item[name] for name in ("pk", "sk")})
    drop_clients()


@pytest.fixture
def create_stack(aws: Sandbox) -> Iterator[Callable[..., Any]]:
    """Creates a stack whose output is the table, with these parameters, and deletes it after the
    test. Returns the client of CloudFormation."""
    stacks, made = aws.client("cloudformation"), list[str]()

    def create(name: str, **parameters: str) -> Any:
        template = {
            "Parameters": {one: {"Type": "String"} for one in parameters},
            "Resources": {},
            "Outputs": {"TableName": {"Value": TABLE}},
        }
        given = [
            {"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()
        ]
        body = json.dumps(template)
        stacks.create_stack(StackName=name, TemplateBody=body, Parameters=given)
        made.append(name)
        return stacks

    yield create
    for name in made:
        stacks.delete_stack(StackName=name)


def drop_clients() -> None:
    """Drop the cached clients, so that new ones use the current environment."""
    clients.client.cache_clear()
    clients.background_client.cache_clear()
    clients.session.cache_clear()
