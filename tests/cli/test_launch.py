"""`leeway launch`: manifests and pods in, fleet requests and nodes out."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from leeway.catalog.stored import SURVEY
from leeway.hibernation import woken
from leeway.manifests.node_pool import SCHEDULE
from leeway.pool_pauses import NODES_NEVER_JOINED, POOL, PoolRecord
from leeway.selection.offers.survey import compressed
from leeway_cli import main
from leeway_cli.selection.sources import sandbox_survey

from tests.aws.stored import table_in
from tests.launch.pools import document, node_class, pool
from tests.sandbox.aws.fleet_calls import profile, subnets
from tests.sandbox.aws.started import Sandbox

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web-0", "namespace": "shop"},
    "spec": {
        "containers": [{"name": "web", "image": "x", "resources": {"requests": {"cpu": "90"}}}]
    },
}


@pytest.fixture(scope="module")
def survey() -> bytes:
    """The catalog of us-east-1, as refresh_catalog keeps it."""
    return compressed(sandbox_survey())


@pytest.fixture(scope="module")
def network(embedded_aws: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tagged subnets and a security group, a node role, and the cluster `prod`."""
    ec2 = embedded_aws.client("ec2")
    known = list(subnets(embedded_aws).values())
    vpc = ec2.describe_subnets(SubnetIds=known)["Subnets"][0]["VpcId"]
    group = ec2.create_security_group(GroupName="launches", Description="nodes", VpcId=vpc)
    tags = [{"Key": "discovery", "Value": "prod"}]
    ec2.create_tags(Resources=[*known, group["GroupId"]], Tags=tags)
    own = [{"Key": "leeway.sh/cluster/prod", "Value": ""}]
    ec2.create_tags(Resources=[group["GroupId"]], Tags=own)
    profile(embedded_aws, "prod-nodes")
    eks = embedded_aws.client("eks")
    eks.create_cluster(
        name="prod",
        version="1.34",
        roleArn="arn:aws:iam::123456789012:role/cluster",
        resourcesVpcConfig={},
        kubernetesNetworkConfig={"serviceIpv4Cidr": "10.0.0.0/16"},
        accessConfig={"authenticationMode": "API"},
    )
    role = "arn:aws:iam::123456789012:role/prod-nodes"
    eks.create_access_entry(clusterName="prod", principalArn=role, type="EC2_LINUX")
    authority = tmp_path_factory.mktemp("prod") / "ca.pem"
    authority.write_bytes(b"CA")
    link = {"endpoint": "https://prod.example.com", "ca_file": str(authority)}
    embedded_aws.control("PUT", "links", {"eks": {"prod": link}})


@pytest.fixture
def catalog(aws: Sandbox, survey: bytes, network: None) -> Sandbox:
    """AWS with the catalog in the table."""
    table_in(aws).put(SURVEY, survey, region="us-east-1")
    return aws


def written(path: Path, *documents: dict[str, Any]) -> str:
    path.write_text(yaml.dump_all(documents, Dumper=yaml.CSafeDumper))
    return str(path)


def command(tmp_path: Path, *documents: dict[str, Any], count: int = 1) -> list[str]:
    """A dry run for some pods."""
    given = documents or (pool(), node_class())
    files = written(tmp_path / "pools.yaml", *given)
    each = [POD | {"metadata": {"name": f"web-{n}", "namespace": "shop"}} for n in range(count)]
    waiting = written(tmp_path / "pods.yaml", *each)
    return ["launch", "-f", files, "--pods", waiting, "--cluster", "prod", "--dry-run"]


def launched(aws: Sandbox) -> set[str]:
    """The ids of all launch templates, fleets and instances. Other modules share this AWS."""
    ec2 = aws.client("ec2")
    templates = ec2.describe_launch_templates()["LaunchTemplates"]
    reservations = ec2.describe_instances()["Reservations"]
    return (
        {one["LaunchTemplateId"] for one in templates}
        | {one["FleetId"] for one in ec2.describe_fleets()["Fleets"]}
        | {one["InstanceId"] for each in reservations for one in each["Instances"]}
    )


