"""Lists of Kubernetes objects → pending pods, existing nodes and DaemonSet pods.

`Admission` has the changes of the API server when it admits a pod: defaults of LimitRanges, and
RuntimeClasses. Source: Kubernetes documentation, "Limit Ranges", "Runtime Class" and "Pod
Overhead"; the defaults of a LimitRange's own fields follow `SetDefaults_LimitRangeItem`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from leeway.selection.labels import NODEPOOL, normalised
from leeway.selection.pods import ExistingNode, Pod, PodSpec, Taint
from leeway.selection.reading.objects import (
    WORKLOADS,
    BadObject,
    Document,
    bound_node,
    daemon_of,
    is_finished,
    is_pending,
    is_terminating,
    key_of,
    name_of,
    namespace_of,
    node_of,
    shown,
)
from leeway.selection.reading.pod_objects import (
    EBS_DRIVER,
    Volumes,
    attach_once,
    spec_without_volumes,
    volumes_of,
    with_volumes,
)
from leeway.selection.reading.schemas import check
from leeway.selection.resources import EBS_VOLUMES, Resources

MAX_VOLUMES = 1000
"""EBS volumes of a node whose driver reports no limit: more than any instance can attach."""


@dataclass(slots=True)
class PodsOnNode:
    """The pods of a node, and the claims that it attaches for them."""

    pods: list[PodSpec] = field(default_factory=list)
    terminating: Resources = field(default_factory=Resources)
    daemons: Resources = field(default_factory=Resources)
    claims: set[str] = field(default_factory=set)
    holding: list[PodSpec] = field(default_factory=list)

    def add(
        self, spec: PodSpec, *, terminating: bool, daemon: bool, ends_soon: bool = False
    ) -> None:
        """Add a pod that has not finished. A terminating one that `ends_soon` uses resources, and
        what it holds counts as free."""
        if terminating:
            self.terminating = self.terminating + spec.requests
            if not ends_soon and (spec.ports or spec.pod_anti_affinity):
                self.holding.append(spec.held)
        else:
            self.pods.append(spec)
        if daemon:
            self.daemons = self.daemons + spec.requests

    def on(self, node: ExistingNode, attachable: int | None) -> ExistingNode:
        """Return the node with these pods, and with the number of EBS volumes that it attaches;
        None if its driver reports none."""
        volumes = Resources({EBS_VOLUMES: MAX_VOLUMES if attachable is None else attachable})
        return replace(
            node,
            allocatable=node.allocatable + volumes,
            pods=tuple(self.pods),
            terminating=self.terminating,
            daemons=self.daemons,
            terminating_pods=tuple(self.holding),
        )


def node_without_pods(document: Document) -> ExistingNode:
    """Read a validated Node."""
    metadata, spec, status = (document.get(part) or {} for part in ("metadata", "spec", "status"))
    labels = {normalised(k): v for k, v in (metadata.get("labels") or {}).items()}
    taints = [Taint(t["key"], t.get("value") or "", t["effect"]) for t in spec.get("taints") or ()]
    if spec.get("unschedulable"):
        taints.append(Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"))
    return ExistingNode(
        name=name_of(document),
        labels=labels,
        allocatable=_amounts(status.get("allocatable") or status.get("capacity") or {}),
        capacity=_amounts(status.get("capacity") or {}),
        taints=tuple(taints),
        pool=labels.get(NODEPOOL, ""),
    )


def _amounts(quantities: Mapping[str, Any]) -> Resources:
    return Resources.parsed({name: str(amount) for name, amount in quantities.items()})


@dataclass(frozen=True)
class Defaults:
    """The defaults of a LimitRange for containers that do not set a resource."""

    requests: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Admission:
    """The changes of the API server: `defaults` by namespace in the order in which they apply;
    `runtimes` are RuntimeClasses by name."""

    defaults: Mapping[str, Sequence[Defaults]] = field(default_factory=dict)
    runtimes: Mapping[str, Document] = field(default_factory=dict)

    def admitted(self, pod: Document) -> Document:
        """Return a Pod or pod template as the API server stores it. A pod with a uid is stored
        already.

        Raises:
            BadObject: the API server rejects it.
        """
        metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
        if metadata.get("uid"):
            return pod
        defaults = self.defaults.get(metadata.get("namespace") or "default", ())
        runtime = self.runtimes.get(spec.get("runtimeClassName") or "")
        if not defaults and runtime is None:
            return pod
        containers = {
            name: [_with_defaults(container, defaults) for container in spec[name]]
            for name in ("initContainers", "containers")
            if spec.get(name)
        }
        return {**pod, "spec": {**spec, **containers, **_from_runtime_class(spec, runtime or {})}}


def admission_of(documents: Iterable[Document]) -> Admission:
    """Read validated LimitRanges and RuntimeClasses."""
    ranges, runtimes = [], {}
    for document in documents:
        metadata = document.get("metadata") or {}
        if document.get("kind") == "RuntimeClass":
            runtimes[str(metadata.get("name"))] = document
        elif document.get("kind") == "LimitRange":
            namespace, name = metadata.get("namespace") or "default", metadata.get("name")
            limits = (document.get("spec") or {}).get("limits") or ()
            ranges += [
                (namespace, name, _defaults(limit))
                for limit in limits
                if limit.get("type") == "Container"
            ]
    defaults: dict[str, list[Defaults]] = {}
    for namespace, _, found in sorted(ranges, key=lambda each: each[:2]):
        defaults.setdefault(namespace, []).append(found)
    return Admission(defaults, runtimes)


def _defaults(limit: Document) -> Defaults:
    """The default limit is the maximum if it is not set; the default request is the limit, or else
    the minimum."""
    limits = {**(limit.get("max") or {}), **(limit.get("default") or {})}
    requests = {**(limit.get("min") or {}), **limits, **(limit.get("defaultRequest") or {})}
    return Defaults(requests, limits)


def _with_defaults(container: Document, defaults: Iterable[Defaults]) -> Document:
    resources = container.get("resources") or {}
    limits = dict(resources.get("limits") or {})
    # A limit without a request is also the request.
    requests = {**limits, **(resources.get("requests") or {})}
    for each in defaults:
        limits = {**each.limits, **limits}
        requests = {**each.requests, **requests}
    return {**container, "resources": {**resources, "limits": limits, "requests": requests}}


def _from_runtime_class(spec: Document, runtime: Document) -> dict[str, Any]:
    added: dict[str, Any] = {}
    overhead = (runtime.get("overhead") or {}).get("podFixed")
    if overhead and not spec.get("overhead"):
        added["overhead"] = overhead
    scheduling = runtime.get("scheduling") or {}
    own, needed = spec.get("nodeSelector") or {}, scheduling.get("nodeSelector") or {}
    for key in own.keys() & needed.keys():
        if own[key] != needed[key]:
            message = f"expected {needed[key]}, as the RuntimeClass says, got {own[key]}"
            raise BadObject(("spec", "nodeSelector", key), message)
    if needed:
        added["nodeSelector"] = {**own, **needed}
    if scheduling.get("tolerations"):
        added["tolerations"] = [*(spec.get("tolerations") or ()), *scheduling["tolerations"]]
    return added


_MOST_REPLICAS = 100_000


class Checked(tuple[Document, ...]):
    """Validated objects, which are not validated again."""

    __slots__ = ()


def checked(objects: Iterable[Document]) -> Checked:
    """Validate every object.

    Raises:
        BadObject: an object is invalid; its path begins with its position.
    """
    if isinstance(objects, Checked):
        return objects
    found = Checked(objects)
    for position, document in enumerate(found):
        try:
            _check(document)
        except BadObject as error:
            raise error.below(position) from error
    return found


def _checked_with(
    objects: Sequence[Document], others: Sequence[Document]
) -> tuple[Checked, Sequence[Document]]:
    """Validate some objects, and return them with all objects."""
    try:
        checked_objects, checked_others = checked(objects), checked(others)
    except BadObject:
        checked([*objects, *others])  # the error names the position in both lists together
        raise
    return checked_objects, [*checked_objects, *checked_others]


def _check(document: Document) -> None:
    if not isinstance(document, Mapping):
        raise BadObject((), f"expected a Kubernetes object, got {shown(document)}")
    kind = document.get("kind")
    if not isinstance(kind, str) or not kind:
        raise BadObject(("kind",), "expected text; every object has it")
    check(document, kind)
    metadata = document.get("metadata") or {}
    if not (metadata.get("name") or metadata.get("generateName")):
        raise BadObject(("metadata", "name"), "expected text; every object has it")


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """Facts about pods from other objects: `attachable` is the number of EBS volumes that some
    nodes attach, `admission` the changes of the API server to pods."""

    volumes: Volumes
    priorities: Mapping[str, int]
    attachable: Mapping[str, int]
    admission: Admission


def cluster_facts(objects: Sequence[Document]) -> ClusterFacts:
    """Read the objects that pods depend on. They must be validated."""
    classes = [d for d in objects if d.get("kind") == "PriorityClass"]
    return ClusterFacts(
        volumes_of(objects),
        {name_of(d): d.get("value") or 0 for d in classes},
        dict(_attachable(objects)),
        admission_of(objects),
    )


def _attachable(objects: Sequence[Document]) -> Iterator[tuple[str, int]]:
    """The limits that the EBS driver reports for its nodes."""
    for document in objects:
        if document.get("kind") == "CSINode":
            for driver in (document.get("spec") or {}).get("drivers") or ():
                if driver.get("name") == EBS_DRIVER:
                    count = (driver.get("allocatable") or {}).get("count")
                    yield name_of(document), MAX_VOLUMES if count is None else count


def pending_pods(
    objects: Sequence[Document],
    replicas: Mapping[str, int],
    others: Sequence[Document] = (),
) -> tuple[Pod, ...]:
    """Read Pods without a node, and the pods of workloads as `<name>-<ordinal>`.

    Excludes pods that need no new node: DaemonSet pods, terminating pods, and pods with a nominated
    node. A workload whose Pods are among the objects adds no further pods.

    `replicas` overrides the replicas of workloads by name. `others` are objects that these depend
    on.

    Raises:
        BadObject: an object is invalid; its path begins with its position.
    """
    objects, everything = _checked_with(objects, others)
    facts = cluster_facts(everything)
    claims: set[str] = set()
    pods: list[Pod] = []
    for position, document in with_pending_pods(objects, others):
        try:
            if document.get("kind") == "Pod":
                pods.append(Pod(key_of(document), _pod_spec(document, facts, claims)))
            else:
                pods += _expanded(document, replicas, facts, claims)
        except BadObject as error:
            raise error.below(position) from error
    return tuple(pods)


def with_pending_pods(
    objects: Sequence[Document], others: Sequence[Document] = ()
) -> Iterator[tuple[int, Document]]:
    """Return the objects that `pending_pods` converts to pods, each with its position.

    Raises:
        BadObject: an object is invalid; its path begins with its position.
    """
    objects, everything = _checked_with(objects, others)
    nodes = frozenset(name_of(d) for d in everything if d.get("kind") == "Node")
    owners = _owners(objects)
    for position, document in enumerate(objects):
        if document.get("kind") in WORKLOADS:
            kind = str(document.get("kind"))
            pending = (kind, namespace_of(document), name_of(document)) not in owners
        else:
            pending = document.get("kind") == "Pod" and is_pending(document, nodes)
        if pending:
            yield position, document


def _pod_spec(pod: Document, facts: ClusterFacts, claims: set[str]) -> PodSpec:
    """Read a pod. `claims` are the claims that earlier pods attach already; those of this pod are
    added."""
    kept = facts.admission.admitted(pod)
    without_volumes = spec_without_volumes(kept, facts.priorities)
    waiting = "" if bound_node(pod) else name_of(pod)
    volume_needs = facts.volumes.of_pod(kept.get("spec") or {}, without_volumes.namespace, waiting)
    return with_volumes(without_volumes, attach_once(volume_needs, claims))


def _owners(objects: Sequence[Document]) -> frozenset[tuple[str, str, str]]:
    """The workloads that own other objects: a Deployment owns ReplicaSets, which own Pods."""
    found: set[tuple[str, str, str]] = set()
    for document in objects:
        for owner in (document.get("metadata") or {}).get("ownerReferences") or ():
            kind, name = owner["kind"], owner["name"]
            found.add((kind, namespace_of(document), name))
            if kind == "ReplicaSet":  # named after its Deployment, with a hash
                found.add(("Deployment", namespace_of(document), name.rpartition("-")[0]))
    return frozenset(found)


def daemons_of(objects: Sequence[Document], others: Sequence[Document] = ()) -> tuple[PodSpec, ...]:
    """Read the DaemonSet pods that each node gets, from DaemonSets, or from an owned pod if the
    DaemonSet is not among the objects. A DaemonSet with device claims is left out, as its pods stay
    pending.

    Raises:
        BadObject: an object is invalid; its path begins with its position.
    """
    _, given = _checked_with(objects, others)
    facts = cluster_facts(given)
    found: dict[str, PodSpec] = {}
    templates = [(i, key_of(d), d) for i, d in enumerate(given) if d.get("kind") == "DaemonSet"]
    owned = [(i, daemon_of(d), d) for i, d in enumerate(given) if d.get("kind") == "Pod"]
    for position, key, document in [*templates, *owned]:
        if key and key not in found:
            of_set = document.get("kind") == "DaemonSet"
            try:
                pod = _template(document) if of_set else _without_node(document)
                found[key] = spec_without_volumes(facts.admission.admitted(pod), facts.priorities)
            except BadObject as error:
                inside = error.below("spec", "template") if of_set else error
                raise inside.below(position) from error
    return tuple(spec for spec in found.values() if spec.unmet is None)


def _without_node(pod: Document) -> Document:
    """A DaemonSet pod without the node that its controller chose for it."""
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


def _expanded(
    document: Document,
    replicas: Mapping[str, int],
    facts: ClusterFacts,
    claims: set[str],
) -> Iterator[Pod]:
    name = name_of(document)
    count = replicas.get(name, _written_replicas(document))
    if not 0 <= count <= _MOST_REPLICAS:
        raise BadObject(("spec", "replicas"), f"expected 0 to {_MOST_REPLICAS}, got {count}")
    template = _template(document)
    try:
        attached = claims if count else set()
        first_spec, next_spec = (_pod_spec(template, facts, attached) for _ in range(2))
    except BadObject as error:
        raise error.below("spec", "template") from error
    spec = document.get("spec") or {}
    claimed = (spec.get("volumeClaimTemplates") or ()) if _stateful(document) else ()
    start = (spec.get("ordinals") or {}).get("start") or 0 if _stateful(document) else 0
    for number in range(count):
        pod = f"{name}-{start + number}"
        replica_spec = next_spec if number else first_spec
        volume_needs = facts.volumes.of_replica(claimed, replica_spec.namespace, pod)
        yield Pod(f"{replica_spec.namespace}/{pod}", with_volumes(replica_spec, volume_needs))


def _stateful(document: Document) -> bool:
    return document.get("kind") == "StatefulSet"


def _written_replicas(document: Document) -> int:
    """The number of pods that a workload specifies, 1 by default."""
    spec = document.get("spec") or {}
    if document["kind"] != "Job":
        replicas: int | None = spec.get("replicas")
        return 1 if replicas is None else replicas
    if spec.get("suspend"):
        return 0
    parallelism: int = 1 if spec.get("parallelism") is None else spec["parallelism"]
    completions: int | None = spec.get("completions")
    return parallelism if completions is None else min(parallelism, completions)


def _template(document: Document) -> Document:
    template: Document = document["spec"]["template"]
    metadata = {**(template.get("metadata") or {}), "namespace": namespace_of(document)}
    # The API server ignores the name of a template: each pod gets its own.
    own = {k: v for k, v in metadata.items() if k not in {"name", "uid"}}
    return {**template, "metadata": own}


def existing_nodes(
    objects: Sequence[Document], others: Sequence[Document] = ()
) -> tuple[ExistingNode, ...]:
    """Read Nodes, each with the pods that are bound to it or nominated for it. Terminating nodes
    are excluded.

    Raises:
        BadObject: an object is invalid; its path begins with its position.
    """
    objects, everything = _checked_with(objects, others)
    facts = cluster_facts(everything)
    bound: dict[str, PodsOnNode] = {}
    for position, document in enumerate(objects):
        node = node_of(document)
        if document.get("kind") == "Pod" and node and not is_finished(document):
            there = bound.setdefault(node, PodsOnNode())
            try:
                spec = _pod_spec(document, facts, there.claims)
            except BadObject as error:
                raise error.below(position) from error
            terminating, daemon = is_terminating(document), bool(daemon_of(document))
            there.add(spec, terminating=terminating, daemon=daemon)
    return tuple(
        bound.get(name_of(document), PodsOnNode()).on(
            node_without_pods(document), facts.attachable.get(name_of(document))
        )
        for document in objects
        if document.get("kind") == "Node" and not is_terminating(document)
    )
