"""The Deployment controller: one ReplicaSet per template, rolled over within the bounds."""

from __future__ import annotations

import asyncio
import hashlib

import msgspec

from leeway_sandbox.kubernetes import registry
from leeway_sandbox.kubernetes.clock import CLOCK
from leeway_sandbox.kubernetes.cluster import Cluster
from leeway_sandbox.kubernetes.controllers import rollouts
from leeway_sandbox.kubernetes.controllers.base import Controller
from leeway_sandbox.kubernetes.deletion import delete
from leeway_sandbox.kubernetes.objects import (
    Object,
    annotation,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    owner_reference,
    uid_of,
)
from leeway_sandbox.kubernetes.store import Change

_HASH_LABEL = "pod-template-hash"
_REVISION = "deployment.kubernetes.io/revision"
_SAFE = "bcdfghjklmnpqrstvwxz2456789"
_HASH_LENGTH = 10
_AFTER_DEADLINE_SECONDS = 1.0  # conditions have whole seconds


class Deployments(Controller):
    """Watches Deployments and their ReplicaSets."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, registry.DEPLOYMENT, registry.REPLICA_SET)
        self._deadlines: dict[str, asyncio.TimerHandle] = {}

    def start(self) -> None:
        """Start to watch changes."""
        super().start()
        self._store.listen(registry.DEPLOYMENT, self._deployment_changed)

    def _deployment_changed(self, change: Change) -> None:
        if change.type == "DELETED":
            timer = self._deadlines.pop(uid_of(change.object), None)
            if timer is not None:
                timer.cancel()

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
        empty = [one for one in old if not rollouts.still_run([one])]
        for one in empty[: max(0, len(empty) - owner["spec"]["revisionHistoryLimit"])]:
            delete(self._cluster, registry.REPLICA_SET, one)
        status = rollouts.status_of(owner, current, old, CLOCK.now())
        self._watch_progress(owner, status)
        return status

    def _begin(self, deployment: Object, current: Object) -> Object:
        """Return a Deployment with the condition of a started rollout."""
        before = deployment["status"]
        others = [one for one in before.get("conditions") or () if one["type"] != "Progressing"]
        begun = [*others, rollouts.created(name_of(current))]
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
        old = [one for one in others if rollouts.still_run([one])]
        if deployment["spec"].get("paused"):
            active = [one for one in (current, *old) if rollouts.desired_replicas(one)]
            if len(active) < 2:
                self._scale((active or [current])[0], deployment["spec"]["replicas"])
            return
        if deployment["spec"]["strategy"]["type"] == "Recreate":
            for one in old:
                self._scale(one, 0)
            if not old:
                self._scale(current, deployment["spec"]["replicas"])
            return
        if self._scale(current, rollouts.size_of_new(deployment, current, old)):
            return
        for one, size in zip(old, rollouts.sizes_of_old(deployment, current, old), strict=True):
            self._scale(one, size)

    def _scale(self, replica_set: Object, replicas: int) -> bool:
        """Set the size of a ReplicaSet; return whether it changes."""
        if rollouts.desired_replicas(replica_set) == replicas:
            return False
        metadata = {"generation": replica_set["metadata"]["generation"] + 1}
        spec = {"replicas": replicas}
        self._store.amend(registry.REPLICA_SET, replica_set, metadata=metadata, spec=spec)
        return True

    def _watch_progress(self, deployment: Object, status: Object) -> None:
        """Reconcile again at the progress deadline of a rollout."""
        uid = uid_of(deployment)
        timer = self._deadlines.pop(uid, None)
        if timer is not None:
            timer.cancel()
        end = rollouts.deadline(deployment, status)
        if end is not None:
            wait = max(0.0, end - CLOCK.now()) + _AFTER_DEADLINE_SECONDS
            self._deadlines[uid] = self._cluster.later(wait, self._requeue, deployment)

    def _requeue(self, deployment: Object) -> None:
        self._deadlines.pop(uid_of(deployment), None)
        self._queue.add(key_of(deployment))

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
