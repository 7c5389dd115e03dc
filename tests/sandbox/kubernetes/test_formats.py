"""Features that other clients use: formats, versions, patches, apply."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.sandbox.kubernetes.live import DEPLOYMENTS, PODS, Live, bare_pod, deployment

_MAPS = "/api/v1/namespaces/default/configmaps"
needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl on the PATH")


def make(live: Live, name: str, **data: str) -> dict[str, Any]:
    """Create a ConfigMap labelled map=NAME."""
    metadata = {"name": name, "labels": {"map": name}}
    return live.create(_MAPS, {"metadata": metadata, "data": data})


def kubectl(live: Live, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run the stock client."""
    command = ["kubectl", "--kubeconfig", str(live.kubeconfig()), *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


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


def applied(live: Live, body: dict[str, Any], manager: str, **params: str) -> httpx.Response:
    """Apply on the server."""
    return live.api.patch(
        f"{_MAPS}/{body['metadata']['name']}",
        params={"fieldManager": manager, **params},
        content=json.dumps({"apiVersion": "v1", "kind": "ConfigMap", **body}),
        headers={"Content-Type": "application/apply-patch+yaml"},
    )


def by_kubectl(live: Live, name: str, **data: str) -> dict[str, Any]:
    """Create a ConfigMap as `kubectl apply` does."""
    own = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
    noted = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(own)}
    body = {**own, "metadata": {"name": name, "annotations": noted}}
    params = {"fieldManager": "kubectl-client-side-apply"}
    live.api.post(_MAPS, json=body, params=params).raise_for_status()
    return own


def test_server_side_apply_takes_over_fields_of_client_side_apply(live: Live) -> None:
    own = by_kubectl(live, "taken-over", a="1")
    own["data"] = {"a": "2"}

    other = applied(live, own, "flux")
    taken = applied(live, own, "kubectl")

    assert other.status_code == 409
    assert taken.status_code == 200, taken.text
    assert taken.json()["data"] == {"a": "2"}
    noted = taken.json()["metadata"]["annotations"]
    last = json.loads(noted["kubectl.kubernetes.io/last-applied-configuration"])
    assert last["data"] == {"a": "2"}


def test_server_side_apply_does_not_take_over_fields_of_others(live: Live) -> None:
    own = by_kubectl(live, "shared", a="1")
    changed = live.api.patch(
        f"{_MAPS}/shared",
        params={"fieldManager": "somebody"},
        content=json.dumps({"data": {"b": "1"}}),
        headers={"Content-Type": "application/merge-patch+json"},
    )
    own["data"] = {"a": "2", "b": "2"}

    refused = applied(live, own, "kubectl")

    assert changed.status_code == 200
    assert refused.status_code == 409
    [cause] = refused.json()["details"]["causes"]
    assert (cause["field"], cause["message"].split()[2]) == (".data.b", '"somebody"')


def test_managed_fields_can_be_written(live: Live) -> None:
    own = by_kubectl(live, "handed-on", a="1")
    managed = live.api.get(f"{_MAPS}/handed-on").json()["metadata"]["managedFields"]
    renamed = [{**one, "manager": "flux", "operation": "Apply"} for one in managed]

    operation = {"op": "replace", "path": "/metadata/managedFields", "value": renamed}
    json_patch(live, f"{_MAPS}/handed-on", operation).raise_for_status()

    own["data"] = {}
    dropped = applied(live, own, "flux")
    assert "data" not in dropped.json() or not dropped.json()["data"]


@needs_kubectl
def test_kubectl_applies_on_the_server_after_the_client(live: Live, tmp_path: Path) -> None:
    manifest = tmp_path / "web.json"
    body = deployment("handover", 1)
    manifest.write_text(json.dumps(body))
    first = kubectl(live, "apply", "-f", str(manifest))
    body["spec"]["replicas"] = 2
    body["spec"]["template"]["spec"]["containers"][0]["image"] = "pause:2"
    manifest.write_text(json.dumps(body))

    second = kubectl(live, "apply", "--server-side", "-f", str(manifest))
    third = kubectl(live, "apply", "--server-side", "-f", str(manifest))
    back = kubectl(live, "apply", "-f", str(manifest))

    for done in (first, second, third, back):
        assert done.returncode == 0, done.stderr
    found = live.api.get(f"{DEPLOYMENTS}/handover").json()
    assert found["spec"]["replicas"] == 2
    managers = {(one["manager"], one["operation"]) for one in found["metadata"]["managedFields"]}
    assert ("kubectl", "Apply") in managers


@needs_kubectl
def test_kubectl_patches_by_json(live: Live) -> None:
    live.create(PODS, bare_pod("by-json"))
    operation = {"op": "replace", "path": "/metadata/annotations", "value": {"a": "b"}}

    done = kubectl(live, "patch", "pod", "by-json", "--type=json", "-p", json.dumps([operation]))

    assert done.returncode == 0, done.stderr
    assert live.api.get(f"{PODS}/by-json").json()["metadata"]["annotations"] == {"a": "b"}


