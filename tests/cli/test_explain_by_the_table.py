"""`leeway explain` with the policies of Leeway's table."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from leeway.aws.table import DynamoTable
from leeway.disruption.rules import Budget, ReturnRules
from leeway.execution.attempt import Phase
from leeway.manifests.configuration import StoredManifests
from leeway.policy.rules import ClusterPolicy
from leeway.provisioning.cluster_state import ClusterState
from leeway.retirement.record import RETIREMENT
from leeway_cli import main
from leeway_cli.explain.capacity import Capacity, read_records
from leeway_cli.stack import DEFAULT_STACK

from tests.aws.stored import TABLE, manifest
from tests.aws.test_target_contract import balanced
from tests.disruption.snapshots import own_node, snapshot
from tests.retirement.retirements import interrupted
from tests.sandbox.aws.started import Sandbox

MINUTE = timedelta(minutes=1)
EVENT = Path(__file__).parents[2] / "events" / "rebalance-recommendation.json"

type Explain = Callable[..., tuple[dict[str, Any], str]]
"""Explains a rebalance recommendation. Returns the plan of its instance, and stderr."""


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
        printed = capsys.readouterr()
        (plan,) = json.loads(printed.out)["instances"]
        assert plan["cluster"] == "prod"
        return plan, printed.err

    return explain


@pytest.fixture
def store(aws: Sandbox) -> Callable[..., None]:
    """Writes a Cluster manifest of prod to the table."""

    def store(**fields: Any) -> None:
        writing = StoredManifests(DynamoTable(partial(aws.client, "dynamodb"), TABLE))
        writing.write("prod", manifest(**fields), replaces=0)

    return store


CORDONS = {"notices": {"rebalance": {"action": "cordon", "onBlocked": "delete"}}}


def test_the_policy_of_the_table_is_used_and_named(
    explain: Explain, store: Callable[..., None]
) -> None:
    store(spec=CORDONS)
    plan, warned = explain()
    assert plan["policy"]["source"] == f"table {TABLE}"
    assert (plan["policy"]["action"], plan["policy"]["onBlocked"]) == ("cordon", "delete")
    assert plan["decision"] == "cordon"
    assert warned == ""


def test_without_a_manifest_of_the_cluster_in_the_table_the_defaults_are_used(
    explain: Explain,
) -> None:
    plan, warned = explain()
    assert (plan["policy"]["source"], plan["policy"]["action"]) == (f"table {TABLE}", "retire")
    assert warned == ""


def test_a_manifest_file_has_precedence_over_the_table(
    explain: Explain, store: Callable[..., None], tmp_path: Path
) -> None:
    store(spec=CORDONS)
    file = tmp_path / "prod.yaml"
    file.write_text(manifest(spec={"notices": {"rebalance": {"action": "ignore"}}}).body)
    plan, _ = explain("-f", str(file))
    assert (plan["policy"]["source"], plan["decision"]) == (str(file), "ignore")


def test_an_unknown_field_of_a_stored_policy_is_a_warning_and_the_rest_is_used(
    explain: Explain, store: Callable[..., None]
) -> None:
    store(spec={**CORDONS, "burst": 2}, written_by="9.0.0")
    plan, warned = explain()
    assert plan["policy"]["action"] == "cordon"
    assert "warning: prod: cluster.leeway.sh/prod: " in warned
    assert "spec.burst: unknown field" in warned
    assert "(written by Leeway 9.0.0, read by " in warned


def test_without_an_answer_of_the_table_explain_uses_the_same_policy_as_the_functions(
    explain: Explain, aws: Sandbox, store: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    store(spec=CORDONS)
    monkeypatch.setattr("leeway.wiring.clients.DEFAULT_TRIES", 1)
    throttled = {"service": "dynamodb", "error": "ThrottlingException", "count": 99}
    aws.control("PUT", "faults", {"faults": [throttled]})
    plan, warned = explain()
    assert any("is paused" in remark for remark in plan["remarks"])
    assert warned.startswith("warning: prod: The manifests of the cluster cannot be read: ")


def test_without_a_deployment_the_defaults_are_used_with_a_warning(
    explain: Explain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LEEWAY_TABLE")
    plan, warned = explain("--stack", "nowhere")
    assert plan["policy"]["source"] == "defaults"
    assert warned.startswith(
        "warning: the default policies are used: Region us-east-1 has no stack nowhere"
    )


@pytest.mark.usefixtures("aws")
def test_an_instance_that_ec2_does_not_have_differs_from_one_that_was_not_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.run(["explain", str(EVENT), "-o", "json"]) == 0
    (plan,) = json.loads(capsys.readouterr().out)["instances"]
    assert "EC2 knows no instance" in plan["replacementReason"]


def test_the_plan_names_the_target_groups_that_have_the_instance(
    aws: Sandbox, explain: Explain, store: Callable[..., None]
) -> None:
    store(spec={"waitForTargets": True})
    plan, _ = explain()
    assert not any("Target group" in one for one in plan["remarks"])
    balanced(aws.client, "explained", [plan["instance"]], 90)
    plan, warned = explain()
    (remark,) = [one for one in plan["remarks"] if "Target group" in one]
    assert remark.startswith("Target group explained has the instance, and keeps")
    assert "for 1m30s at most" in remark
    denied = {"service": "elasticloadbalancing", "action": "DescribeTargetGroups"}
    aws.control("PUT", "faults", {"faults": [{**denied, "error": "AccessDenied"}]})
    plan, warned = explain()
    assert any("targets of load balancers are not known" in one for one in plan["remarks"])
    assert warned == ""


def test_a_node_whose_return_was_declined_stays_as_provision_nodes_decides(aws: Sandbox) -> None:
    now = datetime.now(UTC)  # the table forgets old retirements
    changes = {"version": 1, "answer": None, "ended_at": now - MINUTE}
    declined = interrupted(Phase.FINISHED).model_copy(update=changes)
    DynamoTable(partial(aws.client, "dynamodb"), TABLE).put(RETIREMENT, declined)
    stored = read_records("prod", DEFAULT_STACK, ClusterPolicy(), ClusterState(now))
    rules = ReturnRules(budgets=(Budget("1"),))
    first = replace(own_node("a"), instance=declined.instance)
    given = replace(snapshot(first, own_node("b"), rules=rules), now=now)
    decided, decision = Capacity(given, (), {}, stored.declined_until).decide()
    assert [one.nodes for one in decision.returns] == [("b",)]
    assert decision.kept["a"].code == "NodeWasKept"
    assert decided.declined == {"a": now + 9 * MINUTE}
