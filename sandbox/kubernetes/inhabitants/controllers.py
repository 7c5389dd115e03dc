"""What controllers of workloads share: each follows one kind and what its objects control."""

from __future__ import annotations

import abc

from sandbox.kubernetes.cluster import Cluster
from sandbox.kubernetes.inhabitants.workqueue import WorkQueue
from sandbox.kubernetes.objects import (
    Object,
    controller_of,
    is_terminating,
    key_of,
    namespace_of,
    uid_of,
)
from sandbox.kubernetes.registry import Kind
from sandbox.kubernetes.store import Change, Key

_GATHER_SECONDS = 0.05


class Controller(abc.ABC):
    """Reconciles each object of a kind soon after it, or something it controls, has changed."""

    def __init__(
        self, cluster: Cluster, kind: Kind, owned: Kind, gather: float = _GATHER_SECONDS
    ) -> None:
        self._cluster = cluster
        self._store = cluster.store
        self._kind = kind
        self._owned = owned
        self._queue: WorkQueue[Key] = WorkQueue(cluster, self._look, after=gather)

    def start(self) -> None:
        """Begin to follow changes."""
        self._store.listen(self._kind, lambda change: self._queue.add(key_of(change.object)))
        self._store.listen(self._owned, self._owned_changed)

    def _owned_changed(self, change: Change) -> None:
        owner = controller_of(change.object)
        if owner is not None and owner["kind"] == self._kind.kind:
            self._queue.add((namespace_of(change.object), owner["name"]))

    def _look(self, key: Key) -> None:
        owner = self._store.get(self._kind, *key)
        if owner is None or is_terminating(owner):
            return
        status = self.reconcile(owner, self._store.owned(uid_of(owner), self._owned))
        current = self._store.get(self._kind, *key)
        if status is not None and current is not None:
            self._store.replace(self._kind, {**current, "status": status})

    @abc.abstractmethod
    def reconcile(self, owner: Object, owned: list[Object]) -> Object | None:
        """Do what brings an object closer to its wish; return its status then, None to leave it."""
