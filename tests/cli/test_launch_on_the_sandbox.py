"""`leeway launch` on a running sandbox: nodes join, and failures end with a reason."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from leeway.aws.table import DynamoTable
from leeway.catalog.stored import SURVEY
from leeway.selection.offers.survey import compressed
from leeway_cli import main
from leeway_cli.selection.sources import sandbox_survey
from leeway_sandbox.provisioning import client
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import DISCOVERY_TAG, NODE_ROLE, Scenario
from lightkube import Client, KubeConfig
from lightkube.resources.core_v1 import Node

from tests.cli.conftest import drop_clients
from tests.end_to_end.environment import until
from tests.end_to_end.launch_faults import end_admissions
from tests.end_to_end.rights import check_calls_are_granted
from tests.launch.pools import node_class as any_node_class
from tests.launch.pools import pool

CLUSTER = "launches"


def node_class(**spec: Any) -> dict[str, Any]:
    """The node class of the sandbox's network and node role."""
    terms = [{"tags": {DISCOVERY_TAG: CLUSTER}}]
    found = {"subnetSelectorTerms": terms, "securityGroupSelectorTerms": terms, "role": NODE_ROLE}
    return any_node_class(**found, **spec)


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A cluster without nodes, with a catalog. Reconcile runs twelve times a minute: it begins the
    admissions of a launch by hand."""
    scenario, state = Scenario(cluster=CLUSTER, groups=()), tmp_path_factory.mktemp("sandbox")
    options = {"aws": ["--schedule-speed", "12"], "kubernetes": ["--node-join", "1"]}
    with Sandbox.start(scenario, state_dir=state, options=options) as running:
        table = running.environment()["LEEWAY_TABLE"]
        dynamodb = client("dynamodb", running.aws_url)
        dynamo = DynamoTable(lambda: dynamodb, table)
        dynamo.put(SURVEY, compressed(sandbox_survey()), region="us-east-1")
        yield running
        check_calls_are_granted(running)


@pytest.fixture(autouse=True)
def environment(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The environment that `leeway sandbox up` prints, and no faults."""
    for name, value in sandbox.environment().items():
        monkeypatch.setenv(name, value)
    drop_clients()
    sandbox.faults("aws", [])
    yield
    drop_clients()


def launch(
    sandbox: Sandbox,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    *documents: dict[str, Any],
    timeout: str = "2m",
) -> tuple[int, dict[str, Any], str]:
    """Launch nodes for two pods that need one each: exit code, JSON document and stderr."""
    container = {"name": "web", "image": "x", "resources": {"requests": {"cpu": "90"}}}
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"web-{number}", "namespace": "shop"},
            "spec": {"containers": [container]},
        }
        for number in range(2)
    ]
    (folder / "pools.yaml").write_text(yaml.safe_dump_all(documents))
    (folder / "pods.yaml").write_text(yaml.safe_dump_all(pods))
    arguments = ["launch", "-f", str(folder / "pools.yaml"), "--pods", str(folder / "pods.yaml")]
    arguments += ["--cluster", CLUSTER, "--kubeconfig", str(sandbox.kubeconfig)]
    code = main.run([*arguments, "--timeout", timeout, "-o", "json"])
    printed = capsys.readouterr()
    return code, json.loads(printed.out), printed.err


def labels(sandbox: Sandbox) -> dict[str, dict[str, str]]:
    """The labels of each Node, by name."""
    with Client(KubeConfig.from_file(sandbox.kubeconfig), trust_env=False) as kube:
        found = [one.metadata for one in kube.list(Node) if one.metadata]
        return {str(one.name): dict(one.labels or {}) for one in found}


ONE_POD_EACH = {"cpu": ["96"]}


def test_launched_nodes_join_with_the_labels_of_their_pool(
    sandbox: Sandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = pool("first", labels={"team": "a"}, only=ONE_POD_EACH)
    code, found, err = launch(sandbox, tmp_path, capsys, first, node_class())
    assert code == 0, err
    assert len(found["launched"]) == 2
    nodes = [one["node"] for one in found["nodes"]]
    assert all(one["ready"] for one in found["nodes"])
    known = labels(sandbox)
    expected = {
        "team": "a",
        "karpenter.sh/nodepool": "first",
        "karpenter.sh/capacity-type": "spot",
    }
    assert len(nodes) == 2
    for node in nodes:
        assert expected.items() <= known[node].items()
    assert err.count("is Ready") == 2
    initialized = "karpenter.sh/initialized"
    until(lambda: all(labels(sandbox)[node].get(initialized) == "true" for node in nodes))


def test_without_spot_capacity_nodes_are_on_demand(
    sandbox: Sandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shortage = {"service": "ec2", "action": "Launch", "capacity_type": "spot"}
    sandbox.faults("aws", [shortage | {"error": "InsufficientInstanceCapacity"}])
    second = pool("second", only=ONE_POD_EACH)
    code, found, err = launch(sandbox, tmp_path, capsys, second, node_class())
    assert code == 0, err
    assert [one["capacityType"] for one in found["launched"]] == ["on-demand"] * 2
    assert "warning: CapacityUnavailable: " in err


def wait_for_the_end(sandbox: Sandbox, instances: set[str]) -> None:
    """Wait until instances are terminated."""
    ec2 = client("ec2", sandbox.aws_url)

    def ended() -> bool:
        found = ec2.describe_instances(InstanceIds=sorted(instances))["Reservations"]
        states = {one["State"]["Name"] for r in found for one in r["Instances"]}
        return states <= {"shutting-down", "terminated"}

    until(ended)


def test_nodes_that_cannot_boot_end_the_launch_with_a_reason_and_their_instances_end(
    sandbox: Sandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without_metadata = node_class(metadataOptions={"httpEndpoint": "disabled"})
    third = pool("third", capacity=["on-demand"], only=ONE_POD_EACH)
    code, found, err = launch(sandbox, tmp_path, capsys, third, without_metadata, timeout="3s")
    assert code == 1
    assert "its node is not Ready" in found["error"]["message"]
    assert len(found["launched"]) == 2
    assert [one["ready"] for one in found["nodes"]] == [False, False]
    assert "aws ec2 get-console-output" in err
    assert "Traceback" not in err
    instances = {one["instance"] for one in found["launched"]}
    end_admissions(sandbox, CLUSTER, instances)
    wait_for_the_end(sandbox, instances)
