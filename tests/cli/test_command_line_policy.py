"""docs/command-line-policy.json grants the calls of the command line and nothing more."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from leeway.aws.target_groups import LoadBalancerTargets
from leeway.catalog.stored import SURVEY
from leeway.clock import SystemClock
from leeway.disruption.current_launches import CurrentLaunches
from leeway.policy.rules import ClusterPolicy
from leeway.provisioning.cluster_state import ClusterState
from leeway.selection.offers.survey import compressed
from leeway.wiring.clients import client
from leeway.wiring.launch_nodes import node_sources
from leeway_cli import main
from leeway_cli.explain.asked import stored_launches
from leeway_cli.explain.capacity import read_records
from leeway_cli.explain.instance import console_output
from leeway_cli.selection.sources import sandbox_catalog, sandbox_survey
from leeway_cli.stack import Stack
from leeway_cli.status.view import read_cluster_status
from leeway_cli.terminate.run import AwsInstances, Call, Ending

from tests.aws.stored import TABLE, table_in
from tests.aws.test_target_contract import balanced
from tests.cli.conftest import drop_clients
from tests.cli.test_status import pause, retire, store_drain
from tests.disruption.clusters import facts
from tests.launch.launching import NOW
from tests.launch.pools import node_class, pool
from tests.manifests.texts import manifests
from tests.sandbox.aws.started import Sandbox, started
from tests.template.granted import actions_of, keys_of
from tests.template.granted import statements as of_roles

POLICY = Path(__file__).parents[2] / "docs" / "command-line-policy.json"
LAUNCH_POLICY = POLICY.with_name("launch-policy.json")
LAUNCHES = {
    "ec2:CreateFleet",
    "ec2:CreateLaunchTemplate",
    "ec2:CreateTags",
    "ec2:RunInstances",
    "iam:PassRole",
}
KEY = "AKIACOMMANDLINE00001"

type Right = tuple[str, str]
"""An action, and how the partition keys begin that it reaches; empty where it has none."""


def statements() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(POLICY.read_text())["Statement"]
    assert found, "what holds for every statement would hold for none"
    return found


def launched(aws: Sandbox) -> str:
    """An instance of cluster prod."""
    tags = [{"Key": "kubernetes.io/cluster/prod", "Value": "owned"}]
    instance = aws.client("ec2").run_instances(
        ImageId="ami-12345678",
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )
    return str(instance["Instances"][0]["InstanceId"])


def grouped(aws: Sandbox) -> str:
    """A group of cluster prod with one node."""
    (instance,) = aws.group("rolled", 1)
    tag = {"Key": "kubernetes.io/cluster/prod", "Value": "owned"}
    aws.client("ec2").create_tags(Resources=[instance], Tags=[tag])
    return "rolled"


def read_what_pools_launch() -> None:
    """Make the calls of `leeway explain node` that find drift."""
    terms: list[dict[str, Any]] = [
        {},
        {"amiSelectorTerms": [{"name": "never-was"}]},
        {"capacityReservationSelectorTerms": [{"tags": {"team": "a"}}]},
    ]
    launches, own = CurrentLaunches(node_sources()), {"i-1": facts("i-1")}
    for spec in terms:
        written = manifests(pool(capacity=["reserved", "on-demand"]), node_class(**spec))
        assert launches.reservations("prod", written, (), NOW) == {}
        catalog = sandbox_catalog("us-east-1")
        assert "web" in launches.read("prod", written, catalog, own, NOW).of_pool


def end_instances(monkeypatch: pytest.MonkeyPatch, directory: Path) -> set[str]:
    """Make the calls of `leeway terminate`, for an instance of a group and for one of no group, and
    those that find drift, in an AWS of their own. Returns the actions."""
    tags = [{"Key": "eks:eks-cluster-name", "Value": "prod"}]
    with started() as (_, url):
        aws = Sandbox(url)
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        drop_clients()
        (grouped,) = aws.group("web", 1)
        aws.client("ec2").create_tags(Resources=[grouped], Tags=tags)
        launched = aws.client("ec2").run_instances(
            ImageId="ami-12345678",
            MinCount=1,
            MaxCount=1,
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        )
        created = {"roleArn": "arn:aws:iam::123456789012:role/x", "resourcesVpcConfig": {}}
        aws.client("eks").create_cluster(name="prod", **created)
        authority = directory / "ca.pem"
        authority.write_bytes(b"CA")
        link = {"endpoint": "https://prod.example.com", "ca_file": str(authority)}
        aws.control("PUT", "links", {"eks": {"prod": link}})
        read_what_pools_launch()
        instances = AwsInstances("https://127.0.0.1", "", "leeway")
        group = balanced(aws.client, "web", [grouped], 1)
        assert [one.group for one in instances.targets(grouped, ())] == [group]
        assert LoadBalancerTargets(partial(client, "elbv2")).deregistration_delay(group)
        for instance in (grouped, launched["Instances"][0]["InstanceId"]):
            now = instances.read(instance)
            assert instances.foreign(instance, now) is not None
            console_output(instance)
            instances.end(instance, Ending(Call.IN_GROUP if now.group else Call.TERMINATE))
        actions = set(aws.control("GET", "status")["calls_by_access_key"][KEY])
        aws.close()
    return actions


def granted() -> set[Right]:
    """The policy's rights on the table itself, by the beginning of the keys."""
    return {
        (action, key.partition("#")[0] + "#")
        for statement in statements()
        if statement["Resource"].endswith(":table/TABLE")
        for action in actions_of(statement)
        for key in keys_of(statement)
    }


