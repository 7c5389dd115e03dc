"""Features that other clients use: formats, versions, patches, apply."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import httpx
import pytest

from tests.sandbox.kubernetes.live import PODS, Live, bare_pod

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


@needs_kubectl
def test_kubectl_patches_by_json(live: Live) -> None:
    live.create(PODS, bare_pod("by-json"))
    operation = {"op": "replace", "path": "/metadata/annotations", "value": {"a": "b"}}

    done = kubectl(live, "patch", "pod", "by-json", "--type=json", "-p", json.dumps([operation]))

    assert done.returncode == 0, done.stderr
    assert live.api.get(f"{PODS}/by-json").json()["metadata"]["annotations"] == {"a": "b"}


@needs_kubectl
def test_kubectl_creates_bindings_without_a_file_and_no_other_objects(live: Live) -> None:
    subjects = ("--user=ann", "--group=team", "--serviceaccount=default:robot")
    for arguments in (
        ("rolebinding", "by-hand", "--role=by-hand", *subjects),
        ("clusterrolebinding", "by-hand", "--clusterrole=by-hand", *subjects),
    ):
        done = kubectl(live, "create", *arguments)
        assert done.returncode == 0, done.stderr
    refused = kubectl(live, "create", "service", "clusterip", "by-hand", "--tcp=80")

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
