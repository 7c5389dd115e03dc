"""Commands in several accounts and regions."""

import json
import os
import shlex
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from leeway.catalog.stored import SURVEY
from leeway.provisioning.report import STATUS, ProvisioningStatus
from leeway.selection.offers.survey import compressed
from leeway_cli import main
from leeway_cli.adopt.settings.leeway_stack import CloudFormation
from leeway_cli.doctor.finding import deploy
from leeway_cli.doctor.read.aws import failure_queues_of
from leeway_cli.errors import BadInputError, CannotBeDoneError
from leeway_cli.explain.capacity import Source
from leeway_cli.nodes.command import _Listing, _views
from leeway_cli.nodes.rows import Sort
from leeway_cli.output import stdout_console, write_stderr
from leeway_cli.places import Clusters, Place, in_each, in_each_cluster, places
from leeway_cli.selection.sources import sandbox_survey
from leeway_cli.stack import find_stack
from rich.text import Text

from tests.aws.stored import TABLE, table_in
from tests.cli.test_cost import store
from tests.cli.test_explain_capacity import node
from tests.sandbox.aws.started import Sandbox

STACK = "several-places"


@pytest.fixture
def deployed(
    aws: Sandbox, create_stack: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> tuple[str, ...]:
    """The options of two profiles: account dev has a stack with cluster prod, and gone does not
    answer. Only profiles have endpoints: with the credentials of the environment, botocore would
    call AWS."""
    create_stack(STACK, ClusterNames="prod")
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
    for tries in ("DEFAULT_TRIES", "BACKGROUND_TRIES"):
        monkeypatch.setattr(f"leeway.wiring.clients.{tries}", 1)
    return ("--stack", STACK)


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


def test_an_answer_of_something_else_than_aws_is_an_error_of_its_place(
    deployed: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A proxy answers with a page of its own."""

    class Proxy(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html><p>Sign in to the network.")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        config = tmp_path / "config"
        gone, page = "http://127.0.0.1:1\n", f"http://127.0.0.1:{server.server_port}\n"
        config.write_text(config.read_text().replace(gone, page))
        assert main.run(["status", *deployed, "--profile", "gone", "--profile", "dev"]) == 1
        server.shutdown()
    printed = capsys.readouterr()
    assert "An AWS call failed for stack several-places: " in printed.out
    assert "launches  last run" in printed.out
    assert printed.err == "leeway: Not read: profile gone.\n"


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
    ((_, table),) = in_each([Place("dev")], lambda _: find_stack(STACK).table)
    assert table == TABLE


@pytest.mark.usefixtures("deployed")
def test_the_environment_is_as_before_also_after_an_error() -> None:
    def read(_: Place) -> tuple[str, str | None]:
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
    monkeypatch.setenv("LEEWAY_TABLE", "leeway")
    assert places(None, ["us-east-1"]) == (Place(region="us-east-1"),)
    with pytest.raises(BadInputError, match="LEEWAY_TABLE names one table"):
        places(["dev", "prod"], None)


def test_watch_has_one_place(aws: Sandbox, capsys: pytest.CaptureFixture[str]) -> None:
    del aws  # It sets the environment.
    os.environ.pop("LEEWAY_TABLE")
    assert main.run(["status", "--watch", "--region", "a", "--region", "b"]) == 2
    assert "--watch: expected one profile and one region" in capsys.readouterr().err


def test_costs_of_all_clusters_have_their_sum(
    deployed: tuple[str, ...], aws: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    store(aws, timedelta(minutes=2))
    options = ["cost", *deployed, "--profile", "gone", "--profile", "dev", "--all"]
    assert main.run([*options, "-o", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    gone, prod = document["places"]
    assert (gone["profile"], "did not answer" in gone["error"]["message"]) == ("gone", True)
    assert (prod["profile"], prod["cluster"], prod["usd"]) == ("dev", "prod", 2.0)
    assert document["totals"]["usd"] == prod["usd"]
    assert document["totals"]["spotSavedUsd"] == prod["saved"]["spotUsd"]
    assert main.run(options) == 1
    printed = capsys.readouterr()
    assert "\nprofile dev, cluster prod\nThe nodes of cluster prod cost 2.00 USD" in printed.out
    assert printed.out.endswith("\nall that was read\n2.00 USD for 12.0 instance-h\n")
    assert printed.err == "leeway: Not read: profile gone.\n"


def test_nodes_have_the_prices_of_their_account(
    deployed: tuple[str, ...], aws: Sandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of one that does not answer, none is known; each region of a profile is read once."""
    table_in(aws).put(SURVEY, compressed(sandbox_survey()), region="us-east-1")
    file = tmp_path / "nodes.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node("one")]}))
    source = Source((), (file,), "", None, None, False, None, deployed[1], optional=True)
    everywhere = [Place(name, "us-east-1", "c") for name in ("dev", "gone", "dev")]
    clusters = Clusters(everywhere, "", deployed[1], every=False)
    listing = _Listing(source, clusters, frozenset(), "", Sort.NAME)
    (_, dev), (_, gone), (_, again) = listing.read()
    assert not isinstance(dev, CannotBeDoneError)
    assert not isinstance(gone, CannotBeDoneError)
    assert dev.totals.price > 0
    assert again == dev
    assert (gone.totals.price, gone.totals.without_price) == (0, 1)
    assert "warning: profile gone, us-east-1, cluster c: no price is known" in (
        capsys.readouterr().err
    )
    watched = _views(listing, lambda one: Text(f"{one.totals.nodes} node"))
    stdout_console().print(next(watched))
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["profile dev, us-east-1, cluster c", "1 node"]
    assert lines.index("all that was read") == 9


def test_one_cluster_of_all_is_a_place_too(
    deployed: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*deployed, "--profile", "dev", "-o", "json"]
    assert main.run(["cost", "--all", *given]) == 0
    (place,) = json.loads(capsys.readouterr().out)["places"]
    assert place["cluster"] == "prod"
    assert main.run(["cost", "--cluster", "prod", *given]) == 0
    assert json.loads(capsys.readouterr().out)["cluster"] == "prod"


def test_an_error_of_one_cluster_leaves_the_others_and_warnings_name_theirs(
    aws: Sandbox, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    del aws  # It sets the environment.
    names = [f"c{number}" for number in range(20)]
    monkeypatch.setenv("LEEWAY_CLUSTERS", ",".join(names))

    def read(place: Place) -> str:
        if place.cluster == "c3":
            raise CannotBeDoneError("The API server did not answer.")
        if place.cluster == "c5":
            write_stderr("warning: no price is known")
        return place.cluster

    found = in_each_cluster([Place()], "leeway", read)
    assert [one.cluster for one, _ in found] == names
    assert [value for _, value in found if isinstance(value, str)] == [*names[:3], *names[4:]]
    assert capsys.readouterr().err == "warning: cluster c5: no price is known\n"
    monkeypatch.setenv("LEEWAY_CLUSTERS", "")
    assert in_each_cluster([Place()], "leeway", read) == []
    assert "manages no cluster (ClusterNames is empty)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("cost",), "--cluster: expected the name of a cluster, or --all."),
        (("cost", "--all", "--cluster", "prod"), "--all: expected no cluster beside it."),
        (("status", "--all", "--cluster", "prod"), "--all: expected no cluster beside it."),
        (("doctor", "prod", "--all"), "--all: expected no cluster beside it."),
        (("nodes", "--region", "a", "--region", "b"), "expected --all or --cluster with several"),
        (
            ("nodes", "--all", "--watch", "--region", "a", "--region", "b"),
            "--watch: expected one profile and one region.",
        ),
        (("nodes", "--all", "--context", "dev"), "--context: expected one cluster"),
        (("nodes", "--all"), "--all: expected the names of clusters in LEEWAY_CLUSTERS."),
    ],
)
def test_options_of_several_clusters_that_do_not_fit_get_one_line(
    aws: Sandbox,
    words: tuple[str, ...],
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    del aws  # It sets the environment.
    if "--region" in words:
        monkeypatch.delenv("LEEWAY_TABLE")
    assert main.run([*words]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert problem in printed.err


def test_the_cluster_of_the_environment_does_not_limit_all(
    aws: Sandbox, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    del aws  # It sets the environment.
    monkeypatch.setenv("LEEWAY_CLUSTERS", "dev,prod")
    monkeypatch.setenv("LEEWAY_CLUSTER", "prod")
    assert main.run(["cost", "--all", "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [one["cluster"] for one in document["places"]] == ["dev", "prod"]


def test_all_reads_each_cluster_also_where_it_is_the_default(
    aws: Sandbox, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    del aws  # It sets the environment.
    monkeypatch.setenv("LEEWAY_CLUSTERS", "dev,prod")
    monkeypatch.setenv("LEEWAY_CLUSTER", "prod")
    for words, names in (((), ["prod"]), (("--all",), ["dev", "prod"])):
        assert main.run(["status", *words, "-o", "json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert [one["cluster"] for one in document["clusters"]] == names
    monkeypatch.setenv("LEEWAY_CLUSTER", "invalid/name")
    assert main.run(["doctor"]) == 2
    assert "invalid/name" in capsys.readouterr().err
    assert main.run(["doctor", "--all"]) != 2


def test_the_stack_of_a_stack_set_is_found_by_the_prefix_of_its_names(
    create_stack: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CloudFormation names such a stack after its StackSet, with a UUID."""
    monkeypatch.delenv("LEEWAY_TABLE")
    stack = "StackSet-nodes-1a2b3c4d-0000-4000-8000-1a2b3c4d5e6f"
    stacks = create_stack(stack, ClusterNames="dev,prod", NamePrefix="fleet")
    found = find_stack("fleet")
    assert (found.table, found.clusters) == (TABLE, ("dev", "prod"))
    cloudformation = CloudFormation(lambda: stacks)
    deployed = cloudformation.stack("fleet")
    assert (deployed.name, deployed.stack_name) == ("fleet", stack)
    again = (
        "aws cloudformation update-stack-instances --stack-set-name nodes --regions us-east-1 "
        "--deployment-targets "
        "OrganizationalUnitIds=OU,Accounts=123456789012,AccountFilterType=INTERSECTION"
    )
    assert deploy(deployed) == again
    changed = deploy(deployed, ClusterNames="dev,new")
    assert changed == (
        f"{again} --parameter-overrides 'ParameterKey=ClusterNames,ParameterValue=dev\\,new' "
        "ParameterKey=NamePrefix,UsePreviousValue=true"
    )
    assert shlex.join(deployed.update(ClusterNames="dev,new")) == changed
    upgrade = shlex.join(deployed.upgrade())
    assert "update-stack-set --stack-set-name nodes --template-url STACKSET_JSON" in upgrade
    assert upgrade.endswith(
        "ParameterKey=ClusterNames,UsePreviousValue=true "
        "ParameterKey=NamePrefix,UsePreviousValue=true"
    )
    with pytest.raises(CannotBeDoneError, match="is of a StackSet, which would undo"):
        cloudformation.change_clusters("fleet", add="new")
    with pytest.raises(CannotBeDoneError, match="has no stack nodes"):
        find_stack("nodes")


def test_the_failure_queues_of_a_stack_set_have_a_shortened_name(aws: Sandbox) -> None:
    """The name of a queue has 80 characters at most. Source: the names in issue 36 of
    aws-samples/aws-control-tower-config-customization."""
    stack = "StackSet-nodes-1a2b3c4d-0000-4000-8000-1a2b3c4d5e6f"
    names = {
        "ReceiveNoticeFailures": f"{stack[:45]}-ReceiveNoticeFailures-PgvEuTNmRU9F",
        "ProvisionFailures": "fleet-provision-failures",
        "Provision": "fleet-provision",
    }
    resources = {
        logical_id: {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": name}}
        for logical_id, name in names.items()
    }
    stacks = aws.client("cloudformation")
    stacks.create_stack(StackName=stack, TemplateBody=json.dumps({"Resources": resources}))
    try:
        found = failure_queues_of(stack)
    finally:
        stacks.delete_stack(StackName=stack)
    assert {one.name for one in found} == set(names.values()) - {"fleet-provision"}


def test_failure_queues_that_do_not_exist_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = {"LogicalResourceId": "ProvisionFailures", "ResourceType": "AWS::SQS::Queue"}
    deleted = {"PhysicalResourceId": "https://sqs/1/gone", "ResourceStatus": "DELETE_COMPLETE"}

    class Paginator:
        def paginate(self, **_: str) -> list[Any]:
            return [
                {
                    "StackResourceSummaries": [
                        {**queue, "ResourceStatus": "CREATE_IN_PROGRESS"},
                        {**queue, **deleted},
                    ]
                }
            ]

    class Client:
        def get_paginator(self, _: str) -> Paginator:
            return Paginator()

    monkeypatch.setattr("leeway_cli.doctor.read.aws.client", lambda _: Client())
    assert failure_queues_of("leeway") == ()
