"""Pause pods: the objects in the cluster that hold room until a real pod needs it.

They run at a negative priority and preempt nothing, so that the scheduler evicts them for any
ordinary pod; evicted, they are pending again, and that brings the next node.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

LOWEST_THAT_COUNTS = -10
"""Node autoscalers ignore pending pods below it. Source: Cluster Autoscaler's
`--expendable-pods-priority-cutoff`."""

LONGEST_NAME = 63
"""Characters of a Deployment's name here: its pods are selected by a label with it."""

IMAGE = (
    "registry.k8s.io/pause:3.10"
    "@sha256:ee6521f290b2168b6e0935a181d4cff9be1ac3f505666ef0e3c98fae8199917a"
)
"""By the digest of its list of platforms, so that nobody can put another image behind the tag.
Source: the same in Cilium's Dockerfile of its own pause image, and in nine other projects."""

MANAGED_BY = "app.kubernetes.io/managed-by"
BUFFER_LABEL = "leeway.sh/headroom"
OWN = {MANAGED_BY: "leeway"}
"""The labels on every object that Leeway makes for headroom."""

NAMESPACE = "leeway-headroom"
"""Where pause pods run unless their manifest names another namespace."""


@dataclass(frozen=True, slots=True)
class PausePods:
    """One buffer's pods. `requests` are Kubernetes quantities by resource.

    `tolerations` and `spread` are as in a pod's spec; a spread constraint without a selector counts
    the buffer's own pods.
    """

    name: str
    namespace: str
    requests: Mapping[str, str]
    priority: int = LOWEST_THAT_COUNTS
    image: str = IMAGE
    labels: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity: Mapping[str, Any] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, Any]] = ()
    spread: Sequence[Mapping[str, Any]] = ()


def priority_class_name(priority: int) -> str:
    """Name the class of a priority: by its value, since a class's value can't change."""
    return f"leeway-headroom-{priority}"


def priority_class_object(priority: int) -> dict[str, Any]:
    """The PriorityClass of a priority."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": priority_class_name(priority), "labels": dict(OWN)},
        "value": priority,
        "globalDefault": False,
        "preemptionPolicy": "Never",
        "description": "Leeway's pause pods: they make way for every ordinary pod",
    }


def deployment_object(pods: PausePods, replicas: int) -> dict[str, Any]:
    """The Deployment of a buffer at a size."""
    selector = {BUFFER_LABEL: pods.name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": pods.name,
            "namespace": pods.namespace,
            "labels": {**OWN, **selector},
        },
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 1,
            "selector": {"matchLabels": selector},
            # A change makes room pod by pod: more at once would buy nodes just for the change.
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "25%"},
            },
            "template": {
                "metadata": {"labels": {**pods.labels, **OWN, **selector}},
                "spec": _pod_spec(pods, selector),
            },
        },
    }


def _pod_spec(pods: PausePods, selector: dict[str, str]) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "priorityClassName": priority_class_name(pods.priority),
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # What the restricted Pod Security Standard asks for.
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65535,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "pause",
                "image": pods.image,
                "resources": _resources(pods.requests),
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
    }
    if pods.node_selector:
        spec["nodeSelector"] = dict(pods.node_selector)
    if pods.affinity:
        spec["affinity"] = dict(pods.affinity)
    if pods.tolerations:
        spec["tolerations"] = [dict(toleration) for toleration in pods.tolerations]
    if pods.spread:
        spec["topologySpreadConstraints"] = [
            {"labelSelector": {"matchLabels": selector}, **constraint} for constraint in pods.spread
        ]
    return spec


def _resources(requests: Mapping[str, str]) -> dict[str, Any]:
    """Requests, and as limits those that Kubernetes wants equal: devices and huge pages."""
    limits = {
        name: quantity
        for name, quantity in requests.items()
        if "/" in name or name.startswith("hugepages-")
    }
    return {"requests": dict(requests), **({"limits": limits} if limits else {})}
