"""The Deployment controller: one ReplicaSet per template, rolled over within surge and budget."""

from __future__ import annotations

import hashlib
import math

import msgspec

from sandbox.kubernetes import registry
from sandbox.kubernetes.cluster import Cluster
from sandbox.kubernetes.deletion import delete
from sandbox.kubernetes.inhabitants.controllers import Controller
from sandbox.kubernetes.objects import (
    Object,
    annotation,
    labels_of,
    name_of,
    namespace_of,
    owner_reference,
    share,
    timestamp,
    with_condition,
)

_HASH_LABEL = "pod-template-hash"
_REVISION = "deployment.kubernetes.io/revision"
_SAFE = "bcdfghjklmnpqrstvwxz2456789"
_HASH_LENGTH = 10


class Deployments(Controller):
    """Follows Deployments and their ReplicaSets."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, registry.DEPLOYMENT, registry.REPLICA_SET)

    def reconcile(self, owner: Object, owned: list[Object]) -> Object:
        """Have the current template's set, and move the replicas to it."""
        digest = _template_hash(owner)
        old = sorted(owned, key=_revision)
        current = next((one for one in old if labels_of(one).get(_HASH_LABEL) == digest), None)
        if current is None:
            current = self._create_set(owner, digest, old)
        else:
            old.remove(current)
            if not owner["spec"].get("paused"):
                self._roll(owner, current, old)
        self._number(owner, current, old)
        empty = [one for one in old if not _wish(one) and not one["status"]["replicas"]]
        for one in empty[: max(0, len(empty) - owner["spec"]["revisionHistoryLimit"])]:
            delete(self._cluster, registry.REPLICA_SET, one)
        return _status(owner, current, old)

    def _create_set(self, deployment: Object, digest: str, old: list[Object]) -> Object:
        spec = deployment["spec"]
        template = spec["template"]
        metadata = template.get("metadata") or {}
        labels = {**(metadata.get("labels") or {}), _HASH_LABEL: digest}
        equal = {**(spec["selector"].get("matchLabels") or {}), _HASH_LABEL: digest}
        return self._store.create(
            registry.REPLICA_SET,
            {
                "metadata": {
                    "name": f"{name_of(deployment)}-{digest}",
                    "namespace": namespace_of(deployment),
                    "labels": labels,
                    "ownerReferences": [owner_reference("Deployment", "apps/v1", deployment)],
                },
                "spec": {
                    "replicas": 0 if old else spec["replicas"],
                    "selector": {**spec["selector"], "matchLabels": equal},
                    "template": {**template, "metadata": {**metadata, "labels": labels}},
                },
                "status": {"replicas": 0},
            },
        )

    def _roll(self, deployment: Object, current: Object, others: list[Object]) -> None:
        """Move replicas from the old sets to the current one, a step at a time."""
        wanted = deployment["spec"]["replicas"]
        old = [one for one in others if _wish(one) or one["status"]["replicas"]]
        strategy = deployment["spec"]["strategy"]
        if not old:
            self._scale(current, wanted)
            return
        if strategy["type"] == "Recreate":
            for one in old:
                self._scale(one, 0)
            return
        surge = share(strategy["rollingUpdate"]["maxSurge"], wanted, math.ceil)
        room = wanted + surge - _wish(current) - sum(map(_wish, old))
        if room > 0 or _wish(current) > wanted:
            self._scale(current, min(wanted, _wish(current) + room))
        spare = sum(map(_available, (current, *old))) - _needed(deployment)
        for one in old:
            # What is not available serves nobody: it goes first and costs nothing.
            idle = max(0, _wish(one) - _available(one))
            cut = min(_wish(one), idle + max(0, spare))
            spare -= max(0, cut - idle)
            self._scale(one, _wish(one) - cut)

    def _scale(self, replica_set: Object, replicas: int) -> None:
        if _wish(replica_set) != replicas:
            metadata = {"generation": replica_set["metadata"]["generation"] + 1}
            spec = {"replicas": max(0, replicas)}
            self._store.amend(registry.REPLICA_SET, replica_set, metadata=metadata, spec=spec)

    def _number(self, deployment: Object, current: Object, old: list[Object]) -> None:
        """Give the current set the highest revision, and the deployment the same."""
        revision = _revision(current)
        newest = max(map(_revision, old), default=0)
        if revision <= newest:
            revision = newest + 1
        for kind, obj in ((registry.REPLICA_SET, current), (registry.DEPLOYMENT, deployment)):
            if annotation(obj, _REVISION) != str(revision):
                annotations = {**(obj["metadata"].get("annotations") or {})}
                annotations[_REVISION] = str(revision)
                self._store.amend(kind, obj, metadata={"annotations": annotations})


def _status(deployment: Object, current: Object, old: list[Object]) -> Object:
    sets = [one["status"] for one in (current, *old)]
    wanted = deployment["spec"]["replicas"]
    counted: Object = {"updatedReplicas": current["status"]["replicas"]}
    for name in ("replicas", "readyReplicas", "availableReplicas"):
        counted[name] = sum(one.get(name, 0) for one in sets)
    available = counted["availableReplicas"]
    counted["unavailableReplicas"] = max(0, wanted - available)
    enough = available >= _needed(deployment)
    done = min(counted["updatedReplicas"], available) >= wanted
    conditions = with_condition(
        deployment["status"].get("conditions"),
        _condition(
            "Available",
            str(enough),
            "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable",
            f"Deployment {'has' if enough else 'does not have'} minimum availability.",
        ),
    )
    progress = "has successfully progressed" if done else "is progressing"
    why = "NewReplicaSetAvailable" if done else "ReplicaSetUpdated"
    told = f'ReplicaSet "{name_of(current)}" {progress}.'
    return {
        "observedGeneration": deployment["metadata"]["generation"],
        **{name: count for name, count in counted.items() if count},
        "terminatingReplicas": sum(one.get("terminatingReplicas", 0) for one in sets),
        "conditions": with_condition(conditions, _condition("Progressing", "True", why, told)),
    }


def _condition(kind: str, status: str, reason: str, message: str) -> Object:
    now = timestamp()
    times = {"lastUpdateTime": now, "lastTransitionTime": now}
    return {"type": kind, "status": status, **times, "reason": reason, "message": message}


def _needed(deployment: Object) -> int:
    """Return how many pods must stay available in a rolling update; none otherwise."""
    spec = deployment["spec"]
    rolling = spec["strategy"].get("rollingUpdate")
    if not rolling:
        return 0 if spec["strategy"]["type"] == "Recreate" else int(spec["replicas"])
    bound = share(rolling["maxUnavailable"], spec["replicas"], math.floor)
    surge = share(rolling["maxSurge"], spec["replicas"], math.ceil)
    return int(spec["replicas"]) - (bound if bound or surge else 1)


def _wish(replica_set: Object) -> int:
    return int(replica_set["spec"]["replicas"])


def _available(replica_set: Object) -> int:
    return int(replica_set["status"].get("availableReplicas", 0))


def _revision(replica_set: Object) -> int:
    return int(annotation(replica_set, _REVISION) or 0)


def _template_hash(deployment: Object) -> str:
    template = msgspec.json.encode(deployment["spec"]["template"], order="sorted")
    digest = hashlib.sha256(template).digest()
    return "".join(_SAFE[byte % len(_SAFE)] for byte in digest[:_HASH_LENGTH])
