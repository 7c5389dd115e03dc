"""The Deployment controller: one ReplicaSet per template, rolled over within surge and budget."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

import msgspec

from sandbox.kubernetes import registry
from sandbox.kubernetes.cluster import Cluster
from sandbox.kubernetes.inhabitants.workqueue import WorkQueue
from sandbox.kubernetes.objects import (
    Object,
    annotation,
    controller_of,
    is_terminating,
    name_of,
    namespace_of,
    owner_reference,
    timestamp,
    uid_of,
    with_condition,
)
from sandbox.kubernetes.store import Change, Key

_HASH_LABEL = "pod-template-hash"
_REVISION = "deployment.kubernetes.io/revision"
_SAFE = "bcdfghjklmnpqrstvwxz2456789"
_HASH_LENGTH = 10

_GATHER = 0.01  # seconds


class Deployments:
    """Follows Deployments and their ReplicaSets."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._queue: WorkQueue[Key] = WorkQueue(cluster, self._reconcile, after=_GATHER)

    def start(self) -> None:
        """Begin to follow changes."""
        self._cluster.store.listen(registry.DEPLOYMENT, self._changed)
        self._cluster.store.listen(registry.REPLICA_SET, self._replica_set_changed)

    def _changed(self, change: Change) -> None:
        self._queue.add((namespace_of(change.object), name_of(change.object)))

    def _replica_set_changed(self, change: Change) -> None:
        owner = controller_of(change.object)
        if owner is not None and owner["kind"] == "Deployment":
            self._queue.add((namespace_of(change.object), owner["name"]))

    def _reconcile(self, key: Key) -> None:
        deployment = self._cluster.store.get(registry.DEPLOYMENT, *key)
        if deployment is None or is_terminating(deployment):
            return
        owned = self._cluster.store.owned(uid_of(deployment), registry.REPLICA_SET)
        sets = sorted((one for _, one in owned), key=_revision)
        digest = _template_hash(deployment)
        current = next((one for one in sets if _hash_of(one) == digest), None)
        others = [one for one in sets if one is not current]
        if current is None:
            current = self._create_set(deployment, digest, others)
        elif not deployment["spec"].get("paused"):
            self._roll(deployment, current, others)
        self._number(deployment, current, others)
        self._write_status(key)

    def _create_set(self, deployment: Object, digest: str, others: list[Object]) -> Object:
        spec = deployment["spec"]
        template = spec["template"]
        metadata = template.get("metadata") or {}
        labels = {**(metadata.get("labels") or {}), _HASH_LABEL: digest}
        selector = spec["selector"]
        equal = {**(selector.get("matchLabels") or {}), _HASH_LABEL: digest}
        replicas = 0 if others else spec["replicas"]
        return self._cluster.store.create(
            registry.REPLICA_SET,
            {
                "metadata": {
                    "name": f"{name_of(deployment)}-{digest}",
                    "namespace": namespace_of(deployment),
                    "labels": labels,
                    "annotations": {_REVISION: str(max(map(_revision, others), default=0) + 1)},
                    "ownerReferences": [
                        owner_reference("Deployment", "apps/v1", deployment),
                    ],
                },
                "spec": {
                    "replicas": replicas,
                    "selector": {**selector, "matchLabels": equal},
                    "template": {**template, "metadata": {**metadata, "labels": labels}},
                },
                "status": {"replicas": 0},
            },
        )

    def _roll(self, deployment: Object, current: Object, others: list[Object]) -> None:
        """Move replicas from the old sets to the current one, a step at a time."""
        wanted = deployment["spec"]["replicas"]
        old = [one for one in others if one["spec"]["replicas"] or one["status"]["replicas"]]
        if not old:
            self._scale(current, wanted)
            return
        strategy = deployment["spec"]["strategy"]
        if strategy["type"] == "Recreate":
            for one in old:
                self._scale(one, 0)
            return
        rolling = strategy.get("rollingUpdate") or {}
        surge = _share(rolling.get("maxSurge", "25%"), wanted, math.ceil)
        unavailable = _share(rolling.get("maxUnavailable", "25%"), wanted, math.floor)
        if not surge and not unavailable:
            unavailable = 1
        total = current["spec"]["replicas"] + sum(one["spec"]["replicas"] for one in old)
        room = wanted + surge - total
        if room > 0 or current["spec"]["replicas"] > wanted:
            self._scale(current, min(wanted, current["spec"]["replicas"] + room))
        available = sum(one["status"].get("availableReplicas", 0) for one in (current, *old))
        spare = available - (wanted - unavailable)
        for one in old:
            # What is not available serves nobody: it goes first and costs nothing.
            idle = one["spec"]["replicas"] - one["status"].get("availableReplicas", 0)
            cut = min(one["spec"]["replicas"], max(0, idle) + max(0, spare))
            spare -= max(0, cut - max(0, idle))
            self._scale(one, one["spec"]["replicas"] - cut)

    def _scale(self, replica_set: Object, replicas: int) -> None:
        if replica_set["spec"]["replicas"] == replicas:
            return
        generation = replica_set["metadata"]["generation"] + 1
        self._cluster.store.amend(
            registry.REPLICA_SET,
            replica_set,
            metadata={"generation": generation},
            spec={"replicas": max(0, replicas)},
        )

    def _number(self, deployment: Object, current: Object, others: list[Object]) -> None:
        """Give the current set the highest revision, and the deployment the same."""
        newest = max(map(_revision, others), default=0)
        revision = _revision(current)
        if revision <= newest:
            revision = newest + 1
            annotations = dict(current["metadata"].get("annotations") or {})
            annotations[_REVISION] = str(revision)
            self._cluster.store.amend(
                registry.REPLICA_SET, current, metadata={"annotations": annotations}
            )
        if annotation(deployment, _REVISION) != str(revision):
            annotations = dict(deployment["metadata"].get("annotations") or {})
            annotations[_REVISION] = str(revision)
            self._cluster.store.amend(
                registry.DEPLOYMENT, deployment, metadata={"annotations": annotations}
            )

    def _write_status(self, key: Key) -> None:
        deployment = self._cluster.store.read(registry.DEPLOYMENT, *key)
        owned = self._cluster.store.owned(uid_of(deployment), registry.REPLICA_SET)
        sets = [one for _, one in owned]
        digest = _template_hash(deployment)
        wanted = deployment["spec"]["replicas"]
        counts = {
            name: sum(one["status"].get(name, 0) for one in sets)
            for name in ("replicas", "readyReplicas", "availableReplicas")
        }
        updated = sum(one["status"].get("replicas", 0) for one in sets if _hash_of(one) == digest)
        available = counts["availableReplicas"]
        status: Object = {"observedGeneration": deployment["metadata"]["generation"], **counts}
        status["updatedReplicas"] = updated
        if available < wanted:
            status["unavailableReplicas"] = wanted - available
        status = {name: value for name, value in status.items() if value}
        status["terminatingReplicas"] = sum(
            one["status"].get("terminatingReplicas", 0) for one in sets
        )
        status["conditions"] = _conditions(deployment, digest, updated, available)
        self._cluster.store.replace(registry.DEPLOYMENT, {**deployment, "status": status})


