"""The objects of a cluster, converted once and kept: a change converts only what it touches.

No I/O. The meaning of an object is that of `leeway.selection.reading`, which the command line uses
for lists of objects.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from leeway.printable import printable
from leeway.provisioning.cluster_state import (
    ClaimedNode,
    ClusterState,
    UnreadableObject,
    WaitingPod,
)
from leeway.provisioning.node_details import (
    FOREVER,
    NodeDetails,
    PodBudget,
    PodOnNode,
    budget_of,
    details_of,
    protected_until,
)
from leeway.provisioning.pod_rules import is_mirror, needs_another_place, waits_for_node
from leeway.provisioning.reasons import OBJECT_NOT_READABLE, OBJECTS_NOT_READABLE
from leeway.reasons import clause
from leeway.selection.labels import NODEPOOL
from leeway.selection.pods import ExistingNode, Pod, PodSpec
from leeway.selection.reading.cluster_objects import ClusterFacts, cluster_facts, daemons_of
from leeway.selection.reading.node_objects import PodsOnNode, node_without_pods
from leeway.selection.reading.object_kinds import REFERENCED
from leeway.selection.reading.object_schemas import check
from leeway.selection.reading.objects import (
    BadObject,
    Document,
    key_of,
    name_of,
    namespace_of,
)
from leeway.selection.reading.pod_objects import spec_without_volumes, with_volumes
from leeway.selection.reading.pod_requests import requests_of
from leeway.selection.reading.pod_state import (
    bound_node,
    controller_of,
    daemon_of,
    is_finished,
    is_terminating,
    node_of,
)
from leeway.selection.reading.volumes import attach_once
from leeway.selection.resources import Resources

BUDGET = "PodDisruptionBudget"

KINDS = frozenset({"Pod", "Node", "NodeClaim", "DaemonSet", BUDGET, *REFERENCED})
"""The kinds of objects that a state is made of."""

NAMESPACED = frozenset({"Pod", "DaemonSet", "LimitRange", "PersistentVolumeClaim", BUDGET})

_OF_DAEMONS = ("LimitRange", "PriorityClass", "RuntimeClass")
"""Kinds that change the pods of DaemonSets when the API server admits them."""

_NOT_IN_SPEC = frozenset({"nodeName", "schedulerName", "schedulingGates", "volumes"})
"""Fields of a pod's spec that its PodSpec without volumes does not depend on."""

_LONGEST_PROBLEM = 200


@dataclass(frozen=True, slots=True)
class _KeptPod:
    """A pod. `node` is the node that it is bound to or nominated for. `spec` is without the needs
    of its volumes; `volumes` is the part of the Pod's spec with its volumes, None without needs.
    `stays_with_node`: it is a DaemonSet's or a static pod, so that its node may be empty."""

    key: str
    uid: str
    created_at: datetime
    node: str
    bound: bool
    spec: PodSpec
    volumes: Document | None
    daemon: bool
    finished: bool
    terminating: bool
    waits: bool
    movable: bool
    controller: str = ""
    stays_with_node: bool = False
    protected_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class _KeptNode:
    node: ExistingNode
    instance: str
    created: str
    terminating: bool
    details: NodeDetails


@dataclass(slots=True)
class _Specs:
    """PodSpecs by the content that they are read from: most pods of a workload have equal ones, and
    reading one takes longer than everything else that is done with a pod."""

    known: dict[tuple[str, bytes], PodSpec] = field(default_factory=dict)

    def of(self, pod: Document) -> PodSpec:
        """Read a pod without its volumes.

        Raises:
            BadObject: the pod is invalid.
        """
        spec = pod.get("spec") or {}
        content = {name: value for name, value in spec.items() if name not in _NOT_IN_SPEC}
        labels = (pod.get("metadata") or {}).get("labels")
        key = (namespace_of(pod), msgspec.json.encode((labels, content)))
        found = self.known.get(key)
        if found is None:
            check(pod, "Pod")
            # The API server has written the priority of a stored pod as a number.
            found = self.known[key] = spec_without_volumes(pod, {})
        return found

    def limit(self, pods: int) -> None:
        """Forget all if most are of pods that are gone."""
        if len(self.known) > 2 * pods + 1000:
            self.known.clear()


