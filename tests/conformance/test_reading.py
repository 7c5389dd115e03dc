"""What Leeway reads of a cluster that runs already: states, watches, and what stands in neither."""

import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import pytest
from leeway.clock import SystemClock
from leeway.kubernetes.cluster_states import KubernetesClusterStates
from leeway.kubernetes.connection import Connection
from leeway.kubernetes.http_cluster import HttpCluster
from leeway.kubernetes.list_watch import WatchRequest, events_in
from leeway.kubernetes.unscheduled_pods import PODS, SELECTION, HttpPodWatches
from leeway.pod_watch.burst import needs_new_node
from leeway.pod_watch.follower import PodChange
from leeway.policy.repair import why_unhealthy
from leeway.ports.kubernetes import ClusterUnavailable
from leeway.provisioning.cluster_state import ClusterState
from leeway_cli.kubeconfig import kubeconfig_cluster, kubeconfig_connection
from leeway_sandbox.real_cluster.target import RealCluster
from lightkube import ApiError
from lightkube.codecs import from_dict
from lightkube.resources.core_v1 import Node, PersistentVolume, PersistentVolumeClaim, Pod
from lightkube.resources.storage_v1 import StorageClass
from lightkube.types import PatchType

from tests.conformance.conftest import Conformance
from tests.end_to_end.environment import until

METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
NOTHING = {"fieldSelector": "spec.nodeName=", "labelSelector": "leeway-conformance=nothing"}


@pytest.fixture
def connection(env: Conformance, real: RealCluster) -> Iterator[Connection]:
    """The cluster itself, as provision_nodes and watch_pods read it."""
    with closing(kubeconfig_connection(real.kubeconfig, real.context)) as opened:
        yield opened


@pytest.fixture
def waiting(env: Conformance) -> Iterator[str]:
    """The UID of a pod that fits on no node."""
    container = {"name": "c", "image": "pause"}
    made = from_dict(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "waits", "namespace": env.namespace},
            "spec": {"containers": [container], "nodeSelector": {"only-for": "nobody"}},
        }
    )
    created = env.kube.create(made)
    assert created.metadata is not None
    yield str(created.metadata.uid)
    env.kube.delete(Pod, "waits", namespace=env.namespace, grace_period=0)


def settle(env: Conformance) -> None:
    """Wait until every pod has a node."""

    def unbound() -> list[str]:
        found = env.kube.list(Pod, namespace="*", fields={"spec.nodeName": ""})
        return [str(one.metadata and one.metadata.name) for one in found]

    until(lambda: not unbound(), 120)


def test_an_empty_list_is_empty_in_each_form(connection: Connection) -> None:
    objects = connection.plain.get(PODS, params=NOTHING).json()
    metadata = connection.plain.get(PODS, params=NOTHING, headers={"Accept": METADATA}).json()
    assert (objects["kind"], objects["items"]) == ("PodList", [])
    assert (metadata["kind"], metadata["items"]) == ("PartialObjectMetadataList", None)


def test_a_settled_cluster_is_read_by_lists_and_then_by_watches(
    env: Conformance, connection: Connection
) -> None:
    env.deploy("settled", 3)
    settle(env)
    states = KubernetesClusterStates(lambda _: connection, SystemClock())
    reads = [states.read("c") for _ in range(3)]
    for state in reads:
        assert (state.unreadable, state.waiting, state.claimed) == ((), (), ())
        assert {node.name for node in state.nodes} == {node.name for node in reads[0].nodes}
    assert sum(name.startswith(f"{env.namespace}/settled-") for name in movable(reads[-1])) == 3
    env.delete("settled")

    def gone() -> bool:
        settle(env)
        left = movable(states.read("c"))
        return not any(name.startswith(f"{env.namespace}/settled-") for name in left)

    until(gone, 60)


