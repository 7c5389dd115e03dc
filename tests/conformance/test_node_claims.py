"""A Node and a NodeClaim that Karpenter left, on a cluster that runs already: what Leeway deletes,
and what the policies of rbac/ let it change."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from leeway_cli.kubeconfig import kubeconfig_cluster, kubeconfig_connection
from leeway_sandbox.karpenter import CLAIMS, FINALIZER, NODECLAIMS
from leeway_sandbox.real_cluster.target import RealCluster

from tests.conformance.conftest import Conformance
from tests.end_to_end.environment import until
from tests.rbac.test_admission import denied, metadata

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NODE, CLAIM = "leeway-conformance-claimed", f"{CLAIMS}/leeway-conformance"
KEPT = "example.com/kept"

type Patch = Callable[[str, object], Any]


@pytest.fixture
def api(env: Conformance, real: RealCluster) -> Iterator[Any]:
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
        node = {"name": NODE, "finalizers": [FINALIZER, KEPT], "ownerReferences": [owner]}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": node}
        assert http.post("/api/v1/nodes", json=body).status_code == 201
        yield http
    finally:
        for path in (f"/api/v1/nodes/{NODE}", CLAIM):
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
    env: Conformance, api: Any, real: RealCluster
) -> None:
    member = {"Impersonate-User": "leeway-member", "Impersonate-Group": "leeway:capacity"}
    path = f"/api/v1/nodes/{NODE}"

    def refused(path: str, finalizers: list[str], policy: str) -> bool:
        return denied(merge(api, path, metadata(finalizers=finalizers), **member), policy)

    nodes, claims = "leeway-capacity-nodes", "leeway-capacity-nodeclaims"
    until(lambda: refused(CLAIM, [KEPT], claims))
    assert refused(path, [KEPT], nodes)
    for one, policy in ((path, nodes), (CLAIM, claims)):
        assert api.delete(one).status_code == 200
        assert refused(one, [FINALIZER], policy)
        assert refused(one, [], policy)
        assert merge(api, one, metadata(finalizers=[KEPT]), **member).status_code == 200
    cluster = kubeconfig_cluster(real.kubeconfig, real.context)
    found = cluster.node(NODE)
    assert found is not None
    assert cluster.delete_node(found)
    cluster.close()
    for one in (path, CLAIM):
        assert api.get(one).json()["metadata"]["finalizers"] == [KEPT]
        merge(api, one, metadata(finalizers=[]))
    until(lambda: all(api.get(one).status_code == 404 for one in (path, CLAIM)))
