"""KubernetesClusterStates in a living cluster: what selection needs, and nothing that stops it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from leeway.kubernetes.cluster_states import KubernetesClusterStates
from leeway.kubernetes.connection import Connection
from leeway.kubernetes.kubeconfig import kubeconfig_connection
from leeway.kubernetes.pod_events import HttpPodEvents
from leeway.ports.kubernetes import ClusterRefused
from leeway.provisioning.cluster_state import ClusterState
from leeway.provisioning.ports import PodEvent
from lightkube.config.kubeconfig import SingleConfig
from lightkube.config.models import Cluster, Context, User

from tests.sandbox.kubernetes.live import Live

PODS = "/api/v1/namespaces/default/pods"
OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "web",
    "uid": "8a1f",
    "controller": True,
}


@pytest.fixture
def states(kubeconfig: Path) -> Iterator[KubernetesClusterStates]:
    connection = kubeconfig_connection(kubeconfig)
    yield KubernetesClusterStates(lambda _: connection)
    connection.close()


@pytest.fixture
def events(kubeconfig: Path) -> Iterator[HttpPodEvents]:
    connection = kubeconfig_connection(kubeconfig)
    yield HttpPodEvents(connection)
    connection.close()


def create_pod(live: Live, name: str, node: str = "", **more: Any) -> dict[str, Any]:
    """A pod that no node fits, or one of a node."""
    metadata = {"name": name, **more.pop("metadata", {})}
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "900"}}}
    spec = {"containers": [container], **({"nodeName": node} if node else {}), **more}
    answer = live.api.post(PODS, json={"metadata": metadata, "spec": spec})
    assert answer.is_success, answer.text
    created: dict[str, Any] = answer.json()
    return created


def create_node(live: Live, name: str, instance: str) -> None:
    live.create(
        "/api/v1/nodes",
        {
            "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "web"}},
            "spec": {
                "providerID": f"aws:///us-east-1a/{instance}",
                "taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}],
            },
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
        },
    )


def names(state: ClusterState) -> list[str]:
    return [one.pod.name for one in state.waiting]


def test_waiting_pods_nodes_and_pods_that_move_are_read(
    live: Live, states: KubernetesClusterStates
) -> None:
    created = create_pod(live, "first")
    create_pod(live, "second")
    create_node(live, "node-1", "i-1")
    owned = {"metadata": {"ownerReferences": [OWNER]}}
    create_pod(live, "moves", "node-1", **owned)
    create_pod(live, "bare", "node-1")
    static = {"annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": [OWNER]}
    create_pod(live, "static", "node-1", metadata=static)
    state = states.read("any")
    assert names(state) == ["default/first", "default/second"]
    assert state.waiting[0].uid == created["metadata"]["uid"]
    assert state.waiting[0].pod.spec.requests.of("cpu") == 900_000
    (node,) = state.nodes
    assert (node.name, node.pool, len(node.pods)) == ("node-1", "web", 3)
    assert node.taints[0].key == "node.kubernetes.io/not-ready"
    assert state.joined == {"i-1": "node-1"}
    assert [pod.name for pod in state.movable["node-1"]] == ["default/moves"]


class Canned(httpx2.BaseTransport):
    """An API server with these pods, and nothing else."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        self._pods = list(pods)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        items = self._pods if request.url.path == "/api/v1/pods" else []
        return httpx2.Response(
            200, json={"kind": "List", "metadata": {}, "items": items}, request=request
        )


def pod(name: str, cpu: Any = "1") -> dict[str, Any]:
    """A pod without a node, as a list has it."""
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    at = "2026-11-20T09:45:00Z"
    metadata = {"name": name, "namespace": "shop", "uid": name, "creationTimestamp": at}
    return {"metadata": metadata, "spec": {"containers": [container]}}


def test_a_pod_that_cannot_be_read_does_not_hide_the_others() -> None:
    """A tenant may find what the API server accepts and selection does not."""
    strange = [pod("no-quantity", "much"), pod("no-text", ["1"])]
    config = SingleConfig(
        context_name="x",
        context=Context(cluster="x", user="x"),
        cluster=Cluster(server="http://api.invalid"),
        user=User(),
    )
    connection = Connection(config, Canned(strange[0], pod("good"), strange[1]))
    state = KubernetesClusterStates(lambda _: connection).read("any")
    assert names(state) == ["shop/good"]
    connection.close()


def test_an_event_is_written_once_and_says_which_pod(live: Live, events: HttpPodEvents) -> None:
    pod = create_pod(live, "lonely")
    event = PodEvent(
        "lonely.0011", "default", "lonely", pod["metadata"]["uid"], "RequestTooLarge", "m" * 5000
    )
    events.write(event)
    events.write(event)
    listed = live.api.get("/api/v1/namespaces/default/events").json()["items"]
    (found,) = [one for one in listed if one["reason"] == "RequestTooLarge"]
    assert found["involvedObject"]["uid"] == pod["metadata"]["uid"]
    assert found["type"] == "Warning"
    assert len(found["message"]) == 1024


def test_an_event_in_a_namespace_that_has_gone_is_no_error(events: HttpPodEvents) -> None:
    events.write(PodEvent("x.0011", "gone", "x", "uid", "NoNodePool", "no"))


def test_a_namespace_that_is_no_name_is_refused(events: HttpPodEvents) -> None:
    with pytest.raises(ClusterRefused):
        events.write(PodEvent("x.0011", "a/../b", "x", "uid", "NoNodePool", "no"))
