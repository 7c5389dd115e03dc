"""The Deployment controller: one ReplicaSet per template, rolled over within the bounds.

Rules: kube-controller-manager's deployment controller (`rolling.go`, `progress.go`), without pauses
and progress deadlines.
"""

from __future__ import annotations

import hashlib
import math

import msgspec

from leeway_sandbox.kubernetes import registry
from leeway_sandbox.kubernetes.cluster import Cluster
from leeway_sandbox.kubernetes.controllers.base import Controller
from leeway_sandbox.kubernetes.deletion import delete
from leeway_sandbox.kubernetes.objects import (
    Object,
    annotation,
    condition,
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
    """Watches Deployments and their ReplicaSets."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, registry.DEPLOYMENT, registry.REPLICA_SET)

    def reconcile(self, owner: Object, owned: list[Object]) -> Object:
        """Create the ReplicaSet of the present template, and move replicas to it."""
        digest = _template_hash(owner)
        old = sorted(owned, key=_revision)
        current = next((one for one in old if labels_of(one).get(_HASH_LABEL) == digest), None)
        if current is None:
            current = self._create_set(owner, digest, old)
            owner = self._begin(owner, current)
        else:
            old.remove(current)
            current = self._with_min_ready(owner, current)
            self._roll(owner, current, old)
        self._number(owner, current, old)
        empty = [one for one in old if not still_run([one])]
        for one in empty[: max(0, len(empty) - owner["spec"]["revisionHistoryLimit"])]:
            delete(self._cluster, registry.REPLICA_SET, one)
        return status_of(owner, current, old)

    def _begin(self, deployment: Object, current: Object) -> Object:
        """Return a Deployment with the condition of a started rollout."""
        before = deployment["status"]
        others = [one for one in before.get("conditions") or () if one["type"] != "Progressing"]
        begun = [*others, created(name_of(current))]
        return {**deployment, "status": {**before, "conditions": begun}}

    def _with_min_ready(self, deployment: Object, current: Object) -> Object:
        """Copy a changed minReadySeconds to the current ReplicaSet."""
        seconds = deployment["spec"].get("minReadySeconds", 0)
        if current["spec"].get("minReadySeconds", 0) == seconds:
            return current
        spec = {"minReadySeconds": seconds}
        return self._store.amend(registry.REPLICA_SET, current, spec=spec) or current

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
                    **{name: spec[name] for name in ("minReadySeconds",) if spec.get(name)},
                    "selector": {**spec["selector"], "matchLabels": equal},
                    "template": {**template, "metadata": {**metadata, "labels": labels}},
                },
                "status": {"replicas": 0},
            },
        )

    def _roll(self, deployment: Object, current: Object, others: list[Object]) -> None:
        """Do one step of a rollout: scale the current ReplicaSet up, or the old ones down."""
        old = [one for one in others if still_run([one])]
        if deployment["spec"]["strategy"]["type"] == "Recreate":
            for one in old:
                self._scale(one, 0)
            if not old:
                self._scale(current, deployment["spec"]["replicas"])
            return
        if self._scale(current, size_of_new(deployment, current, old)):
            return
        for one, size in zip(old, sizes_of_old(deployment, current, old), strict=True):
            self._scale(one, size)

    def _scale(self, replica_set: Object, replicas: int) -> bool:
        """Set the size of a ReplicaSet; return whether it changes."""
        if desired_replicas(replica_set) == replicas:
            return False
        metadata = {"generation": replica_set["metadata"]["generation"] + 1}
        spec = {"replicas": replicas}
        self._store.amend(registry.REPLICA_SET, replica_set, metadata=metadata, spec=spec)
        return True

    def _number(self, deployment: Object, current: Object, old: list[Object]) -> None:
        """Set the highest revision on the current ReplicaSet and on the Deployment."""
        revision = _revision(current)
        newest = max(map(_revision, old), default=0)
        if revision <= newest:
            revision = newest + 1
        for kind, obj in ((registry.REPLICA_SET, current), (registry.DEPLOYMENT, deployment)):
            if annotation(obj, _REVISION) != str(revision):
                annotations = {**(obj["metadata"].get("annotations") or {})}
                annotations[_REVISION] = str(revision)
                self._store.amend(kind, obj, metadata={"annotations": annotations})


def _revision(replica_set: Object) -> int:
    return int(annotation(replica_set, _REVISION) or 0)


def _template_hash(deployment: Object) -> str:
    template = msgspec.json.encode(deployment["spec"]["template"], order="sorted")
    digest = hashlib.sha256(template).digest()
    return "".join(_SAFE[byte % len(_SAFE)] for byte in digest[:_HASH_LENGTH])


_COUNTS = ("replicas", "readyReplicas", "availableReplicas")


def bounds(deployment: Object) -> tuple[int, int]:
    """Return the allowed surge and the allowed number of unavailable pods.

    Both are 0 with the strategy Recreate. With a rolling update one of them is at least 1.
    """
    spec = deployment["spec"]
    rolling = spec["strategy"].get("rollingUpdate")
    wanted = int(spec["replicas"])
    if spec["strategy"]["type"] != "RollingUpdate" or not rolling or not wanted:
        return 0, 0
    surge = share(rolling["maxSurge"], wanted, math.ceil)
    unavailable = share(rolling["maxUnavailable"], wanted, math.floor)
    return surge, min(wanted, unavailable if unavailable or surge else 1)


def size_of_new(deployment: Object, new: Object, old: list[Object]) -> int:
    """Return the allowed size of the new ReplicaSet of a rolling update."""
    wanted, size = int(deployment["spec"]["replicas"]), desired_replicas(new)
    if size >= wanted:
        return wanted
    surge, _ = bounds(deployment)
    room = wanted + surge - size - sum(map(desired_replicas, old))
    return size + max(0, min(room, wanted - size))


def sizes_of_old(deployment: Object, new: Object, old: list[Object]) -> list[int]:
    """Return the allowed sizes of the old ReplicaSets of a rolling update.

    The status of a ReplicaSet can be older than its spec, so the desired sizes and the unavailable
    pods of the new ReplicaSet limit the step as well as the available pods.
    """
    _, unavailable = bounds(deployment)
    least = int(deployment["spec"]["replicas"]) - unavailable
    sizes = list(map(desired_replicas, old))
    most = (
        desired_replicas(new) + sum(sizes) - least - max(0, desired_replicas(new) - available(new))
    )
    # Unavailable pods serve no requests, so they are removed first.
    for at, one in enumerate(old):
        cut = max(0, min(most, sizes[at] - available(one)))
        sizes[at] -= cut
        most -= cut
    spare = min(most, sum(map(available, (new, *old))) - least)
    for at, size in enumerate(sizes):
        cut = max(0, min(spare, size))
        sizes[at] -= cut
        spare -= cut
    return sizes


def still_run(old: list[Object]) -> bool:
    """Whether pods of old ReplicaSets exist, including terminating pods."""
    return any(
        desired_replicas(one)
        or one["status"]["replicas"]
        or one["status"].get("terminatingReplicas")
        for one in old
    )


def status_of(deployment: Object, new: Object, old: list[Object]) -> Object:
    """Return a Deployment's status."""
    sets = [one["status"] for one in (new, *old)]
    spec, before = deployment["spec"], deployment["status"]
    counted: Object = {"updatedReplicas": new["status"]["replicas"]}
    for name in _COUNTS:
        counted[name] = sum(one.get(name, 0) for one in sets)
    _, unavailable = bounds(deployment)
    is_healthy = counted["availableReplicas"] >= spec["replicas"] - unavailable
    conditions = with_condition(
        before.get("conditions"),
        _condition(
            "Available",
            str(is_healthy),
            "MinimumReplicasAvailable" if is_healthy else "MinimumReplicasUnavailable",
            f"Deployment {'has' if is_healthy else 'does not have'} minimum availability.",
        ),
    )
    status = {
        "observedGeneration": deployment["metadata"]["generation"],
        **{name: count for name, count in counted.items() if count},
        "terminatingReplicas": sum(one.get("terminatingReplicas", 0) for one in sets),
    }
    missing = max(0, spec["replicas"] - counted["availableReplicas"])
    if missing:
        status["unavailableReplicas"] = missing
    return {**status, "conditions": _with_progress(conditions, deployment, new, counted)}


def _with_progress(
    conditions: list[Object], deployment: Object, new: Object, counted: Object
) -> list[Object]:
    """Return the conditions with the progress of the rollout."""
    known = condition({"status": {"conditions": conditions}}, "Progressing")
    own = f'ReplicaSet "{name_of(new)}"'
    wanted, updated = deployment["spec"]["replicas"], counted["updatedReplicas"]
    if known and known["reason"] == "NewReplicaSetAvailable" and counted["replicas"] == updated:
        return conditions
    if updated == counted["replicas"] == counted["availableReplicas"] == wanted:
        text = f"{own} has successfully progressed."
        found = _progress("True", "NewReplicaSetAvailable", text, known)
    elif known is None or _has_moved(deployment["status"], counted):
        found = _progress("True", "ReplicaSetUpdated", f"{own} is progressing.", known)
    else:
        return conditions
    return [*(one for one in conditions if one["type"] != "Progressing"), found]


def _has_moved(before: Object, counted: Object) -> bool:
    """Whether pods were replaced or became ready or available since the last status."""
    old = {name: int(before.get(name, 0)) for name in ("updatedReplicas", *_COUNTS)}
    outdated: int = counted["replicas"] - counted["updatedReplicas"]
    more = ("updatedReplicas", "readyReplicas", "availableReplicas")
    return outdated < old["replicas"] - old["updatedReplicas"] or any(
        counted[name] > old[name] for name in more
    )


def created(name: str) -> Object:
    """Return the condition of a started rollout to a new ReplicaSet."""
    text = f'Created new replica set "{name}"'
    return _progress("True", "NewReplicaSetCreated", text, None)


def _progress(status: str, reason: str, message: str, known: Object | None) -> Object:
    found = _condition("Progressing", status, reason, message)
    if known is not None and known["status"] == status:
        found["lastTransitionTime"] = known["lastTransitionTime"]
    return found


def _condition(kind: str, status: str, reason: str, message: str) -> Object:
    now = timestamp()
    times = {"lastUpdateTime": now, "lastTransitionTime": now}
    return {"type": kind, "status": status, **times, "reason": reason, "message": message}


def desired_replicas(replica_set: Object) -> int:
    """Return the desired number of pods of a ReplicaSet."""
    return int(replica_set["spec"]["replicas"])


def available(replica_set: Object) -> int:
    """Return the number of available pods of a ReplicaSet."""
    return int(replica_set["status"].get("availableReplicas", 0))
