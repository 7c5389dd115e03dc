"""What a cluster counts, refuses and collects beyond its answers, as Leeway relies on it."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from leeway.clock import SystemClock
from leeway.kubernetes import objects
from leeway.kubernetes.http_cluster import HttpCluster
from leeway.kubernetes.pod_events import HttpPodEvents
from leeway.kubernetes.translate import to_pod
from leeway.ports.kubernetes_objects import Pod
from leeway.provisioning.tell import PodEvent
from leeway.retirement.executor import evict
from leeway.retirement.pods import Meaning, read_answer
from leeway.retirement.progress import PodRequest, RemovalMethod
from leeway.retirement.reasons import POD_EVICTED
from leeway.retirement.requests import Requests
from leeway_cli.kubeconfig import KubeconfigConnection
from lightkube import ApiError
from lightkube.models.core_v1 import Container, PodSpec
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta, OwnerReference
from lightkube.models.policy_v1 import PodDisruptionBudgetSpec
from lightkube.resources.core_v1 import ConfigMap, Namespace
from lightkube.resources.core_v1 import Pod as PodObject
from lightkube.resources.policy_v1 import PodDisruptionBudget

from tests.conformance.conftest import Conformance
from tests.end_to_end.environment import until

STORM = 40
ENFORCE = "pod-security.kubernetes.io/enforce"
FINALIZER = "sandbox.leeway.sh/conformance"


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
            HttpPodEvents(connection).write(PodEvent("x.1", name, "x", "u", "NoNodePool", "no"))
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


def allowed(env: Conformance, name: str) -> int:
    status = env.kube.get(PodDisruptionBudget, name, namespace=env.namespace).status
    return (status.disruptionsAllowed if status else None) or 0


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
