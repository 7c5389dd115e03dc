"""The nodes that user data describes, and user data with which an instance never joins."""

import base64
import json
from typing import Any

import pytest
from leeway_sandbox.aws.user_data import BootError, Family, read_user_data

from tests.bootstrap.cases import CASES
from tests.bootstrap.nodes import CLUSTER, FULL, IPV6, rendered

FAMILIES: dict[str, Family] = {
    "al2": "AL2",
    "al2023": "AL2023",
    "bottlerocket": "Bottlerocket",
    "windows2019": "Windows",
    "windows2022": "Windows",
    "windows2025": "Windows",
}
PREFIXES = {name: name.partition(".")[0].partition("-")[0] for name in CASES}
TAINTS = [
    {"key": "dedicated", "value": "web", "effect": "NoSchedule"},
    {"key": "dedicated", "value": "1e3", "effect": "NoExecute"},
    {"key": "example.com/agent-not-ready", "effect": "NoExecute"},
]


@pytest.mark.parametrize("name", [name for name in CASES if PREFIXES[name] != "custom"])
def test_the_user_data_that_leeway_writes_describes_its_cluster(name: str) -> None:
    found = read_user_data(FAMILIES[PREFIXES[name]], CASES[name]().text.encode())

    cluster = IPV6 if "ipv6" in name else CLUSTER
    assert (found.cluster, found.endpoint) == (cluster.name, cluster.endpoint)
    assert found.authority == base64.b64decode(cluster.certificate_authority)
    if "without-type" not in name and "settings" not in name:
        assert found.config["maxPods"] > 0
        assert found.config["kubeReserved"]["memory"].endswith("Mi")


@pytest.mark.parametrize("family", ["AL2", "AL2023", "Bottlerocket", "Windows2025"])
def test_it_has_the_labels_and_taints_of_its_pool(family: str) -> None:
    name: Any = "Windows" if "Windows" in family else family
    found = read_user_data(name, rendered(family, **FULL).text.encode())

    assert found.labels == {
        "empty": "",
        "example.com/ring": "inner",
        "leeway.sh/launched": "true",
        "node.kubernetes.io/role-of-mine": "web",
        "team": "shop",
    }
    taints = [{key: value for key, value in one.items() if value} for one in found.taints]
    assert taints == TAINTS
    assert found.config["systemReserved"] == {"cpu": "100m", "memory": "100Mi"}
    assert found.config["evictionHard"]["memory.available"] == "5%"


def config(**kubelet: Any) -> bytes:
    cluster = {
        "name": "prod",
        "apiServerEndpoint": "https://api.example.com",
        "certificateAuthority": "Y2VydA==",
        "cidr": "10.0.0.0/16",
    }
    kind = {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig"}
    return json.dumps({**kind, "spec": {"cluster": cluster, "kubelet": kubelet}}).encode()


def test_a_label_that_a_kubelet_may_not_set_ends_it() -> None:
    for label in (
        "node-role.kubernetes.io/worker",
        "app.kubernetes.io/name",
        "kubernetes.io/role",
        "node-restriction.kubernetes.io/team",
        "topology.kubernetes.io/rack",
        "k8s.io/cloud",
        "cluster.x-k8s.io.k8s.io/a",
    ):
        with pytest.raises(BootError, match=f"labels specified with --node-labels: {label}"):
            read_user_data("AL2023", config(flags=[f"--node-labels=a=b,{label}=x"]))


def test_every_other_label_is_registered() -> None:
    labels = (
        "team",
        "karpenter.sh/capacity-type",
        "node.kubernetes.io/pool",
        "node.kubernetes.io/instance-type",
        "sub.node.kubernetes.io/pool",
        "kubelet.kubernetes.io/x",
        "topology.kubernetes.io/zone",
        "mykubernetes.io/a",
    )
    flag = "--node-labels=" + ",".join(f"{label}=x" for label in labels)
    assert read_user_data("AL2023", config(flags=[flag])).labels == dict.fromkeys(labels, "x")


AL2 = b"#!/bin/bash\n/etc/eks/bootstrap.sh "
NO_CLUSTER = b"[settings.kubernetes]\napi-server = 'a'\ncluster-certificate = 'Y2VydA=='\n"
ROCKET = NO_CLUSTER + b"cluster-name = 'prod'\n"


@pytest.mark.parametrize(
    ("family", "data", "reason"),
    [
        ("AL2023", b"#!/bin/bash\n", "has no NodeConfig"),
        ("AL2023", b"{", "the NodeConfig is not YAML"),
        ("AL2023", b"\xff\xfe", "not UTF-8 text"),
        ("AL2023", config(flags=["--max-pods=many"]), "maxPods: expected a whole number"),
        ("AL2023", config(flags=["--node-labels='a"]), "cannot be split"),
        ("AL2023", b"Content-Type: multipart/mixed; boundary=x\n\n--x\n", "malformed"),
        ("AL2", b"#!/bin/bash\n", "no command of the user data runs"),
        ("AL2", AL2 + b"--use-max-pods true", "cluster name is not defined"),
        ("AL2", AL2 + b"prod --use-max-pods", "--use-max-pods has no value"),
        ("AL2", AL2 + b"prod --apiserver-endpoint a --b64-cluster-ca ?", "not base64"),
        ("Bottlerocket", b"[settings", "the user data is not TOML"),
        ("Bottlerocket", NO_CLUSTER, "settings.kubernetes.cluster-name is not set"),
        ("Windows", b"Start-EKSBootstrap.ps1 -EKSClusterName prod", "no command of the user data"),
        ("Windows", b"<powershell>\nStart-EKSBootstrap.ps1 -A b\n</powershell>", "EKSClusterName"),
    ],
)
def test_an_instance_with_wrong_user_data_is_no_node(
    family: Family, data: bytes, reason: str
) -> None:
    with pytest.raises(BootError, match=reason):
        read_user_data(family, data)


def test_later_parts_win_and_flags_are_appended() -> None:
    first = config(
        config={"maxPods": 20, "kubeReserved": {"cpu": "1"}}, flags=["--node-labels=a=1"]
    )
    second = config(config={"maxPods": 30}, flags=["--node-labels=b=2", "--pods-per-core=4"])
    parts = b"".join(
        b"--x\nContent-Type: application/node.eks.aws\n\n" + one + b"\n" for one in (first, second)
    )
    head = b"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=x\n\n"
    found = read_user_data("AL2023", head + parts + b"--x--\n")

    assert found.labels == {"a": "1", "b": "2"}
    assert found.config == {"maxPods": 30, "kubeReserved": {"cpu": "1"}, "podsPerCore": 4}
    assert found.flags == {"podsPerCore"}
