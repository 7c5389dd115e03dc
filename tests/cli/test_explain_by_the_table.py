"""`leeway explain` by the policies of Leeway's table, over HTTP: what is stored is what is told."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from leeway.aws.manifests import DynamoManifestWriting

from cli import main
from tests.aws.stored import TABLE, manifest
from tests.sandbox.aws.started import Sandbox

EVENT = Path(__file__).parents[2] / "events" / "rebalance-recommendation.json"

type Explain = Callable[..., tuple[dict[str, Any], str]]
"""Explains a rebalance recommendation; the plan of its instance, and what stderr says."""


@pytest.fixture
def explain(aws: Sandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Explain:
    """A rebalance recommendation of an instance of the cluster prod."""
    launched = aws.client("ec2").run_instances(
        ImageId="ami-12345678",
        InstanceType="m5.large",
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[
            {
                "ResourceType": "instance",
                "Tags": [{"Key": "kubernetes.io/cluster/prod", "Value": "owned"}],
            }
        ],
    )
    event = json.loads(EVENT.read_text())
    event["detail"]["instance-id"] = launched["Instances"][0]["InstanceId"]
    path = tmp_path / "event.json"
    path.write_text(json.dumps(event))

    def explain(*more: str) -> tuple[dict[str, Any], str]:
        assert main.run(["explain", str(path), "-o", "json", *more]) == 0
        said = capsys.readouterr()
        (plan,) = json.loads(said.out)["instances"]
        assert plan["cluster"] == "prod"
        return plan, said.err

    return explain


@pytest.fixture
def store(aws: Sandbox) -> Callable[..., None]:
    """Writes a Cluster manifest about prod into the table."""

    def store(**told: Any) -> None:
        writing = DynamoManifestWriting(partial(aws.client, "dynamodb"), TABLE)
        writing.write("prod", manifest(**told), replaces=0)

    return store


CORDONS = {"notices": {"rebalance": {"action": "cordon", "onBlocked": "delete"}}}


def test_the_policy_of_the_table_holds_and_is_named(
    explain: Explain, store: Callable[..., None]
) -> None:
    store(spec=CORDONS)
    plan, warned = explain()
    assert plan["policy"]["source"] == f"table {TABLE}"
    assert (plan["policy"]["action"], plan["policy"]["onBlocked"]) == ("cordon", "delete")
    assert plan["decision"] == "cordon"
    assert warned == ""


def test_without_a_word_about_the_cluster_in_the_table_the_defaults_hold(
    explain: Explain,
) -> None:
    plan, warned = explain()
    assert (plan["policy"]["source"], plan["policy"]["action"]) == (f"table {TABLE}", "retire")
    assert warned == ""


def test_a_file_about_the_cluster_wins_over_the_table(
    explain: Explain, store: Callable[..., None], tmp_path: Path
) -> None:
    store(spec=CORDONS)
    file = tmp_path / "prod.yaml"
    file.write_text(manifest(spec={"notices": {"rebalance": {"action": "ignore"}}}).body)
    plan, _ = explain("-f", str(file))
    assert (plan["policy"]["source"], plan["decision"]) == (str(file), "ignore")


def test_a_stored_policy_that_is_not_understood_is_warned_of_and_the_rest_of_it_holds(
    explain: Explain, store: Callable[..., None]
) -> None:
    store(spec={**CORDONS, "surge": 2}, written_by="9.0.0")
    plan, warned = explain()
    assert plan["policy"]["action"] == "cordon"
    assert "warning: prod: cluster.leeway.sh/prod: " in warned
    assert "spec.surge: unknown field" in warned
    assert "(written by Leeway 9.0.0, read by " in warned


def test_a_table_that_does_not_answer_is_explained_as_the_functions_would_act(
    explain: Explain, aws: Sandbox, store: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    store(spec=CORDONS)
    monkeypatch.setattr("leeway.wiring.clients.DEFAULT_TRIES", 1)
    throttled = {"service": "dynamodb", "error": "ThrottlingException", "count": 99}
    aws.control("PUT", "faults", {"faults": [throttled]})
    plan, warned = explain()
    assert any("paused" in remark for remark in plan["remarks"]), "what is voluntary waits"
    assert warned.startswith("warning: prod: the manifests cannot be read: ")


def test_where_leeway_is_not_deployed_the_defaults_hold_and_it_is_said(
    explain: Explain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LEEWAY_TABLE")
    plan, warned = explain("--stack", "nowhere")
    assert plan["policy"]["source"] == "defaults"
    assert warned.startswith("policies are the defaults: no stack nowhere in us-east-1")


@pytest.mark.usefixtures("aws")
def test_an_instance_that_ec2_does_not_know_is_told_from_one_that_nobody_asked_about(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.run(["explain", str(EVENT), "-o", "json"]) == 0
    (plan,) = json.loads(capsys.readouterr().out)["instances"]
    assert plan["replacementReason"] == "EC2 knows no such instance"
