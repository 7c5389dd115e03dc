"""`leeway explain` on a cluster: the node of a pod, or what keeps it from each pool; what could be
saved with nodes, by the tags of their instances."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from leeway.aws.table import DynamoTable
from leeway.capacity_requests import CAPACITY_REQUEST, CapacityRequest
from leeway.clock import SystemClock
from leeway.launch.fleets import FleetInstance
from leeway.launch.intent import INTENT, LaunchIntent
from leeway.retirement.disruption_budget import LEDGER, DisruptionLedger
from leeway.switched import SWITCH, Buyer, Switch
from leeway_cli import main

from tests.aws.stored import TABLE
from tests.cli.test_status import pause, spoil
from tests.launch.pools import node_class, pool
from tests.sandbox.aws.started import Sandbox
from tests.sandbox.kubernetes.live import PODS, Live, bare_pod

type Explain = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture(scope="module")
def live(live: Live) -> Live:
    """A cluster with one node of eight CPUs."""
    live.kubeconfig()
    live.add_nodes(1)
    return live


@pytest.fixture
def pools(tmp_path: Path) -> Path:
    """Two pools: one of general types, one with a taint and ARM."""
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    documents = [
        pool("general"),
        pool("arm", arch=["arm64"], template={"taints": [taint]}),
        node_class(),
    ]
    path = tmp_path / "pools.yaml"
    path.write_text(yaml.dump_all(documents, Dumper=yaml.CSafeDumper))
    return path


@pytest.fixture
def explain(live: Live, pools: Path, capsys: pytest.CaptureFixture[str]) -> Explain:
    """Run the command with the pools: its exit code, its JSON document and stderr."""

    def run(name: str, *more: str) -> tuple[int, dict[str, Any], str]:
        files = () if "--cluster" in more else ("-f", str(pools))
        kubeconfig = ("--kubeconfig", str(live.folder / "kubeconfig"))
        arguments = ["explain", "pod", name, *files, *kubeconfig, "--sandbox", *more]
        code = main.run([*arguments, "-o", "json"])
        printed = capsys.readouterr()
        return code, json.loads(printed.out), printed.err

    return run


@pytest.fixture
def create(live: Live) -> Iterator[Callable[..., None]]:
    """Creates pods, and deletes them after the test."""
    made: list[str] = []

    def pod(name: str, cpu: str = "100m", **spec: Any) -> None:
        owners = spec.pop("owners", [])
        body = bare_pod(name, **spec)
        body["metadata"]["ownerReferences"] = owners
        body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
        made.append(name)
        live.create(PODS, body)

    yield pod
    for name in made:
        live.api.request("DELETE", f"{PODS}/{name}", json={"gracePeriodSeconds": 0})


def wait_until_pending(live: Live, name: str) -> None:
    live.until(lambda: "Unschedulable" in live.api.get(f"{PODS}/{name}").text)


def test_a_pod_that_fits_no_node_gets_a_new_one(
    live: Live, create: Callable[..., None], explain: Explain
) -> None:
    create("large", cpu="20")
    wait_until_pending(live, "large")
    code, found, err = explain("default/large")
    assert code == 0, err
    assert (found["decision"], found["node"], found["pools"]) == ("launch", None, [])
    launch = found["launch"]
    assert (launch["nodePool"], launch["capacityType"]) == ("general", "spot")
    assert launch["pricePerHour"] > 0
    assert "default/large" in launch["pods"]


def test_a_pod_that_fits_nowhere_gets_a_reason_for_each_pool_the_nearest_first(
    live: Live, create: Callable[..., None], explain: Explain
) -> None:
    selector = {"karpenter.k8s.aws/instance-category": "m", "kubernetes.io/arch": "amd64"}
    create("huge", cpu="900", nodeSelector=selector)
    wait_until_pending(live, "huge")
    code, found, _ = explain("huge")
    assert (code, found["decision"]) == (0, "unschedulable")
    assert found["nearest"] == "general"
    assert [one["pool"] for one in found["pools"]] == ["general", "arm"]
    near, far = (one["unmet"] for one in found["pools"])
    assert len(near) == 1
    assert "needs 900 of cpu" in near[0]
    assert "the pod does not tolerate the taint team=a:NoSchedule" in far
    assert len(far) == 3
    assert found["pools"][1]["reason"]["code"] == "NoNodePoolMatches"


def test_a_pod_on_a_node_is_told_its_node(
    live: Live, create: Callable[..., None], explain: Explain
) -> None:
    create("placed")
    live.until(lambda: live.api.get(f"{PODS}/placed").json()["spec"].get("nodeName"))
    _, found, _ = explain("default/placed")
    assert found["node"] == "ip-10-0-0-1.ec2.internal"
    assert found["why"] == "It is on node ip-10-0-0-1.ec2.internal."


def test_a_pod_with_a_scheduling_gate_waits_for_no_node(
    create: Callable[..., None], explain: Explain
) -> None:
    create("gated", schedulingGates=[{"name": "example.com/quota"}])
    _, found, _ = explain("default/gated")
    assert found["decision"] == "none"
    assert "example.com/quota" in found["why"]


def test_a_pod_gets_the_node_that_was_launched_and_has_not_joined(
    aws: Sandbox,
    live: Live,
    pools: Path,
    create: Callable[..., None],
    explain: Explain,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.run(["apply", "-f", str(pools), "--cluster", "prod"]) == 0
    create("soon", cpu="20")
    wait_until_pending(live, "soon")
    instance = FleetInstance(
        instance="i-0123456789abcdef0",
        instance_type="m6i.8xlarge",
        zone="us-east-1a",
        capacity_type="spot",
    )
    intent = LaunchIntent(
        id="one",
        cluster="prod",
        pool="general",
        token="token",
        created_at=SystemClock().now(),
        request=None,
        instances=(instance,),
    )
    DynamoTable(partial(aws.client, "dynamodb"), TABLE).put(INTENT, intent)
    capsys.readouterr()
    code, found, err = explain("default/soon", "--cluster", "prod")
    assert code == 0, err
    assert (found["decision"], found["node"]) == ("joining", "i-0123456789abcdef0")


def test_the_pods_of_a_retiring_node_need_a_place_too(
    aws: Sandbox,
    live: Live,
    pools: Path,
    create: Callable[..., None],
    explain: Explain,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.run(["apply", "-f", str(pools), "--cluster", "prod"]) == 0
    # The garbage collector deletes pods whose owner does not exist, but not those of unknown kinds.
    owner = {"apiVersion": "a.io/v1", "kind": "Run", "name": "j", "uid": "u", "controller": True}
    create("moving", owners=[owner])
    create("beside", cpu="20")
    live.until(lambda: live.api.get(f"{PODS}/moving").json()["spec"].get("nodeName"))
    wait_until_pending(live, "beside")
    (node,) = live.api.get("/api/v1/nodes").json()["items"]
    now = SystemClock().now()
    request = CapacityRequest(
        cluster="prod",
        instance=node["spec"]["providerID"].rpartition("/")[2],
        node=node["metadata"]["name"],
        instance_type="m6i.8xlarge",
        zone="us-east-1a",
        capacity_type="spot",
        attempt=1,
        requested_at=now,
        ends_at=now + timedelta(minutes=10),
    )
    DynamoTable(partial(aws.client, "dynamodb"), TABLE).put(CAPACITY_REQUEST, request)
    capsys.readouterr()
    code, found, err = explain("default/beside", "--cluster", "prod")
    assert code == 0, err
    assert "default/moving" in found["launch"]["pods"]


def test_a_pod_gets_no_node_of_a_pool_that_is_paused(
    aws: Sandbox,
    live: Live,
    pools: Path,
    create: Callable[..., None],
    explain: Explain,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.run(["apply", "-f", str(pools), "--cluster", "prod"]) == 0
    create("unlucky", cpu="20")
    wait_until_pending(live, "unlucky")
    pause(aws, "general")
    capsys.readouterr()
    code, found, err = explain("default/unlucky", "--cluster", "prod")
    assert code == 0, err
    assert (found["decision"], found["reason"]["code"]) == ("unschedulable", "NodesNeverJoined")
    spoil(aws, "POOLS#prod")
    _, found, err = explain("default/unlucky", "--cluster", "prod")
    assert found["decision"] == "launch"
    assert "warning: a record is not readable: POOLS#prod POOL#general: " in err


def test_the_text_names_the_nearest_pool(
    live: Live, pools: Path, create: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    create("vast", cpu="900")
    wait_until_pending(live, "vast")
    kubeconfig = ["--kubeconfig", str(live.folder / "kubeconfig")]
    assert main.run(["explain", "pod", "vast", "-f", str(pools), "--sandbox", *kubeconfig]) == 0
    out = capsys.readouterr().out
    assert out.startswith("pod/default/vast gets no node: ")
    assert "  pool general (nearest): 1 requirement not met\n    - the pod needs 900 of cpu" in out


def test_a_pod_that_leeway_cannot_read_hides_no_other_pod(
    live: Live, create: Callable[..., None], explain: Explain
) -> None:
    create("hostile", nodeSelector={"\u202e/x": "y"})
    create("honest", cpu="20")
    wait_until_pending(live, "honest")
    code, found, err = explain("honest")
    assert (code, found["decision"]) == (0, "launch")
    assert "warning: ObjectNotReadable: Leeway can't read Pod default/hostile: " in err
    assert "\u202e" not in err
    _, found, _ = explain("hostile")
    assert found["why"] == "Leeway cannot read it; see the warning."


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["default/none"], 1, "The cluster has no pod default/none."),
        (["a/b/c"], 2, "NAMESPACE/NAME: expected NAMESPACE/NAME, got 'a/b/c'"),
        (["/x"], 2, "expected NAMESPACE/NAME"),
    ],
)
def test_a_failure_is_one_line(
    explain: Explain, arguments: list[str], code: int, words: str
) -> None:
    found, _, err = explain(*arguments)
    assert found == code
    assert words in err
    assert err.count("\n") == 1


def instance(aws: Sandbox, tags: dict[str, str]) -> str:
    """Launch an instance with these tags; return its id."""
    given = [{"Key": key, "Value": value} for key, value in tags.items()]
    launched = aws.client("ec2").run_instances(
        ImageId="ami-12345678",
        MinCount=1,
        MaxCount=1,
        InstanceType="m5.2xlarge",
        TagSpecifications=[{"ResourceType": "instance", "Tags": given}],
    )
    return str(launched["Instances"][0]["InstanceId"])


def join(live: Live, name: str, instance: str, **admitted: str) -> None:
    """Let an instance join the cluster with the labels of its kubelet and of its admission."""
    labels = {
        **admitted,
        "topology.kubernetes.io/zone": "us-east-1a",
        "node.kubernetes.io/instance-type": "m5.2xlarge",
    }
    node = {
        "metadata": {"name": name, "labels": labels},
        "spec": {"providerID": f"aws:///us-east-1a/{instance}"},
        "status": {"capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
    }
    live.report(instance, "running", node=node, join=0)
    live.until(lambda: live.is_ready(name))


@pytest.fixture
def capacity(live: Live, pools: Path, capsys: pytest.CaptureFixture[str]) -> Explain:
    """Run `leeway explain node` or `cluster` for cluster prod."""

    def run(words: str, *more: str) -> tuple[int, dict[str, Any], str]:
        kubeconfig = ("--kubeconfig", str(live.folder / "kubeconfig"))
        given = ["-f", str(pools), *kubeconfig, "--cluster", "prod", "--sandbox", *more]
        capsys.readouterr()
        code = main.run(["explain", *words.split(), *given, "-o", "json"])
        printed = capsys.readouterr()
        return code, json.loads(printed.out), printed.err

    return run


def test_nodes_are_explained_by_what_ec2_says_of_their_instances(
    aws: Sandbox, live: Live, capacity: Explain, pools: Path
) -> None:
    ours = {"leeway.sh/owner": "leeway", "leeway.sh/nodepool": "general"}
    ours["kubernetes.io/cluster/prod"] = "owned"
    written = {"aws:eks:cluster-name": "prod", "aws:ec2:fleet-id": "fleet-1"}
    admitted = {"karpenter.sh/initialized": "true"}
    join(live, "own", instance(aws, ours | written), **admitted)
    join(live, "forged", instance(aws, ours))
    members = aws.group("web", 2, MinSize=1, template={"InstanceType": "m5.2xlarge"})
    tag = [{"Key": "kubernetes.io/cluster/prod", "Value": "owned"}]
    aws.client("ec2").create_tags(Resources=members, Tags=tag)
    for number, member in enumerate(members):
        join(live, f"web-{number}", member)

    code, found, err = capacity("cluster")
    assert code == 0, err
    assert [step["nodes"] for step in found["steps"]] == [["own"]]
    assert found["next"]["allowedNow"] is True
    assert found["cost"]["otherOwners"]["auto-scaling-group"]["nodes"] == 2
    (group,) = found["groups"]
    assert (group["group"], group["minimum"], group["desired"]) == ("web", 1, 2)
    assert group["minimumNeeded"] == 0
    assert group["commands"][-1].startswith("leeway terminate web-")
    assert group["commands"][-1].endswith(" --cluster prod")
    _, found, _ = capacity("node forged")
    assert found["reason"]["code"] == "NodeNotOfLeeway"

    table = DynamoTable(partial(aws.client, "dynamodb"), TABLE, SystemClock())
    begun = {"i-0123456789abcdef0": SystemClock().now()}
    table.put(LEDGER, DisruptionLedger(cluster="prod", version=1, begun=begun))
    _, found, _ = capacity("node own")
    assert (found["decision"], found["reason"]["code"]) == ("goes", "NodeEmpty")
    never = {"consolidateAfter": "Never"}
    expiring = pool("general", template={"expireAfter": "1s"}, disruption=never)
    pools.write_text(yaml.safe_dump_all([expiring, node_class()]))
    _, found, _ = capacity("node own")
    assert (found["decision"], found["reason"]["code"]) == ("later", "ClusterBudgetUsed")


def test_a_missing_right_in_aws_is_named(aws: Sandbox, capacity: Explain) -> None:
    denied = {"service": "ec2", "action": "DescribeInstances", "error": "UnauthorizedOperation"}
    aws.control("PUT", "faults", {"faults": [denied]})
    for words in ("cluster", "node own"):
        code, found, err = capacity(words)
        assert code == 1, words
        assert "The AWS identity of this command may not call" in found["error"]["message"]
        assert "may not call DescribeInstances on the instances of the cluster" in err


def test_a_missing_right_in_the_cluster_is_an_error(live: Live, capacity: Explain) -> None:
    live.fail_with({"verb": "list", "resource": "poddisruptionbudgets", "status": 403})
    code, found, err = capacity("cluster")
    live.fail_with()
    assert (code, "The API server refused a request" in found["error"]["message"]) == (1, True)
    assert "refused a request: 403: " in err


def test_a_cluster_in_which_leeway_launches_nothing_is_warned_of(
    aws: Sandbox,
    live: Live,
    pools: Path,
    create: Callable[..., None],
    explain: Explain,
    capacity: Explain,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    create("watched", cpu="20")
    wait_until_pending(live, "watched")
    join(live, "seen", instance(aws, {"kubernetes.io/cluster/prod": "owned"}))
    switch = Switch("prod", 1, Buyer.KARPENTER, SystemClock().now())
    DynamoTable(partial(aws.client, "dynamodb"), TABLE).put(SWITCH, switch)
    policy = tmp_path / "prod.yaml"
    policy.write_text(
        "apiVersion: leeway.sh/v1\nkind: Cluster\nmetadata: {name: prod}\nspec: {dryRun: true}\n"
    )
    assert main.run(["apply", "-f", str(pools), "-f", str(policy), "--cluster", "prod"]) == 0
    capsys.readouterr()
    code, found, err = explain("default/watched", "--cluster", "prod")
    assert (code, found["decision"]) == (0, "launch")
    assert "warning: SwitchedToKarpenter: Karpenter launches the nodes of cluster prod" in err
    assert "warning: the cluster has dryRun: nothing is launched." in err
    for words in ("cluster", "node seen"):
        code, _, err = capacity(words)
        assert (code, err.count("warning: SwitchedToKarpenter: ")) == (0, 1), err
