"""Pause pods: they reserve capacity until an ordinary pod needs it.

They have a negative priority and preempt no pod, so the scheduler evicts them in favour of any
ordinary pod. An evicted pause pod is pending again, which requests the next node.

A person who writes manifests decides where pause pods run, and with which requests. The limits
below keep these pods from anything else. rbac/admission.yaml has the same limits.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

LOWEST_PRIORITY = -10
"""Node autoscalers ignore pending pods with a lower priority. Source: Cluster Autoscaler's
`--expendable-pods-priority-cutoff`."""

MAX_NAME_LENGTH = 63
"""Characters of a buffer's Deployment name: it is also the value of a label of its pods."""

IMAGE = (
    "registry.k8s.io/pause:3.10"
    "@sha256:ee6521f290b2168b6e0935a181d4cff9be1ac3f505666ef0e3c98fae8199917a"
)
"""The digest is that of the multi-platform index, so the tag cannot change the image. Source:
Cilium's Dockerfile of its own pause image; nine other projects use the same digest."""

_TAG = r"(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})"
_PAUSE_IMAGE = re.compile(
    rf"registry\.k8s\.io/pause({_TAG}(@sha256:[0-9a-f]{{64}})?|@sha256:[0-9a-f]{{64}})"
    rf"|([A-Za-z0-9._:-]+/)+pause{_TAG}?@{re.escape(IMAGE.partition('@')[2])}"
)


def is_pause_image(image: str) -> bool:
    """Whether an image only pauses: one of registry.k8s.io, or a copy of IMAGE elsewhere."""
    return _PAUSE_IMAGE.fullmatch(image) is not None


MANAGED_BY = "app.kubernetes.io/managed-by"
BUFFER_LABEL = "leeway.sh/headroom"
OWNER_LABELS = {MANAGED_BY: "leeway"}
"""The labels of every headroom object that Leeway creates."""

NAMESPACE = "leeway-headroom"
"""The namespace of pause pods whose manifest names no other."""

_TAINTS_OF_OTHERS = re.compile(
    r"^(leeway|karpenter)\.sh/|^node(\.cloudprovider)?\.kubernetes\.io/"
    r"|^node-role\.kubernetes\.io/(control-plane|master)$|ClusterAutoscaler$"
)
"""Keys of the taints of nodes that start, retire, fail, or run the control plane."""


def may_tolerate(toleration: Mapping[str, Any]) -> bool:
    """Whether a pause pod may have a toleration. It tolerates the taints of a pool, each by its
    key: on a node that starts or retires it would be in the way."""
    key = str(toleration.get("key") or "")
    return bool(key) and not _TAINTS_OF_OTHERS.search(key)


def may_keep_away(term: Mapping[str, Any]) -> bool:
    """Whether a pause pod may have a term of pod anti-affinity.

    The scheduler also keeps the selected pods away from the pause pod. It preempts pause pods for
    them on one node only, so terms by zone would close a zone with pause pods on several nodes.
    Source: Kubernetes documentation, "Assigning Pods to Nodes".
    """
    return (
        term.get("topologyKey") == "kubernetes.io/hostname"
        and not term.get("namespaces")
        and term.get("namespaceSelector") is None
    )


def anti_affinity_terms(affinity: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return all terms of pod anti-affinity of a pod's affinity."""
    rules = affinity.get("podAntiAffinity") or {}
    preferred = rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    return [
        *(rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ()),
        *(one.get("podAffinityTerm") or {} for one in preferred),
    ]


@dataclass(frozen=True, slots=True)
class PausePods:
    """The pods of one buffer. `requests` are Kubernetes quantities by resource.

    `tolerations` and `spread` have the form of a pod spec; a spread constraint without a selector
    gets the selector of the buffer's pods.
    """

    name: str
    namespace: str
    requests: Mapping[str, str]
    priority: int = LOWEST_PRIORITY
    image: str = IMAGE
    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity: Mapping[str, Any] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, Any]] = ()
    spread: Sequence[Mapping[str, Any]] = ()


def priority_class_name(priority: int) -> str:
    """Return the name of a priority's class. It contains the value, which is immutable."""
    return f"leeway-headroom-{priority}"


def priority_class_object(priority: int) -> dict[str, Any]:
    """Return the PriorityClass object of a priority."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": priority_class_name(priority), "labels": dict(OWNER_LABELS)},
        "value": priority,
        "globalDefault": False,
        "preemptionPolicy": "Never",
        "description": "Pause pods of Leeway: the scheduler evicts them for every ordinary pod",
    }


def deployment_object(pods: PausePods, replicas: int) -> dict[str, Any]:
    """Return the Deployment object of a buffer with this many replicas."""
    selector = {BUFFER_LABEL: pods.name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": pods.name,
            "namespace": pods.namespace,
            "labels": {**OWNER_LABELS, **selector},
        },
        "spec": {
            "replicas": replicas,
            "revisionHistoryLimit": 1,
            "selector": {"matchLabels": selector},
            # No surge: more pods during a rollout would request nodes for the rollout only.
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "25%"},
            },
            "template": {
                "metadata": {"labels": {**OWNER_LABELS, **selector}},
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
        # Required by the restricted Pod Security Standard.
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
    """Return the requests, and equal limits for devices and huge pages, as Kubernetes requires."""
    limits = {
        name: quantity
        for name, quantity in requests.items()
        if "/" in name or name.startswith("hugepages-")
    }
    return {"requests": dict(requests), **({"limits": limits} if limits else {})}
