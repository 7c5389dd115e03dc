"""What the admission policies of rbac/ let members of Leeway's groups write, on a cluster that runs
already, and what Leeway deletes of a Node and a NodeClaim that Karpenter left. Every write of a
member is a dry run: the API server admits or refuses it, and stores nothing."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from leeway_cli.adopt.settings.objects import KubernetesObjects
from leeway_cli.kubeconfig import kubeconfig_cluster, kubeconfig_connection
from leeway_sandbox.karpenter import CLAIMS, FINALIZER, NODECLAIMS
from leeway_sandbox.real_cluster.target import RealCluster

from tests.conformance.conftest import Conformance
from tests.end_to_end.environment import until
from tests.rbac.test_admission import (
    ALL_PAUSE_PODS,
    ANNOTATIONS,
    APPLY,
    BY_CAPACITY,
    BY_CAPACITY_ON_ITS_OWN,
    LAUNCHED,
    NO_PAUSE_PODS,
    NODE_GROUP,
    NOT_BY_CAPACITY,
    NOT_BY_CAPACITY_ON_ITS_OWN,
    OWN,
    PAUSE,
    REGISTERS,
    RESERVATION_ENDED,
    RESERVED,
    TEAM,
    UNREGISTERED,
    accepted,
    changed,
    denied,
    metadata,
    spec,
)

DRY_RUN = {"dryRun": "All"}
NODE = "/api/v1/nodes/leeway-conformance-limits"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CLAIMED, CLAIM = "leeway-conformance-claimed", f"{CLAIMS}/leeway-conformance"
KEPT = "example.com/kept"

type Patch = Callable[[str, str, object], Any]


@pytest.fixture(scope="module")
def api(env: Conformance, real: RealCluster) -> Iterator[Any]:
    """The cluster, with the rights of the kubeconfig; the sandbox has written rbac/."""
    connection = kubeconfig_connection(real.kubeconfig, real.context)
    yield connection.plain
    connection.close()


@pytest.fixture
def patch(api: Any) -> Patch:
    """Patches an object as a member of a group."""

    def send(group: str, path: str, body: object) -> Any:
        applies = group == "leeway:headroom"
        kind = "apply-patch+yaml" if applies else "merge-patch+json"
        return api.patch(
            path,
            params={**DRY_RUN, **(APPLY if applies else {})},
            content=json.dumps(body),
            headers={
                "Content-Type": f"application/{kind}",
                "Impersonate-User": "somebody",
                "Impersonate-Group": group,
            },
        )

    return send


def test_the_api_server_lists_policies_if_its_version_has_them(api: Any, real: RealCluster) -> None:
    version = api.get("/version").json()
    is_new = (int(version["major"]), int(version["minor"].rstrip("+"))) >= (1, 30)
    connection = kubeconfig_connection(real.kubeconfig, real.context)
    assert KubernetesObjects(connection).has_policies() is is_new
    connection.close()


def test_headroom_may_write_pause_pods_that_nobody_else_selects(patch: Patch) -> None:
    def applied(path: str, value: object) -> Any:
        return patch("leeway:headroom", f"{OWN}/warm", changed(PAUSE, path, value))

    for path, value in ALL_PAUSE_PODS:
        answer = applied(path, value)
        assert answer.status_code == 201, (path, value, answer.text)
    for path, value in NO_PAUSE_PODS:
        answer = applied(path, value)
        # The API server validates before it evaluates policies: it refuses some values by itself.
        refused = denied(answer, "leeway-headroom-deployments") or "is invalid" in answer.text
        assert refused, (path, value, answer.text)


def test_the_deployments_of_others_are_their_own_business(env: Conformance) -> None:
    env.deploy("theirs", 1)
    env.delete("theirs")


@pytest.mark.parametrize(
    ("labels", "taints", "allowed", "refused"),
    [
        ({}, [], BY_CAPACITY, NOT_BY_CAPACITY),
        (LAUNCHED, [], BY_CAPACITY_ON_ITS_OWN, NOT_BY_CAPACITY_ON_ITS_OWN),
        ({}, [UNREGISTERED], [metadata(labels={**REGISTERS, **LAUNCHED})], []),
        ({**LAUNCHED, **NODE_GROUP}, [], BY_CAPACITY, [metadata(labels=REGISTERS)]),
        ({**LAUNCHED, **RESERVED}, [], [RESERVATION_ENDED], [metadata(labels={"team": None})]),
        (RESERVED, [], [], [RESERVATION_ENDED]),
    ],
    ids=[
        "of others",
        "of Leeway",
        "of Leeway, Custom",
        "of a node group",
        "reserved",
        "reserved, of others",
    ],
)
def test_capacity_may_set_up_only_nodes_that_leeway_launched(
    api: Any,
    patch: Patch,
    labels: dict[str, str],
    taints: list[dict[str, str]],
    allowed: list[Any],
    refused: list[Any],
) -> None:
    name = NODE.rpartition("/")[2]
    about = metadata(name=name, labels={"team": "ml", **labels}, annotations={"theirs": "yes"})
    made = api.post("/api/v1/nodes", json={**about, **spec(taints=[TEAM, *taints])})
    assert made.status_code == 201, made.text

    def answer(body: Any) -> Any:
        """Patch the Node, with the taints that the control plane has put on since."""
        present = api.get(NODE).json()["spec"].get("taints", [])
        of_kubernetes = [one for one in present if one["key"] == "node.kubernetes.io/not-ready"]
        if "taints" in body.get("spec", {}):
            body = {
                **body,
                **spec(**{**body["spec"], "taints": body["spec"]["taints"] + of_kubernetes}),
            }
        return patch("leeway:capacity", NODE, body)

    def is_allowed(body: Any) -> bool:
        return bool(answer(body).status_code == 200)

    try:
        for body in allowed:
            until(partial(is_allowed, body), 30)
        for body in refused:
            got = answer(body)
            assert denied(got, "leeway-capacity-nodes"), (body, got.text)
    finally:
        assert api.delete(NODE).status_code == 200


def test_a_pool_may_have_the_annotations_that_the_policy_admits(api: Any, patch: Patch) -> None:
    about = metadata(name=NODE.rpartition("/")[2], labels=LAUNCHED)
    made = api.post("/api/v1/nodes", json=about)
    assert made.status_code == 201, made.text

    def is_admitted(key: str) -> bool:
        body = metadata(labels=REGISTERS, annotations={key: "true"})
        return bool(patch("leeway:capacity", NODE, body).status_code == 200)

    try:
        until(partial(is_admitted, "example.com/owner"), 30)
        assert {key: is_admitted(key) for key in ANNOTATIONS} == {
            key: accepted(key) for key in ANNOTATIONS
        }
    finally:
        assert api.delete(NODE).status_code == 200


@pytest.fixture
def karpenters(env: Conformance, real: RealCluster) -> Iterator[Any]:
    """The cluster with a Node and its NodeClaim, as Karpenter registers them."""
    connection = kubeconfig_connection(real.kubeconfig, real.context)
    http, crd = connection.plain, f"{CRDS}/nodeclaims.karpenter.sh"
    if http.get(crd).status_code == 200:
        pytest.skip("the cluster has NodeClaims, which stay as they are")
    try:
        assert http.post(CRDS, json=NODECLAIMS).status_code == 201
        until(lambda: http.get(CLAIMS).status_code == 200)
        reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
        kind = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim"}
        name = {"name": "leeway-conformance"}
        claim = {**kind, "metadata": {**name, "finalizers": [FINALIZER, KEPT]}}
        claim["spec"] = {"nodeClassRef": reference, "requirements": []}
        created = http.post(CLAIMS, json=claim)
        assert created.status_code == 201, created.text
        owner = {**kind, **name, "uid": created.json()["metadata"]["uid"]}
        node = {"name": CLAIMED, "finalizers": [FINALIZER, KEPT], "ownerReferences": [owner]}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": node}
        assert http.post("/api/v1/nodes", json=body).status_code == 201
        yield http
    finally:
        for path in (f"/api/v1/nodes/{CLAIMED}", CLAIM):
            http.delete(path)
            merge(http, path, metadata(finalizers=[]))
        http.delete(crd)
        until(lambda: http.get(crd).status_code == 404)
        connection.close()


def merge(http: Any, path: str, body: object, **headers: str) -> Any:
    content = {"Content-Type": "application/merge-patch+json", **headers}
    dry_run = {"dryRun": "All"} if headers else {}
    return http.patch(path, json=body, headers=content, params=dry_run)


def test_a_nodeclaim_and_its_node_lose_karpenters_finalizer_only(
    karpenters: Any, real: RealCluster
) -> None:
    member = {"Impersonate-User": "leeway-member", "Impersonate-Group": "leeway:capacity"}
    path = f"/api/v1/nodes/{CLAIMED}"

    def refused(path: str, finalizers: list[str], policy: str) -> bool:
        return denied(merge(karpenters, path, metadata(finalizers=finalizers), **member), policy)

    nodes, claims = "leeway-capacity-nodes", "leeway-capacity-nodeclaims"
    until(lambda: refused(CLAIM, [KEPT], claims))
    assert refused(path, [KEPT], nodes)
    for one, policy in ((path, nodes), (CLAIM, claims)):
        assert karpenters.delete(one).status_code == 200
        assert refused(one, [FINALIZER], policy)
        assert refused(one, [], policy)
        assert merge(karpenters, one, metadata(finalizers=[KEPT]), **member).status_code == 200
    cluster = kubeconfig_cluster(real.kubeconfig, real.context)
    found = cluster.node(CLAIMED)
    assert found is not None
    assert cluster.delete_node(found)
    cluster.close()
    for one in (path, CLAIM):
        assert karpenters.get(one).json()["metadata"]["finalizers"] == [KEPT]
        merge(karpenters, one, metadata(finalizers=[]))
    until(lambda: all(karpenters.get(one).status_code == 404 for one in (path, CLAIM)))