def test_a_dry_run_prints_the_requests_and_launches_nothing(
    catalog: Sandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = launched(catalog)
    assert main.run([*command(tmp_path, count=2), "-o", "json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    found = json.loads(printed.out)
    (launch,) = found["launches"]
    assert (launch["nodePool"], launch["capacityType"]) == ("web", "spot")
    assert sorted(launch["pods"]) == ["shop/web-0", "shop/web-1"]
    overrides = [one for each in launch["launchTemplates"] for one in each["overrides"]]
    assert overrides
    known = set(subnets(catalog).items())
    assert {(one["zone"], one["subnet"]) for one in overrides} <= known
    assert (found["launched"], found["withoutNode"]) == ([], [])
    assert launched(catalog) == before


def test_a_dry_run_is_a_table_for_people(
    catalog: Sandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(command(tmp_path)) == 0
    printed = capsys.readouterr().out
    assert "leeway-prod-" in printed
    assert "spot" in printed


def test_a_pod_without_a_node_is_one_line_with_its_reason(
    catalog: Sandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without_role = node_class(role=None)
    assert main.run([*command(tmp_path, pool(), without_role), "-o", "json"]) == 1
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert [one["code"] for one in found["withoutNode"]] == ["PodWithoutNode"]
    assert [one["code"] for one in found["reasons"]] == ["PoolSettingWrong"]
    lines = printed.err.splitlines()
    assert lines[-1].startswith("leeway: ")
    assert "spec.role" in lines[-1]


def test_a_paused_pool_launches_nothing_and_the_reason_is_printed(
    catalog: Sandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = NODES_NEVER_JOINED(cluster="prod", pool="web", count=3, instances="i-1")
    record = PoolRecord(cluster="prod", pool="web", paused=reason)
    table_in(catalog).put(POOL, record)
    assert main.run([*command(tmp_path), "-o", "json"]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["launches"] == []
    assert "NodesNeverJoined" in printed.err


def test_a_pool_that_hibernates_launches_nothing_by_hand_either(
    catalog: Sandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    opens = (datetime.now(UTC) + timedelta(hours=6)).hour
    window = {"timezone": "UTC", "start": f"0 {opens} * * *", "end": f"30 {opens} * * *"}
    document = pool()
    document["metadata"]["annotations"] = {SCHEDULE: json.dumps([window])}
    asleep = command(tmp_path, document, node_class())
    assert main.run(asleep) == 1
    assert "hibernates until" in capsys.readouterr().err
    awake = woken(None, "prod", "web", timedelta(hours=1), datetime.now(UTC), "alice")
    table_in(catalog).put(POOL, awake)
    assert main.run(asleep) == 0


BAD: dict[str, tuple[list[str], str]] = {
    "a wrong name": (["--cluster", "a b"], "expected the name of a cluster"),
    "no such file": (["--pods", "never-was.yaml"], "never-was.yaml: No such file"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line(
    catalog: Sandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    more, expected = BAD[case]
    assert main.run([*command(tmp_path), *more]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert expected in printed.err


def test_the_cluster_is_the_one_of_the_manifest(
    catalog: Sandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = (pool(), node_class(), document("Cluster", "other", {}))
    assert main.run(command(tmp_path, *documents)) == 2
    assert "--cluster: expected other" in capsys.readouterr().err
    assert main.run([*command(tmp_path)[:-3], "--dry-run"]) == 2
    assert "--cluster: expected a name, or one Cluster manifest" in capsys.readouterr().err
    documents = (pool(), node_class(), document("Cluster", "prod", {}))
    assert main.run([*command(tmp_path, *documents)[:-3], "--dry-run"]) == 0


def test_a_cluster_that_does_not_exist_is_the_reason(
    catalog: Sandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*command(tmp_path), "--cluster", "never-was"]
    assert main.run(arguments) == 1
    printed = capsys.readouterr()
    assert "PoolNotRead" in printed.err
    assert "never-was" in printed.err


def test_manifests_without_a_pool_are_bad_input(
    catalog: Sandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(command(tmp_path, node_class())) == 2
    assert "expected at least one NodePool" in capsys.readouterr().err
