"""Patches, optimistic locks, dry runs and server-side apply that are not recorded."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.sandbox.kubernetes.live import DEPLOYMENTS, PODS, Live, bare_pod, deployment

_NODE = "/api/v1/nodes/ip-10-0-0-1.ec2.internal"
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def cluster(live: Live) -> Live:
    """Return a cluster of one node."""
    live.add_nodes(1)
    return live


def apply(live: Live, path: str, body: dict[str, Any], manager: str, **more: str) -> httpx.Response:
    """Apply a configuration as a manager."""
    params = {"fieldManager": manager, **more}
    headers = {"Content-Type": "application/apply-patch+yaml"}
    return live.api.patch(path, content=json.dumps(body), params=params, headers=headers)


def config_map(name: str, **data: str) -> dict[str, Any]:
    """Return a ConfigMap."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def test_a_merge_needs_the_present_version_if_it_has_one(cluster: Live) -> None:
    version = cluster.api.get(_NODE).json()["metadata"]["resourceVersion"]
    change = {"metadata": {"resourceVersion": version, "labels": {"seen": "yes"}}}

    first, second = cluster.patch(_NODE, change), cluster.patch(_NODE, change | {"spec": {}})

    assert first.status_code == 200
    assert second.status_code == 409


def test_a_strategic_merge_merges_containers_by_name_and_deletes_by_directive(
    cluster: Live,
) -> None:
    cluster.create(DEPLOYMENTS, deployment("merged", 0))
    sidecar = {"name": "sidecar", "image": "pause"}
    strategic = "strategic-merge-patch+json"
    template = {"spec": {"containers": [sidecar]}}

    both = cluster.patch(
        f"{DEPLOYMENTS}/merged", {"spec": {"template": template}}, strategic
    ).json()
    template["spec"]["containers"] = [{"name": "c", "$patch": "delete"}]
    one = cluster.patch(f"{DEPLOYMENTS}/merged", {"spec": {"template": template}}, strategic).json()

    def names(obj: dict[str, Any]) -> list[str]:
        return [each["name"] for each in obj["spec"]["template"]["spec"]["containers"]]

    assert (names(both), names(one)) == (["c", "sidecar"], ["sidecar"])


def test_status_and_spec_are_written_separately(cluster: Live) -> None:
    cluster.create(PODS, bare_pod("apart", nodeSelector={"no": "where"}))

    by_main = cluster.patch(f"{PODS}/apart", {"status": {"message": "by main"}}).json()
    labels = {"metadata": {"labels": {"by": "status"}}, "status": {"message": "by status"}}
    by_status = cluster.patch(f"{PODS}/apart/status", labels).json()

    assert "message" not in by_main["status"]
    assert by_status["status"]["message"] == "by status"


def test_a_replaced_object_needs_the_present_version(cluster: Live) -> None:
    created = cluster.create(_MAPS, config_map("swapped", a="1"))
    newer = {**created, "data": {"a": "2"}}

    assert cluster.api.put(f"{_MAPS}/swapped", json=newer).status_code == 200
    assert cluster.api.put(f"{_MAPS}/swapped", json=newer).status_code == 409


@pytest.mark.parametrize("verb", ["create", "patch", "delete"])
def test_a_dry_run_changes_nothing(cluster: Live, verb: str) -> None:
    name = f"dry-{verb}"
    dry = {"dryRun": "All"}
    if verb == "create":
        answer = cluster.api.post(_MAPS, json=config_map(name, a="1"), params=dry)
        assert answer.status_code == 201
        assert cluster.api.get(f"{_MAPS}/{name}").status_code == 404
        return
    created = cluster.create(_MAPS, config_map(name, a="1"))
    if verb == "patch":
        headers = {"Content-Type": "application/merge-patch+json"}
        change = {"data": {"a": "2"}}
        answer = cluster.api.patch(f"{_MAPS}/{name}", json=change, params=dry, headers=headers)
        assert answer.json()["data"] == {"a": "2"}
    else:
        assert cluster.api.delete(f"{_MAPS}/{name}", params=dry).status_code == 200
    assert cluster.api.get(f"{_MAPS}/{name}").json() == created


def test_an_unknown_field_is_warned_of_or_refused(cluster: Live) -> None:
    body = {**config_map("odd"), "datum": {}}

    refused = cluster.api.post(_MAPS, json=body, params={"fieldValidation": "Strict"})
    warned = cluster.api.post(_MAPS, json=body)

    assert refused.status_code == 400
    assert 'strict decoding error: unknown field "datum"' in refused.json()["message"]
    assert warned.status_code == 201
    assert warned.headers["Warning"] == '299 - "unknown field \\"datum\\""'
    assert "datum" not in warned.json()


