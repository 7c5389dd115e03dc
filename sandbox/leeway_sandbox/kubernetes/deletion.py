"""Deletes objects as the API server does: grace periods, finalizers, preconditions, cascades."""

from __future__ import annotations

import dataclasses
from typing import Literal

from leeway_sandbox.kubernetes import errors, registry
from leeway_sandbox.kubernetes.cluster import Cluster
from leeway_sandbox.kubernetes.objects import (
    CLOCK,
    Object,
    epoch,
    is_finished,
    is_terminating,
    name_of,
    path_of,
    timestamp,
    uid_of,
    with_condition,
)
from leeway_sandbox.kubernetes.registry import Kind

type Via = Literal["eviction", "delete", "controller", "preemption", "taint", "lost"]
# Reason and message of the condition DisruptionTarget, by the cause of the deletion.
_DISRUPTIONS = {
    "eviction": ("EvictionByEvictionAPI", "Eviction API: evicting"),
    "preemption": (
        "PreemptionByScheduler",
        "default-scheduler: preempting to accommodate a higher priority pod",
    ),
    "taint": ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"),
    "lost": ("DeletionByPodGC", "PodGC: node no longer exists"),
}


def check_preconditions(kind: Kind, obj: Object, options: Object) -> None:
    """Check `DeleteOptions.preconditions`; 409 if one fails."""
    wanted = options.get("preconditions") or {}
    uid, version = wanted.get("uid"), wanted.get("resourceVersion")
    metadata = obj["metadata"]
    failed = ""
    if uid is not None and uid != metadata["uid"]:
        failed = _mismatch("UID", uid, metadata["uid"], "deleted and then recreated")
    elif version is not None and version != metadata["resourceVersion"]:
        current = metadata["resourceVersion"]
        failed = _mismatch("ResourceVersion", version, current, "modified")
    if failed:
        # As the server does, this error names the kind instead of the resource.
        named = dataclasses.replace(kind, plural=kind.kind)
        raise errors.conflict(named, name_of(obj), failed)


def _mismatch(what: str, wanted: str, found: str, perhaps: str) -> str:
    return (
        f"the {what} in the precondition ({wanted}) does not match the {what} in record "
        f"({found}). The object might have been {perhaps}"
    )


def delete(
    cluster: Cluster,
    kind: Kind,
    obj: Object,
    options: Object | None = None,
    *,
    via: Via = "controller",
) -> Object:
    """Start or complete the deletion of an object; return its last form.

    `options` are the checked `DeleteOptions`. A pod on a node has its grace period, and its kubelet
    ends the deletion. An object with finalizers stays until they are removed. Dependents are
    deleted in the background.
    """
    options = options or {}
    dry_run = bool(options.get("dryRun"))
    if kind is registry.POD:
        return _delete_pod(cluster, obj, options.get("gracePeriodSeconds"), via, dry_run)
    if kind is registry.NAMESPACE:
        status = {**obj.get("status", {}), "phase": "Terminating"}
        return _mark(cluster, kind, {**obj, "status": status}, 0, dry_run)
    if obj["metadata"].get("finalizers"):
        return _mark(cluster, kind, obj, 0, dry_run)
    return obj if dry_run else cluster.store.remove(kind, obj) or obj


def finish_pod(
    cluster: Cluster, pod: Object, how: str | None, status: Object | None = None
) -> None:
    """Delete a pod whose containers have stopped, unless it has a finalizer.

    `how` is None if the journal already has its end; `status` is the last report of its kubelet.
    """
    current = cluster.store.current(registry.POD, pod)
    if current is None:
        return
    if not is_finished(current):
        last = {**current["status"], **(status or {})}
        if not is_finished({"status": last}):
            last["phase"] = "Failed"
        current = {**current, "status": last}
    ended = _mark(cluster, registry.POD, current, 0, dry_run=False)
    if not ended["metadata"].get("finalizers"):
        cluster.store.remove(registry.POD, ended)
    if how is not None:
        journal_end(cluster, pod, how)


def journal_end(cluster: Cluster, pod: Object, how: str) -> None:
    """Add the end of a pod's containers to the journal."""
    node = pod["spec"].get("nodeName")
    cluster.journal.add(
        "pod-ended",
        pod=path_of(pod),
        uid=uid_of(pod),
        node=node,
        owner=cluster.owner_name(pod),
        how=how,
    )


def _delete_pod(
    cluster: Cluster, pod: Object, asked: int | None, via: Via, dry_run: bool
) -> Object:
    spec = pod["spec"]
    grace = asked if asked is not None else spec.get("terminationGracePeriodSeconds", 30)
    # A pod that never ran or has finished needs no grace period.
    if not spec.get("nodeName") or is_finished(pod):
        grace = 0
    if grace < 0:
        grace = 1
    if is_terminating(pod):
        left = pod["metadata"].get("deletionGracePeriodSeconds", 0)
        if grace and grace >= left:
            return pod
    if dry_run:
        return _mark(cluster, registry.POD, pod, grace, dry_run=True)
    if via in _DISRUPTIONS:
        pod = targeted(pod, via)
    cluster.journal.add(
        "pod-deletion",
        pod=path_of(pod),
        uid=uid_of(pod),
        node=spec.get("nodeName"),
        grace=grace,
        own_grace=spec.get("terminationGracePeriodSeconds", 30),
        volumes=any("persistentVolumeClaim" in one for one in spec.get("volumes") or ()),
        via=via,
    )
    marked = _mark(cluster, registry.POD, pod, grace, dry_run=False)
    if grace or pod["metadata"].get("finalizers"):
        return marked
    cluster.store.remove(registry.POD, marked)
    if spec.get("nodeName") and not is_finished(pod):
        journal_end(cluster, pod, "forced")
    return marked


def targeted(pod: Object, via: Via) -> Object:
    """Return a pod with the condition DisruptionTarget."""
    reason, message = _DISRUPTIONS[via]
    target = {"type": "DisruptionTarget", "status": "True", "lastProbeTime": None}
    target |= {"lastTransitionTime": timestamp(), "reason": reason, "message": message}
    conditions = with_condition(pod["status"].get("conditions"), target)
    return {**pod, "status": {**pod["status"], "conditions": conditions}}


def _mark(cluster: Cluster, kind: Kind, obj: Object, grace: int, dry_run: bool) -> Object:
    """Set the deletion timestamp, or an earlier one for a shorter grace period."""
    metadata = dict(obj["metadata"])
    begun = CLOCK.now()
    if "deletionTimestamp" in metadata:
        begun = epoch(metadata["deletionTimestamp"])
        begun -= metadata.get("deletionGracePeriodSeconds", 0)
    elif "generation" in metadata:
        metadata["generation"] += 1
    metadata["deletionTimestamp"] = timestamp(begun + grace)
    metadata["deletionGracePeriodSeconds"] = grace
    return cluster.store.replace(kind, {**obj, "metadata": metadata}, dry_run=dry_run)
