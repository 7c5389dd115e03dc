"""Drains and surges on a cluster that runs already: its own API, budgets, RBAC, EndpointSlices,
admission and controllers, and what it counts, refuses and collects beyond its answers."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from httpx2 import HTTPStatusError
from leeway.clock import SystemClock
from leeway.kubernetes import objects
from leeway.kubernetes.events import write_event
from leeway.kubernetes.http_cluster import HttpCluster
from leeway.kubernetes.translate import to_pod
from leeway.ports.kubernetes import Event, ObjectReference
from leeway.ports.kubernetes_objects import Pod
from leeway.retirement.executor import Requests, evict
from leeway.retirement.pods import Meaning, read_answer
from leeway.retirement.progress import PodRequest, RemovalMethod
from leeway.retirement.reasons import POD_EVICTED
from leeway_cli.kubeconfig import KubeconfigConnection
from leeway_sandbox.provisioning import client
from lightkube import ApiError
from lightkube.codecs import from_dict
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.core_v1 import Container, NodeSpec, PodSpec
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta, OwnerReference
from lightkube.models.policy_v1 import PodDisruptionBudgetSpec
from lightkube.resources.admissionregistration_v1 import (
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
)
from lightkube.resources.apiextensions_v1 import CustomResourceDefinition
from lightkube.resources.apps_v1 import Deployment, ReplicaSet
from lightkube.resources.core_v1 import ConfigMap, Namespace, Node, Service
from lightkube.resources.core_v1 import Pod as PodObject
from lightkube.resources.policy_v1 import PodDisruptionBudget
from lightkube.types import PatchType

from tests.conformance.conftest import GIVEN, Conformance, image_of
from tests.end_to_end.environment import Journal, say, until
from tests.end_to_end.surging import ServiceClient, reasons, right_in
from tests.kubernetes.rollouts import ROLLOUT_KIND

STORM = 40
ENFORCE = "pod-security.kubernetes.io/enforce"
FINALIZER = "sandbox.leeway.sh/conformance"


def test_a_rebalance_waits_for_a_ready_successor(env: Conformance) -> None:
    # Before the interruptions: each of them makes LaunchInstances avoid a zone of the group.
    (instance, node) = env.unused_nodes(1).popitem()
    since = time.time()
    env.sandbox.interrupt([instance], rebalance=True, warning=False)
    seen = env.wait([instance], since)
    (outcome,) = seen.outcomes(instance)
    assert (outcome["result"], outcome["replacement"]) == ("drained", "launch-successor")
    (successor,) = outcome["successors"]
    (joined,) = env.since(since).of("node-joined", instance=successor["instance"])
    assert all(e["at"] >= joined["at"] for e in seen.of("eviction", node=node))
    amounts = env.node(joined["node"]).status
    assert amounts.allocatable["memory"] != amounts.capacity["memory"], "a share is reserved"


def test_an_interrupted_node_is_drained_before_its_instance_ends(env: Conformance) -> None:
    env.deploy("web", 10, grace=30, sleeps=4)
    (instance, node) = env.unused_nodes(1).popitem()
    since = time.time()
    env.sandbox.interrupt([instance], late=75)
    # The marks of a retirement are on the cluster's own Node while it lasts.
    marked = until(lambda: marks_of(env, node))
    assert any(key.startswith("leeway.sh/") for key in marked)
    seen = env.wait([instance], since)
    (outcome,) = seen.outcomes(instance)
    assert (outcome["result"], outcome["replacement"]) == ("drained", "terminate-in-group")
    assert first(seen, "node-cordoned", node) <= first(seen, "eviction", node)
    assert {e["status"] for e in seen.of("eviction", node=node)} <= {201, 429, 404}
    assert all("retire-node" in e["user"] for e in seen.of("eviction", node=node))
    # The instance ends after the pods, and its Node goes with it.
    env.until(since, lambda s: s.of("node-deleted", node=node))
    ended = first(env.since(since), "machine-ends", node)
    gone = [e for e in env.since(since).of("pod-ended", node=node) if mine(env, e)]
    assert gone
    assert max(e["at"] for e in gone) <= ended
    env.ready("web", 10)
    env.delete("web")


def test_a_budget_of_the_cluster_limits_how_many_pods_are_away(env: Conformance) -> None:
    env.deploy("limited", 6)
    labels = LabelSelector(matchLabels={"app": "limited"})
    budget = PodDisruptionBudget(
        metadata=ObjectMeta(name="limited", namespace=env.namespace),
        spec=PodDisruptionBudgetSpec(maxUnavailable=1, selector=labels),
    )
    env.kube.create(budget)
    until(lambda: allowed(env, "limited") == 1)
    nodes = env.unused_nodes(2)
    since = time.time()
    env.sandbox.interrupt(list(nodes), late=45)
    seen = env.wait(nodes, since)
    assert {o["result"] for i in nodes for o in seen.outcomes(i)} == {"drained"}
    env.ready("limited", 6)
    assert [e for node in nodes.values() for e in seen.of("eviction", node=node) if mine(env, e)]
    assert most_away(env.since(0), f"Deployment/{env.namespace}/limited", since) == 1
    env.kube.delete(PodDisruptionBudget, "limited", namespace=env.namespace)
    env.delete("limited")


def test_reconcile_deletes_the_node_of_an_instance_that_has_ended(
    env: Conformance, schedules: Callable[[str], None]
) -> None:
    (instance, _) = env.unused_nodes(1).popitem()
    client("ec2", env.sandbox.aws_url).terminate_instances(InstanceIds=[instance])
    env.until(0, lambda seen: seen.of("instance-state", instance=instance, state="terminated"))
    labels = {"topology.kubernetes.io/zone": "us-east-1a"}
    ghost = Node(
        metadata=ObjectMeta(name="ghost", labels=labels),
        spec=NodeSpec(providerID=f"aws:///us-east-1a/{instance}"),
    )
    env.kube.create(ghost)

    def gone() -> bool:
        schedules("reconcile")
        time.sleep(2)
        names = {one.metadata.name for one in env.kube.list(Node) if one.metadata}
        return "ghost" not in names

    until(gone)


def marks_of(env: Conformance, node: str) -> dict[str, Any]:
    try:
        found = env.node(node)
    except ApiError:
        return {}
    annotations: dict[str, Any] = found.metadata.annotations or {}
    return annotations if found.spec.unschedulable else {}


def allowed(env: Conformance, name: str) -> int:
    status = env.kube.get(PodDisruptionBudget, name, namespace=env.namespace).status
    return (status.disruptionsAllowed if status else None) or 0


def mine(env: Conformance, entry: dict[str, Any]) -> bool:
    return str(entry["pod"]).startswith(f"{env.namespace}/")


def most_away(seen: Journal, workload: str, since: float) -> int:
    """Return how many running pods of a Deployment were evicted at most before another one ran
    instead. A budget does not count a pod that is evicted before it runs."""
    ran: set[str] = set()
    away = most = 0
    for entry in seen.entries:
        if entry.get("owner") != workload:
            continue
        if entry["kind"] == "pod-running":
            ran.add(entry["uid"])
            away -= entry["at"] >= since
        elif entry["kind"] == "pod-deletion" and entry["uid"] in ran:
            away += entry["at"] >= since
        most = max(most, away)
    return most


def first(seen: Journal, kind: str, node: str) -> float:
    return min(float(entry["at"]) for entry in seen.of(kind, node=node))


@pytest.fixture
def cluster(env: Conformance) -> Iterator[HttpCluster]:
    """The adapter, with the rights of the kubeconfig."""
    with closing(HttpCluster(KubeconfigConnection(env.config), SystemClock())) as cluster:
        yield cluster


def test_a_storm_of_evictions_under_one_budget_evicts_each_pod_once(
    env: Conformance, cluster: HttpCluster
) -> None:
    with guarded(env, "storm", STORM, STORM) as pods:
        posts: list[str] = []

        def make(request: PodRequest) -> Any:
            posts.append(request.pod.uid)
            return evict(cluster, request.pod, request.grace)

        with Requests(make, threading.Event().set) as requests:
            due = [PodRequest(pod, RemovalMethod.EVICT, 1, POD_EVICTED()) for pod in pods]
            answers: list[Meaning] = []
            while len(answers) < STORM:
                requests.start(tuple(due))  # as each pass of a drain plans them
                answered = requests.answered(1)
                answers += [read_answer(response).meaning for _, response in answered]
                done = {request.pod.uid for request, _ in answered}
                due = [request for request in due if request.pod.uid not in done]
        assert answers == [Meaning.ACCEPTED] * STORM
        assert sorted(posts) == sorted(pod.uid for pod in pods)


def test_a_disruption_that_an_old_uid_has_used_is_completed_by_the_next_eviction(
    env: Conformance, cluster: HttpCluster
) -> None:
    with guarded(env, "stale", 3, 1) as (first, *_):
        # A budget's entry that is as old as the pod, to the second, may belong to another pod.
        until(lambda: first.created and first.created + timedelta(seconds=2) < datetime.now(UTC))
        old = replace(first, uid="00000000-0000-0000-0000-000000000000")
        assert read_answer(cluster.evict(old, 1)).meaning is Meaning.GONE
        assert allowed(env, "stale") == 0, "the disruption is used, and the pod still runs"
        assert read_answer(evict(cluster, first, 1)).meaning is Meaning.ACCEPTED
        until(lambda: first.uid not in {pod.uid for pod in pods_of(env, "stale")}, 60)


def test_an_event_in_a_namespace_that_terminates_is_dropped(env: Conformance) -> None:
    name = f"{env.namespace}-leaving"
    env.kube.create(Namespace(metadata=ObjectMeta(name=name)))
    kept = ObjectMeta(name="kept", namespace=name, finalizers=[FINALIZER])
    env.kube.create(ConfigMap(metadata=kept))
    env.kube.delete(Namespace, name)
    try:
        with pytest.raises(ApiError) as refused:
            env.kube.create(ConfigMap(metadata=ObjectMeta(name="late", namespace=name)))
        assert refused.value.status.code == 403
        with closing(KubeconfigConnection(env.config)) as connection:
            about = ObjectReference("Pod", "x", "u", name)
            write_event(connection, Event("x.1", about, "NoNodePool", "no"))
    finally:
        env.kube.patch(ConfigMap, "kept", {"metadata": {"finalizers": None}}, namespace=name)


def test_a_pod_whose_owner_never_existed_is_collected(env: Conformance) -> None:
    owner = OwnerReference(
        apiVersion="apps/v1",
        kind="ReplicaSet",
        name="never",
        uid="00000000-0000-0000-0000-000000000001",
        controller=True,
    )
    env.kube.create(bare_pod(env.namespace, "orphan", ownerReferences=[owner]))
    until(lambda: "orphan" not in names_of(env, env.namespace), 90)


def test_a_namespace_enforces_pod_security(env: Conformance) -> None:
    name = f"{env.namespace}-strict"
    labels = {ENFORCE: "restricted"}
    env.kube.create(Namespace(metadata=ObjectMeta(name=name, labels=labels)))
    with pytest.raises(ApiError) as refused:
        env.kube.create(bare_pod(name, "bare"))
    assert refused.value.status.code == 403
    assert 'violates PodSecurity "restricted:latest"' in str(refused.value)
    env.kube.delete(Namespace, name)


@contextmanager
def guarded(env: Conformance, name: str, replicas: int, disruptions: int) -> Iterator[list[Pod]]:
    """Run the pods of a Deployment under a budget that allows some disruptions."""
    env.deploy(name, replicas)
    budget = PodDisruptionBudget(
        metadata=ObjectMeta(name=name, namespace=env.namespace),
        spec=PodDisruptionBudgetSpec(
            maxUnavailable=disruptions, selector=LabelSelector(matchLabels={"app": name})
        ),
    )
    env.kube.create(budget)
    until(lambda: allowed(env, name) == disruptions)
    yield pods_of(env, name)
    env.kube.delete(PodDisruptionBudget, name, namespace=env.namespace)
    env.delete(name)


def pods_of(env: Conformance, app: str) -> list[Pod]:
    return [
        to_pod(msgspec.convert(one.to_dict(), objects.Pod))
        for one in env.kube.list(PodObject, namespace=env.namespace, labels={"app": app})
    ]


def names_of(env: Conformance, namespace: str) -> set[str]:
    found = (pod.metadata for pod in env.kube.list(PodObject, namespace=namespace))
    return {str(metadata.name) for metadata in found if metadata}


def bare_pod(namespace: str, name: str, **metadata: Any) -> PodObject:
    return PodObject(
        metadata=ObjectMeta(name=name, namespace=namespace, **metadata),
        spec=PodSpec(containers=[Container(name="c", image="pause")]),
    )


ASKED = {"metadata": {"annotations": {"leeway.sh/surge": "true"}}}


@pytest.fixture(scope="module")
def surging(env: Conformance) -> Conformance:
    """The cluster with the right to scale in the namespace of the tests, and with a disruption
    budget for all of them."""
    say(env.sandbox, churn={"percent": 100})
    env.kube.create(from_dict(right_in(env.namespace)))
    return env


@contextmanager
def addresses(env: Conformance) -> Iterator[None]:
    """Give addresses to pods whose kubelets give them none, as test kubelets do."""
    stop = threading.Event()

    def give() -> None:
        number = 1
        while not stop.wait(0.2):
            for pod in env.kube.list(PodObject, namespace=env.namespace):
                running = pod.status is not None and pod.status.phase == "Running"
                if not running or pod.status is None or pod.status.podIP:
                    continue
                number += 1
                address = f"10.99.{number // 250}.{number % 250 + 1}"
                status = {"status": {"podIP": address, "podIPs": [{"ip": address}]}}
                name = str(pod.metadata and pod.metadata.name)
                env.kube.patch(PodObject.Status, name, status, namespace=env.namespace)

    thread = threading.Thread(target=give)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def deploy(env: Conformance, name: str, budget: dict[str, Any]) -> tuple[str, str]:
    """Create a Deployment of one replica that may surge, its budget and its Service; return the
    instance and the node of its pod."""
    expose(env, name, budget)
    # A client that has read the address of the pod still reaches the pod.
    env.deploy(name, 1, grace=20, sleeps=2)
    env.kube.patch(Deployment, name, ASKED, namespace=env.namespace)
    return placed(env, name)


def expose(env: Conformance, name: str, budget: dict[str, Any]) -> None:
    """Create a budget and a Service."""
    labels, metadata = {"app": name}, {"name": name, "namespace": env.namespace}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"selector": labels, "ports": [{"port": 80}]},
    }
    limits = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata,
        "spec": {"selector": {"matchLabels": labels}, **budget},
    }
    env.kube.create(from_dict(service))
    env.kube.create(from_dict(limits))


def placed(env: Conformance, name: str) -> tuple[str, str]:
    """Return the instance and the node of the only pod of a workload."""
    (pod,) = pods(env, name)
    joined = env.since(0).of("node-joined", node=pod.spec.nodeName)
    return joined[-1]["instance"], pod.spec.nodeName


def remove(env: Conformance, name: str) -> None:
    """Delete what `deploy` created."""
    conceal(env, name)
    env.delete(name)


def conceal(env: Conformance, name: str) -> None:
    """Delete what `expose` created."""
    for kind in (PodDisruptionBudget, Service):
        env.kube.delete(kind, name, namespace=env.namespace)


def pods(env: Conformance, name: str) -> list[Any]:
    """Return the pods of a Deployment that do not terminate."""
    found = env.kube.list(PodObject, namespace=env.namespace, labels={"app": name})
    return [pod for pod in found if pod.metadata and not pod.metadata.deletionTimestamp]


def size(env: Conformance, name: str) -> int:
    found: Any = env.kube.get(Deployment, name, namespace=env.namespace)
    return int(found.spec.replicas)


ON_A_REAL_ONE = pytest.mark.skipif(
    GIVEN not in os.environ, reason="tests/end_to_end/test_surge.py has such a budget"
)


@pytest.mark.parametrize(
    "budget", [{"minAvailable": 1}, pytest.param({"maxUnavailable": 0}, marks=ON_A_REAL_ONE)]
)
def test_a_client_sees_no_failed_request_while_the_only_pod_moves(
    surging: Conformance, budget: dict[str, Any]
) -> None:
    name = f"surge-{next(iter(budget)).lower()}"
    instance, node = deploy(surging, name, budget)
    caller = ServiceClient(surging.kube, surging.namespace, name)
    with addresses(surging):
        since = time.time()
        with caller.calling():
            surging.sandbox.interrupt([instance], rebalance=True, warning=False)
            (outcome,) = surging.wait([instance], since).outcomes(instance)
    assert outcome["result"] == "drained"
    assert caller.failures == []
    assert len(set(caller.answers)) > 1
    until(lambda: len(pods(surging, name)) == 1)
    (pod,) = pods(surging, name)
    assert (size(surging, name), pod.spec.nodeName != node) == (1, True)
    remove(surging, name)


MERGE = PatchType.MERGE
ROLLOUTS: Any = create_namespaced_resource("argoproj.io", "v1alpha1", "Rollout", "rollouts")


@contextmanager
def argo(env: Conformance, name: str) -> Iterator[None]:
    """Create a Rollout of one replica with its ReplicaSet. The block's controller gives that the
    size of the Rollout, and writes the status, as the controller of Argo does."""
    if serves_rollouts(env):
        pytest.skip("the cluster has Argo Rollouts, and its controller would act too")
    env.kube.create(from_dict(ROLLOUT_KIND))
    until(lambda: serves_rollouts(env))
    labels, here = {"app": name}, env.namespace
    container = {"name": "c", "image": image_of(env.kube), "imagePullPolicy": "IfNotPresent"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    metadata: Any = {"name": name, "namespace": here}
    kind = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout"}
    asked = {**metadata, **ASKED["metadata"]}
    created: Any = env.kube.create(ROLLOUTS.from_dict({**kind, "metadata": asked, "spec": spec}))
    owner = {**kind, "name": name, "uid": created.metadata.uid, "controller": True}
    owned = {**metadata, "labels": labels, "ownerReferences": [owner]}
    sets = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": owned, "spec": spec}
    env.kube.create(from_dict(sets))
    stop = threading.Event()

    def control() -> None:
        while not stop.wait(0.2):
            one: Any = env.kube.get(ROLLOUTS, name, namespace=here)
            size = {"spec": {"replicas": one.spec["replicas"]}}
            env.kube.patch(ReplicaSet, name, size, namespace=here)
            now: Any = env.kube.get(ReplicaSet, name, namespace=here)
            counts = dict.fromkeys(("replicas", "updatedReplicas"), now.status.replicas)
            same = {"observedGeneration": str(one.metadata.generation), "currentPodHash": "abc"}
            status = {"status": {**counts, **same, "stableRS": "abc"}}
            env.kube.patch(ROLLOUTS.Status, name, status, namespace=here, patch_type=MERGE)

    thread = threading.Thread(target=control)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        env.kube.delete(ReplicaSet, name, namespace=here)
        env.kube.delete(CustomResourceDefinition, "rollouts.argoproj.io")


def serves_rollouts(env: Conformance) -> bool:
    """Whether the API server serves Rollouts."""
    try:
        env.kube.get(ROLLOUTS, "none", namespace=env.namespace)
    except ApiError:
        return True
    except HTTPStatusError:  # it does not know the path yet
        return False
    return True


def test_a_client_sees_no_failed_request_while_the_only_pod_of_a_rollout_moves(
    surging: Conformance,
) -> None:
    name = "surge-rollout"
    expose(surging, name, {"minAvailable": 1})
    caller = ServiceClient(surging.kube, surging.namespace, name)
    with addresses(surging), argo(surging, name):
        until(caller.request)
        instance, node = placed(surging, name)
        caller.failures.clear()
        since = time.time()
        with caller.calling():
            surging.sandbox.interrupt([instance], rebalance=True, warning=False)
            (outcome,) = surging.wait([instance], since).outcomes(instance)
        assert (outcome["result"], caller.failures) == ("drained", [])
        until(lambda: len(pods(surging, name)) == 1)
        (pod,) = pods(surging, name)
        assert pod.spec.nodeName != node
        found: Any = surging.kube.get(ROLLOUTS, name, namespace=surging.namespace)
        assert found.spec["replicas"] == 1
    conceal(surging, name)


SCALES = {"resources": ["deployments/scale"], "operations": ["UPDATE"], "apiGroups": ["apps"]}
PODS = {"resources": ["pods"], "operations": ["CREATE"], "apiGroups": [""]}


@contextmanager
def policy(env: Conformance, rule: dict[str, Any], expression: str) -> Iterator[None]:
    """Deny requests in the namespace of the tests, as an admission policy or a quota does."""
    kind, name = "ValidatingAdmissionPolicy", "conformance-no-surge"
    api = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    here = {"matchLabels": {"kubernetes.io/metadata.name": env.namespace}}
    denies = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{**rule, "apiVersions": ["v1"]}]},
        "validations": [{"expression": expression, "message": "one pod is enough here"}],
    }
    binding = {
        "policyName": name,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": here},
    }
    env.kube.create(from_dict({**api, "kind": kind, "spec": denies}))
    env.kube.create(from_dict({**api, "kind": f"{kind}Binding", "spec": binding}))
    try:
        yield
    finally:
        env.kube.delete(ValidatingAdmissionPolicyBinding, name)
        env.kube.delete(ValidatingAdmissionPolicy, name)


def test_a_policy_that_denies_the_scale_is_a_reason_and_the_drain_goes_on(
    surging: Conformance,
) -> None:
    name = "surge-denied"
    instance, _ = deploy(surging, name, {"minAvailable": 1})
    since = time.time()
    with addresses(surging), policy(surging, SCALES, "object.spec.replicas < 2"):
        until(lambda: denied(surging, name))
        surging.sandbox.interrupt([instance], rebalance=True, warning=False)
        until(lambda: "one pod is enough here" in reasons(surging.sandbox, instance))
        assert size(surging, name) == 1
        surging.sandbox.interrupt([instance], late=90)
        (outcome,) = surging.wait([instance], since).outcomes(instance)
    assert (outcome["kind"], outcome["result"]) == ("spot-interruption", "drained")
    remove(surging, name)


@pytest.mark.skipif(GIVEN not in os.environ, reason="controllers of the sandbox pass no admission")
def test_a_pod_that_may_not_be_created_is_given_up_at_once(surging: Conformance) -> None:
    name = "surge-refused"
    instance, _ = deploy(surging, name, {"minAvailable": 1})
    since = time.time()
    forbidden = f"object.metadata.?labels.app.orValue('') != '{name}'"
    with addresses(surging), policy(surging, PODS, forbidden):
        until(lambda: cannot_create(surging, name))
        surging.sandbox.interrupt([instance], rebalance=True, warning=False)
        until(lambda: "cannot create the pod" in reasons(surging.sandbox, instance))
        assert size(surging, name) == 1
    surging.sandbox.interrupt([instance], late=75)
    (outcome,) = surging.wait([instance], since).outcomes(instance)
    assert (outcome["kind"], outcome["result"]) == ("spot-interruption", "drained")
    remove(surging, name)


def cannot_create(env: Conformance, name: str) -> bool:
    """Whether the policy denies pods."""
    labels = {"app": name}
    spec = {"containers": [{"name": "c", "image": "pause"}]}
    metadata = {"name": "refused", "namespace": env.namespace, "labels": labels}
    pod = from_dict({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    try:
        env.kube.create(pod, dry_run=True)
    except ApiError:
        return True
    return False


def denied(env: Conformance, name: str) -> bool:
    """Whether the policy is in force."""
    scale = {"spec": {"replicas": 2}}
    try:
        env.kube.patch(Deployment.Scale, name, scale, namespace=env.namespace, dry_run=True)
    except ApiError:
        return True
    return False
