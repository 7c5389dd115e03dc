"""Surges on a cluster that runs already: its own controllers, EndpointSlices and admission."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from httpx2 import HTTPStatusError
from lightkube import ApiError
from lightkube.codecs import from_dict
from lightkube.generic_resource import create_namespaced_resource
from lightkube.resources.admissionregistration_v1 import (
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
)
from lightkube.resources.apiextensions_v1 import CustomResourceDefinition
from lightkube.resources.apps_v1 import Deployment, ReplicaSet
from lightkube.resources.core_v1 import Pod, Service
from lightkube.resources.policy_v1 import PodDisruptionBudget
from lightkube.types import PatchType

from tests.conformance.conftest import GIVEN, Conformance, image_of
from tests.end_to_end.environment import say, until
from tests.end_to_end.surging import ServiceClient, reasons, right_in
from tests.kubernetes.rollouts import ROLLOUT_KIND

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
            for pod in env.kube.list(Pod, namespace=env.namespace):
                running = pod.status is not None and pod.status.phase == "Running"
                if not running or pod.status is None or pod.status.podIP:
                    continue
                number += 1
                address = f"10.99.{number // 250}.{number % 250 + 1}"
                status = {"status": {"podIP": address, "podIPs": [{"ip": address}]}}
                name = str(pod.metadata and pod.metadata.name)
                env.kube.patch(Pod.Status, name, status, namespace=env.namespace)

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
    env.deploy(name, 1)
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
    found = env.kube.list(Pod, namespace=env.namespace, labels={"app": name})
    return [pod for pod in found if pod.metadata and not pod.metadata.deletionTimestamp]


def size(env: Conformance, name: str) -> int:
    found: Any = env.kube.get(Deployment, name, namespace=env.namespace)
    return int(found.spec.replicas)


@pytest.mark.parametrize("budget", [{"minAvailable": 1}, {"maxUnavailable": 0}])
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
