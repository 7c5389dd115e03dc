"""Lists of Kubernetes objects → who waits, who runs where, and the nodes there are."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from leeway.selection.labels import NODEPOOL, normalised
from leeway.selection.pod_objects import (
    BadObject,
    Document,
    Volumes,
    pod_spec,
    volumes_of,
)
from leeway.selection.pods import ExistingNode, Pod, PodSpec
from leeway.selection.pools import Taint
from leeway.selection.quantities import BadQuantity
from leeway.selection.resources import Resources

WORKLOADS = frozenset({"Deployment", "StatefulSet", "Job", "ReplicaSet", "ReplicationController"})
BESIDE = frozenset({"PersistentVolumeClaim", "PersistentVolume", "StorageClass", "PriorityClass"})
"""Kinds that say something about pods, and are none themselves."""

_FINISHED = frozenset({"Succeeded", "Failed"})
_MOST_REPLICAS = 100_000


def listed(documents: Iterable[Document]) -> Iterator[Document]:
    """Take lists apart."""
    for document in documents:
        if str(document.get("kind") or "").endswith("List") and "items" in document:
            kind = str(document["kind"]).removesuffix("List")
            for item in document["items"] or ():
                yield item if item.get("kind") or not kind else {"kind": kind, **item}
        else:
            yield document


def waiting_pods(objects: Sequence[Document], replicas: Mapping[str, int]) -> tuple[Pod, ...]:
    """Read Pods that have no node yet, and the pods of workloads as `<name>-<ordinal>`.

    `replicas` say how many a workload of this name has, whatever it says itself.

    Raises:
        BadObject: an object is not as the API has it; its path begins with its position.
    """
    volumes, priorities = volumes_of(objects), _priorities(objects)
    pods: list[Pod] = []
    for position, document in enumerate(objects):
        try:
            if document.get("kind") in WORKLOADS:
                pods += _expanded(document, replicas, volumes, priorities)
            elif document.get("kind") == "Pod" and _waits(document):
                pods.append(Pod(_key(document), pod_spec(document, volumes, priorities)))
        except BadObject as error:
            raise BadObject((position, *error.path), str(error)) from error
    return tuple(pods)


def daemons_of(objects: Sequence[Document]) -> tuple[PodSpec, ...]:
    """Read the pods that nodes get one of each: of DaemonSets, or, of those that are not given,
    of a pod that one of them owns.

    Raises:
        BadObject: an object is not as the API has it; its path begins with its position.
    """
    found: dict[str, PodSpec] = {}
    templates = [(i, _key(d), d) for i, d in enumerate(objects) if d.get("kind") == "DaemonSet"]
    owned = [(i, _daemon(d), d) for i, d in enumerate(objects) if d.get("kind") == "Pod"]
    for position, key, document in [*templates, *owned]:
        if key and key not in found:
            try:
                daemon = document.get("kind") == "DaemonSet"
                found[key] = pod_spec(_template(document) if daemon else _anywhere(document))
            except BadObject as error:
                raise BadObject((position, *error.path), str(error)) from error
    return tuple(found.values())


def _daemon(pod: Document) -> str:
    """The DaemonSet that owns a pod, as `namespace/name`; empty where none does."""
    metadata = pod.get("metadata") or {}
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("kind") == "DaemonSet":
            return f"{metadata.get('namespace') or 'default'}/{owner.get('name')}"
    return ""


def _anywhere(pod: Document) -> Document:
    """A daemon's pod without the node that its controller chose for it."""
    spec = pod.get("spec") or {}
    nodes = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = nodes.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = [
        {"matchExpressions": term["matchExpressions"]}
        for term in required.get("nodeSelectorTerms") or ()
        if term.get("matchExpressions")
    ]
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = {"nodeAffinity": {key: {"nodeSelectorTerms": terms}}} if terms else {}
    return {**pod, "spec": {**spec, "affinity": affinity}}


def unknown_kind(objects: Sequence[Document]) -> int | None:
    """The position of an object that is neither pods nor says anything of pods or nodes."""
    known = {"Pod", "Node", "DaemonSet", *WORKLOADS, *BESIDE}
    return next((i for i, d in enumerate(objects) if d.get("kind") not in known), None)


