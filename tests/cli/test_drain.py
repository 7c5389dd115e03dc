"""`leeway drain` on a cluster: the refusals and options of kubectl, compared with kubectl if it is
installed, the deadline, the output, and changes on the node during a drain."""

import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from leeway.retirement.reasons import NODE_NAME_REUSED
from leeway_cli import main

from tests.sandbox.kubernetes.live import BUDGETS, PODS, Live, bare_pod, budget

NUMBERS = count(1)
NODES = "/api/v1/nodes"
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
def node(live: Live) -> Iterator[str]:
    """A node whose label `only` is its own name's first part."""
    number = next(NUMBERS)
    (name,) = live.add_nodes(number, only=f"ip-10-0-0-{number}")
    yield name
    live.fail_with()


def deploy(
    live: Live, node: str, name: str, replicas: int = 2, ends_after: str = "500ms", **spec: Any
) -> None:
    """Run a Deployment on this node and on no other."""
    settings = {
        "terminationGracePeriodSeconds": 1,
        "nodeSelector": {"only": node.partition(".")[0]},
        **spec,
    }
    annotations = {"sandbox.leeway.sh/ends-after": ends_after}
    live.deploy(name, replicas, spec=settings, annotations=annotations)


def run(
    live: Live,
    node: str,
    name: str,
    owner: dict[str, Any] | None = None,
    finalizers: list[str] | None = None,
    ends_after: str = "500ms",
    **spec: Any,
) -> None:
    """Put a pod of no controller, or of this one, on the node."""
    body = bare_pod(name, nodeName=node, **{"terminationGracePeriodSeconds": 1, **spec})
    body["metadata"] |= {
        "labels": {"app": name},
        "ownerReferences": [owner] if owner else [],
        "finalizers": finalizers or [],
        "annotations": {"sandbox.leeway.sh/ends-after": ends_after},
    }
    live.create(PODS, body)
    live.until(lambda: live.api.get(f"{PODS}/{name}").json()["status"].get("phase") == "Running")


def unknown_owner() -> dict[str, Any]:
    """A controller of a kind that the garbage collector does not know: it leaves the pod."""
    kind = {"apiVersion": "example.com/v1", "kind": "Set", "name": "set", "controller": True}
    return kind | {"uid": str(uuid.uuid4())}


def drain(live: Live, *arguments: str) -> int:
    return main.run(["drain", *arguments, "--kubeconfig", str(live.kubeconfig())])


