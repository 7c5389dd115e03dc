"""The disruption controller, which updates the status of PodDisruptionBudgets.

Rules: `disruptionsAllowed = max(0, currentHealthy − desiredHealthy)`. Percentages and
maxUnavailable refer to the replicas of the pods' owners; percentages round up. A pod with a granted
eviction does not count as healthy.
"""

from __future__ import annotations

import collections
import math

from leeway_sandbox.kubernetes import registry
from leeway_sandbox.kubernetes.cluster import Cluster
from leeway_sandbox.kubernetes.controllers.base import WorkQueue
from leeway_sandbox.kubernetes.objects import (
    CLOCK,
    Object,
    controller_of,
    epoch,
    is_finished,
    is_ready,
    is_terminating,
    labels_of,
    name_of,
    namespace_of,
    share,
    timestamp,
    uid_of,
    with_condition,
)
from leeway_sandbox.kubernetes.selectors import LabelTest, label_selector
from leeway_sandbox.kubernetes.store import Change, Key

_GATHER = 0.02  # seconds
_SCALED = {
    "ReplicaSet": registry.REPLICA_SET,
    "Deployment": registry.DEPLOYMENT,
    "StatefulSet": registry.STATEFUL_SET,
}


class _Budget:
    """The cached state of one budget: its selector and its pods."""

    def __init__(self, key: Key, selector: Object | None) -> None:
        self.key = key
        self.test: LabelTest = label_selector(selector)
        self.selector = selector
        self.healthy: set[str] = set()
        self.unowned: dict[str, str] = {}
        self.owners: dict[str, Object] = {}
        self.pods: dict[str, str] = {}
        self._number_of: collections.Counter[str] = collections.Counter()

    def put(self, pod: Object) -> None:
        """Add a pod in its present state; a finished pod does not count."""
        if is_finished(pod):
            return
        uid, reference = uid_of(pod), controller_of(pod)
        owner = ""
        if reference is None:
            self.unowned[uid] = name_of(pod)
        else:
            owner = reference["uid"]
            self.owners[owner] = reference
            self._number_of[owner] += 1
        self.pods[uid] = owner
        if is_ready(pod) and not is_terminating(pod):
            self.healthy.add(uid)

    def drop(self, uid: str) -> None:
        """Remove a pod."""
        owner = self.pods.pop(uid, None)
        if owner is None:
            return
        self.healthy.discard(uid)
        self.unowned.pop(uid, None)
        if owner:
            self._number_of[owner] -= 1
            if not self._number_of[owner]:
                del self.owners[owner]


