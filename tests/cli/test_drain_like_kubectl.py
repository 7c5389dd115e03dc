"""`leeway drain` has the options of `kubectl drain`, compared with kubectl if it is installed."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from leeway_cli import main

from tests.sandbox.kubernetes.live import PODS, Live, bare_pod, budget

NUMBERS = count(1)
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
ORPHAN = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "name": "gone",
    "controller": True,
    "uid": "00000000-0000-0000-0000-000000000000",
}
LOCAL = [{"name": "tmp", "emptyDir": {}}]

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl on the PATH")


@pytest.fixture
def node(live: Live) -> str:
    (name,) = live.add_nodes(next(NUMBERS))
    return name


def drain(live: Live, *arguments: str) -> int:
    return main.run(["drain", *arguments, "--kubeconfig", str(live.kubeconfig())])


def kubectl(live: Live, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["kubectl", "--kubeconfig", str(live.kubeconfig()), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def run(
    live: Live,
    node: str,
    name: str,
    labels: dict[str, str] | None = None,
    owner: dict[str, Any] | None = None,
    finalizers: list[str] | None = None,
    **spec: Any,
) -> None:
    """Put a pod of no controller, or of this one, on the node."""
    body = bare_pod(name, nodeName=node, terminationGracePeriodSeconds=1, **spec)
    body["metadata"] |= {
        "labels": labels or {},
        "ownerReferences": [owner] if owner else [],
        "finalizers": finalizers or [],
    }
    live.create(PODS, body)
    live.until(lambda: live.api.get(f"{PODS}/{name}").json()["status"].get("phase") == "Running")


def is_cordoned(live: Live, node: str) -> bool:
    return bool(live.api.get(f"/api/v1/nodes/{node}").json()["spec"].get("unschedulable"))


def exists(live: Live, pod: str) -> bool:
    return live.api.get(f"{PODS}/{pod}").status_code == 200


def named(text: str) -> dict[str, set[str]]:
    """The pods that a refusal names, by the flag that would allow them."""
    found = re.findall(r"\(use (--[a-z-]+) to (?:override|ignore)\): ((?:[\w./-]+(?:, )?)+)", text)
    return {flag: set(pods.rstrip("., ").split(", ")) for flag, pods in found}


@needs_kubectl
def test_every_option_of_kubectl_drain_is_supported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = subprocess.run(
        ["kubectl", "drain", "--help"], capture_output=True, text=True, check=True
    )
    options = set(re.findall(r"--[a-z-]+(?==)", theirs.stdout.partition("Options:")[2]))
    monkeypatch.setenv("COLUMNS", "200")
    assert main.run(["drain", "--help"]) == 0
    ours = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    assert len(options) > 10
    assert options <= ours


@needs_kubectl
@pytest.mark.parametrize("flags", [(), ("--delete-emptydir-data",), ("--ignore-daemonsets",)])
def test_the_same_pods_are_refused_without_the_same_flags(
    live: Live, node: str, flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    suffix = node.partition(".")[0]
    run(live, node, f"alone-{suffix}")
    run(live, node, f"local-{suffix}", volumes=LOCAL)
    run(
        live,
        node,
        f"owned-{suffix}",
        owner=ORPHAN | {"apiVersion": "example.com/v1", "kind": "Set"},
        volumes=LOCAL,
    )
    assert drain(live, node, *flags) == 1
    ours = capsys.readouterr().err
    assert not is_cordoned(live, node), "kubectl cordons what it then refuses"
    theirs = kubectl(live, "drain", node, *flags)
    assert theirs.returncode == 1
    last = theirs.stderr.partition("pending nodes")[2]
    assert named(ours) == named(last.replace("\n", "; "))
    assert named(ours)


@needs_kubectl
def test_the_same_pods_have_a_warning_and_are_evicted(
    live: Live, node: str, capsys: pytest.CaptureFixture[str]
) -> None:
    suffix = node.partition(".")[0]
    for name in ("one", "two"):
        run(live, node, f"{name}-{suffix}", volumes=LOCAL if name == "two" else [])
    flags = ("--force", "--delete-emptydir-data")
    theirs = kubectl(live, "drain", node, *flags, "--dry-run=client")
    assert drain(live, node, *flags) == 0
    ours = capsys.readouterr().err
    warned = re.compile(r"deleting Pods that declare no controller: ([^;\n]*)")
    assert warned.findall(ours) == warned.findall(theirs.stderr)
    evicted = re.compile(r"evicting pod (\S+)")
    assert set(evicted.findall(ours)) == set(evicted.findall(theirs.stdout))


def test_a_refused_node_does_not_block_the_other_nodes(
    live: Live, capsys: pytest.CaptureFixture[str]
) -> None:
    refused, first, second = live.add_nodes(*(next(NUMBERS) for _ in range(3)))
    run(live, refused, "keeper")
    assert drain(live, first, refused, second) == 1
    printed = capsys.readouterr()
    assert printed.out == f"node/{first} drained\nnode/{second} drained\n"
    assert (
        f"node {refused} is not drained: cannot delete Pods that declare no controller"
        in (printed.err.splitlines()[-1])
    )
    assert [is_cordoned(live, name) for name in (first, refused, second)] == [True, False, True]


def test_nodes_are_selected_by_labels(live: Live, capsys: pytest.CaptureFixture[str]) -> None:
    names = live.add_nodes(next(NUMBERS), next(NUMBERS), pool="old")
    (other,) = live.add_nodes(next(NUMBERS), pool="new")
    assert drain(live, "-l", "pool=old", "-o", "json") == 0
    report = json.loads(capsys.readouterr().out)
    assert {(n["node"], n["drained"]) for n in report["nodes"]} == {(n, True) for n in names}
    assert [is_cordoned(live, n) for n in (*names, other)] == [True, True, False]
    assert drain(live, "-l", "pool=none") == 0
    assert capsys.readouterr().err.endswith("No node has the labels pool=none.\n")


def test_pods_are_selected_by_labels(live: Live, node: str) -> None:
    run(live, node, "chosen", labels={"app": "chosen"})
    run(live, node, "not-chosen")
    assert drain(live, node, "--force", "--pod-selector", "app=chosen") == 0
    assert not exists(live, "chosen")
    assert exists(live, "not-chosen")


def test_disable_eviction_deletes_pods_past_their_budgets(live: Live, node: str) -> None:
    run(live, node, "guarded", labels={"app": "guarded"})
    live.create(BUDGETS, budget("guarded", "guarded", maxUnavailable=0))
    assert drain(live, node, "--force", "--timeout", "2s") == 1
    assert exists(live, "guarded")
    assert drain(live, node, "--force", "--disable-eviction") == 0
    assert not exists(live, "guarded")
    deletions = [e["via"] for e in live.journal("pod-deletion") if e["pod"] == "default/guarded"]
    assert deletions == ["delete"]


def test_a_drain_stops_after_its_timeout_and_names_the_remaining_pods(
    live: Live, node: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(live, node, "stuck", finalizers=["example.com/never"])
    assert drain(live, node, "--force", "--timeout", "2s") == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert "global timeout reached" in last
    assert "default/stuck" in last


def test_a_drain_waits_for_an_eviction_that_the_api_server_holds_at_its_timeout(
    live: Live, node: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(live, node, "held")
    live.fail_with({"verb": "create", "resource": "pods/eviction", "hold": 3})
    started = time.monotonic()
    assert drain(live, node, "--force", "--timeout", "1s", "-o", "json") == 1
    lasted = time.monotonic() - started
    live.fail_with()
    (pod,) = json.loads(capsys.readouterr().out)["pods"]
    assert (pod["stage"], pod["attempts"]) == ("terminating", 1)
    assert lasted >= 3


def test_a_pod_with_an_overdue_deletion_is_skipped_with_the_option(live: Live, node: str) -> None:
    run(live, node, "overdue", finalizers=["example.com/never"])
    assert live.api.delete(f"{PODS}/overdue").status_code == 200
    assert drain(live, node, "--force", "--timeout", "3s") == 1
    assert drain(live, node, "--force", "--skip-wait-for-delete-timeout", "1") == 0


def test_lists_are_read_in_pages_of_any_size(live: Live, node: str) -> None:
    names = [f"paged-{number}" for number in range(5)]
    for name in names:
        run(live, node, name)
    assert drain(live, node, "--force", "--chunk-size", "2") == 0
    assert not any(exists(live, name) for name in names)


def test_the_option_grace_period_replaces_the_grace_periods_of_pods(live: Live, node: str) -> None:
    run(live, node, "graceful")
    assert drain(live, node, "--force", "--grace-period", "2") == 0
    (deletion,) = [e for e in live.journal("pod-deletion") if e["pod"] == "default/graceful"]
    assert deletion["grace"] == 2


@pytest.mark.parametrize("how", ["client", "server"])
def test_every_dry_run_mode_changes_nothing(
    live: Live, node: str, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"dry-{node.partition('.')[0]}"
    run(live, node, name, labels={"app": name})
    live.create(BUDGETS, budget(name, name, maxUnavailable=0))
    assert drain(live, node, "--force", "-o", "json", f"--dry-run={how}") == 0
    (pod,) = json.loads(capsys.readouterr().out)["pods"]
    assert (pod["pod"], pod["decision"]) == (f"default/{name}", "evict")
    if how == "server":
        assert f"disruption budget {name} " in pod["answer"]
    assert not is_cordoned(live, node)
    assert live.api.get(f"{PODS}/{name}").json()["metadata"].get("deletionTimestamp") is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "expected either names of nodes or a --selector"),
        (("some-node", "-l", "pool=old"), "expected either names of nodes or a --selector"),
        (("-l", "!!"), "--selector"),
        (("some-node", "--dry-run=perhaps"), "--dry-run"),
        (("some-node", "--timeout", "soon"), "--timeout"),
    ],
)
def test_contradictory_or_invalid_options_are_bad_input(
    live: Live, arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert drain(live, *arguments) == 2
    printed = capsys.readouterr().err
    assert words in printed
    assert printed.count("\n") == 1


def test_names_and_flags_in_the_forms_of_kubectl_are_accepted(
    live: Live, node: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(live, node, "kept")
    assert drain(live, f"node/{node}", "--force=false") == 1
    assert not is_cordoned(live, node)
    assert drain(live, f"nodes/{node}", node, "--force=true", "--timeout=30s") == 0
    assert capsys.readouterr().out == f"node/{node} drained\n"
    assert drain(live, "pod/kept") == 2
    assert "NODE: expected the name of a node, got pod/kept" in capsys.readouterr().err


def test_an_interrupted_drain_names_the_nodes_that_stay_cordoned(live: Live, node: str) -> None:
    run(live, node, "lasting", finalizers=["example.com/never"])
    command = [sys.executable, "-m", "leeway_cli", "drain", node, "--force"]
    with subprocess.Popen(
        [*command, "--kubeconfig", str(live.kubeconfig())],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that starts the tests in the background lets them ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as draining:
        live.until(lambda: "deletionTimestamp" in live.api.get(f"{PODS}/lasting").text)
        draining.send_signal(signal.SIGINT)
        out, err = draining.communicate(timeout=60)
    assert (draining.returncode, out) == (130, "")
    assert err.splitlines()[-2:] == [
        f"node/{node} stays cordoned: kubectl uncordon {node}",
        "leeway: The command was interrupted.",
    ]


def test_a_pipe_gets_one_line_for_each_pod(
    live: Live, node: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "a-pod-of-a-name-that-is-longer-than-half-a-terminal-is-wide"
    run(live, node, name)
    assert drain(live, node, "--force", "--dry-run") == 0
    (line,) = [one for one in capsys.readouterr().out.splitlines() if name in one]
    assert "evict" in line


@pytest.mark.parametrize(
    ("place", "value", "printed"),
    [
        (("users", "user", "token"), "expired", "rejected the credentials of the kubeconfig (401"),
        (
            ("clusters", "cluster", "server"),
            "https://127.0.0.1:9",
            "no answer from https://127.0.0.1:9: ConnectError: ",
        ),
    ],
)
def test_an_unavailable_api_server_and_rejected_credentials_are_one_line(
    live: Live,
    place: tuple[str, str, str],
    value: str,
    printed: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    part, inner, field = place
    document = json.loads(live.kubeconfig().read_text())
    document[part][0][inner][field] = value
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(document))
    assert main.run(["drain", "any", "--kubeconfig", str(path)]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.count("ConnectError") <= 1
    assert printed in err


@needs_kubectl
def test_a_pod_with_two_budgets_ends_the_drain_immediately(
    live: Live, node: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(live, node, "twice", labels={"app": "twice"})
    for name in ("first", "second"):
        live.create(BUDGETS, budget(name, "twice", maxUnavailable=1))
    theirs = kubectl(live, "drain", node, "--force")
    assert theirs.returncode == 1
    assert drain(live, node, "--force") == 1
    printed = capsys.readouterr().err.splitlines()[-1]
    assert (
        "default/twice: More than one PodDisruptionBudget selects the pod (first, second)"
        in printed
    )
    assert exists(live, "twice")


def test_a_refused_node_is_in_the_json_result(
    live: Live, capsys: pytest.CaptureFixture[str]
) -> None:
    first, refused = live.add_nodes(next(NUMBERS), next(NUMBERS))
    run(live, refused, "kept-of-two")
    both, one = (first, refused), (refused,)
    for arguments in (both, one, (*both, "--dry-run"), (*one, "--dry-run")):
        assert drain(live, *arguments, "-o", "json") == 1
        report = json.loads(capsys.readouterr().out)
        nodes = {one["node"]: one for one in report.get("nodes", [report])}
        assert "default/kept-of-two" in nodes[refused]["refused"]
        assert not nodes[refused].get("drained")
        assert "refused" not in nodes.get(first, {})
        assert nodes.keys() == {one for one in arguments if not one.startswith("-")}
        assert "default/kept-of-two" in report["error"]["message"]
        assert "default/kept-of-two" in report["error"]["message"]
