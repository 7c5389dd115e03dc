"""The CRDs of crds/ on a cluster: what it accepts, refuses, defaults, prints and deletes.

A cluster that has CRDs of Karpenter keeps them, and these tests are skipped.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from datetime import timedelta
from threading import Thread
from typing import Any

import httpx2
import pytest
from leeway.kubernetes.connection import Connection
from leeway.kubernetes.custom_resources import HttpClusterApi
from leeway.kubernetes.watches import manifest_watch
from leeway.manifests.reading import KINDS
from leeway.manifests.status import NODE_CLASS, ReadObject, plan_statuses
from leeway.manifests.status import POOL as POOL_KIND
from leeway.pod_watch.follower import KindMissing, PodChange
from leeway.ports.kubernetes import ClusterUnavailable, Event, ObjectReference
from leeway_cli.kubeconfig import KubeconfigConnection
from leeway_cli.manifests.crds import crd_name, crd_of, defined_kinds
from leeway_sandbox.real_cluster.target import RealCluster, read_config

from tests.end_to_end.environment import until
from tests.manifests.crd_cases import (
    CLASS,
    CLASSES_ACCEPTED,
    CLASSES_REFUSED,
    POOL,
    POOL_CHANGES_REFUSED,
    POOLS_ACCEPTED,
    POOLS_REFUSED,
    changed,
)
from tests.manifests.test_status import FACTS, NOW

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POOLS, CLASSES = "/apis/karpenter.sh/v1/nodepools", "/apis/karpenter.k8s.aws/v1/ec2nodeclasses"
EVENTS = "/api/v1/namespaces/default/events"
APPLY = {"Content-Type": "application/apply-patch+yaml"}
MERGE = {"Content-Type": "application/merge-patch+json"}
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
STRICT = {"fieldManager": "leeway-conformance", "fieldValidation": "Strict"}


@pytest.fixture(scope="module")
def api(real: RealCluster) -> Iterator[httpx2.Client]:
    """The API of the cluster with the CRDs, as its admin."""
    with closing(KubeconfigConnection(read_config(real.kubeconfig, real.context))) as connection:
        http, names = connection.plain, [crd_name(kind) for kind in defined_kinds()]
        taken = [name for name in names if http.get(f"{CRDS}/{name}").status_code == 200]
        if taken:
            pytest.skip(f"the cluster has {', '.join(taken)}")
        try:
            for kind in defined_kinds():
                apply_crd(http, crd_of(kind))
            yield http
        finally:
            for name in names:
                http.delete(f"{CRDS}/{name}")
            until(lambda: all(http.get(f"{CRDS}/{name}").status_code == 404 for name in names))


def apply_crd(http: httpx2.Client, crd: Mapping[str, Any]) -> None:
    """Apply a CRD, first as a dry run, and wait until it is served."""
    path = f"{CRDS}/{crd['metadata']['name']}"
    for params in ({**STRICT, "dryRun": "All"}, STRICT):
        answer = http.patch(path, params=params, content=json.dumps(crd), headers=APPLY)
        assert answer.is_success, answer.text

    def established() -> bool:
        # At first they are null.
        conditions = http.get(path).json().get("status", {}).get("conditions") or ()
        assert not [one for one in conditions if one["type"] == "NonStructuralSchema"], conditions
        return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)

    until(established)
    spec = crd["spec"]
    newest = f"/apis/{spec['group']}/{spec['versions'][-1]['name']}/{spec['names']['plural']}"
    until(lambda: http.get(newest).status_code == 200)


def create(http: httpx2.Client, path: str, body: object, **params: str) -> httpx2.Response:
    """Create an object, and refuse unknown fields."""
    return http.post(path, params={**STRICT, **params}, json=body)


@pytest.mark.parametrize(
    ("path", "base", "accepted", "refused"),
    [
        (POOLS, POOL, POOLS_ACCEPTED, POOLS_REFUSED),
        (CLASSES, CLASS, CLASSES_ACCEPTED, CLASSES_REFUSED),
    ],
    ids=["pools", "classes"],
)
def test_the_api_server_accepts_and_refuses_what_karpenters_crds_do(
    api: httpx2.Client, path: str, base: dict[str, Any], accepted: Any, refused: Any
) -> None:
    wrong = []
    for change, status in [*((one, 201) for one in accepted), *((one, 422) for one in refused)]:
        answer = create(api, path, changed(base, change), dryRun="All")
        if answer.status_code != status:
            wrong.append((change, answer.status_code, answer.json().get("message")))
    assert not wrong


def test_a_pool_stays_static_or_not(api: httpx2.Client) -> None:
    for before, after in POOL_CHANGES_REFUSED:
        assert create(api, POOLS, changed(POOL, before)).status_code == 201
        try:
            body = {"spec": {"replicas": changed(POOL, after)["spec"].get("replicas")}}
            answer = api.patch(f"{POOLS}/pool", content=json.dumps(body), headers=MERGE)
            assert answer.status_code == 422, answer.text
            assert "expected a static pool to stay static" in answer.json()["message"]
        finally:
            api.delete(f"{POOLS}/pool")


def test_a_static_pool_is_scaled_as_kubectl_does(api: httpx2.Client) -> None:
    assert create(api, POOLS, changed(POOL, {"spec.replicas": 1})).status_code == 201
    try:
        body = json.dumps({"spec": {"replicas": 0}})
        answer = api.patch(f"{POOLS}/pool/scale", content=body, headers=MERGE)
        assert answer.status_code == 200, answer.text
        assert api.get(f"{POOLS}/pool").json()["spec"]["replicas"] == 0
        status = json.dumps({"status": {"nodes": 3}})
        assert api.patch(f"{POOLS}/pool/status", content=status, headers=MERGE).is_success
        assert api.get(f"{POOLS}/pool/scale").json()["status"]["replicas"] == 3
    finally:
        api.delete(f"{POOLS}/pool")


def test_a_pool_has_defaults_a_generation_a_status_and_columns(api: httpx2.Client) -> None:
    given = changed(POOL, {"status.nodes": 7})
    created = create(api, POOLS, given).json()
    try:
        assert created["spec"]["disruption"]["budgets"] == [{"nodes": "10%"}]
        assert created["metadata"]["generation"] == 1
        assert created.get("status", {}).get("nodes") != 7, "the status is a subresource"
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "Ready",
            "message": "",
            "lastTransitionTime": "2026-11-23T12:00:00Z",
            "observedGeneration": 1,
        }
        status = {"nodes": 2, "resources": {"cpu": "8"}, "conditions": [ready]}
        body = json.dumps({"status": status, "spec": {"weight": 3}})
        answer = api.patch(f"{POOLS}/pool/status", content=body, headers=MERGE)
        assert answer.status_code == 200, answer.text
        written = answer.json()
        assert written["metadata"]["generation"] == 1, "only a change of the spec counts"
        assert "weight" not in written["spec"]
        assert written["status"]["nodes"] == 2
        changes = json.dumps({"spec": {"weight": 3}, "status": {"nodes": 9}})
        again = api.patch(f"{POOLS}/pool", content=changes, headers=MERGE).json()
        assert (again["metadata"]["generation"], again["status"]["nodes"]) == (2, 2)
        table = api.get(POOLS, headers=TABLE).json()
        titles = [one["name"] for one in table["columnDefinitions"]]
        assert titles == ["Name", "NodeClass", "Nodes", "Ready", "Age", "Weight", "CPU", "Memory"]
        (row,) = table["rows"]
        assert [str(one) for one in row["cells"][:4]] == ["pool", "default", "2", "True"]
        strategic = {"Content-Type": "application/strategic-merge-patch+json"}
        refused = api.patch(f"{POOLS}/pool", content=changes, headers=strategic)
        assert refused.status_code == 415
    finally:
        api.delete(f"{POOLS}/pool")


@pytest.fixture
def connection(real: RealCluster) -> Iterator[Connection]:
    """The cluster for adapters."""
    with closing(KubeconfigConnection(read_config(real.kubeconfig, real.context))) as opened:
        yield opened


def test_leeway_writes_a_status_at_the_version_that_it_has_read(
    api: httpx2.Client, connection: Connection, real: RealCluster
) -> None:
    leeway, found = HttpClusterApi(connection), {}
    assert create(api, CLASSES, changed(CLASS, {"metadata.name": "default"})).status_code == 201
    assert create(api, POOLS, POOL).status_code == 201

    def read() -> list[ReadObject]:
        for resource, name in ((NODE_CLASS, "EC2NodeClass"), (POOL_KIND, "NodePool")):
            kind = next(one for one in reversed(KINDS) if one.name == name)
            found[resource] = [ReadObject(resource, one) for one in leeway.objects(kind) or ()]
        return [one for some in found.values() for one in some]

    def waiting(seconds: int, version: str) -> list[dict[str, Any]]:
        """What `kubectl wait` asks."""
        query = {"fieldSelector": "metadata.name=pool", "watch": "true", "resourceVersion": version}
        text = api.get(POOLS, params={**query, "timeoutSeconds": str(seconds)}).text
        return [json.loads(line)["object"] for line in text.splitlines()]

    try:
        before = read()
        version = api.get(POOLS).json()["metadata"]["resourceVersion"]
        patches = plan_statuses(before, FACTS, NOW)
        assert len(patches) == 2
        assert [leeway.patch_status(one) for one in patches] == [True, True]
        shown = waiting(1, version)[-1]["status"]["conditions"]
        assert {one["status"] for one in shown if one["type"] == "Ready"} == {"True"}
        if kubectl := shutil.which("kubectl"):
            given = ("--kubeconfig", str(real.kubeconfig), "--context", real.context)
            for name in ("nodepool/pool", "ec2nodeclass/default"):
                wait = (kubectl, *given, "wait", "--for=condition=Ready", name, "--timeout=30s")
                assert subprocess.run(wait, check=False, capture_output=True).returncode == 0
        node_class = api.get(f"{CLASSES}/default").json()
        assert node_class["status"]["instanceProfile"] == "nodes"
        managed = {
            (one["manager"], one.get("subresource"))
            for one in node_class["metadata"]["managedFields"]
        }
        assert ("leeway-status", "status") in managed
        assert node_class["metadata"]["generation"] == 1
        assert plan_statuses(read(), FACTS, NOW + timedelta(hours=1)) == (), "as it was written"
        assert [leeway.patch_status(one) for one in patches] == [False, False], "a stale version"
        (row,) = api.get(POOLS, headers=TABLE).json()["rows"]
        assert [str(one) for one in row["cells"][:4]] == ["pool", "default", "2", "True"]

        # A resource and a condition go, and what another manager has written stays.
        body = {"metadata": {"annotations": {"a": "b"}}, "spec": {"weight": 3}}
        api.patch(f"{POOLS}/pool", content=json.dumps(body), headers=MERGE)
        invalid = [replace(one, problem="x" * 400_000) for one in read()]
        for patch in plan_statuses(invalid, replace(FACTS, usage={}), NOW):
            assert leeway.patch_status(patch)
        pool = api.get(f"{POOLS}/pool").json()
        assert pool["status"]["resources"]["cpu"] == "0"
        assert (pool["spec"]["weight"], pool["metadata"]["annotations"]["a"]) == (3, "b")
        ready = next(one for one in pool["status"]["conditions"] if one["type"] == "Ready")
        assert (ready["status"], ready["observedGeneration"]) == ("False", 2)
        assert len(json.dumps(pool)) < 12_000
        uid, version = pool["metadata"]["uid"], pool["apiVersion"]
        about = ObjectReference("NodePool", "pool", uid, api_version=version)
        event = Event("pool.leeway-conformance", about, "ManifestInvalid", "x" * 4000)
        leeway.write_event(event)
        leeway.write_event(event)
        written = api.get(f"{EVENTS}/pool.leeway-conformance").json()
        assert written["involvedObject"]["uid"] == pool["metadata"]["uid"]
    finally:
        stale = plan_statuses(read(), FACTS, NOW)
        for path in (f"{POOLS}/pool", f"{CLASSES}/default", f"{EVENTS}/pool.leeway-conformance"):
            api.delete(path)
        assert [leeway.patch_status(one) for one in stale] == [False, False], "they are gone"


def test_a_watch_on_manifests_reports_what_users_change(
    api: httpx2.Client, connection: Connection
) -> None:
    changes: list[PodChange] = []
    watch = manifest_watch(lambda _: connection, POOL_KIND)("", "")

    def follow() -> None:
        with suppress(ClusterUnavailable):  # it is stopped
            watch.run(lambda: None, changes.append)

    thread = Thread(target=follow, daemon=True)
    thread.start()

    def seen() -> list[tuple[object, bool]]:
        found = [(one.manifest.mark, one.gone) for one in changes if one.manifest]
        return [one for one, before in zip(found, [None, *found], strict=False) if one != before]

    try:
        assert create(api, POOLS, POOL).status_code == 201
        until(lambda: len(seen()) == 1)
        status = json.dumps({"status": {"nodes": 3}})
        api.patch(f"{POOLS}/pool/status", content=status, headers=MERGE)
        until(lambda: len([one for one in changes if one.manifest]) == 2)
        assert len(seen()) == 1, "a status is no change of a user"
        api.patch(f"{POOLS}/pool", content=json.dumps({"spec": {"weight": 3}}), headers=MERGE)
        until(lambda: len(seen()) == 2)
    finally:
        api.delete(f"{POOLS}/pool")
    until(lambda: seen()[-1][1])
    watch.stop()
    thread.join(30)
    missing = manifest_watch(lambda _: connection, "scaledobject.keda.sh")("", "")
    with pytest.raises(KindMissing):
        missing.run(lambda: None, changes.append)


def test_a_kind_without_objects_is_an_empty_list_and_an_unknown_kind_is_not_found(
    api: httpx2.Client,
) -> None:
    listed = api.get(POOLS).json()
    assert (listed["kind"], listed["items"] or []) == ("NodePoolList", [])
    assert listed["metadata"]["resourceVersion"]
    unknown = api.get("/apis/karpenter.sh/v1/nodepuddles")
    assert (unknown.status_code, unknown.text) == (404, "404 page not found\n")


def test_a_watch_reports_changes_of_every_version(api: httpx2.Client) -> None:
    path = "/apis/autoscaling.x-k8s.io/{}/namespaces/default/capacitybuffers"
    old, new = path.format("v1alpha1"), path.format("v1beta1")
    version = api.get(old).json()["metadata"]["resourceVersion"]
    body = {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": "web"},
        "spec": {"podTemplateRef": {"name": "web"}, "replicas": 1},
    }
    assert create(api, new, body).status_code == 201
    api.delete(f"{new}/web")
    params = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "2"}
    lines = api.get(old, params=params).text.splitlines()
    events = [json.loads(line) for line in lines]
    assert [one["type"] for one in events] == ["ADDED", "DELETED"]
    assert {one["object"]["apiVersion"] for one in events} == {"autoscaling.x-k8s.io/v1alpha1"}


def test_a_crd_that_is_deleted_takes_its_objects_along(api: httpx2.Client) -> None:
    (kind,) = [one for one in defined_kinds() if one.name == "NodePool"]
    assert create(api, POOLS, POOL).status_code == 201
    api.delete(f"{CRDS}/{crd_name(kind)}")
    until(lambda: api.get(POOLS).status_code == 404)
    until(lambda: api.get(f"{CRDS}/{crd_name(kind)}").status_code == 404)
    apply_crd(api, crd_of(kind))
    assert not api.get(POOLS).json()["items"]