class Disruption:
    """Watches budgets, pods and their owners; returns the budgets of a pod."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._store = cluster.store
        self._queue: WorkQueue[Key] = WorkQueue(cluster, self._reconcile, after=_GATHER)
        # By namespace and name.
        self._budgets: dict[str, dict[str, _Budget]] = {}
        self._of_pod: dict[str, list[Key]] = {}
        self._expiring: set[Key] = set()

    def start(self) -> None:
        """Start to watch changes."""
        self._store.listen(registry.BUDGET, self._budget_changed)
        self._store.listen(registry.POD, self._pod_changed)
        for kind in _SCALED.values():
            self._store.listen(kind, self._owner_changed)

    def budgets_of(self, pod: Object) -> list[Object]:
        """Return the budgets whose selector matches a pod."""
        found = (
            self._store.get(registry.BUDGET, *key) for key in self._of_pod.get(uid_of(pod), ())
        )
        return [budget for budget in found if budget is not None]

    def _budget_changed(self, change: Change) -> None:
        budget = change.object
        key = (namespace_of(budget), name_of(budget))
        known = self._budgets.setdefault(key[0], {})
        old = known.get(key[1])
        selector = budget["spec"].get("selector")
        if change.type == "DELETED" or old is None or old.selector != selector:
            known.pop(key[1], None)
            for uid in old.pods if old else ():
                self._of_pod[uid].remove(key)
                if not self._of_pod[uid]:
                    del self._of_pod[uid]
            if change.type == "DELETED":
                return
            fresh = _Budget(key, selector)
            known[key[1]] = fresh
            for pod in self._store.every(registry.POD, key[0]):
                if fresh.test(labels_of(pod)):
                    fresh.put(pod)
                    self._of_pod.setdefault(uid_of(pod), []).append(key)
        before = change.previous
        if (
            before is None
            or before["spec"] != budget["spec"]
            or _granted(before) != _granted(budget)
        ):
            self._queue.add(key)

    def _pod_changed(self, change: Change) -> None:
        pod, uid = change.object, uid_of(change.object)
        known = self._budgets.get(namespace_of(pod))
        if not known:
            return
        before, gone = change.previous, change.type == "DELETED"
        relabelled = before is None or labels_of(before) != labels_of(pod)
        if not relabelled and not gone and before and _health(before) == _health(pod):
            return
        for key in self._of_pod.get(uid, ()):
            known[key[1]].drop(uid)
            self._queue.add(key)
        if relabelled or gone:
            self._of_pod.pop(uid, None)
            covering = [one.key for one in known.values() if one.test(labels_of(pod))]
            if covering and not gone:
                self._of_pod[uid] = covering
        for key in self._of_pod.get(uid, ()):
            known[key[1]].put(pod)
            self._queue.add(key)

    def _owner_changed(self, change: Change) -> None:
        before = (change.previous or {}).get("spec", {}).get("replicas")
        if before != change.object["spec"].get("replicas"):
            for name in self._budgets.get(namespace_of(change.object), ()):
                self._queue.add((namespace_of(change.object), name))

    def _reconcile(self, key: Key) -> None:
        budget = self._store.get(registry.BUDGET, *key)
        known = self._budgets.get(key[0], {}).get(key[1])
        if budget is None or known is None:
            return
        disrupted = self._still_disrupted(budget)
        promised = sum(uid in known.healthy for uid in disrupted.values())
        healthy = len(known.healthy) - promised
        expected, desired, problem = self._expectation(budget["spec"], known)
        allowed = 0 if problem else max(0, healthy - desired)
        reason = "SyncFailed" if problem else "SufficientPods" if allowed else "InsufficientPods"
        generation = budget["metadata"]["generation"]
        status: Object = {
            "observedGeneration": generation,
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "conditions": with_condition(
                budget["status"].get("conditions"),
                {
                    "type": "DisruptionAllowed",
                    "status": "True" if allowed else "False",
                    "observedGeneration": generation,
                    "lastTransitionTime": timestamp(),
                    "reason": reason,
                    "message": problem,
                },
            ),
        }
        if disrupted:
            granted = budget["status"]["disruptedPods"]
            status["disruptedPods"] = {name: granted[name] for name in disrupted}
            if key not in self._expiring:
                self._expiring.add(key)
                self._cluster.later(self._cluster.settings.grant_expiry, self._expire, key)
        self._store.replace(registry.BUDGET, {**budget, "status": status})

    def _expire(self, key: Key) -> None:
        self._expiring.discard(key)
        self._queue.add(key)

    def _still_disrupted(self, budget: Object) -> dict[str, str]:
        """Return the pods with a granted eviction that are not terminating yet, as name → uid."""
        fresh = CLOCK.now() - self._cluster.settings.grant_expiry
        found = {}
        for name, at in (budget["status"].get("disruptedPods") or {}).items():
            pod = self._store.get(registry.POD, namespace_of(budget), name)
            if pod is not None and not is_terminating(pod) and epoch(at) > fresh:
                found[name] = uid_of(pod)
        return found

    def _expectation(self, spec: Object, known: _Budget) -> tuple[int, int, str]:
        """Return the expected pods, the pods that must stay healthy, and an error message."""
        maximum = spec.get("maxUnavailable")
        minimum: int | str = spec.get("minAvailable", 1)
        if maximum is None and isinstance(minimum, int):
            # Only an integer minAvailable works for pods without a controller.
            return len(known.pods), minimum, ""
        expected, problem = self._scale(known)
        if problem:
            return 0, 0, problem
        if maximum is not None:
            return expected, max(0, expected - share(maximum, expected, math.ceil)), ""
        return expected, share(minimum, expected, math.ceil), ""

    def _scale(self, known: _Budget) -> tuple[int, str]:
        """Return the sum of the replicas of the pods' owners, and an error message."""
        for name in known.unowned.values():
            return 0, f'found no controllers for pod "{name}"'
        wanted: dict[str, int] = {}
        for reference in known.owners.values():
            kind = _SCALED.get(reference["kind"])
            if kind is None:
                described = f"{reference['kind']}.{reference['apiVersion']}"
                return 0, f"{described} does not implement the scale subresource"
            owner = self._store.get(kind, known.key[0], reference["name"])
            if owner is None:
                continue
            # The replicas of a Deployment count once for the pods of all its ReplicaSets.
            above = controller_of(owner)
            if above is not None and above["kind"] in _SCALED:
                top = self._store.get(_SCALED[above["kind"]], known.key[0], above["name"])
                owner = top or owner
            wanted[uid_of(owner)] = owner["spec"].get("replicas", 1)
        return sum(wanted.values()), ""


def _granted(budget: Object) -> Object:
    granted: Object = budget.get("status", {}).get("disruptedPods") or {}
    return granted


def _health(pod: Object) -> tuple[bool, bool, bool]:
    return is_ready(pod), is_terminating(pod), is_finished(pod)
