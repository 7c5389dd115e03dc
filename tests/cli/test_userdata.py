"""`leeway userdata`: its output, and the input that it refuses in one line."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from leeway_cli.main import run

from tests.bootstrap.write_golden import GOLDEN

USERS = Path(__file__).parents[1] / "manifests" / "users"
OWN = Path(__file__).parents[1] / "bootstrap" / "users"

CLUSTER: dict[str, Any] = {
    "apiVersion": "leeway.sh/v1",
    "kind": "Cluster",
    "metadata": {"name": "prod"},
    "spec": {
        "controlPlane": {
            "endpoint": "https://A2FAB60F0DBB94CD.yl4.ap-northeast-2.eks.amazonaws.com",
            "certificateAuthority": "Y2VydGlmaWNhdGVBdXRob3JpdHk=",
            "serviceCIDR": "172.20.0.0/16",
        }
    },
}
POOL: dict[str, Any] = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "web"},
    "spec": {"template": {"spec": {"nodeClassRef": {"name": "web"}}}},
}


def node_class(family: str, user_data: str = "") -> dict[str, Any]:
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "web"},
        "spec": {"amiFamily": family, "userData": user_data},
    }


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    return written(tmp_path / "cluster.yaml", CLUSTER)


def written(path: Path, *documents: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump_all(documents))
    return path


def refusal(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["userdata", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    *_, line = printed.err.splitlines()
    found = re.fullmatch(r"leeway: (.+?)\.?", line)
    assert found, line
    return found[1]


def test_the_text_is_the_user_data_byte_by_byte(
    tmp_path: Path, cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = (OWN / "script.sh").read_text()
    files = written(tmp_path / "pool.yaml", POOL, node_class("AL2023", own))
    arguments = ["-f", str(files), "--cluster-file", str(cluster)]
    assert run(["userdata", *arguments, "--instance-type", "m5d.large", "--sandbox"]) == 0
    said = capsys.readouterr()
    assert said.out.encode() == (GOLDEN / "al2023-script.mime").read_bytes()
    assert said.err == ""


def test_json_has_labels_for_admission_and_every_warning(
    tmp_path: Path, cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = written(tmp_path / "pool.yaml", POOL, node_class("AL2"))
    arguments = ["-f", str(files), "--cluster-file", str(cluster), "-o", "json"]
    assert run(["userdata", *arguments]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert found.pop("formatVersion") == 1
    assert found.pop("userData").startswith("MIME-Version: 1.0\n")
    assert found.pop("bytes") > 400
    assert [one["code"] for one in found.pop("warnings")] == ["Al2EndOfLife", "InstanceTypeUnknown"]
    assert found == {
        "nodePool": "web",
        "amiFamily": "AL2",
        "instanceType": None,
        "labelsForAdmission": {
            "karpenter.k8s.aws/ec2nodeclass": "web",
            "karpenter.sh/nodepool": "web",
        },
        "taintsForAdmission": [],
    }
    assert "warning: Al2EndOfLife: AL2 reached its end of life" in said.err


def test_a_provisioner_without_a_node_class_has_the_clusters_defaults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = {**CLUSTER["spec"], "defaults": {"amiFamily": "Bottlerocket"}}
    cluster = written(tmp_path / "cluster.yaml", {**CLUSTER, "spec": spec})
    arguments = ["-f", str(USERS / "provisioner-gpu.yaml"), "--cluster-file", str(cluster)]
    assert run(["userdata", *arguments]) == 0
    assert "[settings.kubernetes]" in capsys.readouterr().out


@pytest.mark.parametrize("manifest", sorted(USERS.glob("provisioner-*.yaml")), ids=lambda p: p.stem)
def test_the_users_provisioners_have_user_data(
    manifest: Path, cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["userdata", "-f", str(manifest), "--cluster-file", str(cluster)]) == 0
    assert "application/node.eks.aws" in capsys.readouterr().out


def test_the_cluster_file_may_be_the_output_of_describe_cluster(
    tmp_path: Path, cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    control_plane = CLUSTER["spec"]["controlPlane"]
    described = tmp_path / "described.json"
    document = {
        "name": "prod",
        "endpoint": control_plane["endpoint"],
        "certificateAuthority": {"data": control_plane["certificateAuthority"]},
        "kubernetesNetworkConfig": {"serviceIpv4Cidr": "172.20.0.0/16", "ipFamily": "ipv4"},
    }
    described.write_text(json.dumps({"cluster": document}))
    files = str(written(tmp_path / "pool.yaml", POOL))
    printed = []
    for path in (cluster, described):
        assert run(["userdata", "-f", files, "--cluster-file", str(path)]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]

    del document["endpoint"]
    described.write_text(json.dumps({"cluster": document}))
    line = refusal(["-f", files, "--cluster-file", str(described)], capsys)
    assert line == (
        f"{described}: cluster.endpoint: expected text, as EKS describes an ACTIVE cluster"
    )


def test_a_cluster_without_a_control_plane_is_refused_with_the_expected_fields(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = written(tmp_path / "cluster.yaml", {**CLUSTER, "spec": {}})
    files = written(tmp_path / "pool.yaml", POOL)
    line = refusal(["-f", str(files), "--cluster-file", str(bare)], capsys)
    assert line == (
        f"{bare}:1: spec.controlPlane: expected endpoint, certificateAuthority and "
        "serviceCIDR of the cluster, as `aws eks describe-cluster --name prod` prints them"
    )


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        (
            "endpoint",
            "http://x",
            "spec.controlPlane.endpoint: expected text that matches ^https://",
        ),
        ("certificateAuthority", "a b", "spec.controlPlane.certificateAuthority: expected text"),
        ("certificateAuthority", "abc", "expected text in base64"),
        ("serviceCIDR", "172.20.0.1/16", "expected a range of addresses such as 172.20.0.0/16"),
        ("clusterDNS", ["x"], "spec.controlPlane.clusterDNS[0]: expected an IP address"),
    ],
)
def test_a_wrong_cluster_is_refused_with_its_line(
    field: str, value: Any, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = {**CLUSTER["spec"]["controlPlane"], field: value}
    cluster = written(tmp_path / "cluster.yaml", {**CLUSTER, "spec": {"controlPlane": wrong}})
    files = written(tmp_path / "pool.yaml", POOL)
    line = refusal(["-f", str(files), "--cluster-file", str(cluster)], capsys)
    assert line.startswith(f"{cluster}:")
    assert expected in line


def test_wrong_options_are_refused(
    tmp_path: Path, cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = {**POOL, "metadata": {"name": "other"}}
    two = str(written(tmp_path / "two.yaml", POOL, other))
    only_class = str(written(tmp_path / "class.yaml", node_class("AL2023")))
    pool = ["-f", two, "--pool", "web", "--sandbox"]
    for arguments, expected in (
        (["-f", two], "--pool: expected one of web, other"),
        (["-f", two, "--pool", "wep"], "--pool: expected one of web, other, got wep"),
        (["-f", only_class], "--filename: expected at least one NodePool or Provisioner"),
        (
            [*pool, "--instance-type", "m5.largo"],
            (
                "--instance-type: expected a type that us-east-1 offers, got m5.largo; did you mean"
                " m5.large?"
            ),
        ),
    ):
        line = refusal([*arguments, "--cluster-file", str(cluster)], capsys)
        assert line == expected
    line = refusal(["-f", two, "--cluster-file", two], capsys)
    assert line == f"{two}: expected one Cluster manifest, found 0"
    line = refusal(["-f", two, "--cluster-file", str(tmp_path)], capsys)
    assert line == f"--cluster-file: expected one file, {tmp_path} has 3"
    line = refusal(["-f", two, "--cluster-file", str(tmp_path / "none")], capsys)
    assert line.endswith("none: No such file or directory")


def test_a_type_that_the_pool_does_not_launch_causes_a_warning(
    cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["-f", str(USERS / "provisioner-spot.yaml"), "--cluster-file", str(cluster)]
    assert run(["userdata", *arguments, "--instance-type", "m7g.large", "--sandbox"]) == 0
    assert "node pool default does not launch m7g.large" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("family", "own", "expected"),
    [
        ("AL2023", "#!/bin/sh\n" + "a" * 16384, "expected at most 16,384 bytes"),
        ("Bottlerocket", "settings", "expected settings in TOML"),
        ("Windows2022", "</powershell>", "one pair of <powershell> tags"),
    ],
)
def test_user_data_that_does_not_boot_is_refused(
    family: str,
    own: str,
    expected: str,
    tmp_path: Path,
    cluster: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = written(tmp_path / "pool.yaml", POOL, node_class(family, own))
    line = refusal(["-f", str(files), "--cluster-file", str(cluster)], capsys)
    assert line.startswith("node pool web: spec.userData: ")
    assert expected in line
