"""`leeway convert -f`: node groups of eksctl as NodePools and EC2NodeClasses."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from leeway.manifests.documents import as_yaml, read_documents
from leeway.manifests.reading import read_manifests
from leeway_cli import main
from leeway_cli.convert.eksctl import DIFFERENCES, EksctlFile
from leeway_cli.convert.node_group import Converted, converted, name_of
from leeway_cli.errors import BadInputError
from leeway_cli.selection.sources import sandbox_catalog
from pydantic import BaseModel

from tests.cli.conftest import drop_clients

SPOT = """
apiVersion: eksctl.io/v1alpha5
kind: ClusterConfig
metadata: {name: prod, region: us-east-1}
nodeGroups:
  - name: ng-spot
    labels: {lifecycle: Ec2Spot}
    taints: {spotInstance: "true:PreferNoSchedule"}
    minSize: 2
    maxSize: 5
    instancesDistribution:
      instanceTypes: [m5.large, m4.large, m5a.large]
      onDemandBaseCapacity: 0
      onDemandPercentageAboveBaseCapacity: 0
      spotAllocationStrategy: capacity-optimized
"""
FIELDS = (Path(__file__).parent / "eksctl_fields.txt").read_text().split()
"""The fields of a node group of eksctl 0.230, self-managed or managed."""

type Group = dict[str, Any]


def config(*groups: Group, managed: bool = False, **more: Any) -> str:
    kind = "managedNodeGroups" if managed else "nodeGroups"
    listed = [{"name": "web", **one} for one in groups]
    return yaml.safe_dump(
        {
            "apiVersion": "eksctl.io/v1alpha5",
            "kind": "ClusterConfig",
            "metadata": {"name": "prod", "region": "us-east-1"},
            kind: listed,
            **more,
        }
    )


def convert_all(text: str) -> tuple[list[Converted], list[tuple[str, str]]]:
    (value,) = read_documents(text, "cluster.yaml").values
    file = EksctlFile(value, "cluster.yaml")
    groups = [*file.groups(sandbox_catalog)]
    return [*converted(groups)], file.refused


def convert(group: Group, *, managed: bool = False, **more: Any) -> tuple[Any, Any, list[str]]:
    """The specs of the pool and of the node class of a group, and what has no counterpart."""
    (one,), refused = convert_all(config(group, managed=managed, **more))
    assert refused == []
    read = read_manifests("---\n".join(map(as_yaml, one.documents)), "converted")
    assert [kind.kind.name for kind in read.written] == ["NodePool", "EC2NodeClass"]
    pool, node_class = one.documents
    return pool["spec"], node_class["spec"], [each.sentence for each in one.differences]


def values_of(pool: Any, key: str) -> list[str]:
    """The values of the only requirement on a label."""
    (found,) = [r for r in pool["template"]["spec"]["requirements"] if r["key"].endswith(key)]
    assert found["operator"] == "In"
    values: list[str] = found["values"]
    return values


def test_a_diversified_spot_group_with_a_soft_taint() -> None:
    (one,), _ = convert_all(SPOT)
    pool, node_class = one.documents
    assert pool["metadata"]["name"] == node_class["metadata"]["name"] == "ng-spot"
    spec = pool["spec"]
    assert values_of(spec, "instance-type") == ["m5.large", "m4.large", "m5a.large"]
    assert values_of(spec, "capacity-type") == ["spot"]
    assert spec["limits"] == {"nodes": "5"}
    template = spec["template"]
    assert template["spec"]["expireAfter"] == "Never"
    taint = {"key": "spotInstance", "value": "true", "effect": "PreferNoSchedule"}
    assert template["spec"]["taints"] == [taint]
    assert template["metadata"]["labels"] == {"lifecycle": "Ec2Spot"}
    assert node_class["spec"]["amiSelectorTerms"] == [{"alias": "al2023@latest"}]
    (volume,) = node_class["spec"]["blockDeviceMappings"]
    assert volume["deviceName"] == "/dev/xvda"
    assert volume["ebs"]["volumeSize"] == "80Gi"
    places = [each.place for each in one.differences]
    assert any(place.endswith(": instancesDistribution.spotAllocationStrategy") for place in places)
    assert all(place.startswith("cluster.yaml:6: nodeGroups[0] ng-spot") for place in places)


@pytest.fixture
def command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run `leeway convert` on a text; returns the exit code, stdout and stderr."""

    def run(text: str, *more: str) -> tuple[int, str, str]:
        file = tmp_path / "cluster.yaml"
        file.write_text(text)
        code = main.run(["convert", "-f", str(file), *more])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def test_select_shows_what_the_group_would_have_bought(
    command: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, pods = tmp_path / "pools", tmp_path / "pods.yaml"
    code, out, err = command(SPOT, "--out", str(folder))
    assert code == 0
    assert out == f"{folder}/ng-spot.yaml\n"
    assert "note: " in err
    pod = {"name": "web", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    meta = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}
    pods.write_text(json.dumps({**meta, "spec": {"containers": [pod]}}))
    arguments = ["select", "-f", str(folder), "--pods", str(pods), "--sandbox", "-o", "json"]
    assert main.run(arguments) == 0
    (launch,) = json.loads(capsys.readouterr().out)["launches"]
    assert launch["nodePool"] == "ng-spot"
    assert launch["capacityType"] == "spot"
    assert set(launch["instanceTypes"]) <= {"m5.large", "m4.large", "m5a.large"}


def test_files_that_exist_are_not_replaced(command: Any, tmp_path: Path) -> None:
    kept = tmp_path / "pools" / "ng-spot.yaml"
    kept.parent.mkdir()
    kept.write_text("mine")
    code, _, err = command(SPOT, "--out", str(kept.parent))
    assert code == 2
    assert err == f"leeway: --out: {kept} exists. Remove it, or name another folder.\n"
    assert kept.read_text() == "mine"


def test_json_has_the_manifests_and_what_has_no_counterpart(command: Any) -> None:
    code, out, err = command(SPOT, "-o", "json")
    assert (code, err) == (0, "")
    printed = json.loads(out)
    assert [one["kind"] for one in printed["manifests"]] == ["NodePool", "EC2NodeClass"]
    assert {"place", "sentence"} == set(printed["differences"][0])
    assert printed["notConverted"] == []


def test_a_group_that_cannot_be_converted_does_not_hold_up_the_others(command: Any) -> None:
    text = config({"name": "a", "outpostARN": "arn:aws:outposts:x"}, {"name": "b"})
    code, out, err = command(text)
    assert code == 1
    assert [one["metadata"]["name"] for one in yaml.safe_load_all(out)] == ["b", "b"]
    assert "nodeGroups[0] a is not converted: Leeway launches no nodes on Outposts." in err


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    drop_clients()
    yield
    drop_clients()


def test_a_group_without_a_catalog_does_not_hold_up_the_others(
    command: Any, no_credentials: None
) -> None:
    shares = {"instanceTypes": ["m5.large"], "onDemandPercentageAboveBaseCapacity": 0}
    needs = {"instancesDistribution": {**shares, "onDemandBaseCapacity": 1}}
    text = config({**needs, "name": "a"}, {"name": "b"})
    code, out, err = command(text)
    assert code == 1
    assert [one["metadata"]["name"] for one in yaml.safe_load_all(out)] == ["b", "b"]
    (line,) = [one for one in err.splitlines() if "nodeGroups[0] a is not converted" in one]
    assert "it needs the catalog of instance types" in line
    assert "set --region, or use the sandbox's catalog with --sandbox" in line
    code, out, _ = command(text, "--sandbox")
    assert code == 0
    assert out.count("kind: NodePool") == 2


@pytest.mark.parametrize(
    ("group", "why"),
    [
        ({"amiFamily": "Ubuntu2404"}, "Leeway has no AMI family for Ubuntu2404"),
        ({"amiFamily": "BottlerocketFips"}, "Leeway has no AMI family for BottlerocketFips"),
        ({"launchTemplate": {"id": "lt-1"}}, "leeway convert --nodegroup CLUSTER/NAME"),
        ({"instanceSelector": {"vCPUs": 3, "allow": "^q"}}, "matches no instance type"),
    ],
)
def test_what_no_pool_can_launch_is_refused_with_the_reason(group: Group, why: str) -> None:
    found, ((place, sentence),) = convert_all(config(group))
    assert found == []
    assert place.endswith("nodeGroups[0] web")
    assert why in sentence


def test_groups_of_a_cluster_on_outposts_are_refused() -> None:
    found, ((_, sentence),) = convert_all(config({}, outpost={"controlPlaneOutpostARN": "x"}))
    assert found == []
    assert "Outposts" in sentence


def fields_of(model: type[BaseModel], prefix: str = "") -> set[str]:
    found: set[str] = set()
    for name, info in model.model_fields.items():
        path = f"{prefix}{info.alias or name}"
        found.add(path)
        for part in [info.annotation, *getattr(info.annotation, "__args__", ())]:
            if isinstance(part, type) and issubclass(part, BaseModel):
                found |= fields_of(part, f"{path}.")
    return found


def test_each_field_of_eksctl_is_converted_or_has_a_sentence_of_its_own() -> None:
    from leeway_cli.convert.eksctl import _REFUSED, _Group

    known = fields_of(_Group) | DIFFERENCES.keys() | _REFUSED.keys()
    assert set(FIELDS) - known == set()
    of_taints = {f"taints.{name}" for name in ("key", "value", "effect", "timeAdded")}
    assert known - set(FIELDS) - of_taints == set()


def test_a_field_that_nobody_knows_is_listed_with_a_guess() -> None:
    *_, sentences = convert({"instanceTyp": "m5.large"})
    assert any("did you mean instanceType?" in one for one in sentences)


def test_fields_that_say_nothing_are_not_listed() -> None:
    _, _, before = convert({})
    quiet = {"ssh": {"allow": False}, "propagateASGTags": False, "efaEnabled": False}
    off = {"iam": {"withAddonPolicies": {"autoScaler": False}}, "asgSuspendProcesses": []}
    assert convert({**quiet, **off, "labels": None})[2] == before


@pytest.mark.parametrize(
    ("base", "percentage", "kinds", "annotations"),
    [
        (0, 100, ["on-demand"], {}),
        (0, 0, ["spot"], {}),
        (0, 25, ["spot", "on-demand"], {"percentage-above-base": "25"}),
        (2, 0, ["spot", "on-demand"], {"percentage-above-base": "0", "base": "8"}),
        (5, 100, ["on-demand"], {}),
    ],
)
def test_spot_and_on_demand_are_bought_in_the_same_shares(
    base: int, percentage: int, kinds: list[str], annotations: dict[str, str]
) -> None:
    distribution = {
        "instanceTypes": ["m5.large", "m5.xlarge"],
        "onDemandBaseCapacity": base,
        "onDemandPercentageAboveBaseCapacity": percentage,
    }
    (one,), _ = convert_all(config({"instancesDistribution": distribution}))
    pool = one.documents[0]
    assert values_of(pool["spec"], "capacity-type") == kinds
    expected = {f"leeway.sh/on-demand-{name}": value for name, value in annotations.items()}
    assert pool["metadata"].get("annotations", {}) == expected


def test_managed_groups_buy_on_demand_unless_they_say_spot() -> None:
    assert values_of(convert({}, managed=True)[0], "capacity-type") == ["on-demand"]
    spot = {"spot": True, "instanceTypes": ["c5.large", "c4.large"]}
    pool, node_class, _ = convert(spot, managed=True)
    assert values_of(pool, "capacity-type") == ["spot"]
    assert values_of(pool, "instance-type") == ["c5.large", "c4.large"]
    assert node_class["securityGroupSelectorTerms"] == [{"tags": {"aws:eks:cluster-name": "prod"}}]


def test_an_instance_selector_becomes_requirements() -> None:
    asked = {"vCPUs": 2, "memory": "4", "gpus": 0, "cpuArchitecture": "arm64"}
    pool, *_ = convert({"instanceSelector": asked})
    assert values_of(pool, "/arch") == ["arm64"]
    assert values_of(pool, "instance-cpu") == ["2"]
    assert values_of(pool, "instance-memory") == ["4096"]
    without_gpu = {"key": "karpenter.k8s.aws/instance-gpu-count", "operator": "DoesNotExist"}
    assert without_gpu in pool["template"]["spec"]["requirements"]


def test_regular_expressions_of_a_selector_are_evaluated() -> None:
    asked = {"vCPUs": 2, "memory": "8GiB", "allow": r"^m[56]\.", "deny": "^m6"}
    pool, _, sentences = convert({"instanceSelector": asked})
    assert values_of(pool, "instance-type") == ["m5.large"]
    assert any("the types that match today are listed" in one for one in sentences)


def test_user_data_has_the_commands_and_the_node_config_of_the_group() -> None:
    own = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {kubelet: {flags: [--v=2]}}\n"
    group = {"preBootstrapCommands": ["a", "b"], "overrideBootstrapCommand": own}
    _, node_class, _ = convert(group)
    text = node_class["userData"]
    assert text.count("#!/bin/bash\n") == 2
    assert text.count("application/node.eks.aws") == 1
    _, node_class, _ = convert({"preBootstrapCommands": ["a"]})
    assert node_class["userData"] == "#!/bin/bash\na"


def test_labels_and_taints_of_an_override_move_to_the_pool() -> None:
    flags = "[--node-labels=a=b, --register-with-taints, 'x=y:NoSchedule', --v=2]"
    kubelet = f"{{config: {{maxPods: 30}}, flags: {flags}}}"
    own = f"apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {{kubelet: {kubelet}}}\n"
    script = (
        "/etc/eks/bootstrap.sh prod --kubelet-extra-args "
        "'--node-labels=a=b,c=$C --register-with-taints=x=y:NoSchedule --max-pods=30'"
    )
    for group in (
        {"overrideBootstrapCommand": own},
        {"amiFamily": "AmazonLinux2", "ami": "ami-1", "overrideBootstrapCommand": script},
    ):
        pool, node_class, sentences = convert(group)
        assert pool["template"]["metadata"]["labels"] == {"a": "b"}
        taint = {"key": "x", "value": "y", "effect": "NoSchedule"}
        assert pool["template"]["spec"]["taints"] == [taint]
        assert node_class["kubelet"]["maxPods"] == 30
        assert "node-labels" not in node_class.get("userData", "")
    assert "cannot read --node-labels=c=$C" in " ".join(sentences)


def test_a_bootstrap_script_of_al2_has_no_counterpart() -> None:
    group = {
        "amiFamily": "AmazonLinux2",
        "ami": "ami-1",
        "overrideBootstrapCommand": "#!/bin/bash\n/etc/eks/bootstrap.sh prod",
    }
    _, node_class, sentences = convert(group)
    assert node_class["amiSelectorTerms"] == [{"id": "ami-1"}]
    assert "userData" not in node_class
    assert any("bootstrap script of AL2 itself" in one for one in sentences)
    assert any("no AL2 images since" in one for one in sentences)


def test_settings_of_bottlerocket_are_toml() -> None:
    import tomllib

    group = {
        "amiFamily": "bottlerocket",
        "volumeSize": 50,
        "bottlerocket": {"enableAdminContainer": True, "settings": {"motd": 'a"\n[b]'}},
    }
    _, node_class, _ = convert(group)
    settings_of = tomllib.loads(node_class["userData"])["settings"]
    assert settings_of == {"motd": 'a"\n[b]', "host-containers": {"admin": {"enabled": True}}}
    (volume,) = node_class["blockDeviceMappings"]
    assert (volume["deviceName"], volume["ebs"]["volumeSize"]) == ("/dev/xvdb", "50Gi")


@pytest.mark.parametrize(("kind", "booted"), [("gp3", "gp3"), ("io2", "io2"), ("st1", "gp3")])
def test_both_disks_of_bottlerocket_are_encrypted(kind: str, booted: str) -> None:
    group = {
        "amiFamily": "Bottlerocket",
        "volumeSize": 200,
        "volumeType": kind,
        "volumeIOPS": 4000,
        "volumeEncrypted": True,
        "volumeKmsKeyID": "arn:aws:kms:x",
    }
    data, system = convert(group)[1]["blockDeviceMappings"]
    assert (data["deviceName"], system["deviceName"]) == ("/dev/xvdb", "/dev/xvda")
    assert (data["ebs"]["volumeSize"], system["ebs"]["volumeSize"]) == ("200Gi", "4Gi")
    assert (data["ebs"]["volumeType"], system["ebs"]["volumeType"]) == (kind, booted)
    for one in (data, system):
        assert (one["ebs"]["encrypted"], one["ebs"]["kmsKeyID"]) == (True, "arn:aws:kms:x")
    own = {**group, "additionalVolumes": [{"volumeName": "/dev/xvda", "volumeSize": 9}]}
    assert [one["ebs"]["volumeSize"] for one in convert(own)[1]["blockDeviceMappings"]] == [
        "200Gi",
        "9Gi",
    ]


def test_volumes_kubelet_metadata_and_lifetime() -> None:
    group = {
        "volumeType": "io1",
        "volumeEncrypted": True,
        "volumeKmsKeyID": "arn:aws:kms:x",
        "additionalVolumes": [{"volumeName": "/dev/xvdz", "volumeSize": 9}],
        "kubeletExtraConfig": {"featureGates": {"A": True}, "kubeReserved": {"cpu": "300m"}},
        "maxPodsPerNode": 42,
        "clusterDNS": "169.254.20.10",
        "disablePodIMDS": True,
        "maxInstanceLifetime": 86400,
        "enableDetailedMonitoring": True,
        "instanceName": "web-node",
        "tags": {"team": "a", "kubernetes.io/cluster/prod": "owned", "empty": ""},
        "iam": {"instanceProfileARN": "arn:aws:iam::123456789012:instance-profile/x/nodes"},
    }
    pool, node_class, _ = convert(group)
    root, data = node_class["blockDeviceMappings"]
    assert (root["ebs"]["iops"], root["ebs"]["encrypted"]) == (100, True)
    assert data == {
        "deviceName": "/dev/xvdz",
        "ebs": {"volumeSize": "9Gi", "volumeType": "gp3", "deleteOnTermination": True},
    }
    kubelet = node_class["kubelet"]
    assert kubelet["featureGates"] == {"A": True}
    assert kubelet["kubeReserved"] == {"cpu": "300m"}
    assert (kubelet["maxPods"], kubelet["clusterDNS"]) == (42, ["169.254.20.10"])
    options = {"httpTokens": "required", "httpPutResponseHopLimit": 1}
    assert node_class["metadataOptions"] == options
    assert node_class["instanceProfile"] == "nodes"
    assert node_class["tags"] == {"team": "a", "Name": "web-node"}
    assert node_class["detailedMonitoring"] is True
    assert pool["template"]["spec"]["expireAfter"] == "86400s"


def test_subnets_are_those_of_the_file_or_those_that_eksctl_creates() -> None:
    zones = {"us-east-1a": {"id": "subnet-a"}, "us-east-1b": {"id": "subnet-b"}}
    vpc: dict[str, Any] = {"vpc": {"subnets": {"private": {**zones, "db": {"id": "subnet-d"}}}}}
    private = {"privateNetworking": True}
    terms = "subnetSelectorTerms"
    assert convert({"subnets": ["db", "subnet-x"]}, **vpc)[1][terms] == [
        {"id": "subnet-d"},
        {"id": "subnet-x"},
    ]
    by_zone = {"subnets": {"public": {"front": {"az": "us-east-1c"}}}}
    pool, node_class, sentences = convert({"subnets": ["front"]}, vpc=by_zone)
    assert values_of(pool, "/zone") == ["us-east-1c"]
    assert node_class[terms][0]["tags"]["kubernetes.io/role/elb"] == "1"
    assert any("no id of this subnet" in one for one in sentences)
    one_zone = {**private, "availabilityZones": ["us-east-1b"]}
    pool, node_class, _ = convert(one_zone, **vpc)
    assert node_class[terms] == [{"id": "subnet-b"}]
    assert values_of(pool, "/zone") == ["us-east-1b"]
    (term,) = convert(private)[1][terms]
    assert term["tags"]["kubernetes.io/role/internal-elb"] == "1"
    (term,) = convert({})[1][terms]
    assert term["tags"] == {"alpha.eksctl.io/cluster-name": "prod", "kubernetes.io/role/elb": "1"}


def test_a_release_of_a_managed_group_is_pinned() -> None:
    _, node_class, _ = convert({"releaseVersion": "1.34.1-20260910"}, managed=True)
    assert node_class["amiSelectorTerms"] == [{"alias": "al2023@v20260910"}]
    bottlerocket = {"amiFamily": "Bottlerocket", "releaseVersion": "1.50.0-29cc92cc"}
    _, node_class, _ = convert(bottlerocket, managed=True)
    assert node_class["amiSelectorTerms"] == [{"alias": "bottlerocket@v1.50.0"}]


def test_labels_that_a_pool_may_not_set_are_left_out_and_listed() -> None:
    labels = {"karpenter.sh/nodepool": "x", "kubernetes.io/arch": "arm64", "team": "a"}
    (one,), _ = convert_all(config({"labels": labels}))
    kept = one.documents[0]["spec"]["template"]["metadata"]["labels"]
    assert kept.keys() & labels.keys() == {"team"}
    places = " ".join(each.place for each in one.differences)
    assert 'labels["karpenter.sh/nodepool"]' in places
    assert 'labels["kubernetes.io/arch"]' in places


def test_labels_by_which_eksctl_drains_a_group_stay_with_the_group() -> None:
    """`eksctl delete nodegroup` drains every node that has them, until none is left."""
    own = {"alpha.eksctl.io/mine": "x", "team": "a"}
    for managed in (False, True):
        pool, _, sentences = convert({"labels": own}, managed=managed)
        assert pool["template"]["metadata"]["labels"] == {"team": "a"}
        (said,) = [one for one in sentences if "alpha.eksctl.io/" in one]
        for name in ("cluster-name", "mine", "nodegroup-name"):
            assert f"alpha.eksctl.io/{name}" in said
        assert "another label" in said


def test_groups_of_one_name_get_pools_of_their_own() -> None:
    text = config({"name": "Web"}, {"name": "web"}, {"name": "w" * 63})
    found, _ = convert_all(text)
    names = [one.name for one in found]
    assert names[:2] == ["web", "web-2"]
    assert len(names[2]) == 63
    assert len(name_of("w" * 100)) == 63


@settings(max_examples=60)
@given(st.text(max_size=300))
def test_any_name_of_a_group_becomes_a_name_of_a_pool(text: str) -> None:
    import re

    assert re.fullmatch("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name_of(text))


@settings(max_examples=60, deadline=None)
@given(
    st.text(max_size=40),
    st.text(min_size=1, max_size=40),
    st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=2),
)
def test_text_of_the_file_stays_text_in_the_manifests(
    command: str, tag: str, extra: dict[str, str]
) -> None:
    """No text becomes a document, a field or a setting of its own."""
    group = {"name": "web", "preBootstrapCommands": [command], "tags": {"note": tag}}
    text = json.dumps(
        {
            "apiVersion": "eksctl.io/v1alpha5",
            "kind": "ClusterConfig",
            "metadata": {"name": "prod", "region": "us-east-1"},
            "nodeGroups": [{**group, "x-extra": extra}],
        }
    )
    values = read_documents(text, "cluster.yaml").values
    if not values:
        return
    try:
        (one,) = converted(EksctlFile(values[0], "cluster.yaml").groups(sandbox_catalog))
    except BadInputError:
        return
    written = "---\n".join(map(as_yaml, one.documents))
    read = read_manifests(written, "written")
    assert read.problems == ()
    assert len(read.written) == 2
    assert one.documents[1]["spec"]["tags"]["note"] == tag


@pytest.mark.parametrize(
    ("group", "problem"),
    [
        ({"name": "a b"}, "nodeGroups[0].name: expected text that matches"),
        ({"instanceType": "m5"}, "nodeGroups[0].instanceType: expected text that matches"),
        ({"minSize": "2"}, 'nodeGroups[0].minSize: expected a whole number, got "2"'),
        ({"minSize": -1}, "nodeGroups[0].minSize: expected at least 0, got -1"),
        ({"labels": {"a": 1}}, "nodeGroups[0].labels.a: expected text, in quotes, got 1"),
        ({"labels": {"a b": "c"}}, "expected a label key"),
        ({"taints": {"a": "b:Never"}}, "taints: expected 'NoSchedule'"),
        ({"taints": [{"key": "a b", "effect": "NoSchedule"}]}, "expected a label key"),
        ({"subnets": ["nowhere"]}, "nodeGroups[0].subnets[0]: expected the id of a subnet"),
        ({"instanceSelector": {"memory": "much"}}, "memory: expected a size such as 4 or 4GiB"),
        ({"instanceSelector": {"allow": "("}}, "allow: expected a regular expression"),
        ({"instancesDistribution": {}}, "instanceTypes: expected at least one type"),
        ({"additionalVolumes": [{}]}, "additionalVolumes[0]: expected volumeName"),
        ({"volumeType": "gp9"}, "volumeType: expected"),
        ({"overrideBootstrapCommand": "#!/bin/bash"}, "expected a NodeConfig"),
        ({"kubeletExtraConfig": {"maxPods": "x"}}, "kubeletExtraConfig.maxPods: expected"),
        ({"kubeletExtraConfig": {"registerWithTaints": []}}, "expected taints of the group"),
        ({"clusterDNS": "dns"}, "clusterDNS: expected an IP address"),
        ({"securityGroups": {"attachIDs": ["x"]}}, "attachIDs[0]: expected text that matches"),
    ],
)
def test_a_wrong_field_is_named_with_its_line(group: Group, problem: str) -> None:
    with pytest.raises(BadInputError) as raised:
        convert_all(config(group))
    said = str(raised.value)
    assert said.startswith("cluster.yaml:")
    assert problem in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected a ClusterConfig, found nothing."),
        ("kind: Pod", "cluster.yaml:1: expected a ClusterConfig of eksctl.io/v1alpha5."),
        ("- a", "expected a ClusterConfig"),
        (SPOT.replace("v1alpha5", "v1alpha4"), "apiVersion: expected text that matches"),
        (SPOT.replace("name: prod, ", ""), "metadata.name: is missing"),
        (SPOT.replace("nodeGroups", "nodeGroup"), "unknown field; did you mean nodeGroups?"),
        (SPOT.partition("nodeGroups")[0], "expected nodeGroups or managedNodeGroups"),
        ("a: [", "not valid YAML"),
    ],
)
def test_a_file_that_is_no_cluster_config_gets_one_line(
    command: Any, text: str, problem: str
) -> None:
    code, out, err = command(text)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert problem in err


def test_without_a_source_the_options_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["convert"]) == 2
    assert "expected a ClusterConfig, or --group, or --nodegroup" in capsys.readouterr().err
