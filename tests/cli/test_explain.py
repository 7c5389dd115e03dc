"""`leeway explain`: the plan for a notice, and the errors of invalid events."""

import io
import json
import sys
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from leeway_cli import main

from tests.sandbox.kubernetes.live import PODS, Live, bare_pod

EVENTS = Path(__file__).parents[2] / "events"


@pytest.fixture(autouse=True)
def without_an_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the AWS settings of this machine from the environment."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")


def test_an_interruption_is_explained_without_aws_or_a_cluster(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.run(["explain", str(EVENTS / "spot-interruption.json"), "-o", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["notice"]["kind"] == "spot-interruption"
    assert plan["policy"]["action"] == "retire"
    assert plan["policy"]["deadline"] == "2026-11-20T09:47:07+00:00"
    assert "EC2 was not read" in plan["instances"][0]["replacementReason"]


def test_with_a_cluster_every_pod_has_a_decision_and_a_latest_time(
    live: Live, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (node,) = live.add_nodes(1)
    live.create(PODS, bare_pod("web", nodeName=node, terminationGracePeriodSeconds=30))
    event = json.loads((EVENTS / "spot-interruption.json").read_text())
    event["detail"]["instance-id"] = f"i-{0:017x}"
    path = tmp_path / "event.json"
    path.write_text(json.dumps(event))
    assert (
        main.run(["explain", str(path), "--kubeconfig", str(live.kubeconfig()), "-o", "json"]) == 0
    )
    (instance,) = json.loads(capsys.readouterr().out)["instances"]
    assert instance["node"] == node
    (pod,) = instance["pods"]
    assert (pod["pod"], pod["decision"]) == ("default/web", "evict")
    assert pod["latestMoment"] == "2026-11-20T09:46:37+00:00"
    assert pod["warning"] == "no controller creates it again"


def test_the_table_shows_the_same_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["explain", str(EVENTS / "state-change-running.json")]) == 0
    printed = capsys.readouterr().out
    assert "The instance is running: the marks of an earlier retirement" in printed


def explained(event: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    assert main.run(["explain", str(event), "-o", "json", *more]) == 0
    plan: dict[str, Any] = json.loads(capsys.readouterr().out)
    return plan


@pytest.mark.parametrize(
    ("event", "decision"),
    [
        ("spot-interruption.json", "retire"),
        ("spot-interruption-hibernate.json", "retire"),
        ("rebalance-recommendation.json", "retire"),
        ("capacity-reservation-interruption.json", "retire"),
        ("terminate-lifecycle-action.json", "retire"),
        ("state-change-shutting-down.json", "retire"),
        ("state-change-running.json", "undo"),
        ("scheduled-change.json", "schedule"),
        ("scheduled-change-cancelled.json", "undo"),
        ("launch-lifecycle-action.json", "admit"),
    ],
)
def test_every_kind_of_notice_has_a_decision_with_a_reason(
    event: str, decision: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = explained(EVENTS / event, capsys)
    assert plan["instances"]
    for instance in plan["instances"]:
        assert instance["decision"] == decision
        assert instance["reason"]
        assert instance["policy"]["source"] == "defaults"


def test_a_health_event_is_explained_for_each_of_its_instances(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = explained(EVENTS / "scheduled-change.json", capsys)
    assert len(plan["instances"]) > 1
    for instance in plan["instances"]:
        begins = datetime.fromisoformat(instance["beginsAt"])
        effective = datetime.fromisoformat(plan["notice"]["effectiveAt"])
        assert effective - begins == timedelta(hours=4)
        assert datetime.fromisoformat(instance["policy"]["deadline"]) > begins


def test_a_test_notification_is_ignored(capsys: pytest.CaptureFixture[str]) -> None:
    plan = explained(EVENTS / "lifecycle-test-notification.json", capsys)
    assert plan["policy"]["action"] == "ignore"
    assert plan["instances"] == []


CLUSTER = """apiVersion: leeway.sh/v1
kind: Cluster
metadata: {name: prod}
spec:
  paused: true
  notices:
    rebalance: {deadline: 10m, onBlocked: delete, replacement: none}
    spot-interruption: {action: ignore}
"""


def test_a_cluster_manifest_changes_what_is_planned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = tmp_path / "cluster.yaml"
    manifest.write_text(CLUSTER)
    event = EVENTS / "rebalance-recommendation.json"
    plan = explained(event, capsys, "-f", str(manifest))
    (instance,) = plan["instances"]
    assert instance["policy"]["source"] == str(manifest)
    assert instance["policy"]["onBlocked"] == "delete"
    shown = datetime.fromisoformat(plan["notice"]["time"])
    assert datetime.fromisoformat(instance["policy"]["deadline"]) - shown == timedelta(minutes=10)
    assert any("is paused" in remark for remark in instance["remarks"])
    ignored = explained(EVENTS / "spot-interruption.json", capsys, "-f", str(manifest))
    assert ignored["instances"][0]["decision"] == "ignore"


def test_a_file_without_a_cluster_manifest_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = tmp_path / "cluster.yaml"
    manifest.write_text("apiVersion: leeway.sh/v1\nkind: Clutser\nmetadata: {name: prod}\n")
    event = str(EVENTS / "spot-interruption.json")
    assert main.run(["explain", event, "-f", str(manifest)]) == 2
    assert str(manifest) in capsys.readouterr().err


def test_a_node_whose_owner_drains_it_is_left_to_the_owner(
    live: Live, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    live.add_nodes(9, **{"eks.amazonaws.com/compute-type": "auto"})
    event = json.loads((EVENTS / "spot-interruption.json").read_text())
    event["detail"]["instance-id"] = f"i-{8:017x}"
    path = tmp_path / "event.json"
    path.write_text(json.dumps(event))
    plan = explained(path, capsys, "--kubeconfig", str(live.kubeconfig()))
    assert plan["instances"][0]["decision"] == "leave-to-owner"
    assert "auto-mode" in plan["instances"][0]["reason"]


def test_a_workload_that_surges_is_shown_with_its_reason(
    live: Live, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    live.add_nodes(21, surging="yes")
    live.api.post("/api/v1/namespaces", json={"metadata": {"name": "surging"}})
    for name, asked in (("web", "true"), ("quiet", "false")):
        labels = {"app": name}
        containers = [{"name": "app", "image": "app:1"}]
        spec = {"containers": containers, "nodeSelector": {"surging": "yes"}}
        template = {"metadata": {"labels": labels}, "spec": spec}
        deployment = {
            "metadata": {"name": name, "annotations": {"leeway.sh/surge": asked}},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
        }
        limits = {"minAvailable": 1, "selector": {"matchLabels": labels}}
        budget = {"metadata": {"name": name}, "spec": limits}
        live.create("/apis/apps/v1/namespaces/surging/deployments", deployment)
        live.create("/apis/policy/v1/namespaces/surging/poddisruptionbudgets", budget)

    def ready(name: str) -> bool:
        found = live.api.get(f"/apis/apps/v1/namespaces/surging/deployments/{name}").json()
        return bool(found["status"].get("readyReplicas"))

    for name in ("web", "quiet"):
        live.until(partial(ready, name))
    pods = live.api.get("/api/v1/namespaces/surging/pods").json()["items"]
    (web,) = (one for one in pods if one["metadata"]["labels"]["app"] == "web")
    node = live.api.get(f"/api/v1/nodes/{web['spec']['nodeName']}").json()
    event = json.loads((EVENTS / "rebalance-recommendation.json").read_text())
    event["detail"]["instance-id"] = node["spec"]["providerID"].rpartition("/")[2]
    path = tmp_path / "event.json"
    path.write_text(json.dumps(event))
    plan = explained(path, capsys, "--kubeconfig", str(live.kubeconfig()))
    name = f"surging/{web['metadata']['name']}"
    (remark,) = (one for one in plan["instances"][0]["remarks"] if "surging/" in one)
    what = "Deployment surging/web gets one more pod before this pod is evicted"
    assert remark == f"Pod {name}: {what}. Its budget allows no eviction."
    live.api.delete("/api/v1/namespaces/surging")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "expected JSON"),
        ("[]", "expected a JSON object, got list"),
        ('{"source": "aws.ec2", "detail-type": "any"}', "field required"),
        ('{"instance": "i-0b662ef9931388ba0"}', "expected an EventBridge event"),
        ("", "the file is empty"),
        (b"\xff\xfe", "UTF-8"),
    ],
)
def test_an_invalid_event_is_one_line_that_names_the_file(
    content: str | bytes, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "event.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert main.run(["explain", str(path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"leeway: {path}")
    assert words in printed.err
    assert printed.err.count("\n") == 1


def test_an_event_is_read_from_stdin(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    event = (EVENTS / "spot-interruption.json").read_bytes()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(event)))
    assert main.run(["explain", "-", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["notice"]["kind"] == "spot-interruption"
    assert main.run(["explain", str(EVENTS)]) == 2
    assert f"{EVENTS}: expected a file, is a folder" in capsys.readouterr().err
