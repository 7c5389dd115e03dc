"""An instance of a fleet joins its cluster if its user data is what its AMI needs."""

from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.sandbox.aws.fleet_calls import (
    AL2023,
    described,
    image,
    launched,
    overrides,
    profile,
    request,
    template,
)
from tests.sandbox.aws.started import Recorder, Sandbox

CA = b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
AUTHORITY = b64encode(CA).decode()
OTHER_AUTHORITY = b64encode(CA.replace(b"MIIB", b"MIIC")).decode()
STORAGE = "ephemeral-storage"
ENDPOINT = "https://demo.example.com:6443"
PROFILE = {"IamInstanceProfile": {"Name": "demo-nodes"}}
BOTTLEROCKET = "/aws/service/bottlerocket/aws-k8s-1.34/arm64/latest/image_id"
AL2 = "/aws/service/eks/optimized-ami/1.32/amazon-linux-2/recommended/image_id"
WINDOWS = (
    "/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-1.34/image_id"
)
NVIDIA = "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/x86_64/nvidia/recommended/image_id"


@pytest.fixture(scope="module", autouse=True)
def clusters(aws: Sandbox, recorder: Recorder, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Two clusters; the recorder is where both have their control APIs."""
    files = {}
    for name, authority in (("demo", CA), ("other", CA.replace(b"MIIB", b"MIIC"))):
        files[name] = tmp_path_factory.mktemp(name) / "ca.pem"
        files[name].write_bytes(authority)

    def cluster(endpoint: str, file: Path) -> dict[str, str]:
        return {"endpoint": endpoint, "ca_file": str(file)}

    eks = {
        "demo": cluster(ENDPOINT, files["demo"]),
        "other": cluster("https://other.example.com:6443", files["other"]),
    }
    kubernetes = {"demo": recorder.url, "other": recorder.url}
    aws.control("PUT", "links", {"eks": eks, "kubernetes": kubernetes})
    profile(aws, "demo-nodes")


def _node_config(cluster: dict[str, str] | None = None, **kubelet: Any) -> bytes:
    identity = {
        "name": "demo",
        "apiServerEndpoint": ENDPOINT,
        "certificateAuthority": AUTHORITY,
        "cidr": "10.100.0.0/16",
    }
    document = {
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "spec": {"cluster": identity | (cluster or {}), "kubelet": kubelet},
    }
    return yaml.safe_dump(document).encode()


def _launch(
    aws: Sandbox,
    user_data: bytes | None,
    kind: str = "m5.large",
    parameter: str = AL2023,
    **data: Any,
) -> str:
    own = template(aws, user_data, ImageId=image(aws, parameter), **(PROFILE | data))
    pools = overrides(aws, kind, zones=("us-east-1b",))
    answer = aws.client("ec2").create_fleet(**request(own, pools, market="on-demand"))
    [instance] = launched(answer)
    return instance


def _reports(recorder: Recorder, instance: str) -> list[dict[str, Any]]:
    return [r["body"] for r in recorder.requests if r["body"].get("instance") == instance]


def _node(aws: Sandbox, recorder: Recorder, instance: str) -> dict[str, Any]:
    [report] = aws.wait(lambda: _reports(recorder, instance))
    assert report["state"] == "running"
    node: dict[str, Any] = report["node"]
    return node


def _reason(aws: Sandbox, recorder: Recorder, instance: str) -> str:
    [refusal] = aws.wait(lambda: aws.journal("boot-refused", instance=instance))
    assert not _reports(recorder, instance)
    [shown] = described(aws, instance)
    assert shown["State"]["Name"] == "running"
    return str(refusal["reason"])


@pytest.mark.parametrize(("efas", "offered"), [(0, None), (1, "1"), (2, "2")])
def test_a_node_offers_the_efas_with_which_it_was_launched(
    aws: Sandbox, recorder: Recorder, efas: int, offered: str | None
) -> None:
    interfaces = [
        {"InterfaceType": "efa", "NetworkCardIndex": card, "DeviceIndex": card}
        for card in range(efas)
    ]
    data: dict[str, Any] = {"NetworkInterfaces": interfaces} if interfaces else {}
    instance = _launch(aws, _node_config(), "m6in.32xlarge", **data)
    status = _node(aws, recorder, instance)["status"]
    for part in ("capacity", "allocatable"):
        assert status[part].get("vpc.amazonaws.com/efa") == offered


def test_an_al2023_node_has_the_labels_taints_and_resources_of_its_user_data(
    aws: Sandbox, recorder: Recorder
) -> None:
    user_data = _node_config(
        config={
            "maxPods": 20,
            "kubeReserved": {"cpu": "100m", "memory": "500Mi"},
            "systemReserved": {"memory": "100Mi"},
            "evictionHard": {"memory.available": "200Mi"},
            "registerWithTaints": [{"key": "new", "effect": "NoExecute"}],
        },
        flags=["--node-labels=team=search,karpenter.sh/capacity-type=on-demand"],
    )
    instance = _launch(aws, user_data)
    node, [shown] = _node(aws, recorder, instance), described(aws, instance)
    assert node["metadata"]["name"] == shown["PrivateDnsName"]
    assert node["spec"]["providerID"] == f"aws:///us-east-1b/{instance}"
    assert node["spec"]["taints"] == [{"key": "new", "effect": "NoExecute"}]
    labels = node["metadata"]["labels"]
    assert labels["team"] == "search"
    assert labels["karpenter.sh/capacity-type"] == "on-demand"
    assert labels["node.kubernetes.io/instance-type"] == "m5.large"
    assert labels["topology.kubernetes.io/zone"] == "us-east-1b"
    assert "eks.amazonaws.com/capacityType" not in labels, "user data has no such label"
    assert node["status"]["capacity"] == {
        "cpu": "2",
        "memory": "7577Mi",
        "pods": "20",
        "ephemeral-storage": "20Gi",
    }
    # 7577 MiB without 500 for the kubelet, 100 for the system and 200 of the eviction threshold.
    assert node["status"]["allocatable"] == {
        "cpu": "1900m",
        "memory": "6777Mi",
        "pods": "20",
        "ephemeral-storage": "17408Mi",
    }
    assert node["status"]["nodeInfo"]["osImage"] == "Amazon Linux 2023"
    assert node["status"]["nodeInfo"]["kubeletVersion"].startswith("v1.34.")
    addresses = {one["type"]: one["address"] for one in node["status"]["addresses"]}
    assert addresses["InternalIP"] == shown["PrivateIpAddress"]
    [boot] = aws.journal("boot", instance=instance)
    assert (boot["cluster"], boot["family"]) == ("demo", "AL2023")


def test_without_settings_a_node_has_what_its_ami_gives_its_type(
    aws: Sandbox, recorder: Recorder
) -> None:
    node = _node(aws, recorder, _launch(aws, _node_config(), "m5.4xlarge"))
    # 8 interfaces of 29 pods and 2; 60+10+5+5+12×2.5 millicores; 255+11×234 and 100 MiB.
    assert node["status"]["capacity"] == {
        "cpu": "16",
        "memory": "60620Mi",
        "pods": "234",
        "ephemeral-storage": "20Gi",
    }
    assert node["status"]["allocatable"] == {
        "cpu": "15890m",
        "memory": "57691Mi",
        "pods": "234",
        "ephemeral-storage": "17408Mi",
    }


def test_a_bottlerocket_node_on_arm(aws: Sandbox, recorder: Recorder) -> None:
    user_data = f"""
        [settings.kubernetes]
        api-server = "{ENDPOINT}"
        cluster-certificate = "{AUTHORITY}"
        cluster-name = "demo"
        max-pods = 10
        [settings.kubernetes.node-labels]
        team = "search"
        [settings.kubernetes.node-taints]
        dedicated = ["gpu:NoSchedule"]
    """.encode()
    node = _node(aws, recorder, _launch(aws, user_data, "m6g.large", BOTTLEROCKET))
    labels = node["metadata"]["labels"]
    assert (labels["kubernetes.io/arch"], labels["team"]) == ("arm64", "search")
    assert node["spec"]["taints"] == [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]
    # Bottlerocket reserves by the pods that are set: 255+11×10 and 100 MiB of 7577.
    assert node["status"]["allocatable"] == {
        "cpu": "1930m",
        "memory": "7112Mi",
        "pods": "10",
        "ephemeral-storage": "17408Mi",
    }
    assert node["status"]["nodeInfo"]["osImage"] == "Bottlerocket OS"


def test_an_al2_node(aws: Sandbox, recorder: Recorder) -> None:
    user_data = (
        f"#!/bin/bash\n/etc/eks/bootstrap.sh demo --apiserver-endpoint '{ENDPOINT}' "
        f"--b64-cluster-ca '{AUTHORITY}' --use-max-pods false "
        "--kubelet-extra-args '--node-labels=team=search --max-pods=29 --kube-reserved=cpu=1'\n"
    ).encode()
    node = _node(aws, recorder, _launch(aws, user_data, parameter=AL2))
    assert node["metadata"]["labels"]["team"] == "search"
    # The flag replaces all that bootstrap.sh reserves: no memory but the eviction threshold.
    assert node["status"]["allocatable"] == {
        "cpu": "1000m",
        "memory": "7477Mi",
        "pods": "29",
        "ephemeral-storage": "18432Mi",
    }


def test_an_al2_node_without_endpoint_and_ca_looks_its_cluster_up(
    aws: Sandbox, recorder: Recorder
) -> None:
    user_data = b"#!/bin/bash\n/etc/eks/bootstrap.sh demo\n"
    assert _node(aws, recorder, _launch(aws, user_data, parameter=AL2))
    user_data = b"#!/bin/bash\n/etc/eks/bootstrap.sh nowhere\n"
    reason = _reason(aws, recorder, _launch(aws, user_data, parameter=AL2))
    assert reason == "DescribeCluster finds no cluster named 'nowhere'"


def test_a_windows_node(aws: Sandbox, recorder: Recorder) -> None:
    user_data = (
        "<powershell>\n& Start-EKSBootstrap.ps1 -EKSClusterName demo "
        f"-APIServerEndpoint {ENDPOINT} "
        f"-Base64ClusterCA '{AUTHORITY}' -KubeletExtraArgs '--node-labels=team=search'\n"
        "</powershell>"
    ).encode()
    node = _node(aws, recorder, _launch(aws, user_data, parameter=WINDOWS))
    labels = node["metadata"]["labels"]
    assert (labels["kubernetes.io/os"], labels["team"]) == ("windows", "search")
    assert labels["node.kubernetes.io/windows-build"] == "10.0.20348"
    capacity = node["status"]["capacity"]
    assert capacity["pods"] == "9", "the addresses of one interface less one"
    assert capacity["vpc.amazonaws.com/PrivateIPv4Address"] == "9"


def test_accelerators_need_an_ami_with_their_drivers(aws: Sandbox, recorder: Recorder) -> None:
    node = _node(aws, recorder, _launch(aws, _node_config(), "g5.xlarge", NVIDIA))
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "1"
    node = _node(aws, recorder, _launch(aws, _node_config(), "g5.xlarge"))
    assert "nvidia.com/gpu" not in node["status"]["capacity"]


def test_the_volume_with_the_kubelets_data_is_the_ephemeral_storage(
    aws: Sandbox, recorder: Recorder
) -> None:
    volume = {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 100}}
    instance = _launch(aws, _node_config(), BlockDeviceMappings=[volume])
    status = _node(aws, recorder, instance)["status"]
    assert status["capacity"]["ephemeral-storage"] == "100Gi"
    # 102,400 MiB without one GiB for the kubelet and the eviction threshold of a tenth.
    assert status["allocatable"]["ephemeral-storage"] == "91136Mi"


@pytest.mark.parametrize(
    ("user_data", "reason"),
    [
        (None, "the instance has no user data"),
        (
            _node_config({"apiServerEndpoint": "https://gone.example.com"}),
            "the kubelet cannot reach https://gone.example.com: no cluster has this endpoint",
        ),
        (
            _node_config({"certificateAuthority": OTHER_AUTHORITY}),
            "x509: certificate signed by unknown authority",
        ),
        (_node_config({"name": "other"}), "its token is for cluster 'other'"),
    ],
)
def test_an_instance_whose_user_data_is_wrong_runs_and_never_joins(
    aws: Sandbox, recorder: Recorder, user_data: bytes | None, reason: str
) -> None:
    assert reason in _reason(aws, recorder, _launch(aws, user_data))


def test_an_instance_without_a_profile_never_joins(aws: Sandbox, recorder: Recorder) -> None:
    instance = _launch(aws, _node_config(), IamInstanceProfile={})
    assert "no instance profile" in _reason(aws, recorder, instance)


def test_an_instance_whose_metadata_cannot_be_read_never_joins(
    aws: Sandbox, recorder: Recorder
) -> None:
    instance = _launch(aws, _node_config(), MetadataOptions={"HttpEndpoint": "disabled"})
    assert "metadata service is disabled" in _reason(aws, recorder, instance)


def test_a_custom_image_boots_as_the_family_in_its_tag(aws: Sandbox, recorder: Recorder) -> None:
    ec2 = aws.client("ec2")
    plain = ec2.copy_image(SourceImageId=image(aws), SourceRegion="us-east-1", Name="our-nodes")[
        "ImageId"
    ]
    pools = overrides(aws, "m5.large", zones=("us-east-1b",))
    own = template(aws, _node_config(), **PROFILE, ImageId=plain)
    [unknown] = launched(ec2.create_fleet(**request(own, pools)))
    assert "starts no kubelet that the sandbox knows" in _reason(aws, recorder, unknown)
    tag = {"Key": "sandbox.leeway.sh/ami-family", "Value": "AL2023"}
    ec2.create_tags(Resources=[plain], Tags=[tag])
    [known] = launched(ec2.create_fleet(**request(own, pools)))
    assert _node(aws, recorder, known)