class KeptObjects:
    """The objects of one cluster. Keys are `namespace/name`, or the name of an object without a
    namespace. Not safe for several threads."""

    def __init__(self) -> None:
        self._specs = _Specs()
        self._pods: dict[str, _KeptPod] = {}
        self._pods_on: dict[str, dict[str, _KeptPod]] = {}
        self._nodes: dict[str, _KeptNode] = {}
        self._others: dict[str, dict[str, Document]] = {
            kind: {} for kind in ("DaemonSet", BUDGET, *sorted(REFERENCED))
        }
        self._claimed: dict[str, ClaimedNode | None] = {}
        self._unreadable: dict[tuple[str, str], UnreadableObject] = {}
        self._facts: ClusterFacts = cluster_facts(())
        self._facts_changed = self._daemons_changed = False
        self._daemons: tuple[PodSpec, ...] = ()
        self._changed_nodes: set[str] = set()
        self._existing: dict[str, ExistingNode] = {}
        self._unusable: dict[str, ExistingNode] = {}
        self._movable: dict[str, tuple[Pod, ...]] = {}
        self._leaving: dict[str, tuple[str, ...]] = {}
        self._details: dict[str, NodeDetails] = {}
        self._budgets: tuple[PodBudget, ...] = ()
        self._budgets_changed = False
        self._moved: set[str] = set()
        self._moved_at: dict[str, datetime] = {}
        self._was_read = False

    def __len__(self) -> int:
        """The number of pods and nodes."""
        return len(self._pods) + len(self._nodes)

    def keys(self, kind: str) -> list[str]:
        """Return the keys of the objects of a kind."""
        own: dict[str, Mapping[str, object]] = {
            "Pod": self._pods,
            "Node": self._nodes,
            "NodeClaim": self._claimed,
        }
        known = own.get(kind) or self._others.get(kind, {})
        unreadable = (key for of_kind, key in self._unreadable if of_kind == kind)
        return list(dict.fromkeys([*known, *unreadable]))

    def put(self, kind: str, document: Document) -> None:
        """Add or replace an object with the fields of its kind's schema. An object that can't be
        read is kept as unreadable."""
        key = key_in(kind, document)
        try:
            if kind == "Pod":
                self._put_pod(key, self._read_pod(key, document))
            elif kind == "Node":
                check(document, kind)
                self._put_node(key, _read_node(document))
            elif kind == "NodeClaim":
                check(document, kind)
                self._claimed[key] = _read_claimed(document)
            else:
                check(document, kind)
                self._put_other(kind, key, {**document, "kind": kind})
        except ValueError as error:
            self.put_unreadable(kind, document, _described(error))
        else:
            self._unreadable.pop((kind, key), None)

    def put_unreadable(self, kind: str, document: Document, problem: str) -> None:
        """Add an object that can't be read: its names are valid, and its other fields may be of any
        shape.

        A pod on a node counts with its requests, so that the node does not look empty. A Node takes
        no pods, and its instance has joined nevertheless.
        """
        key = key_in(kind, document)
        self.remove(kind, key)
        if kind == "Pod" and bound_node(document):
            self._put_pod(key, _reduced_pod(key, document))
        elif kind == "Node":
            self._put_node(key, _reduced_node(document))
        shown = printable(problem)[:_LONGEST_PROBLEM]
        reason = OBJECT_NOT_READABLE(kind=kind, name=printable(key), problem=clause(shown))
        self._unreadable[kind, key] = UnreadableObject(kind, key, reason)

    def note_unreadable(self, kind: str, problem: str) -> None:
        """Note that all objects of a kind can't be read, and keep none of them."""
        for key in self.keys(kind):
            self.remove(kind, key)
        reason = OBJECTS_NOT_READABLE(kind=kind, problem=clause(problem[:_LONGEST_PROBLEM]))
        self._unreadable[kind, ""] = UnreadableObject(kind, "", reason)

    def remove(self, kind: str, key: str) -> None:
        """Remove an object; nothing happens if there is none."""
        self._unreadable.pop((kind, key), None)
        if kind == "Pod":
            self._take_off_node(key)
            self._moved |= {node for node, _ in _where(self._pods.pop(key, None))}
        elif kind == "Node":
            if self._nodes.pop(key, None):
                self._changed_nodes.add(key)
        elif kind == "NodeClaim":
            self._claimed.pop(key, None)
        elif self._others[kind].pop(key, None) is not None:
            self._note_change(kind)

    def state(self, read_at: datetime) -> ClusterState:
        """Return the state of the cluster."""
        self._specs.limit(len(self._pods))
        self._update_facts()
        for name in self._changed_nodes:
            self._update_node(name)
        self._changed_nodes.clear()
        self._note_moves(read_at)
        names = sorted(self._existing)
        return ClusterState(
            read_at=read_at,
            nodes=tuple(self._existing[name] for name in names),
            joined=self._joined(),
            waiting=tuple(self._waiting()),
            daemons=self._daemons,
            movable={name: self._movable[name] for name in names if self._movable[name]},
            leaving={name: self._leaving[name] for name in names if self._leaving[name]},
            details={
                name: replace(self._details[name], changed_at=self._moved_at.get(name))
                for name in names
            },
            budgets=self._budgets,
            claimed=tuple(one for _, one in sorted(self._claimed.items()) if one is not None),
            unreadable=tuple(self._unreadable[each] for each in sorted(self._unreadable)),
            unusable=tuple(one for _, one in sorted(self._unusable.items())),
        )

    def _read_pod(self, key: str, document: Document) -> _KeptPod:
        metadata = document.get("metadata") or {}
        volumes = [each for each in (document.get("spec") or {}).get("volumes") or () if each]
        return _KeptPod(
            key=key,
            uid=str(metadata.get("uid") or ""),
            created_at=_time(metadata.get("creationTimestamp")),
            node=node_of(document),
            bound=bool(bound_node(document)),
            spec=self._specs.of(document),
            volumes={"volumes": volumes} if volumes else None,
            daemon=bool(daemon_of(document)),
            finished=is_finished(document),
            terminating=is_terminating(document),
            waits=waits_for_node(document),
            movable=needs_another_place(document),
            controller=controller_of(document),
            stays_with_node=bool(daemon_of(document)) or is_mirror(document),
            protected_until=protected_until(document),
        )

    def _put_pod(self, key: str, pod: _KeptPod) -> None:
        known = self._pods.get(key)
        if known == pod:
            return
        moves = set(_where(known)) ^ set(_where(pod))
        self._take_off_node(key)
        self._pods[key] = pod
        self._moved |= {node for node, _ in moves}
        if pod.node and not pod.finished:
            self._pods_on.setdefault(pod.node, {})[key] = pod
            self._changed_nodes.add(pod.node)

    def _take_off_node(self, key: str) -> None:
        pod = self._pods.get(key)
        if pod is None or not pod.node or pod.finished:
            return
        there = self._pods_on[pod.node]
        del there[key]
        if not there:
            del self._pods_on[pod.node]
        self._changed_nodes.add(pod.node)

    def _put_node(self, name: str, node: _KeptNode) -> None:
        if self._nodes.get(name) != node:
            self._nodes[name] = node
            self._changed_nodes.add(name)

    def _put_other(self, kind: str, key: str, document: Document) -> None:
        self._others[kind][key] = document
        self._note_change(kind)

    def _note_change(self, kind: str) -> None:
        self._facts_changed |= kind in REFERENCED
        self._budgets_changed |= kind == BUDGET
        self._daemons_changed |= kind == "DaemonSet" or kind in _OF_DAEMONS

    def _update_facts(self) -> None:
        """Read the objects that pods depend on again, if one has changed."""
        if self._facts_changed:
            before = self._facts
            self._facts = cluster_facts(list(self._all_of(*sorted(REFERENCED))))
            if self._facts.volumes != before.volumes:
                self._changed_nodes.update(
                    pod.node for pod in self._pods.values() if pod.volumes and pod.node
                )
            now, earlier = self._facts.attachable, before.attachable
            nodes = now.keys() | earlier.keys()
            self._changed_nodes.update(n for n in nodes if now.get(n) != earlier.get(n))
        if self._daemons_changed:
            self._daemons = tuple(self._read_daemons())
        if self._budgets_changed:
            self._budgets = tuple(map(budget_of, self._all_of(BUDGET)))
        self._facts_changed = self._daemons_changed = self._budgets_changed = False

    def _note_moves(self, read_at: datetime) -> None:
        """Note when pods came to nodes or left them, from the second read on."""
        if self._was_read:
            self._moved_at |= dict.fromkeys(self._moved, read_at)
            self._moved_at = {k: v for k, v in self._moved_at.items() if k in self._nodes}
        self._was_read = True
        self._moved.clear()

    def _all_of(self, *kinds: str) -> Iterator[Document]:
        for kind in kinds:
            objects = self._others[kind]
            yield from (objects[key] for key in sorted(objects))

    def _read_daemons(self) -> Iterator[PodSpec]:
        others = list(self._all_of(*_OF_DAEMONS))
        for key in self._others["DaemonSet"]:
            self._unreadable.pop(("DaemonSet", key), None)
        for key, document in sorted(self._others["DaemonSet"].items()):
            try:
                yield from daemons_of([document], others)
            except BadObject as error:
                reason = OBJECT_NOT_READABLE(
                    kind="DaemonSet", name=printable(key), problem=clause(_described(error))
                )
                self._unreadable["DaemonSet", key] = UnreadableObject("DaemonSet", key, reason)

    def _update_node(self, name: str) -> None:
        """Put the pods on a node, and find those that need another place after a drain."""
        self._existing.pop(name, None)
        self._unusable.pop(name, None)
        self._movable.pop(name, None)
        self._leaving.pop(name, None)
        self._details.pop(name, None)
        kept = self._nodes.get(name)
        if kept is None:
            return
        if kept.terminating:
            self._unusable[name] = kept.node
            return
        there, moving, leaving = PodsOnNode(), [], []
        running: list[PodOnNode] = []
        busy = False
        claims: set[str] = set()
        for _, pod in sorted(self._pods_on.get(name, {}).items()):
            spec = self._spec_with_volumes(pod, there.claims)
            there.add(spec, terminating=pod.terminating, daemon=pod.daemon)
            if pod.movable:
                moving.append(Pod(pod.key, self._spec_with_volumes(pod, claims)))
            elif pod.terminating and pod.controller and not pod.daemon:
                leaving.append(pod.controller)
            if pod.stays_with_node:
                continue
            busy |= pod.terminating or not pod.bound
            if pod.bound and (pod.movable or not pod.terminating):
                known = moving[-1] if pod.movable else Pod(pod.key, pod.spec)
                controlled = pod.movable or bool(pod.controller)
                found = PodOnNode(known, pod.uid, controlled, pod.protected_until, pod.created_at)
                running.append(found)
        self._existing[name] = there.on(kept.node, self._facts.attachable.get(name))
        self._movable[name] = tuple(moving)
        self._leaving[name] = tuple(leaving)
        self._details[name] = replace(kept.details, pods=tuple(running), busy=busy)

    def _spec_with_volumes(self, pod: _KeptPod, claims: set[str]) -> PodSpec:
        if pod.volumes is None:
            return pod.spec
        needs = self._facts.volumes.of_pod(pod.volumes, pod.spec.namespace)
        return with_volumes(pod.spec, attach_once(needs, claims))

    def _waiting(self) -> Iterator[WaitingPod]:
        """Yield the waiting pods, the oldest first. A pod that is nominated for a Node is the
        scheduler's business: it preempts other pods for it, and removes the nomination if that
        fails."""
        found = [pod for pod in self._pods.values() if pod.waits and pod.node not in self._nodes]
        claims: set[str] = set()
        for pod in sorted(found, key=lambda each: (each.created_at, each.key)):
            spec = self._spec_with_volumes(pod, claims)
            yield WaitingPod(Pod(pod.key, spec), pod.uid, pod.created_at, pod.controller)

    def _joined(self) -> dict[str, str]:
        """Return the names of Nodes by instance. If several Nodes name an instance, the oldest one
        counts: a copied provider id does not replace a node."""
        nodes = sorted(self._nodes.items(), key=lambda each: (each[1].created, each[0]))
        return {kept.instance: name for name, kept in reversed(nodes) if kept.instance}


