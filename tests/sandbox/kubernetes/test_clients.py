"""Clients: the stock kubectl, if it is installed, and formats that other clients use."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.sandbox.kubernetes.live import BUDGETS, PODS, Live, bare_pod, budget, deployment

type Kubectl = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def cluster(live: Live) -> Live:
    """Return a cluster of three nodes with a DaemonSet."""
    live.add_nodes(1, 2, 3)
    template = deployment("agent", 1)["spec"]["template"]
    spec = {"selector": {"matchLabels": {"app": "agent"}}, "template": template}
    daemons = "/apis/apps/v1/namespaces/default/daemonsets"
    live.create(daemons, {"metadata": {"name": "agent"}, "spec": spec})
    live.until(lambda: len(live.running("app=agent")) == 3)
    return live


@pytest.fixture
def kubectl(cluster: Live, tmp_path: Path) -> Kubectl:
    """Return a function that runs the stock kubectl."""
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("no kubectl on the PATH")
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig()), "HOME": str(tmp_path)}

    def call(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env=environment,
            timeout=120,
            check=False,
        )

    return call


def test_kubectl_drain_refuses_then_drains_around_a_budget(cluster: Live, kubectl: Kubectl) -> None:
    pod = bare_pod("lonely")
    pod["spec"]["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    cluster.create(PODS, pod)
    cluster.until(lambda: cluster.api.get(f"{PODS}/lonely").json()["status"]["phase"] == "Running")
    node = cluster.api.get(f"{PODS}/lonely").json()["spec"]["nodeName"]
    here = {"nodeSelector": {"kubernetes.io/hostname": node}}
    cluster.create(PODS, bare_pod("unmanaged", **here))
    [guarded] = cluster.deploy("guarded", 1, spec=here)
    [daemon] = [one for one in cluster.running("app=agent") if one["spec"]["nodeName"] == node]
    cluster.create(BUDGETS, budget("guarded", "guarded", minAvailable=1))

    refused = kubectl("drain", node)
    forced = ("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force")
    blocked = kubectl(*forced, "--timeout=3s")
    cluster.api.delete(f"{BUDGETS}/guarded")
    drained = kubectl(*forced, "--timeout=60s")
    restored = kubectl("uncordon", node)

    left, kept = (f"default/{one['metadata']['name']}" for one in (guarded, daemon))
    assert refused.returncode == 1
    assert refused.stdout == f"node/{node} cordoned\n"
    assert (
        f"cannot delete DaemonSet-managed Pods (use --ignore-daemonsets to ignore): {kept}"
        in refused.stderr
    )
    assert (
        "cannot delete Pods with local storage (use --delete-emptydir-data to override): "
        "default/lonely" in refused.stderr
    )
    assert (
        "cannot delete Pods that declare no controller (use --force to override): "
        "default/unmanaged" in refused.stderr
    )
    assert blocked.returncode == 1
    assert (
        f'error when evicting pods/"{guarded["metadata"]["name"]}" -n "default" (will retry after '
        "5s): Cannot evict pod as it would violate the pod's disruption budget."
    ) in blocked.stderr
    assert "global timeout reached: 3s" in blocked.stderr
    # The budget blocks no other pod.
    assert "evicting pod default/lonely" in blocked.stdout
    assert f"ignoring DaemonSet-managed Pods: {kept}" in drained.stderr
    assert "deleting Pods that declare no controller: default/" in blocked.stderr
    assert drained.returncode == 0, drained.stderr
    assert f"evicting pod {left}" in drained.stdout + drained.stderr
    assert drained.stdout.endswith(
        f"pod/{guarded['metadata']['name']} evicted\nnode/{node} drained\n"
    )
    assert restored.stdout == f"node/{node} uncordoned\n"
    assert cluster.api.get(f"{PODS}/lonely").status_code == 404


def test_kubectl_cordons_once_and_a_server_dry_run_of_a_drain_changes_nothing(
    cluster: Live, kubectl: Kubectl
) -> None:
    [pod] = cluster.deploy("rehearsed", 1)
    node = pod["spec"]["nodeName"]

    rehearsed = kubectl("drain", node, "--dry-run=server", "--ignore-daemonsets", "--force")
    untouched = cluster.api.get(f"/api/v1/nodes/{node}").json()["spec"]
    cordoned, again = kubectl("cordon", node), kubectl("cordon", node)
    kubectl("uncordon", node)

    assert f"node/{node} drained (server dry run)" in rehearsed.stdout
    assert "unschedulable" not in untouched
    assert cluster.api.get(f"{PODS}/{pod['metadata']['name']}").status_code == 200
    assert cordoned.stdout == f"node/{node} cordoned\n"
    assert again.stdout == f"node/{node} already cordoned\n"


def test_kubectl_deletes_a_node_and_its_pods_are_deleted(cluster: Live, kubectl: Kubectl) -> None:
    [node] = cluster.add_nodes(9)
    cluster.until(
        lambda: [p for p in cluster.running("app=agent") if p["spec"]["nodeName"] == node]
    )

    deleted = kubectl("delete", "node", node)

    assert deleted.stdout == f'node "{node}" deleted\n'
    cluster.until(
        lambda: not [p for p in cluster.pods("app=agent") if p["spec"]["nodeName"] == node]
    )


@pytest.mark.parametrize("kind", ["namespace", "priorityclass", "deployment"])
def test_kubectl_applies_on_the_server_and_gets_the_manager_of_a_conflicting_field(
    kubectl: Kubectl, kind: str
) -> None:
    manifests: dict[str, dict[str, Any]] = {
        "namespace": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"labels": {"a": "1"}}},
        "priorityclass": {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {},
            "value": -10,
            "description": "1",
        },
        "deployment": deployment("", 1),
    }
    manifest = manifests[kind]
    manifest["metadata"]["name"] = f"applied-{kind}"
    field = {"namespace": ".metadata.labels.a", "priorityclass": ".description"}
    apply = ("apply", "--server-side", "-f", "-")

    created = kubectl(*apply, "--field-manager=leeway", stdin=json.dumps(manifest))
    other = json.loads(
        json.dumps(manifest).replace('"1"', '"2"').replace('replicas": 1', 'replicas": 2')
    )
    refused = kubectl(*apply, "--field-manager=other", stdin=json.dumps(other))
    forced = kubectl(*apply, "--field-manager=other", "--force-conflicts", stdin=json.dumps(other))

    assert "serverside-applied" in created.stdout
    assert refused.returncode == 1
    reasons = f'conflict with "leeway": {field.get(kind, ".spec.replicas")}'
    assert reasons in refused.stderr
    assert forced.returncode == 0, forced.stderr


def test_kubectl_shows_nodes_and_pods(cluster: Live, kubectl: Kubectl) -> None:
    nodes = kubectl("get", "nodes", "-o", "wide")
    pods = kubectl("get", "po", "-A", "-l", "app=agent")
    everything = kubectl("get", "all")
    described = kubectl("describe", "node", "ip-10-0-0-1.ec2.internal")

    assert nodes.stdout.split()[:5] == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert nodes.stdout.count(" Ready ") == 3
    assert pods.stdout.count("1/1") == 3
    assert "daemonset.apps/agent" in everything.stdout
    assert "Non-terminated Pods:" in described.stdout
    assert "providerid" in described.stdout.lower()


def test_kubectl_applies_scales_and_deletes(cluster: Live, kubectl: Kubectl) -> None:
    manifest = json.dumps(deployment("applied", 1))

    created = kubectl("apply", "-f", "-", stdin=manifest)
    again = kubectl("apply", "-f", "-", stdin=manifest)
    by_server = kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifest)
    scaled = kubectl("scale", "deployment", "applied", "--replicas=3")
    rolled = kubectl("rollout", "status", "deployment", "applied", "--timeout=60s")
    deleted = kubectl("delete", "deployment", "applied")

    assert created.stdout == "deployment.apps/applied created\n", created.stderr
    assert again.stdout == "deployment.apps/applied unchanged\n"
    assert by_server.stdout == "deployment.apps/applied serverside-applied\n", by_server.stderr
    assert scaled.stdout == "deployment.apps/applied scaled\n"
    assert "successfully rolled out" in rolled.stdout
    assert deleted.stdout == 'deployment.apps "applied" deleted\n'


def test_kubectl_finds_unknown_fields_and_bad_taints(cluster: Live, kubectl: Kubectl) -> None:
    wrong = deployment("wrong", 1)
    wrong["spec"]["replica"] = 2

    unknown = kubectl("apply", "-f", "-", stdin=json.dumps(wrong))
    tainted = kubectl("taint", "node", "ip-10-0-0-2.ec2.internal", "team=blue:NoSchedule")
    untainted = kubectl("taint", "node", "ip-10-0-0-2.ec2.internal", "team-")

    assert unknown.returncode == 1
    assert 'unknown field "spec.replica"' in unknown.stderr
    assert "tainted" in tainted.stdout
    assert "untainted" in untainted.stdout


def test_kubectl_reads_events_rights_and_resources(cluster: Live, kubectl: Kubectl) -> None:
    pod = bare_pod("nowhere", nodeSelector={"no": "where"})
    cluster.create(PODS, pod)
    cluster.until(lambda: cluster.api.get("/api/v1/events").json()["items"])

    events = kubectl("events")
    described = kubectl("describe", "pod", "nowhere")
    may = kubectl("auth", "can-i", "create", "pods", "--subresource=eviction")
    me = kubectl("auth", "whoami", "-o", "json")
    resources = kubectl("api-resources")

    assert "FailedScheduling" in events.stdout
    assert "FailedScheduling" in described.stdout
    assert may.stdout == "yes\n"
    assert json.loads(me.stdout)["status"]["userInfo"]["username"] == "admin"
    assert "poddisruptionbudgets" in resources.stdout


def test_kubectl_drains_by_deleting_where_eviction_is_disabled(
    cluster: Live, kubectl: Kubectl
) -> None:
    [pod] = cluster.deploy("deletable", 1)
    node = pod["spec"]["nodeName"]

    drained = kubectl("drain", node, "--disable-eviction", "--ignore-daemonsets", "--force")
    kubectl("uncordon", node)

    assert drained.returncode == 0, drained.stderr
    assert f"pod/{pod['metadata']['name']} deleted" in drained.stdout


_MAPS = "/api/v1/namespaces/default/configmaps"


def make(live: Live, name: str, **data: str) -> dict[str, Any]:
    """Create a ConfigMap labelled map=NAME."""
    metadata = {"name": name, "labels": {"map": name}}
    return live.create(_MAPS, {"metadata": metadata, "data": data})


@pytest.mark.parametrize(
    ("accept", "code"),
    [
        ("text/html", 406),
        ("application/cbor", 406),
        ("application/cbor, application/json", 200),
        ("application/vnd.kubernetes.protobuf", 200),
        ("*/*", 200),
    ],
)
def test_an_unsupported_format_is_not_acceptable(live: Live, accept: str, code: int) -> None:
    for params in ({}, {"watch": "1", "timeoutSeconds": "1"}):
        answer = live.api.get(_MAPS, params=params, headers={"Accept": accept})
        assert answer.status_code == code
    if code == 406:
        assert answer.json()["reason"] == "NotAcceptable"


def test_an_object_that_leaves_the_selection_is_sent_in_its_last_selected_form(live: Live) -> None:
    made = make(live, "leaver", a="1")
    version = made["metadata"]["resourceVersion"]
    live.patch(f"{_MAPS}/leaver", {"metadata": {"labels": {"map": "gone"}}, "data": {"a": "2"}})

    params = {"watch": "1", "timeoutSeconds": "1", "labelSelector": "map=leaver"}
    watched = live.api.get(_MAPS, params={**params, "resourceVersion": version}).text

    [event] = [json.loads(line) for line in watched.splitlines()]
    assert event["type"] == "DELETED"
    assert event["object"]["metadata"]["labels"] == {"map": "leaver"}
    assert event["object"]["data"] == {"a": "1"}
    assert int(event["object"]["metadata"]["resourceVersion"]) > int(version)


def json_patch(live: Live, path: str, *operations: dict[str, Any]) -> httpx.Response:
    """Send a JSON patch."""
    return live.patch(path, list(operations), "json-patch+json")


def test_a_json_patch_replaces_a_field_that_is_missing(live: Live) -> None:
    make(live, "patched", a="1")
    path = f"{_MAPS}/patched"

    missing = {"op": "replace", "path": "/data/b~1c", "value": "2"}
    nowhere = {"op": "replace", "path": "/binaryData/c", "value": "2"}
    removal = {"op": "remove", "path": "/data/none"}

    assert json_patch(live, path, missing).json()["data"] == {"a": "1", "b/c": "2"}
    assert json_patch(live, path, nowhere).status_code == 422
    assert json_patch(live, path, removal).status_code == 422


def test_kubectl_patches_by_json(live: Live, kubectl: Kubectl) -> None:
    live.create(PODS, bare_pod("by-json"))
    operation = {"op": "replace", "path": "/metadata/annotations", "value": {"a": "b"}}

    done = kubectl("patch", "pod", "by-json", "--type=json", "-p", json.dumps([operation]))

    assert done.returncode == 0, done.stderr
    assert live.api.get(f"{PODS}/by-json").json()["metadata"]["annotations"] == {"a": "b"}


def test_kubectl_creates_bindings_without_a_file_and_no_other_objects(
    live: Live, kubectl: Kubectl
) -> None:
    subjects = ("--user=ann", "--group=team", "--serviceaccount=default:robot")
    for arguments in (
        ("rolebinding", "by-hand", "--role=by-hand", *subjects),
        ("clusterrolebinding", "by-hand", "--clusterrole=by-hand", *subjects),
    ):
        done = kubectl("create", *arguments)
        assert done.returncode == 0, done.stderr
    refused = kubectl("create", "service", "clusterip", "by-hand", "--tcp=80")

    group = "rbac.authorization.k8s.io"
    for path, kind in (
        ("namespaces/default/rolebindings/by-hand", "Role"),
        ("clusterrolebindings/by-hand", "ClusterRole"),
    ):
        binding = live.api.get(f"/apis/{group}/v1/{path}").json()
        assert binding["roleRef"] == {"apiGroup": group, "kind": kind, "name": "by-hand"}
        assert binding["subjects"] == [
            {"kind": "User", "apiGroup": group, "name": "ann"},
            {"kind": "Group", "apiGroup": group, "name": "team"},
            {"kind": "ServiceAccount", "name": "robot", "namespace": "default"},
        ]
    assert refused.returncode != 0
    assert live.api.get("/api/v1/namespaces/default/services/by-hand").status_code == 404
