"""`leeway types`: matching instance types as JSON and as tables, and the reasons if none match."""

import json
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from leeway.aws.table import DynamoTable
from leeway.catalog.stored import SURVEY
from leeway.costs import COST, CostHour, SpotPool
from leeway.selection.offers.survey import compressed
from leeway.wiring.clients import client
from leeway_cli.main import run
from leeway_cli.selection.sources import sandbox_survey

from tests.aws.stored import TABLE
from tests.sandbox.aws.started import Sandbox

USERS = Path(__file__).parents[1] / "manifests" / "users"

POOL = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: web}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: web}
      requirements:
"""


def types(
    capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0
) -> list[dict[str, Any]]:
    assert run(["types", "--sandbox", *arguments, "-o", "json"]) == code
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["types"]
    return found


def test_without_a_manifest_every_type_of_the_region_is_listed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = {one["name"]: one for one in types(capsys)}
    assert len(found) == 1379
    large = found["m5.large"]
    assert set(large) == {"name", "labels", "capacity", "allocatable", "offerings"}
    assert large["allocatable"] == {
        "cpu": "1930m",
        "memory": "6903Mi",
        "ephemeral-storage": "17Gi",
        "pods": "29",
        "vpc.amazonaws.com/pod-eni": "9",
    }
    assert large["labels"]["kubernetes.io/arch"] == "amd64"
    assert large["labels"]["topology.kubernetes.io/region"] == "us-east-1"
    assert {"zone", "capacityType", "price", "available"} == set(large["offerings"][0])
    assert {o["capacityType"] for o in large["offerings"]} == {"spot", "on-demand"}


def test_another_region_offers_other_types(capsys: pytest.CaptureFixture[str]) -> None:
    found = types(capsys, "--region", "eu-north-1")
    assert {o["zone"][:-1] for one in found for o in one["offerings"]} == {"eu-north-1"}
    assert len(found) < 1379


def test_a_gpu_provisioner_lists_its_four_spot_types_cheapest_first(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["types", "--sandbox", "-f", str(USERS / "provisioner-gpu.yaml"), "-o", "json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)["types"]
    assert [one["name"] for one in found] == [
        "p2.xlarge",
        "p3.2xlarge",
        "p3.8xlarge",
        "p3.16xlarge",
    ]
    assert {o["capacityType"] for one in found for o in one["offerings"]} == {"spot"}
    assert [one["allocatable"]["nvidia.com/gpu"] for one in found] == ["1", "1", "4", "8"]
    assert "no instance type has nvidia; did you mean amd64?" in err


def test_types_that_a_region_does_not_offer_are_a_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["--region", "eu-north-1", "-f", str(USERS / "provisioner-gpu.yaml")]
    assert run(["types", "--sandbox", *arguments, "-o", "json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["types"] == []
    assert err.endswith(": eu-north-1 offers none of them\n")


def test_a_pool_without_a_matching_type_gets_a_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pool.yaml"
    path.write_text(POOL + "        - {key: kubernetes.io/arch, operator: In, values: [nvidia]}\n")
    assert run(["types", "--sandbox", "-f", str(path), "-o", "json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["types"] == []
    printed = "arch In [nvidia]: no instance type has it; did you mean amd64?"
    assert f"warning: web: {printed}\n" == err


def test_a_node_class_determines_allocatable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pool.yaml"
    path.write_text(
        POOL
        + "        - {key: node.kubernetes.io/instance-type, operator: In, values: [m5d.large]}\n"
        + "---\napiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {name: web}\n"
        + "spec: {amiFamily: Bottlerocket, instanceStorePolicy: RAID0, kubelet: {maxPods: 110}}\n"
    )
    (found,) = types(capsys, "-f", str(path))
    assert found["capacity"]["pods"] == "110"
    assert found["capacity"]["ephemeral-storage"] == str(75 * 10**9)
    assert found["allocatable"]["memory"] == f"{7577 - (11 * 110 + 255) - 100}Mi"


@pytest.mark.parametrize("output", ["table", "wide"])
def test_tables_have_a_line_for_each_type(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["-f", str(USERS / "provisioner-gpu.yaml"), "-o", output]
    assert run(["types", "--sandbox", *arguments]) == 0
    title, *lines = capsys.readouterr().out.splitlines()
    assert title.startswith("TYPE ")
    assert lines[0].split()[0] == "p2.xlarge"
    assert all("nvidia.com/gpu" in line for line in lines)


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["types", "--sandbox", "--region", "mars-1"]) == 2
    assert "--region: expected one of af-south-1, " in capsys.readouterr().err
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("apiVersion: leeway.sh/v1\nkind: Cluster\nmetadata: {name: prod}\n")
    assert run(["types", "--sandbox", "-f", str(cluster)]) == 2
    assert "expected at least one NodePool or Provisioner" in capsys.readouterr().err


OVERLAY = """\
---
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {{name: {name}}}
spec:
  requirements: [{{key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}}]
  price: "{price}"
  capacity: {{smarter-devices/fuse: 2}}