def _where(pod: _KeptPod | None) -> Iterator[tuple[str, str]]:
    """The node that a pod keeps from being empty, with the uid of the pod."""
    if pod is not None and pod.bound and not pod.finished and not pod.stays_with_node:
        yield pod.node, pod.uid


def key_in(kind: str, document: Document) -> str:
    """Return the key of an object of a kind."""
    return key_of(document) if kind in NAMESPACED else name_of(document)


def _read_node(document: Document) -> _KeptNode:
    metadata, spec = document.get("metadata") or {}, document.get("spec") or {}
    instance = _instance(spec.get("providerID"))
    return _KeptNode(
        node_without_pods(document),
        instance,
        str(metadata.get("creationTimestamp") or ""),
        is_terminating(document),
        details_of(document, instance),
    )


def _read_claimed(document: Document) -> ClaimedNode | None:
    """Read a NodeClaim; None before its instance is launched, and while it is deleted. Karpenter
    writes the labels and amounts of the node when it has launched the instance."""
    metadata, spec, status = (document.get(part) or {} for part in ("metadata", "spec", "status"))
    instance = _instance(status.get("providerID"))
    if not instance or is_terminating(document):
        return None
    return ClaimedNode(
        instance,
        _time(metadata.get("creationTimestamp")),
        node_without_pods(document),
        frozenset(one["key"] for one in spec.get("startupTaints") or ()),
    )