def test_what_a_device_plugin_offers_is_read(env: Conformance, connection: Connection) -> None:
    """A NodeOverlay promises it, and admission waits until the node offers it."""
    (node, *_) = env.kube.list(Node)
    name = str(node.metadata and node.metadata.name)
    offered: dict[str, str | None] = {"smarter-devices/fuse": "20", "hugepages-2Mi": "4Mi"}

    def offer(amounts: dict[str, str | None]) -> None:
        patch = {"status": dict.fromkeys(("capacity", "allocatable"), amounts)}
        env.kube.patch(Node.Status, name, patch, patch_type=PatchType.MERGE)

    cluster = HttpCluster(connection, SystemClock())
    offer(offered)
    try:
        found = cluster.node(name)
        assert found is not None
        assert (
            found.devices.items() >= {"smarter-devices/fuse": 20, "hugepages-2Mi": 4 << 20}.items()
        )
        state = KubernetesClusterStates(lambda _: connection, SystemClock()).read("c")
        (allocatable,) = [one.allocatable for one in state.nodes if one.name == name]
        assert (allocatable.of("smarter-devices/fuse"), allocatable.of("hugepages-2Mi")) == (
            20,
            4 << 20,
        )
    finally:
        offer(dict.fromkeys(offered))
    after = cluster.node(name)
    assert after is not None
    assert "smarter-devices/fuse" not in after.devices


def movable(state: ClusterState) -> list[str]:
    return [pod.name for there in state.movable.values() for pod in there]


def test_a_condition_of_a_node_is_read_as_an_agent_writes_it(
    env: Conformance, real: RealCluster, connection: Connection
) -> None:
    """For repairs reconcile lists all Nodes, retire_node counts them, and provision_nodes says why
    one is unhealthy."""

    def write(status: str) -> str:
        node = next(iter(env.kube.list(Node)))
        assert node.metadata is not None
        name = str(node.metadata.name)
        at = {"lastTransitionTime": "2026-11-20T09:00:00Z", "lastHeartbeatTime": None}
        condition = {"type": "KernelReady", "status": status, "reason": "Conformance"} | at
        env.kube.patch(Node.Status, name, {"status": {"conditions": [condition]}})
        return name

    name = write("False")
    try:
        with closing(kubeconfig_cluster(real.kubeconfig, real.context)) as cluster:
            nodes = {one.name: why_unhealthy(one.conditions) for one in cluster.nodes()}
            count = cluster.count_nodes()
        state = KubernetesClusterStates(lambda _: connection, SystemClock()).read("c")
    finally:
        write("True")
    why = nodes[name]
    assert why is not None
    assert (why.condition, why.status) == ("KernelReady", "False")
    assert str(why.since) == "2026-11-20 09:00:00+00:00"
    assert state.details[name].unhealthy == why
    assert count.total == len(nodes) >= count.ready > 0


def test_a_pod_without_a_node_is_in_the_state_and_in_the_watch(
    connection: Connection, waiting: str
) -> None:
    states = KubernetesClusterStates(lambda _: connection, SystemClock())
    for _ in range(2):
        assert waiting in {one.uid for one in states.read("c").waiting}
    seen: list[PodChange] = []
    watch = HttpPodWatches(lambda _: connection).watch("c", "")

    def follow() -> None:
        with suppress(ClusterUnavailable):  # `stop` closes the connection
            watch.run(lambda: None, seen.append)

    reader = threading.Thread(target=follow, daemon=True)
    reader.start()

    def is_unschedulable() -> bool:
        pods = [change.pod for change in seen if change.pod and change.pod.uid == waiting]
        return any(map(needs_new_node, pods))

    until(is_unschedulable, 30)
    watch.stop()
    reader.join(10)
    assert not reader.is_alive()


CLASS = "leeway-conformance-later"
LATER = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": CLASS},
    "provisioner": "example.com/none",
    "volumeBindingMode": "WaitForFirstConsumer",
}


def claim(env: Conformance, name: str, **spec: Any) -> dict[str, Any]:
    size = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": env.namespace, "finalizers": ["example.com/kept"]},
        "spec": {**size, **spec},
    }


def volume(name: str, claimed_by: str, namespace: str) -> dict[str, Any]:
    reference = {"kind": "PersistentVolumeClaim", "namespace": namespace, "name": claimed_by}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "example.com", "volumeHandle": name},
            "claimRef": reference,
        },
    }