"""


def test_overlays_change_the_types_of_pools_and_conflicts_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "pools.yaml"
    family = "        - {key: karpenter.k8s.aws/instance-family, operator: In, values: [m5]}\n"
    overlays = [OVERLAY.format(name=name, price=price) for name, price in (("a", 1), ("b", 2.5))]
    file.write_text(POOL + family + "".join(overlays))
    assert run(["types", "--sandbox", "-f", str(file), "-o", "json"]) == 0
    shown = capsys.readouterr()
    assert "warning: OverlayConflict: NodeOverlay a is not applied: NodeOverlay b" in shown.err
    found = {one["name"]: one for one in json.loads(shown.out)["types"]}
    assert found["m5.large"]["allocatable"]["smarter-devices/fuse"] == "2"
    assert {one["price"] for one in found["m5.large"]["offerings"]} == {2.5}
    assert "smarter-devices/fuse" not in found["m5.xlarge"]["allocatable"]


RESERVED = """\
        - {key: karpenter.sh/capacity-type, operator: In, values: [reserved]}
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: web}
spec:
  amiSelectorTerms: [{alias: al2023@latest}]
  capacityReservationSelectorTerms: [{tags: {team: a}}]
"""

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: web, annotations: {leeway.sh/do-not-disrupt: "true"}}
spec: {containers: [{name: web, resources: {requests: {cpu: 100m}}}]}
"""


def test_reservations_of_a_pool_are_read_with_the_room_that_they_have(
    aws: Sandbox, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    body = {"instance_type": "m5.large", "zone": "us-east-1a", "tags": {"team": "a"}}
    mine = aws.control("POST", "reservations", {**body, "count": 3})["reservation"]
    tags = {"team": "a", "leeway.sh/cluster/shop": ""}
    aws.control("POST", "reservations", {**body, "zone": "us-east-1b", "tags": tags})
    DynamoTable(partial(client, "dynamodb"), TABLE).put(
        SURVEY, compressed(sandbox_survey()), region="us-east-1"
    )
    pool, pods = tmp_path / "pool.yaml", tmp_path / "pods.yaml"
    pool.write_text(POOL + RESERVED)
    pods.write_text(POD)
    assert run(["types", "-f", str(pool), "-o", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["types"]
    assert found["name"] == "m5.large"
    assert [one["reservation"] for one in found["offerings"]] == [mine]
    now = datetime.now(UTC)
    spot = {"m5.large us-east-1a": SpotPool(400.0, 3), "m5.large us-east-1b": SpotPool(12.0)}
    hour = CostHour("shop", f"{now:%Y-%m-%d}", f"{now:%H}", now, spot=spot)
    DynamoTable(partial(client, "dynamodb"), TABLE).put(COST, hour)
    assert run(["types", "-f", str(pool), "-o", "wide", "--cluster", "shop"]) == 0
    shown_wide = capsys.readouterr().out
    assert "3 in us-east-1a, 1 in us-east-1b" in shown_wide
    assert "3 in 412 h" in shown_wide
    assert run(["types", "-f", str(pool), "-o", "wide"]) == 0
    assert " in 412 h" not in capsys.readouterr().out
    assert run(["select", "-f", str(pool), "--pods", str(pods)]) == 0
    shown = capsys.readouterr()
    assert "reserved" in shown.out
    assert "no annotation leeway.sh/do-not-disrupt of pods; did you mean karpenter.sh" in shown.err
    assert run(["select", "-f", str(pool), "--pods", str(pods), "--sandbox"]) == 1
    assert "reservations are not read: --sandbox reads no account" in capsys.readouterr().err


def test_a_table_that_refuses_is_told_before_ec2_is_read(
    aws: Sandbox, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = [
        {"service": "dynamodb", "action": "GetItem", "error": "AccessDeniedException"},
        {"service": "ec2", "action": "DescribeInstanceTypes", "error": "UnauthorizedOperation"},
    ]
    aws.control("PUT", "faults", {"faults": [{**one, "status": 400} for one in faults]})
    assert run(["types"]) == 1
    warning, reading, error = capsys.readouterr().err.splitlines()
    assert warning.startswith("warning: the catalog of us-east-1 in the table is not read: ")
    assert "may not call GetItem" in warning
    assert reading == "Reading the catalog of us-east-1 from EC2."
    assert "DescribeInstanceTypes" in error
