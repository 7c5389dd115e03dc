"""Changes on the node, or of the machine with its name, during `leeway drain`."""

import threading
import uuid
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from leeway.retirement.reasons import NODE_NAME_REUSED
from leeway_cli import main

from tests.sandbox.kubernetes.live import PODS, Live, bare_pod, budget

NUMBERS = count(1)
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
NODES = "/api/v1/nodes"
LOCAL = [{"name": "tmp", "emptyDir": {}}]


@pytest.fixture
def node(live: Live) -> Iterator[str]:
    (name,) = live.add_nodes(next(NUMBERS))
    yield name
    live.fail_with()


def run(live: Live, node: str, name: str, owned: bool = False, **more: Any) -> None:
    """Put a pod on the node, of no controller or of one that the cluster does not know."""
    finalizers = more.pop("finalizers", [])
    body = bare_pod(name, nodeName=node, terminationGracePeriodSeconds=1, **more)
    # The garbage collector leaves a pod whose owner is of a kind that it does not know.
    owner = {"apiVersion": "example.com/v1", "kind": "Set", "name": name, "controller": True}
    body["metadata"] |= {
        "labels": {"app": name},
        "finalizers": finalizers,
        "ownerReferences": [owner | {"uid": str(uuid.uuid4())}] if owned else [],
    }
    live.create(PODS, body)
    live.until(lambda: live.api.get(f"{PODS}/{name}").json()["status"].get("phase") == "Running")


