"""`leeway launch` and `leeway terminate` on a running sandbox: nodes that join, launches that end
with a reason, and what a node's end drains, ends and refuses."""

import json
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
import yaml
from leeway.aws.table import DynamoTable
from leeway.catalog.stored import SURVEY
from leeway.execution.attempt import Phase
from leeway.retirement.record import RETIREMENT
from leeway.selection.offers.survey import compressed
from leeway_cli import main
from leeway_cli.selection.sources import sandbox_survey
from leeway_cli.terminate.run import TERMINATED
from leeway_sandbox.provisioning import IMAGE, client
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import DISCOVERY_TAG, NODE_ROLE, Group, Scenario

from tests.aws.test_target_contract import balanced
from tests.cli.conftest import drop_clients
from tests.end_to_end.environment import until
from tests.end_to_end.launch_faults import end_admissions
from tests.end_to_end.rights import check_calls_are_granted
from tests.launch.pools import ONE_POD_EACH, pool
from tests.launch.pools import node_class as any_node_class
from tests.retirement.retirements import interrupted

CLUSTER, FOREIGN = "ends", "somebody-elses"
PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"

type Terminate = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Two groups, one instance of a cluster that somebody else has, and a catalog."""
    scenario = Scenario(
        cluster=CLUSTER,
        groups=(Group("web", 4), Group("batch", 3)),
        foreign_clusters=(FOREIGN,),
    )
    state, options = tmp_path_factory.mktemp("sandbox"), {"kubernetes": ["--node-join", "1"]}
    with Sandbox.start(scenario, state_dir=state, options=options) as running:
        survey = compressed(sandbox_survey())
        table_of(running).put(SURVEY, survey, region="us-east-1")
        yield running
        check_calls_are_granted(running)


def table_of(sandbox: Sandbox) -> DynamoTable:
    table = sandbox.environment()["LEEWAY_TABLE"]
    return DynamoTable(partial(client, "dynamodb", sandbox.aws_url), table)


@pytest.fixture(autouse=True)
def environment(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The environment that `leeway sandbox up` prints, and no faults."""
    for name, value in sandbox.environment().items():
        monkeypatch.setenv(name, value)
    drop_clients()
    sandbox.faults("aws", [])
    yield
    drop_clients()


@pytest.fixture
def api(sandbox: Sandbox) -> Iterator[httpx.Client]:
    """The API of the cluster, as admin."""
    config = yaml.safe_load(sandbox.kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    verify = ssl.create_default_context(cafile=cluster["certificate-authority"])
    headers = {"Authorization": f"Bearer {user['token']}"}
    with httpx.Client(base_url=cluster["server"], headers=headers, verify=verify) as opened:
        yield opened


@pytest.fixture
def terminate(sandbox: Sandbox, capsys: pytest.CaptureFixture[str]) -> Terminate:
    """Run the command: its exit code, its JSON document and stderr."""

    def run(*arguments: str) -> tuple[int, dict[str, Any], str]:
        kubeconfig = ["--kubeconfig", str(sandbox.kubeconfig)]
        code = main.run(["terminate", *arguments, *kubeconfig, "-o", "json"])
        printed = capsys.readouterr()
        return code, json.loads(printed.out), printed.err

    return run


def ec2(sandbox: Sandbox) -> Any:
    return client("ec2", sandbox.aws_url)


def state_of(sandbox: Sandbox, instance: str) -> str:
    answer = ec2(sandbox).describe_instances(InstanceIds=[instance])
    return str(answer["Reservations"][0]["Instances"][0]["State"]["Name"])


def group_of(sandbox: Sandbox, name: str) -> dict[str, Any]:
    answer = client("autoscaling", sandbox.aws_url).describe_auto_scaling_groups(
        AutoScalingGroupNames=[name]
    )
    found: dict[str, Any] = answer["AutoScalingGroups"][0]
    return found


def nodes_of(sandbox: Sandbox, api: httpx.Client, group: str) -> dict[str, str]:
    """The Ready nodes of a group's instances that are in service: name → instance."""
    members = {
        one["InstanceId"]
        for one in group_of(sandbox, group)["Instances"]
        if one["LifecycleState"] == "InService"
    }
    nodes = {
        one["metadata"]["name"]: one["spec"]["providerID"].rpartition("/")[2]
        for one in api.get(NODES).json()["items"]
        if not one["spec"].get("unschedulable")
    }
    return {name: instance for name, instance in nodes.items() if instance in members}


def one_of(sandbox: Sandbox, api: httpx.Client, group: str) -> tuple[str, str]:
    """A node of a group and its instance."""
    until(lambda: nodes_of(sandbox, api, group))
    return sorted(nodes_of(sandbox, api, group).items())[0]


def run_pod(api: httpx.Client, name: str, node: str, **metadata: Any) -> None:
    spec = {
        "nodeName": node,
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "app", "image": "x"}],
    }
    body = {"metadata": {"name": name, **metadata}, "spec": spec}
    assert api.post(PODS, json=body).status_code == 201
    until(lambda: api.get(f"{PODS}/{name}").json()["status"].get("phase") == "Running")


