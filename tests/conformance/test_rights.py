"""What the functions read of a cluster that runs already, what their rights and the admission
policies of rbac/ let them write, and who else gets through. Every write of a member of Leeway's
groups is a dry run: the API server admits or refuses it, and stores nothing."""

import asyncio
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from typing import Any

import httpx
import pytest
import yaml
from leeway.clock import SystemClock
from leeway.kubernetes.cluster_states import KubernetesClusterStates
from leeway.kubernetes.connection import Connection
from leeway.kubernetes.http_cluster import HttpCluster
from leeway.kubernetes.list_watch import WatchRequest, events_in
from leeway.kubernetes.watches import PODS, SELECTION, pod_watches
from leeway.pod_watch.burst import needs_new_node
from leeway.pod_watch.follower import PodChange
from leeway.policy.repair import why_unhealthy
from leeway.ports.kubernetes import ClusterUnavailable
from leeway.provisioning.cluster_state import ClusterState
from leeway_cli.adopt.settings.objects import KubernetesObjects
from leeway_cli.kubeconfig import kubeconfig_cluster, kubeconfig_connection
from leeway_cli.main import run
from leeway_sandbox.karpenter import CLAIMS, FINALIZER, NODECLAIMS
from leeway_sandbox.real_cluster.target import RealCluster
from leeway_sandbox.real_cluster.upstream import JSON, Upstream
from lightkube import ApiError
from lightkube.codecs import from_dict
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import Node, PersistentVolume, PersistentVolumeClaim, Pod
from lightkube.resources.storage_v1 import StorageClass
from lightkube.types import PatchType

from tests.cli.conftest import drop_clients
from tests.conformance.conftest import Conformance
from tests.end_to_end.environment import until
from tests.end_to_end.test_scheduled_functions import HEADROOM
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
    watch = pod_watches(lambda _: connection)("c", "")

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


HEADROOM_NAMESPACE = "leeway-headroom"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@pytest.fixture
def front(env: Conformance) -> Iterator[httpx.Client]:
    """A client of the endpoint that the functions reach, without a token."""
    context = ssl.create_default_context(cafile=env.sandbox.endpoints.ca)
    with httpx.Client(base_url=env.sandbox.kubernetes_url, verify=context, timeout=60) as client:
        yield client


def test_nobody_gets_through_without_an_access_entry(front: httpx.Client) -> None:
    assert front.get("/api/v1/nodes").status_code == 401
    wrong = {"Authorization": "Bearer k8s-aws-v1.wrong"}
    assert front.get("/api/v1/nodes", headers=wrong).status_code == 401


def test_nobody_chooses_whom_the_sandbox_impersonates(
    env: Conformance, front: httpx.Client
) -> None:
    admin = {"Authorization": f"Bearer {env.sandbox.endpoints.token}"}
    assert front.get("/api/v1/nodes", headers=admin).status_code == 200
    answer = front.get("/api/v1/nodes", headers={**admin, "Impersonate-User": "somebody"})
    assert answer.status_code == 403


def test_nodes_have_the_provider_ids_of_their_instances(
    env: Conformance, real: RealCluster, front: httpx.Client
) -> None:
    admin = {"Authorization": f"Bearer {env.sandbox.endpoints.token}"}
    # The oldest one. If other tests have used up the cluster's own nodes, it is a successor.
    (instance, node) = env.free_nodes(1).popitem()
    shown = front.get(f"/api/v1/nodes/{node}", headers=admin).json()
    assert shown["spec"]["providerID"].endswith(f"/{instance}")
    listed = front.get("/api/v1/nodes", headers=admin).json()["items"]
    assert shown["spec"]["providerID"] in [one["spec"]["providerID"] for one in listed]
    query = {"watch": "1", "fieldSelector": f"metadata.name={node}"}
    with front.stream("GET", "/api/v1/nodes", headers=admin, params=query) as stream:
        event = json.loads(next(stream.iter_lines()))
    assert event["object"]["spec"]["providerID"].endswith(f"/{instance}")
    is_own = env.node(node).spec.providerID != shown["spec"]["providerID"]
    assert is_own is (node in real.nodes), "the cluster's own stays"


