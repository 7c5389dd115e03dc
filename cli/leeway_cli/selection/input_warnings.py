"""Warnings about files with Kubernetes objects: kinds that selection ignores, references of
pending pods to objects that no file contains, and annotations that nothing reads."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from leeway.headroom.pause_pods import BUFFER_LABEL
from leeway.manifests.base import unknown_words
from leeway.ports.kubernetes_objects import DO_NOT_DISRUPT, DO_NOT_EVICT
from leeway.selection.reading.cluster_objects import with_pending_pods
from leeway.selection.reading.objects import (
    REFERENCED,
    WORKLOADS,
    BadObject,
    Document,
    key_of,
    name_of,
)
from leeway.selection.reading.pod_objects import default_class

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


type Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class MissingReference:
    """A missing object, or a word that nothing reads. `path` begins with the position of the object
    that references it."""

    path: Path
    message: str


def missing_references(
    objects: Sequence[Document], others: Sequence[Document] = ()
) -> tuple[MissingReference, ...]:
    """Return each missing object once, at the first object that references it.

    Raises:
        BadObject: an object is invalid; its path begins with its position.
    """
    documents = [*objects, *others]
    given = _GivenObjects(
        {key_of(d): d for d in documents if d.get("kind") == "PersistentVolumeClaim"},
        frozenset((str(d.get("kind")), name_of(d)) for d in documents),
        default_class(documents),
    )
    found: dict[str, MissingReference] = {}
    for position, document in with_pending_pods(objects, others):
        for path, message in _of(document, given):
            found.setdefault(message, MissingReference((position, *path), message))
    return tuple(found.values())


_OF_PODS = {"annotations": (DO_NOT_DISRUPT, DO_NOT_EVICT), "labels": (BUFFER_LABEL,)}
"""What Leeway reads of the annotations and labels of pods: none is of its own domain but that of
its pause pods."""


def unknown_words_of(pod: Document) -> Iterator[tuple[Path, str]]:
    """Yield the annotations and labels of a pod in Leeway's domain that nothing reads."""
    metadata = pod.get("metadata") or {}
    for field, known in _OF_PODS.items():
        keys = metadata.get(field) or {}
        for key, message in unknown_words(keys, known, field.removesuffix("s"), "pods"):
            yield ("metadata", field, key), message


@dataclass(frozen=True, slots=True)
class _GivenObjects:
    claims: dict[str, Document]
    names: frozenset[tuple[str, str]]
    default_class: str

    def has(self, kind: str, name: str) -> bool:
        return (kind, name) in self.names


def _of(document: Document, given: _GivenObjects) -> Iterator[tuple[Path, str]]:
    """The missing references of one object, by paths within it."""
    inside: Path = () if document.get("kind") == "Pod" else ("spec", "template")
    pod = document if not inside else document["spec"]["template"]
    spec = pod.get("spec") or {}
    namespace = str((document.get("metadata") or {}).get("namespace") or "default")
    for path, message in (
        *_of_volumes(spec, namespace, given),
        *_of_runtime(pod, given),
        *unknown_words_of(pod),
    ):
        yield (*inside, *path), message
    if document.get("kind") == "StatefulSet":
        for i, template in enumerate(document["spec"].get("volumeClaimTemplates") or ()):
            for message in _of_class(template, given):
                yield ("spec", "volumeClaimTemplates", i, "spec", "storageClassName"), message


def _of_volumes(spec: Document, namespace: str, given: _GivenObjects) -> Iterator[tuple[Path, str]]:
    for i, volume in enumerate(spec.get("volumes") or ()):
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
        if claim:
            path: Path = ("spec", "volumes", i, "persistentVolumeClaim", "claimName")
            for message in _of_claim(f"{namespace}/{claim}", given):
                yield path, message
        elif template:
            for message in _of_class(template, given):
                yield ("spec", "volumes", i, "ephemeral", "volumeClaimTemplate"), message


def _of_claim(claim: str, given: _GivenObjects) -> Iterator[str]:
    found = given.claims.get(claim)
    if found is None:
        yield _not_given(f"PersistentVolumeClaim {claim}")
        return
    volume = (found.get("spec") or {}).get("volumeName")
    if not volume:
        yield from _of_class(found, given)
    elif not given.has("PersistentVolume", volume):
        yield _not_given(f"PersistentVolume {volume} of the claim {claim}")


def _of_class(claim: Document, given: _GivenObjects) -> Iterator[str]:
    name = (claim.get("spec") or {}).get("storageClassName")
    if name is None and not given.default_class:
        yield _not_given("a default StorageClass")
    elif name and not given.has("StorageClass", name):
        yield _not_given(f"StorageClass {name}")


def _not_given(what: str) -> str:
    return f"{what} is in no file: selection assumes that it allows every zone and every node"


def _of_runtime(pod: Document, given: _GivenObjects) -> Iterator[tuple[Path, str]]:
    name = (pod.get("spec") or {}).get("runtimeClassName")
    admitted = (pod.get("metadata") or {}).get("uid")
    if name and not admitted and not given.has("RuntimeClass", name):
        message = f"RuntimeClass {name} is in no file: selection ignores its overhead and nodes"
        yield ("spec", "runtimeClassName"), message