def claimant(env: Conformance, name: str) -> dict[str, Any]:
    """A pod that fits on no node, with a claim of its name."""
    source = {"persistentVolumeClaim": {"claimName": name}}
    container = {"name": "c", "image": "pause"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": env.namespace},
        "spec": {
            "containers": [container],
            "nodeSelector": {"only-for": "nobody"},
            "volumes": [{"name": "data", **source}],
        },
    }


def test_the_claims_that_leeway_does_not_launch_for_are_those_the_scheduler_refuses(
    env: Conformance, connection: Connection
) -> None:
    static = f"{env.namespace}-static"
    objects = [
        LATER,
        claim(env, "deleting", storageClassName=CLASS),
        claim(env, "waits", storageClassName=CLASS),
        claim(env, "classless", storageClassName="leeway-conformance-gone"),
        claim(env, "bound", storageClassName="", volumeName=static),
        volume(static, "bound", env.namespace),
    ]
    names = ("missing", "deleting", "waits", "classless", "bound")
    try:
        for one in objects:
            env.kube.create(from_dict(one))
        env.kube.delete(PersistentVolumeClaim, "deleting", namespace=env.namespace)

        def bound() -> bool:
            found = env.kube.get(PersistentVolumeClaim, "bound", namespace=env.namespace)
            return bool(found.status and found.status.phase == "Bound")

        try:
            until(bound, 60)  # by now the scheduler has seen the deletion, too
        except AssertionError:
            pytest.skip("no persistentvolume-binder runs in this cluster")
        for name in names:
            env.kube.create(from_dict(claimant(env, name)))
        states = KubernetesClusterStates(lambda _: connection, SystemClock())

        def unmet() -> dict[str, str]:
            found = states.read("c").waiting
            mine = (one.pod for one in found if one.pod.spec.namespace == env.namespace)
            return {pod.name.partition("/")[2]: str(pod.spec.unmet or "") for pod in mine}

        found = unmet()
        assert "does not exist" in found["missing"]
        assert "is being deleted" in found["deleting"]
        assert "StorageClass leeway-conformance-gone" in found["classless"]
        assert (found["waits"], found["bound"]) == ("", "")

        def said(name: str) -> str:
            status = env.kube.get(Pod, name, namespace=env.namespace).status
            conditions = (status and status.conditions) or []
            return next((str(c.message) for c in conditions if c.type == "PodScheduled"), "")

        until(lambda: all(map(said, found)), 60)
        assert 'persistentvolumeclaim "missing" not found' in said("missing")
        assert 'persistentvolumeclaim "deleting" is being deleted' in said("deleting")
        assert "unbound immediate PersistentVolumeClaims" in said("classless")
        for name in ("waits", "bound"):
            assert "claim" not in said(name).partition(" no new claims")[0].lower(), said(name)
    finally:
        for name in names:
            with suppress(ApiError):
                env.kube.delete(Pod, name, namespace=env.namespace, grace_period=0)
            with suppress(ApiError):
                patch = {"metadata": {"finalizers": None}}
                env.kube.patch(PersistentVolumeClaim, name, patch, namespace=env.namespace)
            with suppress(ApiError):
                env.kube.delete(PersistentVolumeClaim, name, namespace=env.namespace)
        for kind, name in ((PersistentVolume, static), (StorageClass, CLASS)):
            with suppress(ApiError):
                env.kube.delete(kind, name)


def test_a_quiet_watch_sends_a_bookmark_before_it_ends(connection: Connection) -> None:
    version = connection.plain.get(PODS, params=NOTHING).json()["metadata"]["resourceVersion"]
    lines: list[bytes] = []
    selection = {**SELECTION, **NOTHING, "resourceVersion": version}
    until(lambda: bookmarks(connection, selection, lines))


def bookmarks(connection: Connection, selection: dict[str, str], lines: list[bytes]) -> bool:
    WatchRequest(connection, PODS, selection, seconds=4).read(lines.extend)
    return any(event.type == "BOOKMARK" for event in events_in(lines))


def test_a_watch_from_a_version_to_come_is_silent(connection: Connection, waiting: str) -> None:
    lines: list[bytes] = []
    selection = {**SELECTION, "resourceVersion": "999999999"}
    WatchRequest(connection, PODS, selection, seconds=4).read(lines.extend)
    assert lines == []
