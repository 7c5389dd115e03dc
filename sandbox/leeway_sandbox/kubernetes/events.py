"""Kubernetes Events: writes those of the cluster's components, and deletes old ones.

Rules: the API server's --event-ttl of one hour. The sandbox also limits their number.
"""

from __future__ import annotations

import collections
import time

from leeway_sandbox.kubernetes import registry
from leeway_sandbox.kubernetes.objects import (
    Object,
    key_of,
    name_of,
    namespace_of,
    timestamp,
    uid_of,
)
from leeway_sandbox.kubernetes.store import Change, Key, Store

_LIVES_SECONDS = 3600.0


class Events:
    """The events in a store, oldest first."""

    def __init__(self, store: Store, most: int) -> None:
        self._store = store
        self._most = most
        self._kept: collections.deque[tuple[float, Key]] = collections.deque()
        store.listen(registry.EVENT, self._changed)

    def write(
        self, kind: registry.Kind, about: Object, reason: str, message: str, component: str
    ) -> None:
        """Write an event about an object in the name of a component."""
        namespace, now = namespace_of(about) or "default", timestamp()
        involved = {"kind": kind.kind, "apiVersion": kind.api_version, "name": name_of(about)}
        involved["uid"] = uid_of(about)
        if kind.namespaced:
            involved["namespace"] = namespace
        name = f"{name_of(about)}.{self._store.revision:x}.{time.time_ns():x}"
        self._store.create(
            registry.EVENT,
            {
                "metadata": {"name": name, "namespace": namespace},
                "involvedObject": involved,
                "reason": reason,
                "message": message,
                "source": {"component": component},
                "firstTimestamp": now,
                "lastTimestamp": now,
                "count": 1,
                "type": "Warning" if reason.startswith("Failed") else "Normal",
                "eventTime": None,
                "reportingComponent": component,
                "reportingInstance": "",
            },
        )

    def expire(self) -> None:
        """Delete events that are too old, and the oldest ones above the limit."""
        oldest = time.monotonic() - _LIVES_SECONDS
        while self._kept and (self._kept[0][0] < oldest or len(self._kept) > self._most):
            event = self._store.get(registry.EVENT, *self._kept.popleft()[1])
            if event is not None:
                self._store.remove(registry.EVENT, event)

    def _changed(self, change: Change) -> None:
        if change.type == "ADDED":
            self._kept.append((time.monotonic(), key_of(change.object)))
            self.expire()
