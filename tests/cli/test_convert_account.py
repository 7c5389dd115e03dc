"""`leeway convert --group` and `--nodegroup`: groups of an account as NodePools."""

import json
import re
from base64 import b64encode
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
import yaml
from leeway.manifests.reading import read_manifests
from leeway.selection.offers.allocatable import AmiFamily
from leeway.wiring import clients
from leeway_cli import main
from leeway_cli.convert.account import Account
from leeway_cli.convert.node_group import converted
from leeway_cli.convert.user_data import family_of, read_user_data
from leeway_cli.selection.sources import sandbox_catalog

from tests.sandbox.aws.started import Sandbox
from tests.template.granted import actions_of

POLICY = Path(__file__).parents[2] / "docs" / "convert-policy.json"
KEY = "AKIACONVERTGROUPS001"
NODE_CONFIG = """apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster: {name: prod, apiServerEndpoint: https://x, certificateAuthority: YQ==, cidr: 10.0.0.0/16}
  kubelet:
    config: {clusterDNS: [10.0.0.10], maxPods: 30, shutdownGracePeriod: 30s}
    flags:
      - --node-labels=team=a,lifecycle=spot,alpha.eksctl.io/nodegroup-name=web
      - --register-with-taints=spot=true:PreferNoSchedule
      - --v=2
"""


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any, str]:
    """Run the command; returns the exit code, the manifests by kind, and stderr."""
    code = main.run(["convert", *arguments])
    printed = capsys.readouterr()
    read = read_manifests(printed.out, "converted")
    assert read.problems == ()
    documents = yaml.safe_load_all(printed.out)
    return code, {one["kind"]: one for one in documents if one}, printed.err


