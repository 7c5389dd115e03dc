"""Which user data nodeadm refuses, and which fields it ignores."""

import base64
import gzip
from typing import Any

import pytest
import yaml
from leeway_sandbox.user_data import nodeadm
from leeway_sandbox.user_data.configuration import BootError

CLUSTER = {
    "name": "demo",
    "apiServerEndpoint": "https://demo.example.com",
    "certificateAuthority": "Y2VydA==",
    "cidr": "10.100.0.0/16",
}


def _node_config(**spec: Any) -> bytes:
    document = {
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "spec": {"cluster": CLUSTER, **spec},
    }
    return yaml.safe_dump(document).encode()


def _multipart(*parts: tuple[str, bytes], end: bytes = b"--BOUNDARY--\n") -> bytes:
    head = b'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="BOUNDARY"\n\n'
    bodies = [
        b"--BOUNDARY\nContent-Type: " + kind.encode() + b"\n\n" + content + b"\n"
        for kind, content in parts
    ]
    return head + b"".join(bodies) + end


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ("name", "Name is missing in cluster configuration"),
        ("apiServerEndpoint", "Apiserver endpoint is missing in cluster configuration"),
        ("certificateAuthority", "Certificate authority is missing in cluster configuration"),
        ("cidr", "CIDR is missing in cluster configuration"),
    ],
)
def test_a_cluster_without_one_of_its_four_fields_is_refused(missing: str, reason: str) -> None:
    cluster = {key: value for key, value in CLUSTER.items() if key != missing}
    with pytest.raises(BootError, match=f"nodeadm exits: {reason}"):
        nodeadm.parse(_node_config(cluster=cluster))


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"cluster": {**CLUSTER, "name": 7}}, "spec.cluster.name: expected a string, got the nu"),
        ({"cluster": {**CLUSTER, "cidr": "10.100"}}, "'10.100' is not a valid CIDR"),
        ({"cluster": {**CLUSTER, "cidr": "10.100.0.0"}}, "is not a valid CIDR"),
        ({"cluster": {**CLUSTER, "certificateAuthority": "?"}}, "expected base64"),
        ({"cluster": "demo"}, "spec.cluster: expected an object, got the string 'demo'"),
        ({"kubelet": {"flags": "--v=2"}}, "spec.kubelet.flags: expected a list"),
        ({"kubelet": {"flags": ["--v=2", 3]}}, r"spec.kubelet.flags\[1\]: expected a string"),
        ({"kubelet": {"flags": ['--node-labels="a=b']}}, "cannot read the kubelet's flags"),
        ({"kubelet": {"config": {"maxPods": "20"}}}, "maxPods: expected a whole number, got the s"),
        (
            {"kubelet": {"config": {"kubeReserved": {"cpu": 1}}}},
            "cpu: expected a string, got the n",
        ),
        ({"instance": {"localStorage": {"strategy": "raid0"}}}, "strategy: expected one of Mount"),
        ({"featureGates": {"InstanceIdNodeName": "yes"}}, "expected true or false"),
    ],
)
def test_a_field_of_another_type_or_value_is_refused(spec: dict[str, Any], reason: str) -> None:
    with pytest.raises(BootError, match=reason):
        nodeadm.parse(_node_config(**spec))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the user data has no NodeConfig"),
        (b"#!/bin/bash\necho no\n", "the user data has no NodeConfig"),
        (b"{", "the NodeConfig is not YAML"),
        (b"\xff\xfe", "not UTF-8 text"),
        (b"apiVersion: node.eks.aws/v1alpha\nkind: NodeConfig\n", "is registered for version"),
        (b"apiVersion: node.eks.aws/v1alpha1\nkind: NodePool\n", 'no kind "NodePool"'),
        (_multipart(("text/x-shellscript", b"#!/bin/sh\n")), "no part of the user data has the"),
        (_multipart(("application/node.eks.aws", b"a: b"), end=b""), "does not end with its boun"),
        (
            _multipart(("application/node.eks.aws", b"a: b"), end=b"--BOUNDARY"),
            "does not end with its boundary",
        ),
        (b"\x1f\x8bnot gzip", "is not valid gzip"),
    ],
)
def test_user_data_without_a_node_config_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(BootError, match=reason):
        nodeadm.parse(data)


@pytest.mark.parametrize("end", [b"--BOUNDARY\n", b"--BOUNDARY\r\n", b"--BOUNDARY--"])
def test_a_document_may_end_with_an_open_boundary(end: bytes) -> None:
    data = _multipart(("application/node.eks.aws", _node_config()), end=end)
    assert nodeadm.parse(data) == nodeadm.parse(_node_config())


def test_unknown_fields_are_ignored_and_listed() -> None:
    data = _node_config(kubelett={}, kubelet={"config": {"maxpods": 20, "maxPods": 30}})
    configuration = nodeadm.parse(data)
    assert configuration.kubelet.max_pods == 30
    assert configuration.ignored == (
        "NodeConfig 1: spec.kubelett",
        "kubelet configuration.maxpods",
    )


def test_the_whole_and_its_parts_may_be_gzip_and_base64() -> None:
    plain = nodeadm.parse(_node_config())
    packed = gzip.compress(_node_config())
    assert nodeadm.parse(packed) == plain
    assert nodeadm.parse(base64.b64encode(packed)) == plain
    part = base64.b64encode(packed)
    assert nodeadm.parse(_multipart(("application/node.eks.aws", part))) == plain


def test_later_parts_win_and_flags_are_appended() -> None:
    first = _node_config(
        kubelet={
            "config": {"maxPods": 20, "kubeReserved": {"cpu": "1", "memory": "1Gi"}},
            "flags": ["--node-labels=a=1,b=1", "--max-pods=50"],
        }
    )
    second = _node_config(
        kubelet={
            "config": {"maxPods": 30, "kubeReserved": {"cpu": "2"}},
            "flags": ["--node-labels=b=2"],
        }
    )
    kind = "application/node.eks.aws"
    kubelet = nodeadm.parse(_multipart((kind, first), (kind, second))).kubelet
    assert kubelet.labels == {"a": "1", "b": "2"}
    assert kubelet.kube_reserved == {"cpu": "2", "memory": "1Gi"}
    assert kubelet.max_pods == 50, "a flag wins over the configuration"


def test_an_empty_value_of_a_later_part_changes_nothing() -> None:
    kind = "application/node.eks.aws"
    second = b"apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {cluster: {name: ''}}\n"
    assert nodeadm.parse(_multipart((kind, _node_config()), (kind, second))).cluster == "demo"


def test_a_feature_gate_names_the_node_by_its_instance() -> None:
    assert not nodeadm.parse(_node_config()).is_named_by_instance
    gates = {"InstanceIdNodeName": True}
    assert nodeadm.parse(_node_config(featureGates=gates)).is_named_by_instance
