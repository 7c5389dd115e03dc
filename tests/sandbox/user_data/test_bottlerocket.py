"""Which settings Bottlerocket refuses."""

import pytest
from leeway_sandbox.user_data import bottlerocket
from leeway_sandbox.user_data.configuration import BootError

VALID = {
    "api-server": '"https://demo.example.com"',
    "cluster-certificate": '"Y2VydA=="',
    "cluster-name": '"demo"',
}


def _settings(more: str = "", **changed: str) -> bytes:
    lines = VALID | {key.replace("_", "-"): value for key, value in changed.items()}
    body = "\n".join(f"{key} = {value}" for key, value in lines.items() if value)
    return f"[settings.kubernetes]\n{body}\n{more}\n".encode()


def test_these_settings_are_read() -> None:
    assert bottlerocket.parse(_settings()).cluster == "demo"


@pytest.mark.parametrize("name", sorted(VALID))
def test_a_kubelet_without_its_cluster_does_not_start(name: str) -> None:
    with pytest.raises(BootError, match=f"settings.kubernetes.{name} is not set"):
        bottlerocket.parse(_settings(**{name: ""}))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"[settings", "the user data is not TOML"),
        (b'[kubernetes]\ncluster-name = "demo"\n', "did not contain 'settings' section"),
        (b"#!/bin/bash\n[settings.kubernetes]\n[settings.kubernetes]\n", "is not TOML"),
        (_settings("[settings.kubelet]\nmax-pods = 3"), "unknown field settings.kubelet"),
        (_settings("max_pods = 20"), "unknown field settings.kubernetes.max_pods"),
        (_settings('max-pods = "20"'), "max-pods: expected a whole number, got the string '20'"),
        (_settings("max-pods = -1"), "max-pods: expected a number from 0"),
        (_settings("cluster-domain = 1"), "cluster-domain: expected a string"),
        (_settings("server-tls-bootstrap = 1"), "server-tls-bootstrap: expected true or false"),
        (_settings(cluster_name='"-demo"'), "invalid Kubernetes cluster name '-demo'"),
        (_settings(cluster_certificate='"?"'), "cluster-certificate: expected base64"),
        (_settings('[settings.kubernetes.node-labels]\n"a b" = "c"'), "invalid Kubernetes label k"),
        (_settings('[settings.kubernetes.node-labels]\na = "b c"'), "invalid Kubernetes label val"),
        (_settings("[settings.kubernetes.node-labels]\na = 1"), "node-labels.a: expected a string"),
        (
            _settings('[settings.kubernetes.node-labels]\n"node-role.kubernetes.io/x" = "y"'),
            "labels specified with --node-labels: node-role.kubernetes.io/x",
        ),
        (
            _settings('[settings.kubernetes.node-taints]\na = ["NoSchedule"]'),
            "node-taints.a: expected VALUE:EFFECT, got 'NoSchedule'",
        ),
        (_settings('[settings.kubernetes.node-taints]\na = ["b:No"]'), "invalid effect of taint a"),
        (_settings('[settings.kubernetes.kube-reserved]\ngpu = "1"'), "kube-reserved.gpu: expecte"),
        (
            _settings('[settings.host-containers.admin]\nenable = "x"'),
            "unknown field settings.host",
        ),
        (_settings('[settings.host-containers.admin]\nenabled = "x"'), "expected true or false"),
    ],
)
def test_settings_are_refused_as_a_whole(data: bytes, reason: str) -> None:
    with pytest.raises(BootError, match=reason):
        bottlerocket.parse(data)
