"""The steps of a Deployment's rollout: the sizes of its ReplicaSets, and its progress.

Rules: kube-controller-manager's deployment controller (`rolling.go`, `progress.go`).
"""

from __future__ import annotations

import math

from leeway_sandbox.kubernetes.objects import (
    Object,
    condition,
    epoch,
    name_of,
    share,
    timestamp,
    with_condition,
)

_NO_DEADLINE = 2**31 - 1  # seconds; the API server reads it as "none"
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


def status_of(deployment: Object, new: Object, old: list[Object], now: float) -> Object:
    """Return a Deployment's status at a time (seconds since the epoch)."""
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
    return {**status, "conditions": _with_progress(conditions, deployment, new, counted, now)}


def deadline(deployment: Object, status: Object) -> float | None:
    """Return the progress deadline of a rollout (epoch seconds), or None."""
    progress = condition({"status": status}, "Progressing")
    seconds = deployment["spec"].get("progressDeadlineSeconds", _NO_DEADLINE)
    if progress is None or seconds == _NO_DEADLINE or deployment["spec"].get("paused"):
        return None
    if progress["reason"] in ("NewReplicaSetAvailable", "ProgressDeadlineExceeded"):
        return None
    return epoch(progress["lastUpdateTime"]) + float(seconds)


def _with_progress(
    conditions: list[Object], deployment: Object, new: Object, counted: Object, now: float
) -> list[Object]:
    """Return the conditions with the progress of the rollout."""
    spec, before = deployment["spec"], deployment["status"]
    if spec.get("progressDeadlineSeconds", _NO_DEADLINE) == _NO_DEADLINE:
        return [one for one in conditions if one["type"] != "Progressing"]
    known = condition({"status": {"conditions": conditions}}, "Progressing")
    reason = known["reason"] if known else None
    if spec.get("paused"):
        if reason == "DeploymentPaused":
            return conditions
        paused = _progress("Unknown", "DeploymentPaused", "Deployment is paused", known)
        return with_condition(conditions, paused)
    own = f'ReplicaSet "{name_of(new)}"'
    wanted, updated = spec["replicas"], counted["updatedReplicas"]
    if reason == "NewReplicaSetAvailable" and counted["replicas"] == updated:
        return conditions
    if updated == counted["replicas"] == counted["availableReplicas"] == wanted:
        text = f"{own} has successfully progressed."
        found = _progress("True", "NewReplicaSetAvailable", text, known)
    elif known is None or reason == "DeploymentPaused" or _has_moved(before, counted):
        found = _progress("True", "ReplicaSetUpdated", f"{own} is progressing.", known)
    elif (end := deadline(deployment, {"conditions": conditions})) is not None and end < now:
        text = f"{own} has timed out progressing."
        found = _progress("False", "ProgressDeadlineExceeded", text, known)
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
