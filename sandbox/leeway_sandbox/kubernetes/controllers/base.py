"""The base of the workload controllers, which watch one kind and its dependents."""

from __future__ import annotations

import abc

from leeway_sandbox.kubernetes.clock import CLOCK
from leeway_sandbox.kubernetes.cluster import Cluster
from leeway_sandbox.kubernetes.controllers.workqueue import WorkQueue
from leeway_sandbox.kubernetes.objects import (
    Object,
    condition,
    controller_of,
    epoch,
    is_ready,
    is_terminating,
    key_of,
    namespace_of,
    uid_of,
)
from leeway_sandbox.kubernetes.registry import Kind
from leeway_sandbox.kubernetes.store import Change, Key

_GATHER_SECONDS = 0.05


class Controller(abc.ABC):
    """Reconciles each object of a kind after a change of it or of its dependents."""

    def __init__(
        self, cluster: Cluster, kind: Kind, owned: Kind, gather: float = _GATHER_SECONDS
    ) -> None:
        self._cluster = cluster
        self._store = cluster.store
        self._kind = kind
        self._owned = owned
        self._queue: WorkQueue[Key] = WorkQueue(cluster, self._reconcile_key, after=gather)

    def start(self) -> None:
        """Start to watch changes."""
        self._store.listen(self._kind, lambda change: self._queue.add(key_of(change.object)))
        self._store.listen(self._owned, self._owned_changed)

    def _owned_changed(self, change: Change) -> None:
        owner = controller_of(change.object)
        if owner is not None and owner["kind"] == self._kind.kind:
            self._queue.add((namespace_of(change.object), owner["name"]))

    def _reconcile_key(self, key: Key) -> None:
        owner = self._store.get(self._kind, *key)
        if owner is None or is_terminating(owner):
            return
        status = self.reconcile(owner, self._store.owned(uid_of(owner), self._owned))
        current = self._store.get(self._kind, *key)
        if status is not None and current is not None:
            self._store.replace(self._kind, {**current, "status": status})

    def available(self, owner: Object, pods: list[Object]) -> int:
        """Count the pods that have been Ready for `minReadySeconds`.

        The owner is reconciled again when the next pod becomes available.
        """
        seconds, now = owner["spec"].get("minReadySeconds") or 0, CLOCK.now()
        waits = [_available_in(pod, seconds, now) for pod in pods if is_ready(pod)]
        ahead = [wait for wait in waits if wait > 0]
        if ahead:
            self._cluster.later(min(ahead), self._queue.add, key_of(owner))
        return len(waits) - len(ahead)

    @abc.abstractmethod
    def reconcile(self, owner: Object, owned: list[Object]) -> Object | None:
        """Reconcile an object with its spec; return its new status, or None to keep it."""


def _available_in(pod: Object, min_ready: int, now: float) -> float:
    """Return the seconds until a Ready pod is available."""
    ready = condition(pod, "Ready")
    return epoch(ready["lastTransitionTime"]) + min_ready - now if ready and min_ready else 0.0
