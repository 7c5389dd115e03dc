"""The Node and the NodeClaim that Karpenter left, when Leeway deletes the Node."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from leeway.kubernetes.http_cluster import HttpCluster
from leeway_sandbox.karpenter import CLAIMS, FINALIZER, NODECLAIMS

from tests.sandbox.kubernetes.live import Live

NUMBERS = count(951)
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(scope="module")
def karpenters(live: Live) -> Iterator[Live]:
    """A cluster with the kind NodeClaim."""
    assert live.api.post(DEFINITIONS, json=NODECLAIMS).status_code == 201
    live.until(lambda: live.api.get(CLAIMS).status_code == 200)
    yield live
    live.api.delete(f"{DEFINITIONS}/nodeclaims.karpenter.sh")
    live.until(lambda: live.api.get(CLAIMS).status_code == 404)


def node_of_karpenter(live: Live, *others: str) -> tuple[str, str]:
    """Add a node and its NodeClaim, as Karpenter registers them; return both names."""
    (node,) = live.add_nodes(next(NUMBERS))
    name = f"general-{next(NUMBERS)}"
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    body: dict[str, Any] = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": name, "finalizers": [FINALIZER]},
        "spec": {"nodeClassRef": reference, "requirements": []},
    }
    created = live.api.post(CLAIMS, json=body)
    assert created.status_code == 201, created.text
    owner = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": name}
    owner["uid"] = created.json()["metadata"]["uid"]
    patch = {"finalizers": [FINALIZER, *others], "ownerReferences": [owner]}
    assert live.patch(f"/api/v1/nodes/{node}", {"metadata": patch}).status_code == 200
    return node, name


def read(live: Live, node: str, claim: str) -> tuple[int, int]:
    """Return the statuses of reads of both."""
    found = live.api.get(f"/api/v1/nodes/{node}"), live.api.get(f"{CLAIMS}/{claim}")
    return found[0].status_code, found[1].status_code


def delete(cluster: HttpCluster, node: str) -> bool:
    found = cluster.node(node)
    assert found is not None
    return cluster.delete_node(found)


def test_a_nodeclaim_goes_with_its_node(karpenters: Live, cluster: HttpCluster) -> None:
    node, claim = node_of_karpenter(karpenters)
    assert delete(cluster, node)
    assert read(karpenters, node, claim) == (404, 404)


def test_a_node_that_others_still_need_waits_for_them_only(
    karpenters: Live, cluster: HttpCluster
) -> None:
    node, claim = node_of_karpenter(karpenters, "example.com/kept")
    assert delete(cluster, node)
    found = karpenters.api.get(f"/api/v1/nodes/{node}").json()["metadata"]
    assert found["finalizers"] == ["example.com/kept"]
    assert read(karpenters, node, claim) == (200, 404)
    assert delete(cluster, node), "again, while it waits"
    karpenters.patch(f"/api/v1/nodes/{node}", {"metadata": {"finalizers": []}})


def test_a_nodeclaim_of_another_life_stays(karpenters: Live, cluster: HttpCluster) -> None:
    node, claim = node_of_karpenter(karpenters)
    owner = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": claim, "uid": "other"}
    # The API server's garbage collector would delete a Node whose owner is not there.
    patch = {"metadata": {"ownerReferences": [owner]}}
    karpenters.patch(f"/api/v1/nodes/{node}", patch)
    delete(cluster, node)
    assert read(karpenters, node, claim) == (404, 200)
    karpenters.patch(f"{CLAIMS}/{claim}", {"metadata": {"finalizers": []}})


@pytest.mark.parametrize("done", [0, 1, 2, 3])
def test_an_interrupted_clean_up_goes_on(
    karpenters: Live, cluster: HttpCluster, done: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the requests after the deletion of the Node only some are made, then the function dies."""
    import leeway.kubernetes.http_cluster as tested

    node, claim = node_of_karpenter(karpenters)
    left, request = [done], tested._request

    def dies(*arguments: Any) -> Any:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return request(*arguments)

    with monkeypatch.context() as context:
        context.setattr(tested, "_request", dies)
        with pytest.raises(KeyboardInterrupt):
            delete(cluster, node)
    assert karpenters.api.get(f"/api/v1/nodes/{node}").status_code == 200
    assert delete(cluster, node)
    assert read(karpenters, node, claim) == (404, 404)
