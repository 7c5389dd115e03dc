"""Lists of Kubernetes objects → who waits, who runs where, and the nodes there are."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from leeway.selection.labels import NODEPOOL, normalised
from leeway.selection.pods import ExistingNode, Pod, PodSpec
from leeway.selection.pools import Taint
from leeway.selection.quantities import BadQuantity
from leeway.selection.reading.objects import BadObject, Document
from leeway.selection.reading.pod_objects import pod_spec, with_volumes
from leeway.selection.reading.volumes import EBS_DRIVER, Volumes, volumes_of
from leeway.selection.resources import EBS_VOLUMES, Resources

WORKLOADS = frozenset({"Deployment", "StatefulSet", "Job", "ReplicaSet", "ReplicationController"})
BESIDE = frozenset(
    {"CSINode", "PersistentVolumeClaim", "PersistentVolume", "StorageClass", "PriorityClass"}
)
"""Kinds that say something about pods or nodes, and are none themselves."""

ALONGSIDE = frozenset(
    {
        "CSIDriver",
        "ClusterRole",
        "ClusterRoleBinding",
        "ConfigMap",
        "ControllerRevision",
        "CronJob",
        "EndpointSlice",
        "Endpoints",
        "Event",
        "HorizontalPodAutoscaler",
        "Ingress",
        "Lease",
        "Namespace",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Role",
        "RoleBinding",
        "Secret",
        "Service",
        "ServiceAccount",
        "VolumeAttachment",
    }
)
"""Kinds that stand in manifests with pods, or in what kubectl says of a whole cluster, and decide
nothing about where pods go."""

MANY = 1000
"""EBS volumes that a node takes of which nobody says how many: no machine has room for more."""

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


@dataclass(frozen=True, slots=True)
class Beside:
    """What other objects say of pods: `nodes` are the names of those there are, `attachable` how
    many EBS volumes some of them attach."""

    volumes: Volumes
    priorities: Mapping[str, int]
    nodes: frozenset[str]
    attachable: Mapping[str, int]


def beside(objects: Sequence[Document]) -> Beside:
    """Read what is no pod and says something about pods.

    Raises:
        BadObject: an object is not as the API has it; its path begins with its position.
    """
    _check_shapes(objects)
    priorities: dict[str, int] = {}
    for position, document in enumerate(objects):
        if document.get("kind") == "PriorityClass":
            value = document.get("value", 0)
            if not isinstance(value, int):
                raise BadObject((position, "value"), f"expected a whole number, got {value}")
            priorities[_name(document)] = value
    nodes = frozenset(_name(d) for d in objects if d.get("kind") == "Node")
    return Beside(volumes_of(objects), priorities, nodes, dict(_attachable(objects)))


def _attachable(objects: Sequence[Document]) -> Iterator[tuple[str, int]]:
    """What the EBS driver says of the nodes that it runs on."""
    for position, document in enumerate(objects):
        if document.get("kind") != "CSINode":
            continue
        try:
            for driver in (document.get("spec") or {}).get("drivers") or ():
                if driver.get("name") == EBS_DRIVER:
                    yield _name(document), int((driver.get("allocatable") or {}).get("count", MANY))
        except (AttributeError, TypeError, ValueError) as error:
            said = f"expected drivers as the Kubernetes API has them ({error})"
            raise BadObject((position, "spec", "drivers"), said) from error


def waiting_pods(
    objects: Sequence[Document],
    replicas: Mapping[str, int],
    others: Sequence[Document] = (),
) -> tuple[Pod, ...]:
    """Read Pods that have no node yet, and the pods of workloads as `<name>-<ordinal>`.

    Pods that are not for a new node to hold are left out: those of daemons, those that end, and
    those that the scheduler evicts others for. A workload whose own pods are given too has no
    others.

    `replicas` say how many a workload of this name has, whatever it says itself; `others` are
    objects that say something about these.

    Raises:
        BadObject: an object is not as the API has it; its path begins with its position.
    """
    known = beside([*objects, *others])
    owners = _owners(objects)
    pods: list[Pod] = []
    for position, document in enumerate(objects):
        try:
            if document.get("kind") in WORKLOADS and _identity(document) not in owners:
                pods += _expanded(document, replicas, known)
            elif document.get("kind") == "Pod" and _waits(document, known.nodes):
                pods.append(
                    Pod(_key(document), pod_spec(document, known.volumes, known.priorities))
                )
        except BadObject as error:
            raise BadObject((position, *error.path), str(error)) from error
    return tuple(pods)


def _check_shapes(objects: Sequence[Document]) -> None:
    for position, document in enumerate(objects):
        for part in ("metadata", "spec", "status"):
            if not isinstance(document.get(part) or {}, Mapping):
                raise BadObject((position, part), "expected a mapping")
        metadata = document.get("metadata") or {}
        if not isinstance(metadata.get("name") or metadata.get("generateName"), str):
            raise BadObject((position, "metadata", "name"), "expected text; every object has it")


def _owners(objects: Sequence[Document]) -> frozenset[tuple[str, str, str]]:
    """The workloads that have other objects of these: a Deployment its ReplicaSets, which have
    Pods."""
    found: set[tuple[str, str, str]] = set()
    for document in objects:
        for owner in (document.get("metadata") or {}).get("ownerReferences") or ():
            kind, name = str(owner.get("kind")), str(owner.get("name"))
            found.add((kind, _namespace(document), name))
            if kind == "ReplicaSet":  # named after its Deployment, with a hash
                found.add(("Deployment", _namespace(document), name.rpartition("-")[0]))
    return frozenset(found)


def _identity(document: Document) -> tuple[str, str, str]:
    return str(document.get("kind")), _namespace(document), _name(document)


def daemons_of(objects: Sequence[Document]) -> tuple[PodSpec, ...]:
    """Read the pods that nodes get one of each: of DaemonSets, or, of those that are not given,
    of a pod that one of them owns.

    Raises:
        BadObject: an object is not as the API has it; its path begins with its position.
    """
    _check_shapes(objects)
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
    """The position of an object of a kind that is not taken; kinds that applications bring along
    are, but not by themselves."""
    known = {"Pod", "Node", "DaemonSet", *WORKLOADS, *BESIDE}
    taken = known | ALONGSIDE if any(d.get("kind") in known for d in objects) else known
    return next((i for i, d in enumerate(objects) if d.get("kind") not in taken), None)


def _expanded(
    document: Document,
    replicas: Mapping[str, int],
    known: Beside,
) -> Iterator[Pod]:
    name = _name(document)
    count = replicas.get(name, _written_replicas(document))
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= _MOST_REPLICAS:
        raise BadObject(("spec", "replicas"), f"expected 0 to {_MOST_REPLICAS}, got {count}")
    of = pod_spec(_template(document), known.volumes, known.priorities)
    spec = document.get("spec") or {}
    claimed = (spec.get("volumeClaimTemplates") or ()) if _stateful(document) else ()
    first = (spec.get("ordinals") or {}).get("start") or 0 if _stateful(document) else 0
    for ordinal in range(first, first + count):
        pod = f"{name}-{ordinal}"
        asked = known.volumes.of_replica(claimed, of.namespace, pod)
        yield Pod(f"{of.namespace}/{pod}", with_volumes(of, asked))


def _stateful(document: Document) -> bool:
    return document.get("kind") == "StatefulSet"


def _written_replicas(document: Document) -> Any:
    """How many pods a workload says that it has; 1 where it says nothing."""
    spec = document.get("spec") or {}
    if document["kind"] != "Job":
        return 1 if spec.get("replicas") is None else spec["replicas"]
    if spec.get("suspend"):
        return 0
    at_once = 1 if spec.get("parallelism") is None else spec["parallelism"]
    whole = spec.get("completions")
    return min(at_once, whole) if isinstance(at_once, int) and isinstance(whole, int) else at_once


def _template(document: Document) -> Document:
    template = (document.get("spec") or {}).get("template")
    if not isinstance(template, Mapping):
        raise BadObject(("spec", "template"), "expected a pod template")
    metadata = template.get("metadata") or {}
    namespace = (document.get("metadata") or {}).get("namespace") or "default"
    return {**template, "metadata": {**metadata, "namespace": namespace}}


def existing_nodes(
    objects: Sequence[Document], others: Sequence[Document] = ()
) -> tuple[ExistingNode, ...]:
    """Read Nodes that take pods, each with the pods that are bound to it, or for which the
    scheduler makes room on it. Nodes that are being deleted take none.

    Raises:
        BadObject: an object is not as the API has it; its path begins with its position.
    """
    known = beside([*objects, *others])
    bound: dict[str, _Bound] = {}
    for position, document in enumerate(objects):
        node = _node_of(document)
        if document.get("kind") == "Pod" and node and not _finished(document):
            try:
                spec = pod_spec(document, known.volumes, known.priorities)
            except BadObject as error:
                raise BadObject((position, *error.path), str(error)) from error
            bound.setdefault(node, _Bound()).take(document, spec)
    nodes = []
    for position, document in enumerate(objects):
        if document.get("kind") == "Node" and not _ending(document):
            try:
                found = _node(document, bound.get(_name(document), _Bound()))
                attachable = Resources({EBS_VOLUMES: known.attachable.get(found.name, MANY)})
                nodes.append(replace(found, allocatable=found.allocatable + attachable))
            except (BadQuantity, AttributeError, KeyError, TypeError) as error:
                raise BadObject((position, "status"), f"expected a node: {error}") from error
    return tuple(nodes)


@dataclass(slots=True)
class _Bound:
    """The pods of a node."""

    pods: tuple[PodSpec, ...] = ()
    leaving: Resources = field(default_factory=Resources)
    daemons: Resources = field(default_factory=Resources)

    def take(self, document: Document, spec: PodSpec) -> None:
        if _ending(document):
            self.leaving = self.leaving + spec.requests
        else:
            self.pods = (*self.pods, spec)
        if _daemon(document):
            self.daemons = self.daemons + spec.requests


def _node(document: Document, bound: _Bound) -> ExistingNode:
    metadata, spec, status = (document.get(part) or {} for part in ("metadata", "spec", "status"))
    labels = {normalised(k): str(v) for k, v in (metadata.get("labels") or {}).items()}
    taints = [Taint(t["key"], t.get("value") or "", t["effect"]) for t in spec.get("taints") or ()]
    if spec.get("unschedulable"):
        taints.append(Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"))
    return ExistingNode(
        name=metadata["name"],
        labels=labels,
        allocatable=_amounts(status.get("allocatable") or status.get("capacity") or {}),
        capacity=_amounts(status.get("capacity") or {}),
        taints=tuple(taints),
        pods=bound.pods,
        leaving=bound.leaving,
        daemons=bound.daemons,
        pool=labels.get(NODEPOOL, ""),
    )


def _amounts(quantities: Mapping[str, Any]) -> Resources:
    return Resources.parsed({name: str(amount) for name, amount in quantities.items()})


def _waits(pod: Document, nodes: frozenset[str]) -> bool:
    spec = pod.get("spec") or {}
    nominated = (pod.get("status") or {}).get("nominatedNodeName") in nodes
    return not (
        spec.get("nodeName")
        or nominated
        or spec.get("schedulingGates")
        or _finished(pod)
        or _ending(pod)
        or _daemon(pod)
    )


def _node_of(pod: Document) -> str:
    named = (pod.get("spec") or {}).get("nodeName")
    return str(named or (pod.get("status") or {}).get("nominatedNodeName") or "")


def _finished(pod: Document) -> bool:
    return (pod.get("status") or {}).get("phase") in _FINISHED


def _ending(document: Document) -> bool:
    return bool((document.get("metadata") or {}).get("deletionTimestamp"))


def _key(document: Document) -> str:
    metadata = document.get("metadata") or {}
    return f"{_namespace(document)}/{metadata.get('name') or metadata.get('generateName') or ''}"


def _name(document: Document) -> str:
    return str((document.get("metadata") or {}).get("name") or "")


def _namespace(document: Document) -> str:
    return str((document.get("metadata") or {}).get("namespace") or "default")
