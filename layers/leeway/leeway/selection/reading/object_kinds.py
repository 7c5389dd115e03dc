"""Which kinds of Kubernetes objects are read, and which stand beside them in files."""

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
"""Kinds that say something about pods or nodes, and are none themselves."""

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
"""Kinds that stand in manifests with pods, or in what kubectl says of a whole cluster, and decide
nothing about where pods go."""

_EXPECTED = "expected Pod, List, Deployment, StatefulSet, Job, DaemonSet or Node"
_SIMILARITY = 0.85
"""How alike a kind is to one that is read, if it is a slip: `Deploymet`, but not `PodMonitor`."""


def unknown_kinds(objects: Sequence[Document]) -> Mapping[str, int]:
    """Return the kinds that are passed over and might have pods all the same, as those of other
    controllers do, each with the position of its first object.

    Raises:
        BadObject: nothing at all is of a kind that is read, or a kind is written wrongly; its path
            begins with the object's position.
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