def meanwhile(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def drain(live: Live, node: str, *more: str) -> int:
    return main.run(["drain", node, "--kubeconfig", str(live.kubeconfig()), *more])


def exists(live: Live, pod: str) -> bool:
    return live.api.get(f"{PODS}/{pod}").status_code == 200


def patches(live: Live) -> int:
    calls = live.control.get("/_sandbox/status").json()["calls"]
    return sum(counts.get("patch nodes", 0) for counts in calls.values())


@pytest.mark.parametrize(
    ("flags", "spec", "lacks"),
    [
        ((), {}, "--force"),
        (("--ignore-daemonsets",), {"owned": True, "volumes": LOCAL}, "--delete-emptydir-data"),
    ],
)
def test_the_flags_apply_to_a_pod_that_appears_during_the_cordon(
    live: Live,
    node: str,
    flags: tuple[str, ...],
    spec: dict[str, Any],
    lacks: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    suffix = node.partition(".")[0]
    run(live, node, f"usual-{suffix}", owned=True)
    live.fail_with({"verb": "patch", "resource": "nodes", "latency": 1.5})
    before = patches(live)

    def appear() -> None:
        live.until(lambda: patches(live) > before)
        run(live, node, f"late-{suffix}", **spec)

    appearing = meanwhile(appear)
    assert drain(live, node, *flags, "--timeout", "60s") == 1
    appearing.join()
    last = capsys.readouterr().err.splitlines()[-1]
    assert f"default/late-{suffix}: The pod appeared during the drain" in last
    assert f"needs {lacks}" in last
    assert exists(live, f"late-{suffix}")
    assert not exists(live, f"usual-{suffix}"), "the other pods are evicted"


def test_the_flags_apply_to_a_pod_that_appears_while_a_budget_blocks(
    live: Live, node: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(live, node, "guarded", owned=True)
    live.create(BUDGETS, budget("guarded", "guarded", maxUnavailable=0))

    def appear() -> None:
        live.until(lambda: [e for e in live.journal("eviction") if e["pod"] == "default/guarded"])
        run(live, node, "late")

    appearing = meanwhile(appear)
    assert drain(live, node, "--timeout", "10s") == 1
    appearing.join()
    assert "default/late: The pod appeared during the drain, and evicting it needs --force" in (
        capsys.readouterr().err
    )
    assert exists(live, "late")
    assert not [e for e in live.journal("eviction") if e["pod"] == "default/late"]


def test_with_the_flags_a_pod_that_appears_later_is_evicted_too(live: Live, node: str) -> None:
    run(live, node, "allowed-guarded")
    live.create(BUDGETS, budget("allowed", "allowed-guarded", maxUnavailable=0))

    def appear() -> None:
        live.until(lambda: [e for e in live.journal("eviction") if "allowed-guarded" in e["pod"]])
        late = bare_pod("allowed-late", nodeName=node, terminationGracePeriodSeconds=1)
        live.create(PODS, {**late, "spec": {**late["spec"], "volumes": LOCAL}})
        live.until(lambda: not exists(live, "allowed-late"))
        live.api.delete(f"{BUDGETS}/allowed")

    appearing = meanwhile(appear)
    assert drain(live, node, "--force", "--timeout", "90s") == 0
    appearing.join()


@pytest.mark.parametrize("more", [(), ("--deadline", "60s", "--on-blocked", "wait")])
def test_the_pods_of_another_machine_with_the_nodes_name_are_not_evicted(
    live: Live, node: str, more: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    suffix = f"{node.partition('.')[0]}-{len(more)}"
    run(live, node, f"stuck-{suffix}", finalizers=["example.com/never"])
    theirs = [f"theirs-{suffix}-{number}" for number in range(3)]

    def replace_machine() -> None:
        live.until(
            lambda: "deletionTimestamp" in live.api.get(f"{PODS}/stuck-{suffix}").json()["metadata"]
        )
        found = live.api.get(f"{NODES}/{node}").json()
        assert live.api.delete(f"{NODES}/{node}").status_code == 200
        live.create(
            NODES,
            {
                "metadata": {"name": node, "labels": found["metadata"]["labels"]},
                "spec": {"providerID": "aws:///us-east-1a/i-0123456789abcdef0"},
                "status": found["status"],
            },
        )
        for name in theirs:
            live.create(PODS, bare_pod(name, nodeName=node, terminationGracePeriodSeconds=1))

    replacing = meanwhile(replace_machine)
    assert drain(live, node, "--force", "--timeout", "90s", *more) == 1
    replacing.join()
    printed = capsys.readouterr().err
    assert f"default/stuck-{suffix}: Another machine has the name of the node now" in printed
    requested = {e["pod"] for kind in ("eviction", "pod-deletion") for e in live.journal(kind)}
    assert not requested & {f"default/{name}" for name in theirs}
    assert all(exists(live, name) for name in theirs)
    assert not live.api.get(f"{NODES}/{node}").json()["spec"].get("unschedulable")


def test_another_machine_with_the_name_before_the_first_list_is_not_drained(
    live: Live, node: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert live.patch(f"{NODES}/{node}", {"spec": {"unschedulable": True}}).status_code == 200
    before = lists(live)
    # The list by which the drain is decided is answered late, and the next one after the change.
    live.fail_with({"verb": "list", "resource": "pods", "latency": 1.0, "count": 2})
    name = f"theirs-{node.partition('.')[0]}"

    def replace_machine() -> None:
        live.until(lambda: lists(live) > before + 1)
        found = live.api.get(f"{NODES}/{node}").json()
        assert live.api.delete(f"{NODES}/{node}").status_code == 200
        live.create(NODES, {"metadata": {"name": node}, "status": found["status"]})
        live.create(PODS, bare_pod(name, nodeName=node, terminationGracePeriodSeconds=1))

    replacing = meanwhile(replace_machine)
    assert drain(live, node, "--force", "--timeout", "60s") == 1
    replacing.join()
    printed = capsys.readouterr()
    assert printed.out == f"node/{node} not drained\n"
    assert printed.err.splitlines()[-1].endswith(f"is not drained: {NODE_NAME_REUSED()}")
    assert exists(live, name)
    assert not [e for e in live.journal("eviction") if e["pod"] == f"default/{name}"]


def lists(live: Live) -> int:
    calls = live.control.get("/_sandbox/status").json()["calls"]
    return sum(counts.get("list pods", 0) for counts in calls.values())


def test_another_machine_with_the_name_before_the_cordon_is_not_cordoned(
    live: Live, node: str, capsys: pytest.CaptureFixture[str]
) -> None:
    live.fail_with({"verb": "patch", "resource": "nodes", "latency": 1.0, "count": 1})
    before = patches(live)

    def replace_machine() -> None:
        live.until(lambda: patches(live) > before)
        found = live.api.get(f"{NODES}/{node}").json()
        assert live.api.delete(f"{NODES}/{node}").status_code == 200
        live.create(NODES, {"metadata": {"name": node}, "status": found["status"]})

    replacing = meanwhile(replace_machine)
    assert drain(live, node) == 1
    replacing.join()
    assert f"node {node} is gone" in capsys.readouterr().err
    assert not live.api.get(f"{NODES}/{node}").json()["spec"].get("unschedulable")
