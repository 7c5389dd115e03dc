"""The kubelets: they start and stop the pods of their nodes, and stop with the instance.

Annotations of a pod set its times: `sandbox.leeway.sh/starts-after` until it is Ready,
`…/ends-after` until it has stopped, `…/runs-for` until it completes. A `preStop` hook that sleeps
adds its time.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from leeway_sandbox.kubernetes import registry
from leeway_sandbox.kubernetes.cluster import Cluster
from leeway_sandbox.kubernetes.controllers.instances import Instances
from leeway_sandbox.kubernetes.controllers.volumes import Volumes
from leeway_sandbox.kubernetes.deletion import finish_pod, journal_end
from leeway_sandbox.kubernetes.objects import (
    Object,
    annotation,
    duration,
    is_finished,
    is_terminating,
    path_of,
    timestamp,
    uid_of,
    with_condition,
)
from leeway_sandbox.kubernetes.store import Change

_PREFIX = "sandbox.leeway.sh/"
_SLEEP = re.compile(r"\bsleep (\d+(?:\.\d+)?)(?![\w.])")
_EXIT_CODES = {"graceful": 143, "grace-period-expired": 137}  # 128 + SIGTERM, 128 + SIGKILL


class Kubelets:
    """All kubelets: one timer for each pod that starts or ends."""

    def __init__(self, cluster: Cluster, instances: Instances, volumes: Volumes) -> None:
        self._cluster = cluster
        self._instances = instances
        self._volumes = volumes
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._stopped: set[str] = set()  # pods that have ended, until their objects are deleted
        self._addresses = 0

    def start(self) -> None:
        """Start to watch changes."""
        self._instances.watch_deaths(self._node_died)
        self._instances.watch_returns(self._node_returned)
        self._cluster.store.listen(registry.POD, self._pod_changed)

    def _pod_changed(self, change: Change) -> None:
        pod, old = change.object, change.previous
        uid = uid_of(pod)
        if change.type == "ADDED":
            self._cluster.journal.add(
                "pod-created", pod=path_of(pod), uid=uid, owner=self._cluster.owner_name(pod)
            )
        if change.type == "DELETED":
            self._cancel(uid)
            self._stopped.discard(uid)
            return
        node = pod["spec"].get("nodeName")
        if not node or not self._instances.is_alive(node) or not self._is_known(node):
            return
        if is_terminating(pod):
            if _deletion(old) != _deletion(pod) and not is_finished(pod):
                self._end(pod)
        elif old is None or not old["spec"].get("nodeName"):
            self._volumes.when_attached(pod, node, self._begin)

    def _is_known(self, name: str) -> bool:
        """Whether a kubelet of this name exists; a running one can outlive its Node."""
        node = self._cluster.store.get(registry.NODE, "", name)
        return node is not None or self._instances.has_kubelet(name)

    def _begin(self, pod: Object) -> None:
        usual = self._cluster.jitter(self._cluster.settings.pod_start)
        self._set(pod, duration(annotation(pod, f"{_PREFIX}starts-after"), usual), self._run)

    def _run(self, pod: Object) -> None:
        now = timestamp()
        node = pod["spec"]["nodeName"]
        conditions = self._current(pod)["status"].get("conditions")
        for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"):
            conditions = with_condition(conditions, _true(kind, now))
        statuses = [_container_status(one, now) for one in pod["spec"]["containers"]]
        self._addresses += 1
        address = f"10.{self._addresses >> 16 & 255}.{self._addresses >> 8 & 255}"
        running = self._cluster.store.amend(
            registry.POD,
            pod,
            status={
                "phase": "Running",
                "conditions": conditions,
                "startTime": now,
                "podIP": f"{address}.{self._addresses & 255}",
                "containerStatuses": statuses,
            },
        )
        if running is None:
            return
        self._cluster.journal.add(
            "pod-running",
            pod=path_of(pod),
            uid=uid_of(pod),
            node=node,
            owner=self._cluster.owner_name(pod),
        )
        runs_for = annotation(pod, f"{_PREFIX}runs-for")
        if pod["spec"].get("restartPolicy") != "Always" or runs_for:
            self._set(running, duration(runs_for, self._cluster.settings.pod_end), self._complete)

    def _complete(self, pod: Object) -> None:
        status = _stopped_status(self._current(pod), 0)
        self._cluster.store.amend(registry.POD, pod, status=status)

    def _end(self, pod: Object) -> None:
        """Stop a pod after its stop time or its grace period, whichever is shorter."""
        if uid_of(pod) in self._stopped:
            return
        usual = self._cluster.settings.pod_end
        usual_end = _pre_stop_seconds(pod) + usual
        takes = duration(annotation(pod, f"{_PREFIX}ends-after"), usual_end)
        grace = pod["metadata"]["deletionGracePeriodSeconds"]
        if pod["status"].get("phase") == "Pending":
            takes = min(takes, usual)
        if takes <= grace:
            self._set(pod, takes, self._stopped_gracefully)
        else:
            self._set(pod, grace, self._killed)

    def _stopped_gracefully(self, pod: Object) -> None:
        self._finish(pod, "graceful")

    def _killed(self, pod: Object) -> None:
        self._finish(pod, "grace-period-expired")

    def _finish(self, pod: Object, how: str) -> None:
        self._stopped.add(uid_of(pod))
        status = _stopped_status(self._current(pod), _EXIT_CODES[how])
        finish_pod(self._cluster, pod, how, status)

    def _node_died(self, node: str) -> None:
        for pod in self._cluster.store.on_node(node):
            self._cancel(uid_of(pod))
            if not is_finished(pod) and uid_of(pod) not in self._stopped:
                journal_end(self._cluster, pod, "died-with-node")

    def _node_returned(self, node: str) -> None:
        """Start the pods of a restarted kubelet again, and end the terminating ones."""
        for pod in self._cluster.store.on_node(node):
            if is_terminating(pod):
                self._end(pod)
            elif not is_finished(pod):
                self._volumes.when_attached(pod, node, self._begin)

    def _current(self, pod: Object) -> Object:
        return self._cluster.store.current(registry.POD, pod) or pod

    def _set(self, pod: Object, seconds: float, then: Callable[[Object], None]) -> None:
        self._cancel(uid_of(pod))
        self._timers[uid_of(pod)] = self._cluster.later(seconds, then, pod)

    def _cancel(self, uid: str) -> None:
        timer = self._timers.pop(uid, None)
        if timer is not None:
            timer.cancel()


def _pre_stop_seconds(pod: Object) -> float:
    """Return the longest sleep of the `preStop` hooks: by an action or by the command sleep."""
    longest = 0.0
    for container in pod["spec"]["containers"]:
        hook = (container.get("lifecycle") or {}).get("preStop") or {}
        longest = max(longest, (hook.get("sleep") or {}).get("seconds", 0))
        command = (hook.get("exec") or {}).get("command") or ()
        if found := _SLEEP.search(" ".join(command)):
            longest = max(longest, float(found[1]))
    return longest


def _deletion(pod: Object | None) -> object:
    return (pod or {"metadata": {}})["metadata"].get("deletionTimestamp")


def _true(kind: str, now: str) -> Object:
    return {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": now}


def _container_status(container: Object, now: str) -> Object:
    return {
        "name": container["name"],
        "state": {"running": {"startedAt": now}},
        "lastState": {},
        "ready": True,
        "restartCount": 0,
        "image": container.get("image", ""),
        "imageID": "",
        "started": True,
    }


def _stopped_status(pod: Object, exit_code: int) -> Object:
    """Return the status of a pod whose containers have all exited with this code."""
    now = timestamp()
    conditions = pod["status"].get("conditions")
    for kind in ("Ready", "ContainersReady"):
        done = {**_true(kind, now), "status": "False", "reason": "PodCompleted"}
        conditions = with_condition(conditions, done)
    return {
        "phase": "Failed" if exit_code else "Succeeded",
        "conditions": conditions,
        "containerStatuses": [
            {**one, "ready": False, "started": False, "state": _terminated(one, exit_code, now)}
            for one in pod["status"].get("containerStatuses") or ()
        ],
    }


def _terminated(status: Object, exit_code: int, now: str) -> Object:
    began = status["state"].get("running", {}).get("startedAt", now)
    reason = "Error" if exit_code else "Completed"
    ended = {"exitCode": exit_code, "reason": reason, "startedAt": began, "finishedAt": now}
    return {"terminated": ended}
