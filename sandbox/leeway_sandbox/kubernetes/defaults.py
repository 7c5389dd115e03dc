"""Sets the defaults of the API server when an object is written.

Rules: the defaulting functions of Kubernetes' API groups, for the fields that clients read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from leeway_sandbox.kubernetes import registry, schema
from leeway_sandbox.kubernetes.objects import Object, copy, labels_of, name_of
from leeway_sandbox.kubernetes.registry import Kind
from leeway_sandbox.kubernetes.store import Store

# Source: the webhook of the Amazon VPC resource controller, which EKS runs.
_ADDRESSES_OF_WINDOWS = "vpc.amazonaws.com/PrivateIPv4Address"
_OS = "kubernetes.io/os"
_TOLERATED_SECONDS = 300
_SHARES = {"maxUnavailable": "25%", "maxSurge": "25%"}
# Constant defaults; those of a section are merged into an existing section.
_ALWAYS: dict[Kind, Object] = {
    registry.POD: {"spec": {"enableServiceLinks": True}},
    registry.NAMESPACE: {"spec": {"finalizers": ["kubernetes"]}},
    registry.NODE: {"spec": {}, "status": {}},
    registry.EVENT: {
        "eventTime": None,
        "reportingComponent": "",
        "reportingInstance": "",
        "source": {},
    },
    registry.DEPLOYMENT: {
        "spec": {
            "replicas": 1,
            "strategy": {"type": "RollingUpdate"},
            "revisionHistoryLimit": 10,
            "progressDeadlineSeconds": 600,
        }
    },
    registry.REPLICA_SET: {"spec": {"replicas": 1}},
    registry.DAEMON_SET: {
        "spec": {
            "updateStrategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
            },
            "revisionHistoryLimit": 10,
        }
    },
    registry.STATEFUL_SET: {
        "spec": {
            "replicas": 1,
            "podManagementPolicy": "OrderedReady",
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            "revisionHistoryLimit": 10,
        }
    },
    registry.PRIORITY_CLASS: {"value": 0, "preemptionPolicy": "PreemptLowerPriority"},
    registry.STORAGE_CLASS: {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
    registry.PERSISTENT_VOLUME_CLAIM: {"spec": {"volumeMode": "Filesystem"}},
}
# The status of a new object; the server ignores the status of a request.
_STATUS: dict[Kind, Object] = {
    registry.CUSTOM_RESOURCE_DEFINITION: {
        "conditions": None,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": None,
    },
    registry.NAMESPACE: {"phase": "Active"},
    registry.DEPLOYMENT: {},
    registry.REPLICA_SET: {"replicas": 0},
    registry.STATEFUL_SET: {"replicas": 0, "availableReplicas": 0},
    registry.DAEMON_SET: dict.fromkeys(
        (
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
        ),
        0,
    ),
    registry.BUDGET: dict.fromkeys(
        ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"), 0
    ),
    registry.PERSISTENT_VOLUME_CLAIM: {"phase": "Pending"},
    registry.PERSISTENT_VOLUME: {"phase": "Available"},
    registry.VOLUME_ATTACHMENT: {"attached": False},
}
_WITH_TEMPLATE = (
    registry.DEPLOYMENT,
    registry.REPLICA_SET,
    registry.DAEMON_SET,
    registry.STATEFUL_SET,
)


_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def fill(kind: Kind, obj: Object) -> None:
    """Omit the values that the server omits, and set the defaults of a kind, in place."""
    if kind.custom is not None:
        kind.custom.fill(obj)
        return
    schema.omit_zeros(kind, obj)
    _fill_in(obj, copy(_ALWAYS.get(kind, {})))
    if kind is registry.POD:
        _pod_spec(obj["spec"])
    elif kind in _WITH_TEMPLATE:
        _pod_spec(obj["spec"].setdefault("template", {}).setdefault("spec", {}))
    if kind is registry.DEPLOYMENT and obj["spec"]["strategy"]["type"] == "RollingUpdate":
        _fill_in(obj["spec"]["strategy"], {"rollingUpdate": dict(_SHARES)})
    elif kind is registry.NODE and "capacity" in obj["status"]:
        obj["status"].setdefault("allocatable", dict(obj["status"]["capacity"]))
        _write_quantities((obj["status"]["capacity"], obj["status"]["allocatable"]))
    elif kind in (registry.ROLE, registry.CLUSTER_ROLE):
        obj.setdefault("rules", None)
    elif kind is registry.NAMESPACE:
        own = {"kubernetes.io/metadata.name": name_of(obj)}
        obj["metadata"]["labels"] = {**labels_of(obj), **own}


def admit(kind: Kind, obj: Object, store: Store) -> None:
    """Set the fields of a new object in place: its first status, the priority of a pod, the default
    class of a claim."""
    if kind is registry.POD:
        _admit_pod(obj, store)
    elif kind in _STATUS:
        obj["status"] = dict(_STATUS[kind])
    if kind is registry.PERSISTENT_VOLUME_CLAIM and "storageClassName" not in obj["spec"]:
        for one in store.every(registry.STORAGE_CLASS):
            if (one["metadata"].get("annotations") or {}).get(_DEFAULT_CLASS) == "true":
                obj["spec"]["storageClassName"] = name_of(one)


def _fill_in(obj: Object, defaults: Object) -> None:
    for name, value in defaults.items():
        if isinstance(value, dict) and isinstance(obj.get(name), dict):
            _fill_in(obj[name], value)
        else:
            obj.setdefault(name, value)


def _pod_spec(spec: Object) -> None:
    """Set the defaults of a pod's spec, in a pod or in a template."""
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        image = container.get("image", "")
        tag = image.rpartition("/")[2].partition(":")[2]
        always = "@" not in image and tag in ("", "latest")
        resources = container.setdefault("resources", {})
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        container.setdefault("imagePullPolicy", "Always" if always else "IfNotPresent")
        _write_quantities(resources.values())
        if resources.get("limits"):
            resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
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
            section.update({name: str(value) for name, value in section.items()})