def test_the_cluster_enforces_the_rights_of_each_role(env: Conformance) -> None:
    for group, verb, resource, granted in (
        ("leeway:drain", "create", "pods/eviction", True),
        ("leeway:drain", "get", "secrets", False),
        ("leeway:headroom", "create", "pods/eviction", False),
        ("leeway:capacity", "delete", "nodes", True),
        ("leeway:capacity", "list", "pods", True),
        ("leeway:watch", "delete", "nodes", False),
        ("leeway:watch", "watch", "nodepools.karpenter.sh", True),
        ("leeway:watch", "list", "nodepools.karpenter.sh", False),
        ("leeway:provision", "patch", "nodepools.karpenter.sh/status", True),
        ("leeway:provision", "patch", "nodepools.karpenter.sh", False),
        ("leeway:provision", "update", "ec2nodeclasses.karpenter.k8s.aws/status", False),
        ("leeway:capacity", "patch", "nodepools.karpenter.sh/status", False),
    ):
        assert asyncio.run(may(env, group, verb, resource)) is granted, (group, verb, resource)


@pytest.fixture
def minutes(env: Conformance, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """Runs the command line against the sandbox."""
    for name, value in env.sandbox.environment().items():
        monkeypatch.setenv(name, value)
    drop_clients()
    yield lambda *arguments: run([*arguments, "--cluster", env.sandbox.endpoints.cluster])
    drop_clients()


def test_headroom_owns_the_fields_that_it_applies(
    env: Conformance,
    minutes: Callable[..., int],
    schedules: Callable[[str], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    file = tmp_path_factory.mktemp("headroom") / "headroom.yaml"
    file.write_text(yaml.safe_dump(HEADROOM))
    assert minutes("apply", "-f", str(file)) == 0

    def size() -> int | None:
        schedules("keep-headroom")
        time.sleep(2)
        try:
            found = env.kube.get(Deployment, "office-warm", namespace=HEADROOM_NAMESPACE)
        except ApiError as error:
            if error.status.code != 404:
                raise
            return None
        return found.spec.replicas if found.spec else None

    until(lambda: size() == 2)
    found = env.kube.get(Deployment, "office-warm", namespace=HEADROOM_NAMESPACE)
    assert found.metadata is not None
    owners = {(one.manager, one.operation) for one in found.metadata.managedFields or ()}
    assert ("leeway", "Apply") in owners
    # Another manager's label stays, and Leeway's next apply does not take it away.
    label = {"metadata": {"labels": {"somebodys": "own"}}}
    env.kube.patch(
        Deployment, "office-warm", label, namespace=HEADROOM_NAMESPACE, patch_type=PatchType.MERGE
    )
    assert size() == 2
    kept = env.kube.get(Deployment, "office-warm", namespace=HEADROOM_NAMESPACE)
    assert kept.metadata is not None
    assert (kept.metadata.labels or {})["somebodys"] == "own"
    assert minutes("delete", "-f", str(file)) == 0
    env.sandbox.faults("lambda", [{"function": "*keep-headroom*", "kill": "before"}])
    until(lambda: size() is None, 90)


async def may(env: Conformance, group: str, verb: str, resource: str) -> bool:
    """Ask the cluster as a member of a group whether it has a right."""
    named, _, subresource = resource.partition("/")
    kind, _, api_group = named.partition(".")
    attributes = {
        "verb": verb,
        "group": api_group,
        "resource": kind,
        "subresource": subresource,
        "namespace": "" if kind == "nodes" else env.namespace,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    headers = [("Impersonate-User", "nobody"), ("Content-Type", JSON)]
    groups = [("Impersonate-Group", one) for one in (group, "system:authenticated")]
    async with Upstream(env.config) as upstream:
        sending = upstream.send("POST", REVIEWS, headers + groups, json.dumps(review).encode())
        async with sending as answer:
            data = await answer.aread()
    assert answer.status_code == 201, data
    return bool(json.loads(data)["status"]["allowed"])


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
