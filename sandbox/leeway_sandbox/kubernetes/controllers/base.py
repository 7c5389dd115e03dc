"""The base of the workload controllers: a queue of changed objects, and pods from templates."""

from __future__ import annotations

import abc
import logging
import time
from collections.abc import Callable, Hashable

from leeway_sandbox.kubernetes import defaults, errors, pod_security, registry
from leeway_sandbox.kubernetes.cluster import Cluster
from leeway_sandbox.kubernetes.objects import (
    CLOCK,
    Object,
    condition,
    controller_of,
    epoch,
    is_ready,
    is_terminating,
    key_of,
    name_of,
    namespace_of,
    owner_reference,
    uid_of,
)
from leeway_sandbox.kubernetes.registry import Kind
from leeway_sandbox.kubernetes.store import Change, Key
from leeway_sandbox.kubernetes.writing import suffix

_log = logging.getLogger(__name__)
_SLICE_SECONDS = 0.01
_RESTS = 4  # times as long as the last work, which takes long for sets of thousands


class WorkQueue[Item: Hashable]:
    """Items to reconcile, in order of arrival, each once.

    Work starts `after` some seconds, so that several changes are reconciled together, or later if
    it would use more than a fifth of the processor. It runs in slices of some milliseconds, between
    which the API answers requests.
    """

    def __init__(
        self, cluster: Cluster, reconcile: Callable[[Item], None], *, after: float = 0.0
    ) -> None:
        self._cluster = cluster
        self._reconcile = reconcile
        self._after = after
        self._items: dict[Item, None] = {}
        self._running = False
        self._worked = 0.0

    def add(self, item: Item) -> None:
        """Add an item."""
        self._items[item] = None
        if not self._running:
            self._running = True
            self._cluster.later(max(self._after, _RESTS * self._worked), self._work)
            self._worked = 0.0

    def _work(self) -> None:
        began = time.monotonic()
        while self._items and time.monotonic() < began + _SLICE_SECONDS:
            item = next(iter(self._items))
            del self._items[item]
            try:
                self._reconcile(item)
            except Exception:  # noqa: BLE001 (an error of one item must not stop the controller)
                _log.exception("%s failed for %s", self._reconcile, item)
        self._worked += time.monotonic() - began
        if self._items:
            self._cluster.soon(self._work)
        else:
            self._running = False


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


def spawn(
    cluster: Cluster,
    kind: Kind,
    owner: Object,
    *,
    name: str = "",
    labels: dict[str, str] | None = None,
    spec: Object | None = None,
) -> Object | None:
    """Create a pod from the template of its owner; `labels` and `spec` override the template.

    None if the namespace is terminating, PodSecurity refuses the pod, or the name exists.
    """
    namespace = namespace_of(owner)
    home = cluster.store.get(registry.NAMESPACE, "", namespace)
    if home is None or is_terminating(home):
        return None
    template = owner["spec"]["template"]
    given = template.get("metadata") or {}
    metadata: Object = {
        "namespace": namespace,
        "labels": {**(given.get("labels") or {}), **(labels or {})},
        "ownerReferences": [owner_reference(kind.kind, kind.api_version, owner)],
    }
    if given.get("annotations"):
        metadata["annotations"] = given["annotations"]
    if name:
        metadata["name"] = name
    else:
        metadata["generateName"] = f"{name_of(owner)}-"
        metadata["name"] = metadata["generateName"] + suffix(cluster)
    pod_spec = {**template["spec"], **(spec or {}), "enableServiceLinks": True}
    if pod_security.refusal(cluster.store, namespace, pod_spec) is not None:
        return None
    pod_spec["tolerations"] = list(pod_spec.get("tolerations") or ())
    pod = {"metadata": metadata, "spec": pod_spec}
    defaults.admit(registry.POD, pod, cluster.store)
    try:
        return cluster.store.create(registry.POD, pod)
    except errors.ApiError:
        return None