def _admit_pod(pod: Object, store: Store) -> None:
    """Apply the admission plugins: priority, tolerations of lost nodes, first status. And the
    webhook of EKS for pods of Windows."""
    spec = pod["spec"]
    if _selects_windows(spec) and not spec.get("hostNetwork") and _gives_windows_addresses(store):
        resources = spec["containers"][0]["resources"]
        for section in ("requests", "limits"):
            resources[section] = {**(resources.get(section) or {}), _ADDRESSES_OF_WINDOWS: "1"}
    tolerations = spec.setdefault("tolerations", [])
    toleration = {"operator": "Exists", "effect": "NoExecute"}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(_covers(one, key) for one in tolerations):
            limit = {"tolerationSeconds": _TOLERATED_SECONDS}
            tolerations.append({"key": key, **toleration, **limit})
    found = _priority_class(spec, store)
    if found is not None:
        spec["priorityClassName"] = name_of(found)
    spec["priority"] = found["value"] if found else 0
    policy = (found or {}).get("preemptionPolicy", "PreemptLowerPriority")
    spec.setdefault("preemptionPolicy", policy)
    pod["status"] = {"phase": "Pending", "qosClass": _quality(spec)}


def _selects_windows(spec: Object) -> bool:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    return (spec.get("nodeSelector") or {}).get(_OS) == "windows" or any(
        one["key"] == _OS and one["operator"] == "In" and "windows" in one["values"]
        for term in required.get("nodeSelectorTerms") or ()
        for one in term.get("matchExpressions") or ()
    )


def _gives_windows_addresses(store: Store) -> bool:
    found = store.get(registry.CONFIG_MAP, "kube-system", "amazon-vpc-cni") or {}
    return (found.get("data") or {}).get("enable-windows-ipam") == "true"


def _covers(toleration: Object, key: str) -> bool:
    effect = toleration.get("effect")
    return toleration.get("key") in (None, "", key) and effect in (None, "", "NoExecute")


def _priority_class(spec: Object, store: Store) -> Object | None:
    if name := spec.get("priorityClassName"):
        return store.get(registry.PRIORITY_CLASS, "", name)
    classes = store.every(registry.PRIORITY_CLASS)
    return next((one for one in classes if one.get("globalDefault")), None)


def _quality(spec: Object) -> str:
    resources = [one.get("resources") or {} for one in spec.get("containers") or ()]
    if all(
        one.get("limits", {}).keys() >= {"cpu", "memory"} and one.get("requests") == one["limits"]
        for one in resources
    ):
        return "Guaranteed"
    if any(one.get("requests") or one.get("limits") for one in resources):
        return "Burstable"
    return "BestEffort"