def _conditions(deployment: Object, digest: str, updated: int, available: int) -> list[Object]:
    wanted = deployment["spec"]["replicas"]
    rolling = deployment["spec"]["strategy"].get("rollingUpdate") or {}
    unavailable = _share(rolling.get("maxUnavailable", 0), wanted, math.floor)
    enough = available >= wanted - unavailable
    done = updated >= wanted and available >= wanted
    new_set = f'"{name_of(deployment)}-{digest}"'
    conditions = with_condition(
        deployment["status"].get("conditions"),
        _condition(
            "Available",
            enough,
            "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
            f"Deployment {'has' if enough else 'does not have'} minimum availability.",
        ),
    )
    return with_condition(
        conditions,
        _condition(
            "Progressing",
            True,
            "NewReplicaSetAvailable" if done else "ReplicaSetUpdated",
            f"ReplicaSet {new_set} {'has successfully progressed' if done else 'is progressing'}.",
        ),
    )


def _condition(kind: str, status: bool, reason: str, message: str) -> Object:
    return {
        "type": kind,
        "status": str(status),
        "lastUpdateTime": timestamp(),
        "lastTransitionTime": timestamp(),
        "reason": reason,
        "message": message,
    }


def _template_hash(deployment: Object) -> str:
    template = msgspec.json.encode(deployment["spec"]["template"], order="sorted")
    digest = hashlib.sha256(template).digest()
    return "".join(_SAFE[byte % len(_SAFE)] for byte in digest[:_HASH_LENGTH])


def _hash_of(replica_set: Object) -> str | None:
    labels: dict[str, str] = replica_set["metadata"].get("labels") or {}
    return labels.get(_HASH_LABEL)


def _revision(replica_set: Object) -> int:
    return int(annotation(replica_set, _REVISION) or 0)


def _share(value: int | str, of: int, rounding: Callable[[float], int]) -> int:
    if isinstance(value, int):
        return value
    return rounding(float(value.removesuffix("%")) * of / 100)
