"""What the API server fills in when an object is written.

Rules: the defaulting functions of Kubernetes' API groups, as far as clients look at their fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sandbox.kubernetes import registry
from sandbox.kubernetes.objects import Object
from sandbox.kubernetes.registry import Kind
from sandbox.kubernetes.store import Store

_TOLERATED_SECONDS = 300


def fill(kind: Kind, obj: Object) -> None:
    """Set the defaults of a kind, in place."""
    function = _BY_KIND.get(kind)
    if function is not None:
        function(obj)


def admit(kind: Kind, obj: Object, store: Store) -> None:
    """Set what only a new object is given, in place: its first status, a pod's priority."""
    if kind is registry.POD:
        _admit_pod(obj, store)
    elif kind in _STATUS:
        obj["status"] = dict(_STATUS[kind])


def pod_spec(spec: Object) -> None:
    """Set the defaults of a pod's spec, in a pod or in a template."""
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        image = container.get("image", "")
        tag = image.rpartition("/")[2].partition(":")[2]
        always = "@" not in image and tag in ("", "latest")
        container.setdefault("resources", {})
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        container.setdefault("imagePullPolicy", "Always" if always else "IfNotPresent")
        _write_quantities(container["resources"].values())
        requests = container["resources"].get("requests")
        limits = container["resources"].get("limits")
        if limits:
            container["resources"]["requests"] = {**limits, **(requests or {})}
        for port in container.get("ports") or ():
            port.setdefault("protocol", "TCP")
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    if "serviceAccountName" in spec:
        spec.setdefault("serviceAccount", spec["serviceAccountName"])


def _write_quantities(sections: Iterable[Any]) -> None:
    for section in sections:
        if isinstance(section, dict):
            for name, value in section.items():
                section[name] = str(value)


def _pod(pod: Object) -> None:
    spec = pod.setdefault("spec", {})
    pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)


def _admit_pod(pod: Object, store: Store) -> None:
    """Do what the admission plugins do: priority, tolerations of lost nodes, first status."""
    spec = pod["spec"]
    tolerations = spec.setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(_covers(toleration, key) for toleration in tolerations):
            tolerations.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _TOLERATED_SECONDS,
                }
            )
    found = _priority_class(spec, store)
    if found is not None:
        spec["priorityClassName"] = found["metadata"]["name"]
    spec["priority"] = found["value"] if found else 0
    spec.setdefault(
        "preemptionPolicy", (found or {}).get("preemptionPolicy", "PreemptLowerPriority")
    )
    pod["status"] = {"phase": "Pending", "qosClass": _quality(spec)}


def _covers(toleration: Object, key: str) -> bool:
    return toleration.get("key") in (None, "", key) and toleration.get("effect") in (
        None,
        "",
        "NoExecute",
    )


def _priority_class(spec: Object, store: Store) -> Object | None:
    name = spec.get("priorityClassName")
    if name:
        return store.get(registry.PRIORITY_CLASS, "", name)
    for one in store.every(registry.PRIORITY_CLASS):
        if one.get("globalDefault"):
            return one
    return None


def _quality(spec: Object) -> str:
    containers = spec.get("containers") or ()
    resources = [container.get("resources") or {} for container in containers]
    if all(
        one.get("limits", {}).keys() >= {"cpu", "memory"} and one.get("requests") == one["limits"]
        for one in resources
    ):
        return "Guaranteed"
    if any(one.get("requests") or one.get("limits") for one in resources):
        return "Burstable"
    return "BestEffort"


def _template(obj: Object) -> Object:
    spec: Object = obj.setdefault("spec", {})
    pod_spec(spec.setdefault("template", {}).setdefault("spec", {}))
    return spec


def _deployment(obj: Object) -> None:
    spec = _template(obj)
    spec.setdefault("replicas", 1)
    strategy = spec.setdefault("strategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)


def _replica_set(obj: Object) -> None:
    _template(obj).setdefault("replicas", 1)


def _daemon_set(obj: Object) -> None:
    spec = _template(obj)
    spec.setdefault(
        "updateStrategy",
        {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
    )
    spec.setdefault("revisionHistoryLimit", 10)


def _stateful_set(obj: Object) -> None:
    spec = _template(obj)
    spec.setdefault("replicas", 1)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    spec.setdefault("updateStrategy", {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})
    spec.setdefault("revisionHistoryLimit", 10)


def _job(obj: Object) -> None:
    spec = _template(obj)
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)


def _node(obj: Object) -> None:
    obj.setdefault("spec", {})
    status = obj.setdefault("status", {})
    if status:
        _write_quantities((status.get("capacity"), status.get("allocatable")))
        if "capacity" in status:
            status.setdefault("allocatable", dict(status["capacity"]))


def _namespace(obj: Object) -> None:
    name = obj["metadata"]["name"]
    labels = obj["metadata"].get("labels") or {}
    obj["metadata"]["labels"] = {**labels, "kubernetes.io/metadata.name": name}
    obj.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])


def _priority(obj: Object) -> None:
    obj.setdefault("value", 0)
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _event(obj: Object) -> None:
    obj.setdefault("eventTime", None)
    obj.setdefault("reportingComponent", "")
    obj.setdefault("reportingInstance", "")
    obj.setdefault("source", {})


def _storage_class(obj: Object) -> None:
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


def _claim(obj: Object) -> None:
    obj.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


_BY_KIND: dict[Kind, Callable[[Object], None]] = {
    registry.POD: _pod,
    registry.NODE: _node,
    registry.NAMESPACE: _namespace,
    registry.EVENT: _event,
    registry.DEPLOYMENT: _deployment,
    registry.REPLICA_SET: _replica_set,
    registry.DAEMON_SET: _daemon_set,
    registry.STATEFUL_SET: _stateful_set,
    registry.JOB: _job,
    registry.PRIORITY_CLASS: _priority,
    registry.STORAGE_CLASS: _storage_class,
    registry.PERSISTENT_VOLUME_CLAIM: _claim,
}
_STATUS: dict[Kind, Object] = {
    registry.NAMESPACE: {"phase": "Active"},
    registry.DEPLOYMENT: {},
    registry.REPLICA_SET: {"replicas": 0},
    registry.STATEFUL_SET: {"replicas": 0, "availableReplicas": 0},
    registry.DAEMON_SET: {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    },
    registry.JOB: {},
    registry.BUDGET: {
        "disruptionsAllowed": 0,
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "expectedPods": 0,
    },
    registry.PERSISTENT_VOLUME_CLAIM: {"phase": "Pending"},
    registry.PERSISTENT_VOLUME: {"phase": "Available"},
    registry.VOLUME_ATTACHMENT: {"attached": False},
}
