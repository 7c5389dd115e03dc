"""`leeway drain` on a cluster: the refusals of kubectl, the deadline and the output."""

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from leeway_cli import main

from tests.sandbox.kubernetes.live import PODS, Live, bare_pod, budget

NUMBERS = count(1)
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


@pytest.fixture
def node(live: Live) -> str:
    """A node whose label `only` is its own name's first part."""
    number = next(NUMBERS)
    (name,) = live.add_nodes(number, only=f"ip-10-0-0-{number}")
    return name


def deploy(live: Live, node: str, name: str, replicas: int = 2, **spec: Any) -> None:
    """Run a Deployment on this node and on no other."""
    settings = {
        "terminationGracePeriodSeconds": 1,
        "nodeSelector": {"only": node.partition(".")[0]},
        **spec,
    }
    live.deploy(name, replicas, spec=settings)


def drain(live: Live, node: str, *more: str) -> int:
    """Run the command."""
    return main.run(["drain", node, "--kubeconfig", str(live.kubeconfig()), *more])


def is_cordoned(live: Live, node: str) -> bool:
    return bool(live.api.get(f"/api/v1/nodes/{node}").json()["spec"].get("unschedulable"))


def pin(live: Live, node: str, name: str, **spec: Any) -> None:
    live.create(PODS, bare_pod(name, nodeName=node, **spec))
    live.until(lambda: live.api.get(f"{PODS}/{name}").json()["status"].get("phase") == "Running")


def test_a_node_is_cordoned_and_its_pods_are_evicted(
    live: Live, node: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pin(live, node, "alone", terminationGracePeriodSeconds=1)
    assert drain(live, node, "--force") == 0
    assert is_cordoned(live, node)
    printed = capsys.readouterr()
    assert printed.out == f"node/{node} drained\n"
    assert "Warning: deleting Pods that declare no controller: default/alone" in printed.err
    assert "evicting pod default/alone\n" in printed.err
    assert "pod/default/alone evicted\n" in printed.err
    assert live.api.get(f"{PODS}/alone").status_code == 404


def test_a_dry_run_prints_the_plan_and_changes_nothing(
    live: Live, node: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pin(live, node, "dry", terminationGracePeriodSeconds=300)
    assert drain(live, node, "--force", "--dry-run", "--deadline", "2m", "-o", "json") == 0
    plan = json.loads(capsys.readouterr().out)
    (pod,) = plan["pods"]
    assert (pod["pod"], pod["decision"]) == ("default/dry", "evict")
    assert 115 <= pod["gracePeriodSeconds"] <= 120
    assert pod["latestMoment"]
    assert not is_cordoned(live, node)


def test_a_blocked_pod_is_deleted_at_its_latest_time_with_on_blocked_delete(
    live: Live, node: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # The pod has its whole grace to end in, also on a busy machine, and needs a moment of it.
    deploy(live, node, "guarded", 1, terminationGracePeriodSeconds=30)
    live.create(BUDGETS, budget("guarded", "guarded", minAvailable=1))
    assert drain(live, node, "--deadline", "34s", "--on-blocked", "delete", "-o", "json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["drained"] is True
    (pod,) = [p for p in report["pods"] if p["pod"].startswith("default/guarded")]
    assert pod["method"] == "delete"
    assert "budget guarded" in pod["reason"]["message"]


def test_a_blocked_pod_fails_the_drain_by_default_and_its_budget_is_named(
    live: Live, node: str, capsys: pytest.CaptureFixture[str]
) -> None:
    deploy(live, node, "held", 1)
    live.create(BUDGETS, budget("held", "held", minAvailable=1))
    assert drain(live, node, "--deadline", "4s") == 1
    assert "budget held" in capsys.readouterr().err.splitlines()[-1]
    assert live.running("app=held")


def test_pods_that_tolerate_all_taints_are_evicted_once_and_reported_when_they_return(
    live: Live, node: str, capsys: pytest.CaptureFixture[str]
) -> None:
    deploy(live, node, "clingy", 2, tolerations=[{"operator": "Exists"}])
    assert drain(live, node) == 0
    printed = capsys.readouterr().err
    assert "The pod came back after the cordon" in printed
    assert "operator Exists for every key" in printed
    deletions = [e for e in live.journal("pod-deletion") if e["node"] == node]
    assert [e["via"] for e in deletions] == ["eviction", "eviction"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["no-such-node"], 1, "The cluster has no node no-such-node."),
        (["x", "--deadline", "soon"], 2, "--deadline: expected a duration such as 90s or 1h30m"),
        (["x", "--on-blocked", "explode"], 2, "--on-blocked"),
    ],
)
def test_a_failure_is_one_line(
    live: Live,
    arguments: list[str],
    code: int,
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert drain(live, arguments[0], *arguments[1:]) == code
    printed = capsys.readouterr().err
    assert words in printed
    assert printed.count("\n") == 1


def test_an_invalid_kubeconfig_is_reported_with_its_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("not: [a kubeconfig")
    assert main.run(["drain", "x", "--kubeconfig", str(path)]) == 2
    printed = capsys.readouterr().err
    assert str(path) in printed
    assert printed.count("\n") == 1


@pytest.mark.parametrize("more", [("--dry-run",), ("--force",)])
def test_control_characters_in_an_owners_name_have_no_effect_on_the_terminal(
    live: Live, node: str, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    name = "a\n\x1b[31mnode/other drained\u202e"
    body = bare_pod(f"odd-{len(more[0])}", nodeName=node, terminationGracePeriodSeconds=1)
    uid = live.api.get(f"/api/v1/nodes/{node}").json()["metadata"]["uid"]
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": uid}
    body["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    live.create(PODS, body)
    assert drain(live, node, *more) in (0, 1)
    printed = capsys.readouterr()
    assert (printed.out + printed.err).replace("\n", "").isprintable()
    assert "node/other drained" not in printed.out.splitlines()
