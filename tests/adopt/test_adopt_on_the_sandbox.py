"""`leeway adopt` and `leeway release` against the sandbox's AWS and a Kubernetes API server."""

import json
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from botocore.exceptions import ClientError
from leeway.aws.table import DynamoTable
from leeway.manifests.configuration import StoredManifests
from leeway_cli import main
from leeway_cli.adopt.adoptions import ADOPTION, CLAIM_TIME, Adoption
from leeway_cli.adopt.changes import Change
from leeway_cli.adopt.plan import RBAC
from leeway_cli.adopt.settings.groups import GroupTag
from leeway_cli.errors import CannotBeDoneError

from tests.adopt.live_processes import Processes, live_processes
from tests.adopt.world import ENTRIES, OBJECTS, ROOT, World, role, running_world, write_small_rbac
from tests.aws.receive_notice import launch
from tests.aws.stored import TABLE, manifest
from tests.cli.conftest import drop_clients
from tests.end_to_end.environment import until
from tests.sandbox.kubernetes.live import restricted_pod, running_cluster
from tests.template.granted import actions_of
from tests.template.reached import IAM_NAMES

type Run = Callable[..., tuple[int, str, str]]

CHANGES = 2 + 3 + len(ENTRIES)
"""Of a cluster without groups: manifest and name, the objects of SMALL_RBAC, and entries."""

KEY = "AKIAADOPT00000000000"
POLICY = json.loads((ROOT / "docs" / "adopt-policy.json").read_text())
GRANTED = {action for statement in POLICY["Statement"] for action in actions_of(statement)}
OF_OTHER_CLUSTERS = {
    "ec2:DescribeSubnets",
    "eks:DescribeUpdate",
    "eks:UpdateAccessEntry",
    "eks:UpdateClusterConfig",
    "iam:CreateServiceLinkedRole",
    "iam:GetRole",
    "lambda:GetDurableExecution",
}
"""Calls for clusters with another mode, functions in a VPC, entries of others, node roles, and to
durable functions, which this world has none of."""