def test_managers_share_an_object_and_remove_only_their_own_fields(cluster: Live) -> None:
    path = f"{_MAPS}/shared"
    assert apply(cluster, path, config_map("shared", a="1", b="1"), "one").status_code == 201
    assert apply(cluster, path, config_map("shared", b="1", c="1"), "two").status_code == 200

    answer = apply(cluster, path, config_map("shared"), "one").json()

    assert answer["data"] == {"b": "1", "c": "1"}
    managers = {one["manager"]: one["fieldsV1"] for one in answer["metadata"]["managedFields"]}
    assert managers["two"]["f:data"] == {"f:b": {}, "f:c": {}}


def test_a_field_of_another_update_is_a_conflict(cluster: Live) -> None:
    path = f"{DEPLOYMENTS}/by-hand"
    apply(cluster, path, deployment("by-hand", 1), "leeway")
    headers = {"Content-Type": "application/merge-patch+json", "User-Agent": "kubectl/v1.36"}
    cluster.api.patch(f"{path}/scale", json={"spec": {"replicas": 0}}, headers=headers)

    refused = apply(cluster, path, deployment("by-hand", 1), "leeway")
    forced = apply(cluster, path, deployment("by-hand", 1), "leeway", force="true")

    assert refused.status_code == 409
    [cause] = refused.json()["details"]["causes"]
    assert cause["field"] == ".spec.replicas"
    assert 'conflict with "kubectl" with subresource "scale" using apps/v1' in cause["message"]
    assert forced.json()["spec"]["replicas"] == 1


def test_an_applied_list_merges_by_its_keys(cluster: Live) -> None:
    path = f"{DEPLOYMENTS}/listed"
    apply(cluster, path, deployment("listed", 0), "one")
    second = deployment("listed", 0)
    second["spec"]["template"]["spec"]["containers"] = [{"name": "extra", "image": "pause"}]
    apply(cluster, path, second, "two")

    second["spec"]["template"]["spec"]["containers"] = []
    answer = apply(cluster, path, second, "two").json()

    assert [one["name"] for one in answer["spec"]["template"]["spec"]["containers"]] == ["c"]


def test_apply_needs_a_manager(cluster: Live) -> None:
    headers = {"Content-Type": "application/apply-patch+yaml"}

    refused = cluster.api.patch(f"{_MAPS}/x", content="{}", headers=headers)

    assert refused.status_code == 422
    assert refused.json()["details"]["causes"][0]["field"] == "fieldManager"


def test_names_are_generated_and_duplicate_names_are_refused(cluster: Live) -> None:
    body = config_map("")
    body["metadata"] = {"generateName": "made-"}
    made = cluster.create(_MAPS, body)["metadata"]["name"]

    taken = cluster.api.post(_MAPS, json=config_map(made))

    assert made.startswith("made-")
    assert len(made) == len("made-") + 5
    assert taken.status_code == 409
    assert taken.json()["reason"] == "AlreadyExists"


def test_nothing_is_created_in_a_missing_namespace(cluster: Live) -> None:
    refused = cluster.api.post("/api/v1/namespaces/nowhere/configmaps", json=config_map("x"))

    assert refused.status_code == 404
    assert refused.json()["message"] == 'namespaces "nowhere" not found'


def test_an_empty_terminating_namespace_is_deleted(cluster: Live) -> None:
    cluster.create("/api/v1/namespaces", {"metadata": {"name": "brief"}})
    cluster.create("/api/v1/namespaces/brief/configmaps", config_map("content"))

    cluster.api.delete("/api/v1/namespaces/brief")

    cluster.until(lambda: cluster.api.get("/api/v1/namespaces/brief").status_code == 404)
    assert cluster.api.get("/api/v1/namespaces/brief/configmaps").json()["items"] == []


def test_a_node_without_an_instance_is_stored_unchanged(cluster: Live) -> None:
    cluster.create("/api/v1/nodes", {"metadata": {"name": "bare"}})

    listed = cluster.api.get("/api/v1/nodes", headers={"Accept": _TABLE})

    rows = {row["cells"][0]: row["cells"][1] for row in listed.json()["rows"]}
    assert rows["bare"] == "Unknown"
    assert cluster.api.delete("/api/v1/nodes/bare").json()["status"] == "Success"


def test_a_pod_that_selects_windows_requests_an_address_if_the_cluster_gives_them(
    cluster: Live,
) -> None:
    """As after the webhook of EKS."""
    addresses = "vpc.amazonaws.com/PrivateIPv4Address"
    usual, early, late = (bare_pod(name) for name in ("usual", "early", "late"))
    for pod in (early, late):
        pod["spec"]["nodeSelector"] = {"kubernetes.io/os": "windows"}
    cluster.create(PODS, early)
    cluster.create(
        "/api/v1/namespaces/kube-system/configmaps",
        config_map("amazon-vpc-cni", **{"enable-windows-ipam": "true"}),
    )
    cluster.create(PODS, usual)
    cluster.create(PODS, late)

    def resources(name: str) -> dict[str, Any]:
        found: dict[str, Any] = cluster.api.get(f"{PODS}/{name}").json()
        return dict(found["spec"]["containers"][0]["resources"])

    one = {addresses: "1"}
    assert resources("late") == {"requests": one, "limits": one}
    assert resources("early") == resources("usual") == {}
