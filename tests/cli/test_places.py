"""Commands in several accounts and regions."""

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from leeway.provisioning.report import STATUS, ProvisioningStatus
from leeway_cli import main
from leeway_cli.errors import BadInputError, CannotBeDoneError
from leeway_cli.places import Place, in_each, places
from leeway_cli.stack import find_stack

from tests.aws.stored import TABLE, table_in
from tests.sandbox.aws.started import Sandbox

STACK = "several-places"


@pytest.fixture
def deployed(
    aws: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[tuple[str, ...]]:
    """The options of two profiles: account dev has a stack with cluster prod, and gone does not
    answer. Only profiles have endpoints: with the credentials of the environment, botocore would
    call AWS."""
    stacks = aws.client("cloudformation")
    template = {
        "Parameters": {"ClusterNames": {"Type": "String"}},
        "Resources": {},
        "Outputs": {"TableName": {"Value": TABLE}},
    }
    names = [{"ParameterKey": "ClusterNames", "ParameterValue": "prod"}]
    stacks.create_stack(StackName=STACK, TemplateBody=json.dumps(template), Parameters=names)
    status = ProvisioningStatus(cluster="prod", run_at=datetime.now(UTC), why="a test")
    table_in(aws).put(STATUS, status)
    config = tmp_path / "config"
    profiles = {"dev": aws.url, "gone": "http://127.0.0.1:1"}
    config.write_text(
        "\n".join(
            f"[profile {name}]\nregion = us-east-1\nendpoint_url = {url}\n"
            f"aws_access_key_id = AKIAIOSFODNN7EXAMPLE\naws_secret_access_key = of-{name}"
            for name, url in profiles.items()
        )
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    for name in ("AWS_ENDPOINT_URL", "LEEWAY_TABLE"):
        monkeypatch.delenv(name)
    monkeypatch.setattr("leeway.wiring.clients.DEFAULT_TRIES", 1)
    yield ("--stack", STACK)
    stacks.delete_stack(StackName=STACK)


def test_each_account_is_read_and_one_that_fails_does_not_hide_the_others(
    deployed: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    profiles = ("--profile", "gone", "--profile", "dev")
    assert main.run(["status", *deployed, *profiles]) == 1
    printed = capsys.readouterr()
    gone, dev = printed.out.index("profile gone"), printed.out.index("profile dev")
    assert gone < printed.out.index("AWS did not answer a request for stack") < dev
    assert dev < printed.out.index("launches  last run")
    assert printed.err == "leeway: Not read: profile gone.\n"
    assert main.run(["status", *deployed, *profiles, "-o", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    first, second = document["places"]
    assert (first["profile"], first["region"]) == ("gone", None)
    assert "did not answer" in first["error"]["message"]
    assert [one["cluster"] for one in second["clusters"]] == ["prod"]
    assert document["error"]["message"] == "Not read: profile gone."


def test_one_place_has_the_document_of_the_command(
    deployed: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    one = ("--profile", "dev", "--region", "us-east-1")
    assert main.run(["status", *deployed, *one, "-o", "json"]) == 0
    assert [one["cluster"] for one in json.loads(capsys.readouterr().out)["clusters"]] == ["prod"]
    assert main.run(["status", *deployed, "--profile", "gone", "--region", "us-east-1"]) == 1
    assert "AWS did not answer" in capsys.readouterr().err


@pytest.mark.usefixtures("deployed")
@pytest.mark.parametrize(
    "others",
    [
        {"AWS_DEFAULT_PROFILE": "gone"},
        {"AWS_WEB_IDENTITY_TOKEN_FILE": "/none", "AWS_ROLE_ARN": "arn:aws:iam::1:role/ci"},
    ],
)
def test_no_variable_has_precedence_over_the_option(
    others: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name, value in others.items():
        monkeypatch.setenv(name, value)
    ((_, table),) = in_each([Place("dev")], lambda: find_stack(STACK).table)
    assert table == TABLE


@pytest.mark.usefixtures("deployed")
def test_the_environment_is_as_before_also_after_an_error() -> None:
    def read() -> tuple[str, str | None]:
        return find_stack(STACK).table, os.environ.get("AWS_SECRET_ACCESS_KEY")

    before = dict(os.environ)
    assert in_each([Place("dev")], read) == [(Place("dev"), (TABLE, None))]
    assert dict(os.environ) == before
    with pytest.raises(CannotBeDoneError, match="AWS_PROFILE is invalid"):
        in_each([Place("nope")], read)
    assert dict(os.environ) == before


def test_places_are_each_region_of_each_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEEWAY_TABLE", raising=False)
    found = places(["dev", "prod", "dev"], ["us-east-1", "eu-west-1"])
    assert [str(one) for one in found] == [
        "profile dev, us-east-1",
        "profile dev, eu-west-1",
        "profile prod, us-east-1",
        "profile prod, eu-west-1",
    ]
    assert places(None, None) == (Place(),)
    with pytest.raises(BadInputError, match="--region: expected a name"):
        places(None, [""])
    monkeypatch.setenv("LEEWAY_TABLE", "leeway")
    assert places(None, ["us-east-1"]) == (Place(region="us-east-1"),)
    with pytest.raises(BadInputError, match="LEEWAY_TABLE names one table"):
        places(["dev", "prod"], None)


def test_watch_has_one_place(aws: Sandbox, capsys: pytest.CaptureFixture[str]) -> None:
    del aws  # It sets the environment.
    os.environ.pop("LEEWAY_TABLE")
    assert main.run(["status", "--watch", "--region", "a", "--region", "b"]) == 2
    assert "--watch: expected one profile and one region" in capsys.readouterr().err