@pytest.fixture
def used(
    aws: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> tuple[set[str], set[Right]]:
    """The actions that the commands call, and the keys of the table that they use."""
    record = retire(aws)
    store_drain(aws, record)
    pause(aws)
    survey = compressed(sandbox_survey())
    table_in(aws).put(SURVEY, survey, region="us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    drop_clients()
    file = tmp_path / "prod.yaml"
    file.write_text("apiVersion: leeway.sh/v1\nkind: Cluster\nmetadata: {name: prod}\n")
    of_prod = ["--cluster", "prod"]
    for command in (
        ["apply", "-f", str(file), *of_prod],
        ["diff", "-f", str(file), *of_prod],
        ["get", *of_prod],
        ["pause", "prod"],
        ["status", *of_prod],
        ["cost", *of_prod],
        ["explain", "instance", launched(aws)],
        ["resume", "prod", "--pool", "web"],
        ["roll", grouped(aws), "--no-wait", *of_prod],
        ["types", "-o", "json"],
        ["delete", "-f", str(file), *of_prod],
    ):
        assert main.run(command) == 0
    assert stored_launches("prod", "leeway") == ([], [])
    state = ClusterState(SystemClock().now())
    assert read_records("prod", "leeway", ClusterPolicy(), state).most == 1
    read_cluster_status(Stack(TABLE, ("prod",)), "prod", recent=["i-0123456789abcdef0"])
    assert main.run(["logs", "reconcile"]) == 1  # the log group does not exist
    monkeypatch.delenv("LEEWAY_TABLE")
    assert main.run(["get", *of_prod]) == 1  # the stack does not exist
    printed = aws.control("GET", "status")
    reached = printed["records_by_access_key"][KEY]
    called = set(printed["calls_by_access_key"][KEY]) | end_instances(monkeypatch, tmp_path)
    called -= {"sts:GetCallerIdentity"}  # it needs no right
    return called, {(action, kind) for action, kinds in reached.items() for kind in kinds}


def test_the_policy_grants_what_the_commands_use_and_no_more(
    used: tuple[set[str], set[Right]],
) -> None:
    actions, reached = used
    assert actions == {action for statement in statements() for action in actions_of(statement)}
    # A watched retirement that has ended is read alone; it shares a statement with PROGRESS.
    shared = {("dynamodb:BatchGetItem", "RETIREMENT#"), ("dynamodb:GetItem", "PROGRESS#")}
    assert granted() - shared == reached


def test_each_statement_about_the_table_names_its_keys() -> None:
    assert not [s for s in statements() if "*" in str(s["Action"])]
    on_the_table = [s for s in statements() if "dynamodb:" in str(s["Action"])]
    assert on_the_table
    for statement in on_the_table:
        assert keys_of(statement)


def test_only_instances_that_are_tagged_for_the_cluster_can_be_ended_or_looked_at() -> None:
    actions = (":Terminate", ":GetConsoleOutput")
    ending = [one for one in statements() if any(a in str(one["Action"]) for a in actions)]
    assert len(ending) == 3
    tag = {"aws:ResourceTag/kubernetes.io/cluster/CLUSTER": "owned"}
    assert all(one["Condition"] == {"StringEquals": tag} for one in ending)


def test_launches_by_hand_have_the_conditions_of_the_function_that_launches() -> None:
    """docs/launch-policy.json, beside the role of provision_nodes."""
    found: list[dict[str, Any]] = json.loads(LAUNCH_POLICY.read_text())["Statement"]
    of_role = {s["Sid"].replace("Clusters", "Cluster"): s for s in of_roles("ProvisionNodesRole")}
    by_hand = {s["Sid"]: s for s in found}
    launching = {sid for sid, one in of_role.items() if actions_of(one) & LAUNCHES}
    assert len(launching) == 8
    for sid in launching | {"GiveNodesTheirRole", "FindInstanceProfiles", "FindImages"}:
        assert actions_of(by_hand[sid]) == actions_of(of_role[sid])
        assert conditions(by_hand[sid]) == conditions(of_role[sid])
    assert not [s for s in found if "*" in str(s["Action"])]
    on_all = set().union(*(actions_of(s) for s in found if s["Resource"] == "*"))
    assert all(":Describe" in action for action in on_all)


def conditions(statement: dict[str, Any]) -> set[tuple[str, str]]:
    """The operators and keys of a statement's condition."""
    found = statement.get("Condition", {}).items()
    return {(operator, key) for operator, keys in found for key in keys}