_numbers = count(1)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with (
        running_world(tmp_path_factory.mktemp("world")) as world,
        pytest.MonkeyPatch.context() as monkeypatch,
    ):
        environment = {
            "AWS_ENDPOINT_URL": world.aws.url,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": "none",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "KUBECONFIG": str(world.kubernetes.kubeconfig()),
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        for name in ("AWS_PROFILE", "LEEWAY_CLUSTER", "LEEWAY_CLUSTERS", "LEEWAY_TABLE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr("leeway.wiring.clients.DEFAULT_TRIES", 1)
        monkeypatch.setattr("leeway.wiring.clients.FAIL_FAST_TRIES", 1)
        drop_clients()
        yield world
    drop_clients()


@pytest.fixture
def world(running: World) -> Iterator[World]:
    yield running
    running.clean()


@pytest.fixture
def cluster(world: World) -> str:
    """A cluster with two groups and its own stack, both of the same name."""
    name = f"prod-{next(_numbers)}"
    world.cluster(name)
    world.stack(name, ClusterNames="other", NodeRoleArns=role("nodes"))
    world.group("web", name)
    world.group("batch", name, "theirs", **{"eks:cluster-name": name})
    return name


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The option with a small folder of RBAC."""
    return "--rbac", str(write_small_rbac(tmp_path_factory.mktemp("rbac")))


@pytest.fixture
def run(
    small: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """Run a command with the stack of the cluster's name, and adopt with a small rbac/."""

    def run_command(command: str, cluster: str, *arguments: str) -> tuple[int, str, str]:
        stack = () if "--stack" in arguments else ("--stack", cluster)
        rbac = small if command == "adopt" and "--rbac" not in arguments else ()
        code = main.run([command, cluster, *stack, *rbac, *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    return run_command


@pytest.fixture(scope="module")
def processes(running: World) -> Iterator[Processes]:
    """Processes of the command line. Only these can be killed."""
    with live_processes() as found:
        yield found


SERVICES = {
    "CreateAccessEntry": "eks",
    "CreateOrUpdateTags": "autoscaling",
    "DescribeCluster": "eks",
    "DescribeStacks": "cloudformation",
    "PutLifecycleHook": "autoscaling",
    "UpdateStack": "cloudformation",
}


def fault(action: str, **changes: Any) -> dict[str, Any]:
    """A fault of an action of AWS."""
    return {
        "service": SERVICES[action],
        "action": action,
        "error": "AccessDenied",
        "status": 403,
        "message": "no",
        **changes,
    }


def test_adopt_brings_a_cluster_under_care_and_release_undoes_it_without_ending_pods(
    world: World, cluster: str, run: Run
) -> None:
    before = world.state(cluster, cluster)

    assert run("adopt", cluster, "--yes", "--rbac", str(RBAC))[0] == 0

    after = world.state(cluster, cluster)
    assert {arn: after[arn] for arn in map(role, ENTRIES)} == {
        role(name): [group] for name, group in ENTRIES.items()
    }
    assert after["web tags"]["eks:cluster-name"] == cluster
    assert after["web hooks"] == {"leeway-drain": 300, "leeway-admit": 300}
    assert after["batch hooks"].keys() == {"theirs", "leeway-drain", "leeway-admit"}
    assert {one.path for one in OBJECTS} <= after.keys()
    assert after["manifests"] == [f"cluster.leeway.sh#/{cluster}"]
    expected = {**before["parameters"], "ClusterNames": f"other,{cluster}"}
    assert after["parameters"] == expected

    code, out, _ = run("adopt", cluster, "--rbac", str(RBAC))
    assert (code, "Nothing has to be changed" in out) == (0, True)

    pods = "/api/v1/namespaces/leeway-headroom/pods"
    world.kubernetes.create(pods, restricted_pod("p"))
    code, _, err = run("release", cluster)
    assert (code, "is not released yet" in err) == (1, True)
    assert world.kubernetes.api.get(f"{pods}/p").status_code == 200

    world.kubernetes.api.delete(f"{pods}/p", params={"gracePeriodSeconds": "0"})
    code, out, err = run("release", cluster)
    assert (code, err) == (0, "")
    assert world.state(cluster, cluster) == before
    assert world.records(f"ADOPTION#{cluster}") == []
    calls = world.aws.control("GET", "status")["calls_by_access_key"][KEY]
    called = {IAM_NAMES.get(one, one) for one in calls}
    assert called <= GRANTED
    assert GRANTED - called <= OF_OTHER_CLUSTERS


def test_an_api_server_without_policies_gets_no_right_to_write_pause_pods(
    world: World, cluster: str, run: Run, tmp_path: Path
) -> None:
    with running_cluster(tmp_path, "--without-admission-policies") as api:
        old, name = World(world.aws, api), f"old-{cluster}"
        old.cluster(name)
        old.group("apart", name)
        options = ("--stack", cluster, "--kubeconfig", str(api.kubeconfig()))
        own_rbac = ("--rbac", str(RBAC), "--group", "apart", "--yes")
        code, out, err = run("adopt", name, *options, *own_rbac)
        assert (code, "older than Kubernetes 1.30" in out + err) == (0, True), out + err
        rights = list(yaml.safe_load_all((RBAC / "leeway.yaml").read_text()))
        assert {one.name for one in OBJECTS if api.api.get(one.path).status_code == 200} == {
            one["metadata"]["name"] for one in rights
        }
        code, out, _ = run("adopt", name, *options, *own_rbac)
        assert (code, "Nothing has to be changed" in out) == (0, True)
        findings: list[dict[str, Any]] = []

        def named() -> bool:
            """Whether doctor names them. On a busy machine an API may not answer in time."""
            findings[:] = json.loads(run("doctor", name, *options, "-o", "json")[1])["findings"]
            return any(one["code"] == "AdmissionPoliciesMissing" for one in findings)

        until(named)
        (one,) = [one for one in findings if one["code"] == "AdmissionPoliciesMissing"]
        assert one["severity"] == "warns"
        codes = {one["code"] for one in findings if one["cluster"] == name}
        assert not codes & {"RightMissing", "ClusterSettingDiffers"}, findings


def test_a_dry_run_prints_each_call_and_changes_nothing(
    world: World, cluster: str, run: Run
) -> None:
    before = world.state(cluster, cluster)

    code, out, err = run("adopt", cluster, "--dry-run", "--group", "web")

    assert (code, err) == (0, "")
    for call in ("eks:CreateAccessEntry", "autoscaling:PutLifecycleHook", "PATCH /apis/rbac"):
        assert call in out
    assert "batch" not in out
    assert world.state(cluster, cluster) == before
    code, out, _ = run("adopt", cluster, "--dry-run", "-o", "json", "--group", "web")
    plan = json.loads(out)
    assert (code, plan["done"]) == (0, False)
    assert len(plan["steps"]) == CHANGES + 3


def test_a_node_class_with_the_role_of_another_cluster_does_not_let_it_join(
    world: World, cluster: str, run: Run
) -> None:
    other, stack, nodes = f"{cluster}-other", f"{cluster}-both", role("nodes")
    world.cluster(other)
    world.stack(stack, ClusterNames=other, NodeRoleArns=nodes)
    dry_run = ("adopt", cluster, "--dry-run", "--stack", stack)
    body = {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "web"},
        "spec": {"role": "nodes"},
    }
    resource = "ec2nodeclass.karpenter.k8s.aws"
    stored = manifest("web", 1, resource=resource, body=json.dumps(body))
    table = DynamoTable(lambda: world.aws.client("dynamodb"), TABLE)
    StoredManifests(table).write(cluster, stored, 0)
    assert f"access entry of {nodes}" in run(*dry_run)[1]
    eks = world.aws.client("eks")
    eks.create_access_entry(clusterName=other, principalArn=nodes, type="EC2_LINUX")
    code, out, _ = run(*dry_run)
    assert (code, f"access entry of {nodes}" in out) == (0, False)
    assert f"warning: Nodes with role {nodes} can join {other}" in out
    explicit = run(*dry_run, "--node-role", nodes)[1]
    assert f"access entry of {nodes}" in explicit


def test_settings_of_others_need_consent_and_come_back(
    world: World, cluster: str, run: Run
) -> None:
    eks, scaling = world.aws.client("eks"), world.aws.client("autoscaling")
    drain = role("RetireNodeRole")
    eks.create_access_entry(clusterName=cluster, principalArn=drain, kubernetesGroups=["viewers"])
    tag = {"ResourceId": "web", "ResourceType": "auto-scaling-group", "Key": "eks:cluster-name"}
    scaling.create_or_update_tags(Tags=[{**tag, "Value": "dev", "PropagateAtLaunch": True}])
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    theirs = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "leeway-watch"},
        "rules": rules,
    }
    world.kubernetes.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", theirs)
    before = world.state(cluster, cluster)

    code, _, err = run("adopt", cluster)

    assert code == 1
    assert "steps change settings of others" in err
    for asked in (
        "exists with the groups",
        "exists without a label or field manager of Leeway",
        "; it becomes",
    ):
        assert asked in err
    assert "instances will wait for it and for" in err
    assert world.state(cluster, cluster) == before

    assert run("adopt", cluster, "--yes")[0] == 0
    assert world.state(cluster, cluster)[drain] == ["leeway:drain", "viewers"]
    code, _, err = run("release", cluster)
    assert (code, "gets back what it had before `leeway adopt`" in err) == (1, True)
    assert run("release", cluster, "--yes")[0] == 0
    assert world.state(cluster, cluster) == before


def test_a_group_of_another_cluster_is_not_adopted(world: World, cluster: str, run: Run) -> None:
    world.group("tagged", "dev")
    world.aws.group("joined", 0)
    tags = {"aws:eks:cluster-name": "dev", "aws:autoscaling:groupName": "joined"}
    instance = launch(world.aws, tags)
    before = world.state(cluster, cluster)

    for name in ("tagged", "joined"):
        code, _, err = run("adopt", cluster, "--yes", "--group", "web", "--group", name)
        assert (code, err.count("\n")) == (1, 1)
        assert f"group {name} name cluster dev, and not {cluster}" in err

    assert world.state(cluster, cluster) == before
    world.aws.client("ec2").terminate_instances(InstanceIds=[instance])


def test_adopt_creates_the_role_for_spot_of_an_account_and_release_leaves_it(
    world: World, cluster: str, run: Run
) -> None:
    iam, name = world.aws.client("iam"), "AWSServiceRoleForEC2Spot"
    iam.delete_service_linked_role(RoleName=name)
    nodes = ("--node-role", role("nodes"))

    code, out, _ = run("adopt", cluster, "--dry-run", *nodes)
    assert code == 0
    assert "iam:CreateServiceLinkedRole AWSServiceName=spot.amazonaws.com" in out
    assert run("adopt", cluster, "--yes", *nodes)[0] == 0
    created = iam.get_role(RoleName=name)["Role"]
    assert created["Path"] == "/aws-service-role/spot.amazonaws.com/"
    code, out, _ = run("adopt", cluster, *nodes)
    assert (code, "Nothing has to be changed" in out) == (0, True)

    code, out, _ = run("release", cluster)
    assert (code, "The role AWSServiceRoleForEC2Spot stays" in out) == (0, True)
    assert iam.get_role(RoleName=name)["Role"] == created
    assert world.records(f"ADOPTION#{cluster}") == []
    called = world.aws.control("GET", "status")["calls_by_access_key"][KEY]
    assert called.keys() >= {"iam:CreateServiceLinkedRole", "iam:GetRole"}


def test_a_cluster_with_a_config_map_changes_its_mode_for_good(
    world: World, cluster: str, run: Run
) -> None:
    old = f"old-{cluster}"
    world.cluster(old, "CONFIG_MAP")
    world.group("apart", old)

    code, _, err = run("adopt", old, "--stack", cluster, "--group", "apart")
    assert (code, "EKS cannot switch it back" in err) == (1, True)
    assert run("adopt", old, "--stack", cluster, "--group", "apart", "--yes")[0] == 0

    code, out, _ = run("release", old, "--stack", cluster)
    assert code == 0
    assert "The authentication mode of the cluster stays" in out
    state = world.state(old, cluster)
    assert state["mode"] == "API_AND_CONFIG_MAP"
    assert role("RetireNodeRole") not in state


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_adopt_that_stops_at_every_call_converges_and_release_undoes_it(
    world: World, cluster: str, run: Run, when: str
) -> None:
    """Each run gets one change further: the next one fails, before or after AWS has made it."""
    before = world.state(cluster, cluster)
    actions = ("CreateAccessEntry", "UpdateStack", "CreateOrUpdateTags", "PutLifecycleHook")
    faults = [fault(one, skip=3 if one == "CreateAccessEntry" else 1, when=when) for one in actions]
    stopped = 0
    while True:
        world.aws.control("PUT", "faults", {"faults": faults})
        code, _, err = run("adopt", cluster, "--yes", "--group", "web")
        if code == 0:
            break
        assert "The AWS identity of this command may not call" in err, err
        stopped += 1
        assert stopped < 20

    assert stopped >= 2
    world.aws.control("PUT", "faults", {"faults": []})
    assert run("release", cluster)[0] == 0
    assert world.state(cluster, cluster) == before


def adopting(cluster: str, small: tuple[str, str], *more: str) -> tuple[str, ...]:
    """The command line that adopts a cluster with its group web."""
    return ("adopt", cluster, "--yes", "--stack", cluster, *small, "--group", "web", *more)


def table_of(world: World) -> DynamoTable:
    return DynamoTable(lambda: world.aws.client("dynamodb"), TABLE)


def end_claim(world: World, cluster: str) -> None:
    """Let the claim of a process expire, as it does a minute after its last step."""
    table = table_of(world)
    stored = table.get(ADOPTION, cluster=cluster)
    assert stored is not None
    past = stored.model_copy(update={"until": datetime(2026, 1, 1, tzinfo=UTC)})
    table.put(ADOPTION, past, replaces=stored.version)


def test_an_adopt_that_is_killed_after_some_steps_is_continued_by_the_next_one(
    world: World, cluster: str, small: tuple[str, str], processes: Processes
) -> None:
    """The process is killed after four steps, the next one after four more, and so on."""
    before = world.state(cluster, cluster)
    command = adopting(cluster, small)
    for done in range(0, CHANGES + 3, 4):
        left = CHANGES + 3 - done
        step = min(4, left)
        killed = processes.run(*command, step=step)
        assert killed.code == -signal.SIGKILL, killed.err
        assert f"[{step}/{left}] " in killed.out
        if done == 0:
            refused = processes.run(*command)
            assert (refused.code, "Run the command again after that time." in refused.err) == (
                1,
                True,
            )
            assert f"process {killed.pid}" in refused.err
        end_claim(world, cluster)

    other = f"older-{cluster}"
    world.stack(other, {"RetireNodeRole": "leeway:drain"})
    refused = processes.run("adopt", cluster, "--stack", other, *small)
    assert (refused.code, "is of another version of Leeway" in refused.err) == (1, True)

    whole = processes.run(*command)
    assert (whole.code, "Nothing has to be changed" in whole.out) == (0, True), whole.err
    release = ("release", cluster, "--stack", cluster)
    assert processes.run(*release, step=4).code == -signal.SIGKILL
    end_claim(world, cluster)
    assert processes.run(*release).code == 0
    assert world.state(cluster, cluster) == before


def test_of_two_live_adopts_the_second_one_waits_and_the_first_one_loses_an_old_claim(
    world: World, cluster: str, small: tuple[str, str], processes: Processes
) -> None:
    before = world.state(cluster, cluster)
    command = adopting(cluster, small)
    first = processes.run(*command, step=3, sent=signal.SIGSTOP)
    assert first.code is None

    second = processes.run(*command)
    assert (second.code, "Run the command again after that time." in second.err) == (1, True)
    assert f"process {first.pid}" in second.err

    end_claim(world, cluster)
    second = processes.run(*command)
    assert second.code == 0, second.err
    adopted = world.state(cluster, cluster)
    first = processes.go_on(first)

    assert (first.code, "Another process has taken over cluster" in first.err) == (1, True)
    assert world.state(cluster, cluster) == adopted
    assert processes.run("release", cluster, "--stack", cluster).code == 0
    assert world.state(cluster, cluster) == before


def test_a_group_that_is_deleted_during_an_adopt_is_named(
    world: World, cluster: str, small: tuple[str, str], processes: Processes
) -> None:
    adopting_both = adopting(cluster, small, "--group", "batch")
    run = processes.run(*adopting_both, step=2, sent=signal.SIGSTOP)
    scaling = world.aws.client("autoscaling")
    scaling.delete_auto_scaling_group(AutoScalingGroupName="web", ForceDelete=True)
    world.aws.client("ec2").delete_launch_template(LaunchTemplateName="web")
    run = processes.go_on(run)
    assert (run.code, "Auto Scaling deleted group" in run.err) == (1, True)
    assert "group web" in run.err

    others = ("adopt", cluster, "--yes", "--stack", cluster, *small)
    assert processes.run(*others).code == 0
    assert "leeway-drain" in world.state(cluster, cluster)["batch hooks"]
    assert processes.run("release", cluster, "--stack", cluster).code == 0
    assert world.state(cluster, cluster)["batch hooks"].keys() == {"theirs"}


@pytest.mark.parametrize(
    ("faults", "said", "named"),
    [
        (
            fault("DescribeCluster", error="AccessDeniedException"),
            "The AWS identity of this command may not call",
            "DescribeCl",
        ),
        (
            fault(
                "CreateAccessEntry",
                error="AccessDeniedException",
                message="User: arn is not authorized to perform: eks:CreateAccessEntry on "
                "resource: arn:aws:eks:us-east-1:1:cluster/x",
            ),
            "The AWS identity of this command may not call",
            "eks:CreateAccessEntry",
        ),
        (fault("UpdateStack"), "The AWS identity of this command may not call", "UpdateStack"),
        (
            fault("DescribeStacks", error="ExpiredToken"),
            "AWS rejected the credentials",
            "ExpiredToken",
        ),
        (
            fault(
                "PutLifecycleHook",
                error="ValidationError",
                status=400,
                message="AutoScalingGroup name not found - web",
            ),
            "Auto Scaling deleted group",
            "web",
        ),
    ],
    ids=["cluster", "entry", "stack", "credentials", "group"],
)
def test_a_refusal_of_aws_is_one_line_that_names_the_action(
    world: World, cluster: str, run: Run, faults: dict[str, Any], said: str, named: str
) -> None:
    world.aws.control("PUT", "faults", {"faults": [faults]})

    exit_code, out, err = run("adopt", cluster, "--yes", "--group", "web")

    assert exit_code == 1, out
    assert err.startswith("leeway: ")
    assert said in err
    assert named in err
    assert err.count("\n") == 1


def test_bad_input_is_one_line_that_says_what_was_expected(
    world: World, cluster: str, run: Run
) -> None:
    world.cluster(f"shut-{cluster}", endpointPublicAccess=False, endpointPrivateAccess=True)
    world.stack(f"older-{cluster}", {"RetireNodeRole": "leeway:drain"})
    world.aws.client("eks").create_cluster(
        name=f"elsewhere-{cluster}", roleArn=role("x"), resourcesVpcConfig={}
    )
    cases = [
        (("gone", "--stack", cluster), "has no EKS cluster gone", 1),
        ((cluster, "--stack", "gone"), "has no stack gone", 1),
        ((cluster, "--stack", f"older-{cluster}"), "is of another version of Leeway", 1),
        ((f"shut-{cluster}", "--stack", cluster), "is private, and the functions of stack", 1),
        ((f"elsewhere-{cluster}", "--stack", cluster), "The kubeconfig has the API server", 1),
        ((cluster, "--group", "gone"), "Auto Scaling has no group gone", 1),
        ((cluster, "--node-role", "nodes"), "--node-role: expected the ARN of an IAM role", 2),
        ((cluster, "--rbac", "/nowhere"), "Set --rbac to the folder rbac of Leeway", 2),
        (("not a name",), "CLUSTER: expected the name of a cluster", 2),
    ]
    before = world.state(cluster, cluster)
    for arguments, said, exit_code in cases:
        found, _, err = run("adopt", *arguments)
        assert (found, said in err, err.count("\n")) == (exit_code, True, 1), err
    assert world.state(cluster, cluster) == before
    assert run("release", cluster)[2].startswith("leeway: The table has no record of `leeway adopt")


def test_an_api_server_that_refuses_or_does_not_answer_is_named(
    world: World, cluster: str, run: Run
) -> None:
    world.kubernetes.fail_with({"verb": "patch", "resource": "clusterroles", "status": 500})

    code, _, err = run("adopt", cluster, "--yes", "--group", "web")

    assert (code, "The API server did not answer" in err) == (1, True), err
    world.kubernetes.fail_with()
    assert run("adopt", cluster, "--yes", "--group", "web")[0] == 0


def test_the_stack_can_be_left_to_a_command(world: World, cluster: str, run: Run) -> None:
    code, out, _ = run("adopt", cluster, "--yes", "--no-update-stack", "--group", "web")

    assert code == 0
    assert "aws cloudformation update-stack" in out
    assert f"ParameterValue=other\\,{cluster}" in out
    assert "ParameterKey=LogLevel,UsePreviousValue=true" in out
    assert world.parameters(cluster)["ClusterNames"] == "other"


def test_a_cluster_without_the_kinds_of_karpenter_has_nothing_to_switch(
    cluster: str, run: Run
) -> None:
    """The API server answers 404 in plain text for an API group that it does not have."""
    code, _, err = run("switch", cluster, "--from", "karpenter")

    assert code == 1
    assert f"Cluster {cluster} has no Deployment of Karpenter" in err
    assert "Nothing was changed" in err


def test_without_credentials_nothing_is_read(
    world: World, cluster: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    drop_clients()

    assert run("adopt", cluster)[2].startswith("leeway: No AWS credentials were found.")
    drop_clients()


def test_release_keeps_a_launch_hook_while_instances_wait_for_it(
    world: World, cluster: str, run: Run
) -> None:
    """Auto Scaling would terminate them: it abandons a launch whose hook is deleted."""
    scaling = world.aws.client("autoscaling")
    assert run("adopt", cluster, "--yes", "--group", "web")[0] == 0
    scaling.set_desired_capacity(AutoScalingGroupName="web", DesiredCapacity=1)
    world.aws.wait(lambda: "Pending:Wait" in world.aws.states("web").values())
    (instance,) = world.aws.states("web")

    code, _, err = run("release", cluster)

    assert (code, "is not released yet" in err) == (1, True)
    assert instance in err
    assert world.state(cluster, cluster)["web hooks"].keys() == {"leeway-admit"}
    assert world.aws.states("web") == {instance: "Pending:Wait"}
    scaling.complete_lifecycle_action(
        AutoScalingGroupName="web",
        LifecycleHookName="leeway-admit",
        InstanceId=instance,
        LifecycleActionResult="CONTINUE",
    )
    world.aws.wait(lambda: world.aws.states("web") == {instance: "InService"})
    assert run("release", cluster)[0] == 0
    assert world.aws.states("web") == {instance: "InService"}


def test_a_process_that_lost_its_claim_changes_nothing_more(world: World, cluster: str) -> None:
    now = datetime(2026, 11, 23, tzinfo=UTC)

    def adoption(holder: str) -> Adoption:
        return Adoption(table_of(world), cluster, lambda: now, holder)

    first, second = adoption("first"), adoption("second")
    change = Change(None, GroupTag("web", cluster))
    first.claim()
    first.record([change])
    with pytest.raises(CannotBeDoneError) as claimed:
        second.claim()
    assert "Run the command again after that time." in str(claimed.value)

    now += CLAIM_TIME + timedelta(seconds=1)
    second.claim()

    assert second.changes == {change.key: change}
    with pytest.raises(CannotBeDoneError) as lost:
        first.record([])
    assert "Another process has taken over cluster" in str(lost.value)
    first.leave()
    second.leave()
    adoption("third").claim()


def test_an_update_of_a_stack_that_changes_nothing_is_an_error(world: World, cluster: str) -> None:
    with pytest.raises(ClientError, match="No updates are to be performed"):
        world.aws.client("cloudformation").update_stack(
            StackName=cluster,
            UsePreviousTemplate=True,
            Parameters=[
                {"ParameterKey": name, "UsePreviousValue": True}
                for name in world.parameters(cluster)
            ],
        )


def test_a_name_of_a_stack_is_used_once(world: World, cluster: str) -> None:
    with pytest.raises(AssertionError, match="exists already"):
        world.stack(cluster)