def add_node(api: httpx.Client, name: str, provider_id: str) -> None:
    body = {"metadata": {"name": name}, "spec": {"providerID": provider_id}}
    assert api.post(NODES, json=body).status_code == 201


@pytest.fixture
def copies(api: httpx.Client) -> Iterator[Callable[[str, str], None]]:
    """Creates Node objects as somebody who may create nodes, and deletes them after the test."""
    made: list[str] = []

    def create(name: str, provider_id: str) -> None:
        made.append(name)
        add_node(api, name, provider_id)

    yield create
    for name in made:
        api.delete(f"{NODES}/{name}")


def launched(sandbox: Sandbox, **tags: str) -> str:
    """Launch an instance with these tags, in no group."""
    written = [{"Key": key.replace("__", "/"), "Value": value} for key, value in tags.items()]
    answer = ec2(sandbox).run_instances(
        ImageId=IMAGE,
        InstanceType="m5.large",
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": written}],
    )
    return str(answer["Instances"][0]["InstanceId"])


def node_class(**spec: Any) -> dict[str, Any]:
    """The node class of the sandbox's network and node role."""
    terms = [{"tags": {DISCOVERY_TAG: CLUSTER}}]
    found = {"subnetSelectorTerms": terms, "securityGroupSelectorTerms": terms, "role": NODE_ROLE}
    return any_node_class(**found, **spec)


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


