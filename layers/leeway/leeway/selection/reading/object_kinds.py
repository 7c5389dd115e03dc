"""The kinds of Kubernetes objects that selection reads, and those that it ignores."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from leeway.selection.reading.objects import BadObject, Document

WORKLOADS = frozenset({"Deployment", "StatefulSet", "Job", "ReplicaSet", "ReplicationController"})
REFERENCED = frozenset(
    {
        "CSINode",
        "LimitRange",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "PriorityClass",
        "RuntimeClass",
        "StorageClass",
    }
)
"""Kinds that pods or nodes depend on."""

READ = frozenset({"Pod", "Node", "DaemonSet", *WORKLOADS, *REFERENCED})

IGNORED = frozenset(
    {
        "APIService",
        "CSIDriver",
        "CSIStorageCapacity",
        "ClusterRole",
        "ClusterRoleBinding",
        "ConfigMap",
        "ControllerRevision",
        "CronJob",
        "CustomResourceDefinition",
        "EndpointSlice",
        "Endpoints",
        "Event",
        "HorizontalPodAutoscaler",
        "Ingress",
        "IngressClass",
        "Lease",
        "MutatingWebhookConfiguration",
        "Namespace",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "PodMonitor",
        "PrometheusRule",
        "ResourceQuota",
        "Role",
        "RoleBinding",
        "Secret",
        "Service",
        "ServiceAccount",
        "ServiceMonitor",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
        "VolumeAttachment",
    }
)
"""Kinds that are common in manifests with pods or in the output of kubectl for a whole cluster, and
do not affect scheduling."""

_EXPECTED = "expected Pod, List, Deployment, StatefulSet, Job, DaemonSet or Node"
_SIMILARITY = 0.85
"""Minimum similarity of a kind to one that is read for it to count as a typing error: `Deploymet`,
but not `PodMonitor`."""


def unknown_kinds(objects: Sequence[Document]) -> Mapping[str, int]:
    """Return the kinds that are ignored but might have pods, such as custom workloads, each with
    the position of its first object.

    Raises:
        BadObject: no kind is one that is read, or a kind is misspelled; its path begins with
            the position of the object.
    """
    kinds = [str(document.get("kind")) for document in objects]
    if kinds and not READ.intersection(kinds):
        raise BadObject((0, "kind"), f"{_EXPECTED}, got {kinds[0]}")
    known = READ | IGNORED
    unknown = {kind: kinds.index(kind) for kind in dict.fromkeys(kinds) if kind not in known}
    for kind, position in unknown.items():
        similar = get_close_matches(kind, sorted(READ), n=1, cutoff=_SIMILARITY)
        if similar:
            message = f"{_EXPECTED}, got {kind}; did you mean {similar[0]}?"
            raise BadObject((position, "kind"), message)
    return unknown