def _reduced_node(document: Document) -> _KeptNode:
    """A Node that can't be read: it counts as terminating, which no pod is planned for."""
    metadata, spec = document.get("metadata") or {}, document.get("spec") or {}
    instance = _instance(spec.get("providerID"))
    labels = metadata.get("labels")
    pool = labels.get(NODEPOOL) if isinstance(labels, Mapping) else ""
    return _KeptNode(
        ExistingNode(
            name_of(document), {}, Resources(), pool=pool if isinstance(pool, str) else ""
        ),
        instance,
        str(metadata.get("creationTimestamp") or ""),
        terminating=True,
        details=NodeDetails(instance, FOREVER),
    )


def _instance(provider_id: Any) -> str:
    """Return the instance of a provider id, `aws:///ZONE/INSTANCE`; empty for other providers."""
    text = str(provider_id or "")
    return text.rsplit("/", 1)[-1] if text.startswith("aws://") else ""


def _reduced_pod(key: str, document: Document) -> _KeptPod:
    """A bound pod that can't be read, with its requests if these can be read."""
    pods = Resources({"pods": 1})
    try:
        requests = requests_of(document.get("spec") or {}) + pods
    except (AttributeError, KeyError, TypeError, ValueError):
        requests = pods
    return _KeptPod(
        key=key,
        uid="",
        created_at=datetime.max.replace(tzinfo=UTC),
        node=bound_node(document),
        bound=True,
        spec=PodSpec(namespace_of(document), requests=requests),
        volumes=None,
        daemon=False,
        finished=is_finished(document),
        terminating=is_terminating(document),
        waits=False,
        movable=False,
    )


def _time(text: Any) -> datetime:
    """Read the time of an object's creation, which every stored object has.

    Raises:
        BadObject: it is missing or invalid.
    """
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError:
        path = ("metadata", "creationTimestamp")
        raise BadObject(path, f"expected a time, got {text!r}"[:80]) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _described(error: ValueError) -> str:
    path = ".".join(map(str, error.path)) if isinstance(error, BadObject) else ""
    return f"{path}: {error}" if path else str(error)
