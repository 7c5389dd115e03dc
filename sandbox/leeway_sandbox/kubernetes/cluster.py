"""State that the API and the controllers share: the store, the journal, timers, randomness, Events.

Rules of Events: the API server's --event-ttl of one hour. The sandbox also limits their number.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import random
import time
from collections.abc import Callable

from leeway_sandbox.control import Journal
from leeway_sandbox.kubernetes import registry
from leeway_sandbox.kubernetes.admission_policies import AdmissionPolicies
from leeway_sandbox.kubernetes.objects import (
    Object,
    controller_of,
    key_of,
    name_of,
    namespace_of,
    timestamp,
    uid_of,
)
from leeway_sandbox.kubernetes.store import Change, Key, Store
from leeway_sandbox.lag import lag

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


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the cluster; times are in seconds. `initial_nodes` nodes join at once."""

    name: str = "sandbox"
    initial_nodes: int = 0
    pod_start: float = 1.0
    pod_end: float = 0.5
    node_join: float = 4.0
    node_ready: float = 1.0
    node_removal: float = 3.0
    pod_quarantine: float = 40.0
    grant_expiry: float = 120.0
    budget_write: float = 0.005
    volume_attach: float = 1.0
    volume_detach: float = 1.0
    volume_force_detach: float = 360.0
    seed: int = 0
    kept_events: int = 10_000


class Cluster:
    """One cluster: its objects, its journal, and the event loop of its controllers."""

    def __init__(self, settings: Settings, store: Store | None = None) -> None:
        self.settings = settings
        self.store = store or Store()
        self.policies = AdmissionPolicies(self.store)
        self.journal = Journal()
        self.events = Events(self.store, settings.kept_events)
        self.random = random.Random(settings.seed)

    def later[*Arguments](
        self,
        seconds: float,
        callback: Callable[[*Arguments], object],
        *arguments: *Arguments,
    ) -> asyncio.TimerHandle:
        """Call `callback` after some seconds."""
        return asyncio.get_running_loop().call_later(seconds + lag(), callback, *arguments)

    def soon(self, callback: Callable[[], object]) -> None:
        """Call `callback` in the next iteration of the event loop."""
        asyncio.get_running_loop().call_soon(callback)

    def jitter(self, seconds: float) -> float:
        """Return a random time within a fifth of this time."""
        return seconds * self.random.uniform(0.8, 1.2)

    def owner_name(self, obj: Object) -> str | None:
        """Return the workload that owns an object, such as "Deployment/default/web"."""
        reference = controller_of(obj)
        if reference is None:
            return None
        namespace = namespace_of(obj)
        if reference["kind"] == "ReplicaSet":
            replica_set = self.store.get(registry.REPLICA_SET, namespace, reference["name"])
            above = controller_of(replica_set) if replica_set else None
            reference = above or reference
        return f"{reference['kind']}/{namespace}/{reference['name']}"