def _expanded(
    document: Document,
    replicas: Mapping[str, int],
    volumes: Volumes,
    priorities: Mapping[str, int],
) -> Iterator[Pod]:
    name = str((document.get("metadata") or {}).get("name") or "")
    spec = document.get("spec") or {}
    written = spec.get("parallelism" if document["kind"] == "Job" else "replicas", 1)
    if document["kind"] == "Job" and isinstance(spec.get("completions"), int):
        written = min(written, spec["completions"]) if isinstance(written, int) else written
    count = replicas.get(name, written)
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= _MOST_REPLICAS:
        raise BadObject(("spec", "replicas"), f"expected 0 to {_MOST_REPLICAS}, got {count}")
    template = _template(document)
    of = pod_spec(template, volumes, priorities)
    return (Pod(f"{of.namespace}/{name}-{ordinal}", of) for ordinal in range(count))


def _template(document: Document) -> Document:
    template = (document.get("spec") or {}).get("template")
    if not isinstance(template, Mapping):
        raise BadObject(("spec", "template"), "expected a pod template")
    metadata = template.get("metadata") or {}
    namespace = (document.get("metadata") or {}).get("namespace") or "default"
    return {**template, "metadata": {**metadata, "namespace": namespace}}


def existing_nodes(objects: Sequence[Document]) -> tuple[ExistingNode, ...]:
    """Read Nodes that take pods, each with the pods that are bound to it.

    Raises:
        BadObject: an object is not as the API has it; its path begins with its position.
    """
    volumes, priorities = volumes_of(objects), _priorities(objects)
    bound: dict[str, list[PodSpec]] = {}
    for position, document in enumerate(objects):
        node = (document.get("spec") or {}).get("nodeName")
        if document.get("kind") == "Pod" and node and not _finished(document):
            try:
                bound.setdefault(node, []).append(pod_spec(document, volumes, priorities))
            except BadObject as error:
                raise BadObject((position, *error.path), str(error)) from error
    nodes = []
    for position, document in enumerate(objects):
        if document.get("kind") == "Node":
            try:
                nodes.append(_node(document, bound))
            except (BadQuantity, AttributeError, KeyError, TypeError) as error:
                raise BadObject((position, "status"), f"expected a node: {error}") from error
    return tuple(nodes)


def _node(document: Document, bound: Mapping[str, list[PodSpec]]) -> ExistingNode:
    metadata, spec, status = (document.get(part) or {} for part in ("metadata", "spec", "status"))
    name = metadata["name"]
    labels = {normalised(k): str(v) for k, v in (metadata.get("labels") or {}).items()}
    taints = [Taint(t["key"], t.get("value") or "", t["effect"]) for t in spec.get("taints") or ()]
    if spec.get("unschedulable"):
        taints.append(Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"))
    return ExistingNode(
        name=name,
        labels=labels,
        allocatable=_amounts(status.get("allocatable") or status.get("capacity") or {}),
        capacity=_amounts(status.get("capacity") or {}),
        taints=tuple(taints),
        pods=tuple(bound.get(name, ())),
        pool=labels.get(NODEPOOL, ""),
    )


def _amounts(quantities: Mapping[str, Any]) -> Resources:
    return Resources.parsed({name: str(amount) for name, amount in quantities.items()})


def _priorities(objects: Iterable[Document]) -> dict[str, int]:
    return {
        str(d["metadata"]["name"]): int(d.get("value", 0))
        for d in objects
        if d.get("kind") == "PriorityClass"
    }


def _waits(pod: Document) -> bool:
    spec = pod.get("spec") or {}
    return not (spec.get("nodeName") or spec.get("schedulingGates") or _finished(pod))


def _finished(pod: Document) -> bool:
    return (pod.get("status") or {}).get("phase") in _FINISHED


def _key(document: Document) -> str:
    metadata = document.get("metadata") or {}
    return f"{metadata.get('namespace') or 'default'}/{metadata.get('name') or ''}"