@needs_kubectl
@pytest.mark.parametrize(
    ("arguments", "path", "expected"),
    [
        (
            ["deployment", "by-hand", "--image=nginx:1", "--replicas=0", "--port=80"],
            f"{DEPLOYMENTS}/by-hand",
            {
                "replicas": 0,
                "selector": {"matchLabels": {"app": "by-hand"}},
                "template": {
                    "metadata": {"labels": {"app": "by-hand"}},
                    "spec": {
                        "containers": [
                            {
                                "name": "nginx",
                                "image": "nginx:1",
                                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                            }
                        ]
                    },
                },
                "strategy": {"type": "RollingUpdate"},
            },
        ),
        (
            ["pdb", "by-hand", "--selector=app=by-hand", "--max-unavailable=50%"],
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets/by-hand",
            {"maxUnavailable": "50%", "selector": {"matchLabels": {"app": "by-hand"}}},
        ),
        (
            ["pdb", "by-number", "--selector=app=by-hand", "--min-available=2"],
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets/by-number",
            {"minAvailable": 2},
        ),
        (["namespace", "by-hand"], "/api/v1/namespaces/by-hand", {"finalizers": ["kubernetes"]}),
    ],
    ids=lambda one: " ".join(one[:2]) if isinstance(one, list) else "",
)
def test_kubectl_creates_without_a_file(
    live: Live, arguments: list[str], path: str, expected: dict[str, Any]
) -> None:
    done = kubectl(live, "create", *arguments)

    assert done.returncode == 0, done.stderr
    assert covers(live.api.get(path).json()["spec"], expected)


def covers(found: Any, expected: Any) -> bool:
    """Whether a value contains the expected one."""
    if isinstance(expected, dict):
        return all(name in found and covers(found[name], expected[name]) for name in expected)
    if isinstance(expected, list):
        pairs = zip(found, expected, strict=False)
        return len(found) == len(expected) and all(covers(*pair) for pair in pairs)
    return bool(found == expected)


@needs_kubectl
def test_kubectl_creates_objects_without_a_spec(live: Live) -> None:
    maps = kubectl(live, "create", "configmap", "by-hand", "--from-literal=a=b")
    classes = kubectl(live, "create", "priorityclass", "by-hand", "--value=-7")
    accounts = kubectl(live, "create", "serviceaccount", "by-hand")

    for done in (maps, classes, accounts):
        assert done.returncode == 0, done.stderr
    assert live.api.get(f"{_MAPS}/by-hand").json()["data"] == {"a": "b"}
    path = "/apis/scheduling.k8s.io/v1/priorityclasses/by-hand"
    assert live.api.get(path).json()["value"] == -7


@needs_kubectl
def test_kubectl_creates_roles_and_their_bindings(live: Live) -> None:
    rule = ("--verb=get,list", "--resource=deployments.apps", "--resource-name=web")
    subjects = ("--user=ann", "--group=team", "--serviceaccount=default:robot")
    for arguments in (
        ("role", "by-hand", *rule),
        ("clusterrole", "by-hand", "--verb=get", "--non-resource-url=/metrics"),
        ("rolebinding", "by-hand", "--role=by-hand", *subjects),
        ("clusterrolebinding", "by-hand", "--clusterrole=by-hand", *subjects),
    ):
        done = kubectl(live, "create", *arguments)
        assert done.returncode == 0, done.stderr

    rbac = "/apis/rbac.authorization.k8s.io/v1"
    role = live.api.get(f"{rbac}/namespaces/default/roles/by-hand").json()
    assert role["rules"] == [
        {
            "verbs": ["get", "list"],
            "apiGroups": ["apps"],
            "resources": ["deployments"],
            "resourceNames": ["web"],
        }
    ]
    cluster_role = live.api.get(f"{rbac}/clusterroles/by-hand").json()
    assert cluster_role["rules"] == [{"verbs": ["get"], "nonResourceURLs": ["/metrics"]}]
    for path, kind in (
        ("namespaces/default/rolebindings/by-hand", "Role"),
        ("clusterrolebindings/by-hand", "ClusterRole"),
    ):
        binding = live.api.get(f"{rbac}/{path}").json()
        group = "rbac.authorization.k8s.io"
        assert binding["roleRef"] == {"apiGroup": group, "kind": kind, "name": "by-hand"}
        assert binding["subjects"] == [
            {"kind": "User", "apiGroup": group, "name": "ann"},
            {"kind": "Group", "apiGroup": group, "name": "team"},
            {"kind": "ServiceAccount", "name": "robot", "namespace": "default"},
        ]


@needs_kubectl
def test_an_unsupported_protobuf_object_is_refused(live: Live) -> None:
    refused = kubectl(live, "create", "service", "clusterip", "by-hand", "--tcp=80")

    assert refused.returncode != 0
    assert live.api.get("/api/v1/namespaces/default/services/by-hand").status_code == 404
