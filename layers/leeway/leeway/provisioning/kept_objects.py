"""The objects of a cluster, converted once and kept: a change converts only what it touches.

No I/O. The meaning of an object is that of `leeway.selection.reading`, which the command line uses
for lists of objects.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain

from leeway.ports.kubernetes_objects import FOREVER
from leeway.printable import printable
from leeway.provisioning.cluster_state import (
    BoundPod,
    ClaimedNode,
    ClusterState,
    KeptNode,
    KeptPod,
    NodeDetails,
    ObservedPod,
    PodBudget,
    PodSpecs,
    UnreadableObject,
    budget_of,
    read_claimed,
    read_node,
    read_pod,
    reduced_node,
    reduced_pod,
)
from leeway.reasons import ReasonCode, clause
from leeway.retirement.pods import SKIP_DELETED_FOR
from leeway.selection.pods import ExistingNode, Pod, PodSpec
from leeway.selection.reading.claims import VolumeClaims
from leeway.selection.reading.cluster_objects import (
    ClusterFacts,
    PodsOnNode,
    cluster_facts,
    daemons_of,
)
from leeway.selection.reading.objects import (
    REFERENCED,
    BadObject,
    Document,
    bound_node,
    key_of,
    name_of,
)
from leeway.selection.reading.pod_objects import attach_once, with_volumes
from leeway.selection.reading.schemas import check

OBJECT_NOT_READABLE = ReasonCode(
    "ObjectNotReadable",
    "Leeway can't read {kind} {name}: {problem}. It launches no node for this object. Other "
    "objects are read.",
    "an-object-can-not-be-read",
)

BUDGET = "PodDisruptionBudget"

KINDS = frozenset({"Pod", "Node", "NodeClaim", "DaemonSet", BUDGET, *REFERENCED})
"""The kinds of objects that a state is made of."""

NAMESPACED = frozenset({"Pod", "DaemonSet", "LimitRange", "PersistentVolumeClaim", BUDGET})

_OF_DAEMONS = ("LimitRange", "PriorityClass", "RuntimeClass")
"""Kinds that change the pods of DaemonSets when the API server admits them."""

_LONGEST_PROBLEM = 200

BOUND_SINCE = timedelta(hours=1)
"""How long ago the pods of `ClusterState.bound` were bound at most."""

ENDS_SOON = timedelta(minutes=1)
"""How close the end of a grace period is, before or after it, if what the pod holds counts as free:
a new node takes as long to join. A pod with a longer grace period or a finalizer may stay for
hours."""


class KeptObjects:
    """The objects of one cluster. Keys are `namespace/name`, or the name of an object without a
    namespace. `complete`: they are all of the cluster; files may lack whole kinds. Not safe for
    several threads."""

    def __init__(self, *, complete: bool = True) -> None:
        self._complete = complete
        self._specs = PodSpecs()
        self._pods: dict[str, KeptPod] = {}
        self._gone: list[KeptPod] = []
        self._pods_on: dict[str, dict[str, KeptPod]] = {}
        self._nodes: dict[str, KeptNode] = {}
        self._others: dict[str, dict[str, Document]] = {
            kind: {} for kind in ("DaemonSet", BUDGET, *sorted(REFERENCED))
        }
        self._claimed: dict[str, ClaimedNode | None] = {}
        self._unreadable: dict[tuple[str, str], UnreadableObject] = {}
        self._facts: ClusterFacts = cluster_facts(())
        self._facts_changed = self._daemons_changed = False
        self._daemons: tuple[PodSpec, ...] = ()
        self._newest: dict[str, KeptPod] = {}
        self._stale: set[str] = set()
        self._changed_nodes: set[str] = set()
        self._existing: dict[str, ExistingNode] = {}
        self._unusable: dict[str, ExistingNode] = {}
        self._movable: dict[str, tuple[Pod, ...]] = {}
        self._leaving: dict[str, tuple[str, ...]] = {}
        self._details: dict[str, NodeDetails] = {}
        self._budgets: tuple[PodBudget, ...] = ()
        self._budgets_changed = False
        self._due: dict[str, datetime] = {}
        self._moved: dict[str, datetime] = {}
        self._moved_at: dict[str, datetime] = {}
        self._read_at: datetime | None = None

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

    def put(self, kind: str, document: Document, ended_at: datetime | None = None) -> None:
        """Add or replace an object with the fields of its kind's schema. An object that can't be
        read is kept as unreadable. `ended_at` is when a finished pod ended, None if not known."""
        key = key_in(kind, document)
        try:
            if kind == "Pod":
                self._put_pod(key, read_pod(key, document, self._specs), ended_at)
            elif kind == "Node":
                check(document, kind)
                self._put_node(key, read_node(document))
            elif kind == "NodeClaim":
                check(document, kind)
                self._claimed[key] = read_claimed(document)
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
            self._put_pod(key, reduced_pod(key, document))
        elif kind == "Node":
            self._put_node(key, reduced_node(document))
        shown = printable(problem)[:_LONGEST_PROBLEM]
        reason = OBJECT_NOT_READABLE(kind=kind, name=printable(key), problem=clause(shown))
        self._unreadable[kind, key] = UnreadableObject(kind, key, reason)

    def note_unreadable(self, kind: str, problem: str) -> None:
        """Note that all objects of a kind can't be read, and keep none of them."""
        for key in self.keys(kind):
            self.remove(kind, key)
        reason = OBJECT_NOT_READABLE(
            kind="all objects of kind", name=kind, problem=clause(problem[:_LONGEST_PROBLEM])
        )
        self._unreadable[kind, ""] = UnreadableObject(kind, "", reason)

    def remove(self, kind: str, key: str, ended_at: datetime | None = None) -> None:
        """Remove an object; nothing happens if there is none. `ended_at` is when a pod ended, None
        if that is not known."""
        self._unreadable.pop((kind, key), None)
        if kind == "Pod":
            self._take_off_node(key)
            gone = self._pods.pop(key, None)
            if gone is not None and gone.bound_at is not None:
                self._gone.append(gone)
            self._note_moved(_where(gone), ended_at)
            self._note_daemon(gone, None)
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
        self._changed_nodes.update(name for name, at in self._due.items() if at <= read_at)
        for name in self._changed_nodes:
            self._update_node(name, read_at)
        self._changed_nodes.clear()
        self._note_moves(read_at)
        names = sorted(self._existing)
        return ClusterState(
            read_at=read_at,
            nodes=tuple(self._existing[name] for name in names),
            joined=self._joined(),
            waiting=tuple(self._waiting()),
            bound=tuple(self._bound(read_at - BOUND_SINCE)),
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

    def _put_pod(self, key: str, pod: KeptPod, ended_at: datetime | None = None) -> None:
        known = self._pods.get(key)
        if known == pod:
            return
        self._note_moved(set(_where(known)) ^ set(_where(pod)), ended_at)
        self._take_off_node(key)
        self._pods[key] = pod
        self._note_daemon(known, pod)
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

    def _put_node(self, name: str, node: KeptNode) -> None:
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

    def _note_daemon(self, before: KeptPod | None, now: KeptPod | None) -> None:
        """Note the newest pod of each DaemonSet, by the uid of its controller."""
        last = self._newest.get(before.controller) if before is not None else None
        if before is not None and last is not None and last.key == before.key:
            self._stale.add(before.controller)
        if now is not None and _runs_for_daemon_set(now):
            last = self._newest.get(now.controller)
            if last is None or _age(last) <= _age(now):
                self._newest[now.controller] = now
                self._stale.discard(now.controller)
                self._daemons_changed |= last is None or last.spec is not now.spec

    def _find_newest(self) -> None:
        """Find the newest pods of DaemonSets whose newest one has gone."""
        if not self._stale:
            return
        for uid in self._stale:
            del self._newest[uid]
        left = [pod for pod in self._pods.values() if pod.controller in self._stale]
        for pod in sorted(filter(_runs_for_daemon_set, left), key=_age):
            self._newest[pod.controller] = pod
        self._stale.clear()
        self._daemons_changed = True

    def _update_facts(self) -> None:
        """Read the objects that pods depend on again, if one has changed."""
        self._find_newest()
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

    def _note_moved(self, moves: Iterable[tuple[str, str]], at: datetime | None) -> None:
        """Note that pods came to nodes or left them, at this time, or just before the next read if
        it is not known."""
        for node, _ in moves:
            self._moved[node] = max(self._moved.get(node, at or FOREVER), at or FOREVER)

    def _note_moves(self, read_at: datetime) -> None:
        """Note when pods came to nodes or left them, from the second read on: since the last read,
        whatever the clock of a node says."""
        if self._read_at is not None:
            for node, at in self._moved.items():
                self._moved_at[node] = max(min(at, read_at), self._read_at)
            self._moved_at = {k: v for k, v in self._moved_at.items() if k in self._nodes}
        self._read_at = read_at
        self._moved.clear()

    def _all_of(self, *kinds: str) -> Iterator[Document]:
        for kind in kinds:
            objects = self._others[kind]
            yield from (objects[key] for key in sorted(objects))

    def _read_daemons(self) -> Iterator[PodSpec]:
        """The pods of DaemonSets that a new node gets, with the requests of the newest pod where
        these are larger: an autoscaler may change them when a pod is created or while it runs."""
        others = list(self._all_of(*_OF_DAEMONS))
        for key in self._others["DaemonSet"]:
            self._unreadable.pop(("DaemonSet", key), None)
        for key, document in sorted(self._others["DaemonSet"].items()):
            try:
                newest = self._newest.get(str((document.get("metadata") or {}).get("uid") or ""))
                for spec in daemons_of([document], others):
                    requests = spec.requests.most(newest.spec.requests) if newest else None
                    yield replace(spec, requests=requests) if requests else spec
            except BadObject as error:
                reason = OBJECT_NOT_READABLE(
                    kind="DaemonSet", name=printable(key), problem=clause(_described(error))
                )
                self._unreadable["DaemonSet", key] = UnreadableObject("DaemonSet", key, reason)

    def _update_node(self, name: str, now: datetime) -> None:
        """Put the pods on a node, and find those that need another place after a drain."""
        before = self._existing.pop(name, None)
        self._unusable.pop(name, None)
        self._movable.pop(name, None)
        self._leaving.pop(name, None)
        self._details.pop(name, None)
        self._due.pop(name, None)
        kept = self._nodes.get(name)
        if kept is None:
            return
        if kept.terminating:
            self._unusable[name] = kept.node
            return
        there, moving, leaving = PodsOnNode(), [], []
        running: list[ObservedPod] = []
        staying: list[ObservedPod] = []
        busy: datetime | None = None
        due = FOREVER
        claims: set[str] = set()
        for _, pod in sorted(self._pods_on.get(name, {}).items()):
            spec = self._spec_with_volumes(pod, there.claims)
            soon = _ends_soon(pod, now)
            there.add(spec, terminating=pod.terminating, daemon=pod.daemon, ends_soon=soon)
            due = min(due, _changes_at(pod, now))
            if pod.movable:
                moving.append(Pod(pod.key, self._spec_with_volumes(pod, claims)))
            elif pod.terminating and pod.controller and not pod.daemon:
                leaving.append(pod.controller)
            if pod.stays_with_node:
                if pod.may_forbid:
                    staying.append(_observed(pod, Pod(pod.key, pod.spec)))
                continue
            if pod.terminating or not pod.bound:
                busy = max(busy or _keeps_busy_until(pod), _keeps_busy_until(pod))
            if pod.bound and (pod.movable or not pod.terminating):
                known = moving[-1] if pod.movable else Pod(pod.key, pod.spec)
                running.append(_observed(pod, known))
        self._due[name] = due
        node = there.on(kept.node, self._facts.attachable.get(name))
        self._existing[name] = before if node == before and before else node
        self._movable[name] = tuple(moving)
        self._leaving[name] = tuple(leaving)
        self._details[name] = replace(
            kept.details, pods=tuple(running), staying=tuple(staying), busy_until=busy
        )

    def _spec_with_volumes(self, pod: KeptPod, claims: set[str]) -> PodSpec:
        if pod.volumes is None:
            return pod.spec
        waiting = "" if pod.bound else pod.key.partition("/")[2]
        needs = self._facts.volumes.of_pod(pod.volumes, pod.spec.namespace, waiting)
        return with_volumes(pod.spec, attach_once(needs, claims))

    def _waiting(self) -> Iterator[ObservedPod]:
        """Yield the waiting pods, the oldest first. A pod that is nominated for a Node is the
        scheduler's business: it preempts other pods for it, and removes the nomination if that
        fails."""
        found = [pod for pod in self._pods.values() if pod.waits and pod.node not in self._nodes]
        claims: set[str] = set()
        met = self._volume_claims()
        for pod in sorted(found, key=lambda each: (each.created_at, each.key)):
            spec = self._spec_with_volumes(pod, claims)
            if pod.volumes and spec.unmet is None:
                namespace, name = pod.key.split("/", 1)
                if why := met.why_not_met(pod.volumes["volumes"], namespace, name):
                    spec = replace(spec, unmet=why)
            yield _observed(pod, Pod(pod.key, spec))

    def _bound(self, since: datetime) -> Iterator[BoundPod]:
        self._gone = [one for one in self._gone if one.bound_at and one.bound_at > since]
        for pod in chain(self._pods.values(), self._gone):
            if pod.bound_at is not None and pod.bound_at > since:
                yield BoundPod(pod.key, pod.uid, pod.node, pod.created_at, pod.bound_at)

    def _volume_claims(self) -> VolumeClaims:
        return VolumeClaims(
            self._others["PersistentVolumeClaim"],
            self._others["PersistentVolume"],
            self._others["StorageClass"],
            self._facts.volumes.default_class,
            self._is_unknown,
        )

    def _is_unknown(self, kind: str, key: str) -> bool:
        """Whether there may be an object that could not be read."""
        if not self._complete and not self._others[kind]:
            return True
        return not self._unreadable.keys().isdisjoint([(kind, key), (kind, "")])

    def _joined(self) -> dict[str, str]:
        """Return the names of Nodes by instance. If several Nodes name an instance, the oldest one
        counts: a copied provider id does not replace a node."""
        nodes = sorted(self._nodes.items(), key=lambda each: (each[1].created, each[0]))
        return {kept.instance: name for name, kept in reversed(nodes) if kept.instance}


def _runs_for_daemon_set(pod: KeptPod) -> bool:
    """Whether the requests of a pod may be those of its DaemonSet. A pod without a node may be one
    that somebody else gave this controller; on a node, the controller removes it."""
    runs = pod.bound and not pod.finished and not pod.terminating
    return pod.daemon and runs and bool(pod.controller)


def _keeps_busy_until(pod: KeptPod) -> datetime:
    """Until when a pod that ends keeps its node busy: as long as a drain would wait for it. One
    that the scheduler preempts others for keeps it until the nomination ends."""
    return pod.ends_at + SKIP_DELETED_FOR if pod.bound and pod.ends_at else FOREVER


def _ends_soon(pod: KeptPod, now: datetime) -> bool:
    """Whether what a terminating pod holds counts as free."""
    return pod.ends_at is not None and -ENDS_SOON < pod.ends_at - now <= ENDS_SOON


def _changes_at(pod: KeptPod, now: datetime) -> datetime:
    """When `_ends_soon` changes the next time."""
    if pod.ends_at is None or pod.ends_at - now <= -ENDS_SOON:
        return FOREVER
    return pod.ends_at + (ENDS_SOON if _ends_soon(pod, now) else -ENDS_SOON)


def _age(pod: KeptPod) -> tuple[datetime, str]:
    return pod.created_at, pod.key


def _observed(kept: KeptPod, pod: Pod) -> ObservedPod:
    return ObservedPod(
        pod,
        kept.uid,
        kept.created_at,
        kept.controller,
        kept.protected_until,
        kept.ready,
        kept.deletion_cost,
    )


def _where(pod: KeptPod | None) -> Iterator[tuple[str, str]]:
    """The node that a pod keeps from being empty, with the uid of the pod."""
    if pod is not None and pod.bound and not pod.finished and not pod.stays_with_node:
        yield pod.node, pod.uid


def key_in(kind: str, document: Document) -> str:
    """Return the key of an object of a kind."""
    return key_of(document) if kind in NAMESPACED else name_of(document)


def _described(error: ValueError) -> str:
    path = ".".join(map(str, error.path)) if isinstance(error, BadObject) else ""
    return f"{path}: {error}" if path else str(error)