def kubectl(live: Live, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["kubectl", "--kubeconfig", str(live.kubeconfig()), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def is_cordoned(live: Live, node: str) -> bool:
    return bool(live.api.get(f"{NODES}/{node}").json()["spec"].get("unschedulable"))


def exists(live: Live, pod: str) -> bool:
    return live.api.get(f"{PODS}/{pod}").status_code == 200


def named(text: str) -> dict[str, set[str]]:
    """The pods that a refusal names, by the flag that would allow them."""
    found = re.findall(r"\(use (--[a-z-]+) to (?:override|ignore)\): ((?:[\w./-]+(?:, )?)+)", text)
    return {flag: set(pods.rstrip("., ").split(", ")) for flag, pods in found}


def meanwhile(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def calls(live: Live, call: str) -> int:
    """How often clients have made such a call."""
    found = live.control.get("/_sandbox/status").json()["calls"]
    return sum(counts.get(call, 0) for counts in found.values())


def test_a_node_is_cordoned_and_its_pods_are_evicted(
    live: Live, node: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(live, node, "alone", terminationGracePeriodSeconds=1)
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
    run(live, node, "dry", terminationGracePeriodSeconds=300)
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
    # The pods end after the Deployment has created others.
    spec = {"tolerations": [{"operator": "Exists"}], "terminationGracePeriodSeconds": 30}
    deploy(live, node, "clingy", 2, ends_after="5s", **spec)
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
        ([], 2, "expected either names of nodes or a --selector"),
        (["x", "-l", "pool=old"], 2, "expected either names of nodes or a --selector"),
        (["-l", "!!"], 2, "--selector"),
        (["x", "--dry-run=perhaps"], 2, "--dry-run"),
        (["x", "--timeout", "soon"], 2, "--timeout"),
    ],
)
def test_a_failure_is_one_line(
    live: Live,
    arguments: list[str],
    code: int,
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert drain(live, *arguments) == code
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
    uid = live.api.get(f"{NODES}/{node}").json()["metadata"]["uid"]
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": uid}
    body["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    live.create(PODS, body)
    assert drain(live, node, *more) in (0, 1)
    printed = capsys.readouterr()
    assert (printed.out + printed.err).replace("\n", "").isprintable()
    assert "node/other drained" not in printed.out.splitlines()


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
        owner=unknown_owner(),
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


@pytest.mark.parametrize("status", [422, 503])
def test_a_node_that_cannot_be_cordoned_does_not_block_the_other_nodes(
    live: Live, node: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    others = live.add_nodes(next(NUMBERS), next(NUMBERS))
    live.fail_with({"verb": "patch", "resource": "nodes", "status": status, "count": 1})
    assert drain(live, node, *others, "-o", "json") == 1
    printed = capsys.readouterr()
    assert f"node/{node} cannot be cordoned: {status}" in printed.err
    report = json.loads(printed.out)
    assert report["error"]["message"].startswith(f"node {node} is not drained: {status}")
    refused = {"node": node, "drained": False, "pods": []}
    assert report["nodes"] == [refused, *({**refused, "node": n, "drained": True} for n in others)]
    assert [is_cordoned(live, name) for name in (node, *others)] == [False, True, True]


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
    run(live, node, "chosen")
    run(live, node, "not-chosen")
    assert drain(live, node, "--force", "--pod-selector", "app=chosen") == 0
    assert not exists(live, "chosen")
    assert exists(live, "not-chosen")


def test_disable_eviction_deletes_pods_past_their_budgets(live: Live, node: str) -> None:
    run(live, node, "limited")
    live.create(BUDGETS, budget("limited", "limited", maxUnavailable=0))
    assert drain(live, node, "--force", "--timeout", "2s") == 1
    assert exists(live, "limited")
    assert drain(live, node, "--force", "--disable-eviction") == 0
    assert not exists(live, "limited")
    deletions = [e["via"] for e in live.journal("pod-deletion") if e["pod"] == "default/limited"]
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
    run(live, node, "evicting")
    live.fail_with({"verb": "create", "resource": "pods/eviction", "hold": 3})
    started = time.monotonic()
    assert drain(live, node, "--force", "--timeout", "1s", "-o", "json") == 1
    lasted = time.monotonic() - started
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
    run(live, node, name)
    live.create(BUDGETS, budget(name, name, maxUnavailable=0))
    assert drain(live, node, "--force", "-o", "json", f"--dry-run={how}") == 0
    (pod,) = json.loads(capsys.readouterr().out)["pods"]
    assert (pod["pod"], pod["decision"]) == (f"default/{name}", "evict")
    if how == "server":
        assert f"disruption budget {name} " in pod["answer"]
    assert not is_cordoned(live, node)
    assert live.api.get(f"{PODS}/{name}").json()["metadata"].get("deletionTimestamp") is None


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
    assert drain(live, "node/") == 2


def interrupted(live: Live, nodes: list[str], when: Callable[[], object]) -> list[str]:
    """Interrupt a drain with Ctrl-C when this is true. Returns its lines on stderr."""
    command = [sys.executable, "-m", "leeway_cli", "drain", *nodes, "--force"]
    with subprocess.Popen(
        [*command, "--kubeconfig", str(live.kubeconfig())],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that starts the tests in the background lets them ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as draining:
        live.until(when)
        draining.send_signal(signal.SIGINT)
        out, err = draining.communicate(timeout=60)
    assert (draining.returncode, out) == (130, "")
    return err.splitlines()


def test_an_interrupted_drain_names_the_nodes_that_stay_cordoned(live: Live, node: str) -> None:
    run(live, node, "lasting", finalizers=["example.com/never"])
    err = interrupted(
        live, [node], lambda: "deletionTimestamp" in live.api.get(f"{PODS}/lasting").text
    )
    assert err[-2:] == [
        f"node/{node} stays cordoned: kubectl uncordon {node}",
        "leeway: The command was interrupted.",
    ]


def test_a_drain_that_is_interrupted_during_the_cordons_names_the_cordoned_nodes(
    live: Live, node: str
) -> None:
    second, third = live.add_nodes(next(NUMBERS), next(NUMBERS))
    before = calls(live, "patch nodes")
    patches = {"verb": "patch", "resource": "nodes"}
    # The request for the second node is under way at Ctrl-C.
    live.fail_with({**patches, "count": 1}, {**patches, "latency": 5.0})
    err = interrupted(live, [node, second, third], lambda: calls(live, "patch nodes") > before + 1)
    assert err == [
        f"node/{node} cordoned",
        f"node/{node} stays cordoned: kubectl uncordon {node}",
        f"node/{second} stays cordoned: kubectl uncordon {second}",
        "leeway: The command was interrupted.",
    ]
    assert [is_cordoned(live, name) for name in (node, third)] == [True, False]


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
    run(live, node, "twice")
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


@pytest.mark.parametrize(
    ("flags", "spec", "lacks"),
    [
        ((), {}, "--force"),
        (
            ("--ignore-daemonsets",),
            {"owner": unknown_owner(), "volumes": LOCAL},
            "--delete-emptydir-data",
        ),
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
    run(live, node, f"usual-{suffix}", owner=unknown_owner())
    live.fail_with({"verb": "patch", "resource": "nodes", "latency": 1.5})
    before = calls(live, "patch nodes")

    def appear() -> None:
        live.until(lambda: calls(live, "patch nodes") > before)
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
    run(live, node, "blocked", owner=unknown_owner())
    live.create(BUDGETS, budget("blocked", "blocked", maxUnavailable=0))

    def appear() -> None:
        live.until(lambda: [e for e in live.journal("eviction") if e["pod"] == "default/blocked"])
        run(live, node, "later")

    appearing = meanwhile(appear)
    assert drain(live, node, "--timeout", "10s") == 1
    appearing.join()
    assert "default/later: The pod appeared during the drain, and evicting it needs --force" in (
        capsys.readouterr().err
    )
    assert exists(live, "later")
    assert not [e for e in live.journal("eviction") if e["pod"] == "default/later"]


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
    never = ["example.com/never"]
    stuck = f"stuck-{suffix}"
    run(live, node, stuck, finalizers=never, ends_after="1m", terminationGracePeriodSeconds=60)
    theirs = [f"theirs-{suffix}-{number}" for number in range(3)]

    def replace_machine() -> None:
        live.until(
            lambda: "deletionTimestamp" in live.api.get(f"{PODS}/{stuck}").json()["metadata"]
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
    assert f"default/{stuck}: Another machine has the name of the node now" in printed
    requested = {e["pod"] for kind in ("eviction", "pod-deletion") for e in live.journal(kind)}
    assert not requested & {f"default/{name}" for name in theirs}
    assert all(exists(live, name) for name in theirs)
    assert not live.api.get(f"{NODES}/{node}").json()["spec"].get("unschedulable")


def test_another_machine_with_the_name_before_the_first_list_is_not_drained(
    live: Live, node: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert live.patch(f"{NODES}/{node}", {"spec": {"unschedulable": True}}).status_code == 200
    before = calls(live, "list pods")
    # The list by which the drain is decided is answered late, and the next one after the change.
    live.fail_with({"verb": "list", "resource": "pods", "latency": 1.0, "count": 2})
    name = f"theirs-{node.partition('.')[0]}"

    def replace_machine() -> None:
        live.until(lambda: calls(live, "list pods") > before + 1)
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


def test_another_machine_with_the_name_before_the_cordon_is_not_cordoned(
    live: Live, node: str, capsys: pytest.CaptureFixture[str]
) -> None:
    live.fail_with({"verb": "patch", "resource": "nodes", "latency": 1.0, "count": 1})
    before = calls(live, "patch nodes")

    def replace_machine() -> None:
        live.until(lambda: calls(live, "patch nodes") > before)
        found = live.api.get(f"{NODES}/{node}").json()
        assert live.api.delete(f"{NODES}/{node}").status_code == 200
        live.create(NODES, {"metadata": {"name": node}, "status": found["status"]})

    replacing = meanwhile(replace_machine)
    assert drain(live, node) == 1
    replacing.join()
    assert f"node {node} is gone" in capsys.readouterr().err
    assert not live.api.get(f"{NODES}/{node}").json()["spec"].get("unschedulable")