def test_launched_nodes_join_with_the_labels_of_their_pool(
    sandbox: Sandbox, api: httpx.Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def labels(node: str) -> dict[str, str]:
        found: dict[str, str] = api.get(f"{NODES}/{node}").json()["metadata"]["labels"]
        return found

    first = pool("first", labels={"team": "a"}, only=ONE_POD_EACH)
    code, found, err = launch(sandbox, tmp_path, capsys, first, node_class())
    assert code == 0, err
    assert len(found["launched"]) == 2
    nodes = [one["node"] for one in found["nodes"]]
    assert all(one["ready"] for one in found["nodes"])
    expected = {
        "team": "a",
        "karpenter.sh/nodepool": "first",
        "karpenter.sh/capacity-type": "spot",
    }
    assert len(nodes) == 2
    for node in nodes:
        assert expected.items() <= labels(node).items()
    assert err.count("is Ready") == 2
    sandbox.set_schedule_speed(12)  # reconcile begins the admissions of a launch by hand
    initialized = "karpenter.sh/initialized"
    until(lambda: all(labels(node).get(initialized) == "true" for node in nodes))
    sandbox.set_schedule_speed(1)


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
    until(lambda: {state_of(sandbox, one) for one in instances} <= {*TERMINATED})


def test_a_groups_node_is_drained_and_its_group_launches_another(
    sandbox: Sandbox, api: httpx.Client, terminate: Terminate
) -> None:
    node, instance = one_of(sandbox, api, "web")
    run_pod(api, "passenger", node)
    desired = group_of(sandbox, "web")["DesiredCapacity"]
    code, found, err = terminate(f"node/{node}", "--force")
    assert code == 0, err
    (document,) = found["nodes"]
    assert (document["drained"], document["terminated"]) == (True, True)
    assert document["call"] == "TerminateInstanceInAutoScalingGroup"
    assert (document["instance"], document["group"]) == (instance, "web")
    assert api.get(f"{PODS}/passenger").status_code == 404
    until(lambda: state_of(sandbox, instance) in TERMINATED)
    assert group_of(sandbox, "web")["DesiredCapacity"] == desired
    until(lambda: len(nodes_of(sandbox, api, "web")) == desired)


def test_an_instance_ends_when_its_load_balancers_have_drained_it(
    sandbox: Sandbox, api: httpx.Client, terminate: Terminate
) -> None:
    def aws(service: str) -> Any:
        return client(service, sandbox.aws_url)

    node, instance = one_of(sandbox, api, "web")
    group = balanced(aws, "patient", [instance], 3)
    ended: list[str] = []

    def deregister() -> None:
        """Do what the AWS Load Balancer Controller does with an excluded node."""
        until(lambda: EXCLUDED in api.get(f"{NODES}/{node}").json()["metadata"]["labels"])
        aws("elbv2").deregister_targets(TargetGroupArn=group, Targets=[{"Id": instance}])
        until(lambda: not targets_of(aws, group))
        ended.append(state_of(sandbox, instance))

    controller = Thread(target=deregister)
    controller.start()
    code, _, err = terminate(node, "--force", "--wait-for-targets")
    controller.join()
    assert (code, ended) == (0, ["running"]), err
    assert "Load balancers drain 1 target of the instance, in patient." in err
    until(lambda: state_of(sandbox, instance) in TERMINATED)


def targets_of(aws: Callable[[str], Any], group: str) -> list[Any]:
    answer = aws("elbv2").describe_target_health(TargetGroupArn=group)
    return list(answer["TargetHealthDescriptions"])


def test_with_decrement_the_group_becomes_smaller_and_keeps_its_minimum(
    sandbox: Sandbox, api: httpx.Client, terminate: Terminate
) -> None:
    (first, ended), (second, kept) = sorted(nodes_of(sandbox, api, "batch").items())[:2]
    client("autoscaling", sandbox.aws_url).update_auto_scaling_group(
        AutoScalingGroupName="batch", MinSize=2
    )
    code, found, err = terminate(first, second, "--force", "--decrement")
    assert code == 1
    assert "below its minimum of" in found["error"]["message"]
    assert "below its minimum of 2" in err
    assert [one["node"] for one in found["nodes"]] == [first]
    assert found["notTerminated"][0]["node"] == second
    assert group_of(sandbox, "batch")["DesiredCapacity"] == 2
    until(lambda: state_of(sandbox, ended) in TERMINATED)
    assert state_of(sandbox, kept) not in TERMINATED
    assert not api.get(f"{NODES}/{second}").json()["spec"].get("unschedulable")


def test_an_instance_of_no_group_is_terminated_and_a_second_run_is_success(
    sandbox: Sandbox, copies: Callable[[str, str], None], terminate: Terminate
) -> None:
    tags = {"eks:eks-cluster-name": CLUSTER, "leeway.sh/owner": "leeway"}
    instance = launched(sandbox, **tags, **{"leeway.sh/nodepool": "general"})
    copies("own-1", f"aws:///us-east-1a/{instance}")
    code, found, err = terminate(instance)
    assert code == 0, err
    (document,) = found["nodes"]
    assert (document["node"], document["owner"]) == ("own-1", "leeway general")
    assert document["call"] == "TerminateInstances"
    until(lambda: state_of(sandbox, instance) in TERMINATED)
    code, found, err = terminate(instance)
    assert code == 0, err
    assert (found["nodes"][0]["call"], found["nodes"][0]["terminated"]) == ("none", True)


def test_a_node_whose_provider_id_names_another_clusters_instance_is_refused(
    sandbox: Sandbox, copies: Callable[[str, str], None], terminate: Terminate
) -> None:
    (victim,) = sandbox.endpoints.foreign_instances
    copies("stolen-1", f"aws:///us-east-1a/{victim}")
    for more in ((), ("--cluster", CLUSTER)):  # EKS has no cluster of that name
        code, found, err = terminate("stolen-1", "--force", *more)
        assert (code, "by its tags it belongs to cluster" in found["error"]["message"]) == (1, True)
        assert err.count("\n") == 1
        assert f"belongs to cluster {FOREIGN}" in err
    assert state_of(sandbox, victim) not in TERMINATED


def test_a_cluster_that_has_another_api_server_is_refused(
    sandbox: Sandbox, copies: Callable[[str, str], None], terminate: Terminate
) -> None:
    """Somebody with the right to tag instances names a cluster that exists in EKS."""
    client("eks", sandbox.aws_url).create_cluster(
        name="other", roleArn="arn:aws:iam::123456789012:role/x", resourcesVpcConfig={}
    )
    instance = launched(sandbox, **{"eks:eks-cluster-name": "other"})
    copies("other-1", f"aws:///us-east-1a/{instance}")
    code, found, err = terminate("other-1", "--force")
    assert (code, "by its tags it belongs to cluster" in found["error"]["message"]) == (1, True)
    assert "this is the cluster of https://" in err
    assert state_of(sandbox, instance) not in TERMINATED


def test_a_copy_of_a_provider_id_does_not_end_the_real_nodes_instance(
    sandbox: Sandbox,
    api: httpx.Client,
    copies: Callable[[str, str], None],
    terminate: Terminate,
) -> None:
    node, instance = one_of(sandbox, api, "web")
    copies("copy-1", api.get(f"{NODES}/{node}").json()["spec"]["providerID"])
    for given in ("copy-1", node, instance):
        code, found, _ = terminate(given, "--force")
        assert (code, "all name it" in found["error"]["message"]) == (1, True)
    assert state_of(sandbox, instance) not in TERMINATED
    assert not api.get(f"{NODES}/{node}").json()["spec"].get("unschedulable")


def test_a_node_that_is_not_drained_keeps_its_instance(
    sandbox: Sandbox, api: httpx.Client, terminate: Terminate
) -> None:
    node, instance = one_of(sandbox, api, "web")
    run_pod(api, "guarded", node, labels={"app": "guarded"})
    budget = {
        "metadata": {"name": "guarded"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}},
    }
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    assert api.post(budgets, json=budget).status_code == 201
    # A pod without a controller.
    assert "because it is not drained" in terminate(node)[1]["error"]["message"]
    code, found, err = terminate(node, "--force", "--timeout", "3s")
    assert (code, "because it is not drained" in found["error"]["message"]) == (1, True)
    assert "guarded" in err
    assert [one["terminated"] for one in found["nodes"]] == [False]
    assert state_of(sandbox, instance) not in TERMINATED

    command = [sys.executable, "-m", "leeway_cli", "terminate", node, "--force"]
    with subprocess.Popen(
        [*command, "--kubeconfig", str(sandbox.kubeconfig)],
        stderr=subprocess.PIPE,
        text=True,
        # A shell that starts the tests in the background lets them ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if "budget guarded" in line)
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"node/{node} stays cordoned: kubectl uncordon {node}" in rest
    assert f"node/{node}: instance {instance} still runs; run the command again to go on" in rest
    assert state_of(sandbox, instance) not in TERMINATED

    assert api.delete(f"{budgets}/guarded").status_code == 200
    assert terminate(node, "--force")[0] == 0  # goes on where the other runs ended
    until(lambda: state_of(sandbox, instance) in TERMINATED)


def test_a_refused_call_leaves_a_drained_node_that_a_second_run_ends(
    sandbox: Sandbox, api: httpx.Client, terminate: Terminate
) -> None:
    node, instance = one_of(sandbox, api, "web")
    action = {"service": "autoscaling", "action": "TerminateInstanceInAutoScalingGroup"}
    sandbox.faults("aws", [action | {"error": "AccessDenied"}])
    code, found, err = terminate(node, "--force")
    assert (code, "is drained and cordoned, and instance" in found["error"]["message"]) == (1, True)
    assert f"instance {instance} still runs" in err
    assert state_of(sandbox, instance) not in TERMINATED
    sandbox.faults("aws", [])
    assert terminate(node, "--force")[0] == 0


def test_a_dry_run_says_what_it_would_do_and_changes_nothing(
    sandbox: Sandbox, api: httpx.Client, terminate: Terminate, capsys: pytest.CaptureFixture[str]
) -> None:
    node, instance = one_of(sandbox, api, "web")
    code, found, err = terminate(node, "--force", "--dry-run=client")
    assert code == 0, err
    (document,) = found["nodes"]
    assert (document["dryRun"], document["terminated"]) == (True, False)
    assert document["call"] == "TerminateInstanceInAutoScalingGroup"
    kubeconfig = ["--kubeconfig", str(sandbox.kubeconfig)]
    assert main.run(["terminate", node, "--force", "--dry-run", *kubeconfig]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == (
        f"node/{node}: instance {instance} would be ended by TerminateInstanceInAutoScalingGroup; "
        "group web launches another instance (dry run)"
    )
    assert state_of(sandbox, instance) not in TERMINATED
    assert not api.get(f"{NODES}/{node}").json()["spec"].get("unschedulable")


def test_an_open_retirement_is_named(
    sandbox: Sandbox, api: httpx.Client, terminate: Terminate
) -> None:
    node, instance = one_of(sandbox, api, "web")
    record = interrupted(Phase.RUNNING)
    facts = record.facts.model_copy(update={"instance": instance, "cluster": CLUSTER})
    record = record.model_copy(
        update={"facts": facts, "version": 1, "noticed_at": datetime.now(UTC)}
    )
    table_of(sandbox).put(RETIREMENT, record)
    warning = f"warning: Leeway retires node {node} already: spot-interruption of "

    def named() -> bool:
        """On a busy machine a table may not answer in time, and then it is not known."""
        code, found, err = terminate(node, "--force", "--dry-run")
        assert code == 0
        assert (warning in err) == bool(found["nodes"][0]["retirement"])
        return warning in err

    until(named)


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ("no-such-node", 1, "The cluster has no node no-such-node."),
        ("i-00000000000000000", 1, "EC2 has no instance i-00000000000000000"),
        ("pod/x", 2, "expected the name of a node"),
    ],
)
def test_a_failure_is_one_line(terminate: Terminate, given: str, code: int, words: str) -> None:
    found, _, err = terminate(given)
    assert found == code
    assert words in err
    assert err.count("\n") == 1