@pytest.fixture
def account(aws: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    clients.session.cache_clear()
    clients.background_client.cache_clear()
    return aws


def subnets(aws: Sandbox) -> list[str]:
    """Return the subnets of the zones us-east-1a and us-east-1b."""
    default = [{"Name": "default-for-az", "Values": ["true"]}]
    found = aws.client("ec2").describe_subnets(Filters=default)["Subnets"]
    return [one["SubnetId"] for one in sorted(found, key=itemgetter("AvailabilityZone"))][:2]


def launch_template(aws: Sandbox, name: str, **data: Any) -> None:
    aws.client("ec2").create_launch_template(
        LaunchTemplateName=name, LaunchTemplateData={"ImageId": "ami-12c6146b", **data}
    )


def managed(aws: Sandbox, cluster: str, **given: Any) -> list[str]:
    """Create a cluster with a managed node group `web`; returns its subnets."""
    eks, names = aws.client("eks"), subnets(aws)
    created = {"roleArn": "arn:aws:iam::123456789012:role/x", "resourcesVpcConfig": {}}
    eks.create_cluster(name=cluster, **created)
    eks.create_nodegroup(
        clusterName=cluster,
        nodegroupName="web",
        scalingConfig={"minSize": 0, "maxSize": 3, "desiredSize": 1},
        subnets=names,
        nodeRole="arn:aws:iam::123456789012:role/path/nodes",
        **{"instanceTypes": ["c5.large", "c4.large"], **given},
    )
    return names


class Described:
    """AWS's answers for one group and its launch template, with members that moto leaves out."""

    def __init__(self, group: dict[str, Any], template: dict[str, Any]) -> None:
        self._group, self._template = group, {"InstanceType": "m5.large", **template}

    def __call__(self, service: str) -> "Described":
        return self

    def describe_auto_scaling_groups(self, **_: Any) -> dict[str, Any]:
        return {"AutoScalingGroups": [self._group]}

    def describe_launch_template_versions(self, **_: Any) -> dict[str, Any]:
        return {"LaunchTemplateVersions": [{"LaunchTemplateData": self._template}]}


def mixed_group(aws: Sandbox, name: str, template: str, **distribution: Any) -> None:
    specification = {"LaunchTemplateName": template, "Version": "$Latest"}
    shares = {"OnDemandPercentageAboveBaseCapacity": 0, **distribution}
    aws.client("autoscaling").create_auto_scaling_group(
        AutoScalingGroupName=name,
        MinSize=0,
        MaxSize=1,
        VPCZoneIdentifier=subnets(aws)[0],
        MixedInstancesPolicy={
            "LaunchTemplate": {
                "LaunchTemplateSpecification": specification,
                "Overrides": [{"InstanceType": "m5.large"}],
            },
            "InstancesDistribution": shares,
        },
    )


def test_an_auto_scaling_group_of_mixed_instances(
    account: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    launch_template(
        account,
        "convert-mixed",
        UserData=encoded(NODE_CONFIG),
        SecurityGroupIds=["sg-0a1b"],
        IamInstanceProfile={"Arn": "arn:aws:iam::123456789012:instance-profile/nodes"},
        KeyName="mine",
        MetadataOptions={"HttpTokens": "required", "HttpPutResponseHopLimit": 2},
        BlockDeviceMappings=[
            {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 40, "VolumeType": "gp3"}}
        ],
        TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": "cost", "Value": "web"}]}],
    )
    names = subnets(account)
    tags = {
        "kubernetes.io/cluster/prod": "owned",
        "k8s.io/cluster-autoscaler/node-template/label/tier": "front",
        "k8s.io/cluster-autoscaler/node-template/taint/gpu": "yes:NoSchedule",
        "owner": "web",
    }
    account.client("autoscaling").create_auto_scaling_group(
        AutoScalingGroupName="Prod Web/spot",
        MinSize=1,
        MaxSize=7,
        DesiredCapacity=1,
        VPCZoneIdentifier=",".join(names),
        MixedInstancesPolicy={
            "LaunchTemplate": {
                "LaunchTemplateSpecification": {
                    "LaunchTemplateName": "convert-mixed",
                    "Version": "$Latest",
                },
                "Overrides": [{"InstanceType": "m5.large"}, {"InstanceType": "m5a.large"}],
            },
            "InstancesDistribution": {
                "OnDemandBaseCapacity": 0,
                "OnDemandPercentageAboveBaseCapacity": 20,
                "SpotAllocationStrategy": "capacity-optimized",
            },
        },
        Tags=[
            {
                "ResourceId": "Prod Web/spot",
                "ResourceType": "auto-scaling-group",
                "Key": key,
                "Value": value,
                "PropagateAtLaunch": True,
            }
            for key, value in tags.items()
        ],
    )
    code, manifests, err = run(capsys, "--group", "Prod Web/spot")
    assert code == 0
    pool, node_class = manifests["NodePool"], manifests["EC2NodeClass"]
    assert pool["metadata"]["name"] == node_class["metadata"]["name"] == "prod-web-spot"
    assert pool["metadata"]["annotations"] == {"leeway.sh/on-demand-percentage-above-base": "20"}
    asked = {
        one["key"].rpartition("/")[2]: one["values"]
        for one in pool["spec"]["template"]["spec"]["requirements"]
    }
    assert asked == {
        "instance-type": ["m5.large", "m5a.large"],
        "capacity-type": ["spot", "on-demand"],
    }
    labels = pool["spec"]["template"]["metadata"]["labels"]
    assert labels == {"team": "a", "lifecycle": "spot", "tier": "front"}
    assert pool["spec"]["template"]["spec"]["taints"] == [
        {"key": "spot", "value": "true", "effect": "PreferNoSchedule"},
        {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
    ]
    assert pool["spec"]["limits"] == {"nodes": "7"}
    spec = node_class["spec"]
    assert spec["amiFamily"] == "AL2023"
    assert spec["amiSelectorTerms"] == [{"id": "ami-12c6146b"}]
    assert spec["subnetSelectorTerms"] == [{"id": one} for one in names]
    assert spec["securityGroupSelectorTerms"] == [{"id": "sg-0a1b"}]
    assert spec["instanceProfile"] == "nodes"
    assert spec["kubelet"] == {"maxPods": 30, "shutdownGracePeriod": "30s"}
    assert spec["tags"] == {"cost": "web", "owner": "web"}
    assert "--v=2" in spec["userData"]
    assert "node-labels" not in spec["userData"]
    assert "certificateAuthority" not in spec["userData"]
    assert "Auto Scaling group Prod Web/spot: KeyName: nodes of pools have no SSH key" in err
    assert "SpotAllocationStrategy" in err
    assert "a pool has no minimum" in err
    assert "does not set alpha.eksctl.io/nodegroup-name" in err


def test_a_deprecated_image_has_its_architecture(
    account: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    needs = {"VCpuCount": {"Min": 2, "Max": 4}, "MemoryMiB": {"Min": 4096}}
    launch_template(account, "convert-deprecated", InstanceRequirements=needs)
    account.client("autoscaling").create_auto_scaling_group(
        AutoScalingGroupName="deprecated",
        MinSize=0,
        MaxSize=1,
        VPCZoneIdentifier=subnets(account)[0],
        LaunchTemplate={"LaunchTemplateName": "convert-deprecated"},
    )
    code, manifests, _ = run(capsys, "--group", "deprecated")
    assert code == 0
    asked = manifests["NodePool"]["spec"]["template"]["spec"]["requirements"]
    assert {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]} in asked


def test_a_managed_node_group(account: Sandbox, capsys: pytest.CaptureFixture[str]) -> None:
    names = managed(
        account,
        "convert",
        diskSize=50,
        amiType="BOTTLEROCKET_x86_64",
        labels={"team": "a", "alpha.eksctl.io/nodegroup-name": "web"},
        taints=[{"key": "spot", "value": "true", "effect": "PREFER_NO_SCHEDULE"}],
        capacityType="SPOT",
        tags={"owner": "web"},
    )
    code, manifests, err = run(capsys, "--nodegroup", "convert/web")
    assert code == 0
    pool, spec = manifests["NodePool"]["spec"], manifests["EC2NodeClass"]["spec"]
    asked = {
        one["key"].rpartition("/")[2]: one["values"]
        for one in pool["template"]["spec"]["requirements"]
    }
    assert asked == {"instance-type": ["c5.large", "c4.large"], "capacity-type": ["spot"]}
    taint = {"key": "spot", "value": "true", "effect": "PreferNoSchedule"}
    assert pool["template"]["spec"]["taints"] == [taint]
    assert pool["template"]["metadata"]["labels"] == {"team": "a"}
    assert pool["limits"] == {"nodes": "3"}
    assert spec["amiFamily"] == "Bottlerocket"
    assert spec["role"] == "nodes"
    assert spec["subnetSelectorTerms"] == [{"id": one} for one in names]
    (device,) = spec["blockDeviceMappings"]
    assert (device["deviceName"], device["ebs"]["volumeSize"]) == ("/dev/xvdb", "50Gi")
    assert "select nodes of the pool by karpenter.sh/nodepool" in err
    assert "MetadataOptions.HttpPutResponseHopLimit: it is not set" in err
    assert "does not set alpha.eksctl.io/nodegroup-name" in err


@pytest.mark.parametrize(
    ("kind", "kinds"),
    [("ON_DEMAND", ["reserved", "on-demand"]), ("CAPACITY_BLOCK", ["reserved"])],
)
def test_the_reservation_of_a_managed_group_is_used(
    account: Sandbox, capsys: pytest.CaptureFixture[str], kind: str, kinds: list[str]
) -> None:
    name = f"reserved-{kind.lower()}"
    target = {"CapacityReservationTarget": {"CapacityReservationId": "cr-0a1b"}}
    launch_template(account, name, CapacityReservationSpecification=target)
    managed(account, name, capacityType=kind, launchTemplate={"name": name})
    code, manifests, _ = run(capsys, "--nodegroup", f"{name}/web")
    assert code == 0
    spec = manifests["EC2NodeClass"]["spec"]
    assert spec["capacityReservationSelectorTerms"] == [{"id": "cr-0a1b"}]
    (bought,) = [
        one["values"]
        for one in manifests["NodePool"]["spec"]["template"]["spec"]["requirements"]
        if one["key"] == "karpenter.sh/capacity-type"
    ]
    assert bought == kinds


@pytest.mark.parametrize(
    ("counted", "limits", "base"),
    [("vcpu", {"cpu": "64"}, "16"), ("memory-mib", {"memory": "64Mi"}, None)],
)
def test_a_group_that_counts_vcpus_or_memory_is_limited_by_them(
    counted: str, limits: dict[str, str], base: str | None
) -> None:
    described = {
        "AutoScalingGroupName": "web",
        "DesiredCapacityType": counted,
        "MinSize": 8,
        "MaxSize": 64,
        "MixedInstancesPolicy": {
            "LaunchTemplate": {
                "LaunchTemplateSpecification": {"LaunchTemplateName": "t"},
                "Overrides": [{"InstanceType": "m5.large"}],
            },
            "InstancesDistribution": {
                "OnDemandBaseCapacity": 16,
                "OnDemandPercentageAboveBaseCapacity": 0,
            },
        },
    }
    group = Account(Described(described, {}), "us-east-1", sandbox_catalog).scaling_group("web")
    assert group.annotations.get("leeway.sh/on-demand-base") == base
    (one,) = converted([group])
    assert one.documents[0]["spec"]["limits"] == limits
    said = " ".join(map(str, one.differences))
    assert ("minimum of 8 vCPUs" if base else "minimum of 8 MiB") in said
    assert ("this one is 16 MiB" in said) is (base is None)


def test_every_setting_inside_a_launch_template_is_read_or_listed() -> None:
    template = {
        "InstanceType": "m5.large",
        "MetadataOptions": {
            "State": "applied",
            "HttpTokens": "required",
            "HttpProtocolIpv6": "enabled",
            "InstanceMetadataTags": "enabled",
        },
        "InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": {"MaxPrice": "1"}},
        "NetworkInterfaces": [
            {"DeviceIndex": 0, "Groups": ["sg-1"], "InterfaceType": "interface"},
            {"DeviceIndex": 1, "NetworkCardIndex": 1, "InterfaceType": "efa"},
            {"DeviceIndex": 2, "Ipv6AddressCount": 1},
        ],
        "BlockDeviceMappings": [
            {
                "DeviceName": "/dev/xvda",
                "Ebs": {"VolumeSize": 9, "VolumeInitializationRate": 200, "Outpost": "x"},
            },
            {"DeviceName": "/dev/xvdb", "VirtualName": "ephemeral0"},
        ],
        "TagSpecifications": [
            {"ResourceType": "volume", "Tags": [{"Key": "backup", "Value": "daily"}]},
            {"ResourceType": "instance", "Tags": [{"Key": "team", "Value": "a"}]},
        ],
    }
    described = {
        "AutoScalingGroupName": "web",
        "MinSize": 0,
        "MaxSize": 1,
        "LaunchTemplate": {"LaunchTemplateName": "t"},
    }
    client = Described(described, template)
    group = Account(client, "us-east-1", sandbox_catalog).scaling_group("web")
    assert group.node_class["metadataOptions"]["httpProtocolIPv6"] == "enabled"
    assert group.node_class["blockDeviceMappings"][0]["ebs"]["volumeInitializationRate"] == 200
    assert group.tags == {"team": "a"}
    places = {one.place.removeprefix("Auto Scaling group web: ") for one in group.differences}
    assert places == {
        "MetadataOptions.HttpPutResponseHopLimit",
        "MetadataOptions.InstanceMetadataTags",
        "InstanceMarketOptions.SpotOptions",
        "NetworkInterfaces[1].InterfaceType",
        "NetworkInterfaces[2]",
        "NetworkInterfaces[2].Ipv6AddressCount",
        "BlockDeviceMappings./dev/xvda.Ebs.Outpost",
        "BlockDeviceMappings./dev/xvdb",
        "BlockDeviceMappings./dev/xvdb.VirtualName",
        "TagSpecifications.volume",
    }


@pytest.mark.parametrize(
    ("options", "unset"),
    [
        ({}, ["HttpTokens", "HttpPutResponseHopLimit"]),
        ({"HttpTokens": "optional"}, ["HttpPutResponseHopLimit"]),
        ({"HttpPutResponseHopLimit": 2}, ["HttpTokens"]),
        ({"HttpTokens": "required", "HttpPutResponseHopLimit": 1}, []),
        ({"HttpEndpoint": "disabled"}, []),
    ],
)
def test_metadata_options_that_a_group_does_not_set_are_listed(
    options: dict[str, Any], unset: list[str]
) -> None:
    described = {
        "AutoScalingGroupName": "web",
        "MinSize": 0,
        "MaxSize": 1,
        "LaunchTemplate": {"LaunchTemplateName": "t"},
    }
    client = Described(described, {"MetadataOptions": options} if options else {})
    group = Account(client, "us-east-1", sandbox_catalog).scaling_group("web")
    place = "Auto Scaling group web: MetadataOptions."
    places = [one.place for one in group.differences if one.place.startswith(place)]
    assert places == [f"{place}{name}" for name in unset]


def test_what_does_not_exist_gets_one_line(
    account: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    for option, name, said in (
        ("--group", "none", "Region us-east-1 has no Auto Scaling group none."),
        ("--nodegroup", "no/such", "Region us-east-1 has no managed node group no/such."),
    ):
        assert main.run(["convert", option, name]) == 1
        err = capsys.readouterr().err
        assert err.startswith(f"leeway: {said}")
        assert err.count("\n") == 1
    assert main.run(["convert", "--nodegroup", "web"]) == 2
    assert "expected CLUSTER/NAME, got 'web'" in capsys.readouterr().err


def test_the_policy_of_the_docs_grants_the_calls_and_nothing_more(
    account: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    launch_template(account, "convert-called", InstanceType="m5.large")
    account.client("autoscaling").create_auto_scaling_group(
        AutoScalingGroupName="called",
        MinSize=0,
        MaxSize=1,
        VPCZoneIdentifier=subnets(account)[0],
        LaunchTemplate={"LaunchTemplateName": "convert-called", "Version": "$Latest"},
    )
    clients.background_client.cache_clear()
    assert run(capsys, "--group", "called")[0] == 0
    launch_template(account, "convert-base", InstanceType="m5.large")
    mixed_group(account, "base", "convert-base", OnDemandBaseCapacity=2)
    assert run(capsys, "--group", "base")[0] == 0
    assert main.run(["convert", "--nodegroup", "no/such"]) == 1
    called = set(account.control("GET", "status")["calls_by_access_key"][KEY])
    statements = json.loads(POLICY.read_text())["Statement"]
    others = json.loads(POLICY.with_name("command-line-policy.json").read_text())["Statement"]
    of_stack = [one for one in statements if one in others]
    named = {"FindTheStack", "ReadTheCatalog", "ReadWhatIsUnavailable"}
    assert {one["Sid"] for one in of_stack} == named
    granted = set().union(*(actions_of(one) for one in statements))
    # LEEWAY_TABLE names the table here, which has no catalog: the command reads EC2's.
    assert granted - called == {"cloudformation:DescribeStacks", "dynamodb:Query"}
    assert called <= granted
    assert all(re.search(":(Describe|Get|Query)", action) for action in granted)


def test_user_data_names_the_family_of_an_unknown_image() -> None:
    assert family_of(encoded(NODE_CONFIG)) is AmiFamily.AL2023
    assert family_of(encoded("#!/bin/bash\n/etc/eks/bootstrap.sh prod")) is AmiFamily.AL2
    assert family_of(encoded("[settings.kubernetes]\n")) is AmiFamily.BOTTLEROCKET
    assert family_of(encoded("#!/bin/sh\njoin")) is None
    assert family_of("%%%") is None


def test_flags_of_the_bootstrap_script_of_al2_are_read() -> None:
    text = (
        "#!/bin/bash\n/etc/eks/bootstrap.sh prod --use-max-pods false \\\n"
        " --kubelet-extra-args '--node-labels=a=b,${MORE} --register-with-taints=x=y:NoSchedule "
        "--max-pods=20'\n"
    )
    read = read_user_data(encoded(text), AmiFamily.AL2)
    assert read.labels == {"a": "b"}
    assert read.taints == [{"key": "x", "value": "y", "effect": "NoSchedule"}]
    assert read.kubelet == {"maxPods": 20}
    assert read.kept == ""
    assert read.problem


def test_quoted_taints_of_al2_are_read() -> None:
    script = (
        "# don't --node-labels=no=1\n"
        '/etc/eks/bootstrap.sh prod --kubelet-extra-args "--node-labels=a=b '
        "--register-with-taints='x=y:NoSchedule,z:NoExecute'\"\n"
    )
    read = read_user_data(encoded(script), AmiFamily.AL2)
    assert read.labels == {"a": "b"}
    first = {"key": "x", "value": "y", "effect": "NoSchedule"}
    assert read.taints == [first, {"key": "z", "effect": "NoExecute"}]
    assert read.advice == ""


@pytest.mark.parametrize(
    ("flags", "labels", "taints", "stay", "unread"),
    [
        (["--register-with-taints", "k=v:NoSchedule"], {}, ["k"], [], []),
        (["--v", "2", "--node-labels", "a=b", "--x"], {"a": "b"}, [], ["--v", "2", "--x"], []),
        (["--node-labels=a='b',c=d --v=2"], {"a": "b", "c": "d"}, [], ["--v=2"], []),
        (["--node-labels='a=b,c=d'"], {"a": "b", "c": "d"}, [], [], []),
        (["--node-labels=a=b,c=$C"], {"a": "b"}, [], ["--node-labels=a=b,c=$C"], ["c=$C"]),
        (['--node-labels=a=b"'], {}, [], ['--node-labels=a=b"'], ['a=b"']),
        (["--register-with-taints=a=b:No"], {}, [], ["--register-with-taints=a=b:No"], ["a=b:No"]),
        (["--x='y z'"], {}, [], ["--x='y z'"], []),
    ],
)
def test_a_flag_is_dropped_only_if_all_of_it_was_read(
    flags: list[str],
    labels: dict[str, str],
    taints: list[str],
    stay: list[str],
    unread: list[str],
) -> None:
    kubelet = {"flags": flags, "maxPodsExpression": "max(10, 20)"}
    config = {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig"}
    text = yaml.safe_dump({**config, "spec": {"kubelet": kubelet}})
    read = read_user_data(encoded(text), AmiFamily.AL2023)
    assert [one["key"] for one in read.taints] == taints
    kept = yaml.safe_load(read.kept)["spec"]["kubelet"]
    assert kept["maxPodsExpression"] == "max(10, 20)"
    assert kept.get("flags", []) == stay
    assert [one.partition("=")[2] for one in read.unread] == unread
    assert bool(read.advice) == bool(unread)
    assert read.labels == labels


def test_settings_of_bottlerocket_stay_without_those_of_the_cluster() -> None:
    text = """
[settings.kubernetes]
api-server = "https://x"
cluster-name = "prod"
cluster-certificate = "YQ=="
max-pods = 30
[settings.kubernetes.node-labels]
"team" = "a"
[settings.kubernetes.node-taints]
"spot" = ["true:PreferNoSchedule"]
[settings.host-containers.admin]
enabled = true
"""
    read = read_user_data(encoded(text), AmiFamily.BOTTLEROCKET)
    assert read.labels == {"team": "a"}
    assert read.taints == [{"key": "spot", "value": "true", "effect": "PreferNoSchedule"}]
    assert read.kubelet == {"maxPods": 30}
    assert read.kept == "[settings.host-containers.admin]\nenabled = true\n"


@pytest.mark.parametrize(
    ("family", "text"),
    [
        (AmiFamily.BOTTLEROCKET, "[broken"),
        (AmiFamily.AL2023, "MIME-Version: 1.0\nContent-Type: multipart/mixed\n\nx"),
        (AmiFamily.AL2023, "apiVersion: node.eks.aws/v1alpha1\n a: ["),
    ],
)
def test_user_data_that_cannot_be_read_is_left_out(family: AmiFamily, text: str) -> None:
    read = read_user_data(encoded(text), family)
    assert "cannot be read" in read.problem
    assert read.kept == ""
