"""The rules of single fields: required fields and supported values.

Required fields come from lightkube's models, which are generated from the OpenAPI document of the
API. That document has no supported values and no bounds: those of nodes, pods, budgets and
workloads are here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leeway_sandbox.kubernetes import errors, schema
from leeway_sandbox.kubernetes.errors import Cause
from leeway_sandbox.kubernetes.objects import Object

# Required by the document, but defaulted or not checked by a real server.
_EXEMPT = frozenset(("serviceName", "volumeClaimTemplates", "status"))
_TAINT_EFFECTS = ("NoExecute", "NoSchedule", "PreferNoSchedule")
_HONOR = ("Honor", "Ignore")
_SUPPORTED: dict[str, tuple[str, ...]] = {
    "completionMode": ("Indexed", "NonIndexed"),
    "concurrencyPolicy": ("Allow", "Forbid", "Replace"),
    "dnsPolicy": ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
    "imagePullPolicy": ("Always", "IfNotPresent", "Never"),
    "nodeAffinityPolicy": _HONOR,
    "nodeTaintsPolicy": _HONOR,
    "podManagementPolicy": ("OrderedReady", "Parallel"),
    "podReplacementPolicy": ("Failed", "TerminatingOrFailed"),
    "preemptionPolicy": ("Never", "PreemptLowerPriority"),
    "protocol": ("SCTP", "TCP", "UDP"),
    "restartPolicy": ("Always", "OnFailure", "Never"),
    "terminationMessagePolicy": ("FallbackToLogsOnError", "File"),
    "unhealthyPodEvictionPolicy": ("AlwaysAllow", "IfHealthyBudget"),
    "whenUnsatisfiable": ("DoNotSchedule", "ScheduleAnyway"),
}
_SUPPORTED_IN: dict[tuple[str, str], tuple[str, ...]] = {
    ("Toleration", "effect"): _TAINT_EFFECTS,
    ("DeploymentStrategy", "type"): ("Recreate", "RollingUpdate"),
    ("DaemonSetUpdateStrategy", "type"): ("OnDelete", "RollingUpdate"),
    ("StatefulSetUpdateStrategy", "type"): ("OnDelete", "RollingUpdate"),
    ("LabelSelectorRequirement", "operator"): ("In", "NotIn", "Exists", "DoesNotExist"),
    ("NodeSelectorRequirement", "operator"): (
        *("In", "NotIn", "Exists", "DoesNotExist"),
        *("Gt", "Lt"),
    ),
}
_NEVER_NEGATIVE = frozenset(
    (
        "activeDeadlineSeconds",
        "backoffLimit",
        "completions",
        "minReadySeconds",
        "parallelism",
        "progressDeadlineSeconds",
        "replicas",
        "revisionHistoryLimit",
        "ttlSecondsAfterFinished",
    )
)
_PORTS = frozenset(("containerPort", "hostPort"))
_HIGHEST_PORT = 65535


def check(model: type[Any], obj: Object, path: str) -> Iterator[Cause]:
    """Yield a cause for each invalid field of an object and of its nested objects."""
    for name, field in schema.fields(model).items():
        if name in _EXEMPT:
            continue
        where, value = f"{path}.{name}" if path else name, obj.get(name)
        if value is None or value in ("", []):
            if field.required:
                yield errors.value_required(where)
            continue
        if field.model is not None:
            items = value if field.is_list else [value]
            for index, item in enumerate(items):
                yield from check(field.model, item, f"{where}[{index}]" if field.is_list else where)
        else:
            yield from _value(model.__name__, name, value, where)


def _value(model: str, name: str, value: Any, where: str) -> Iterator[Cause]:
    supported = _SUPPORTED_IN.get((model, name)) or _SUPPORTED.get(name)
    if supported and isinstance(value, str) and value not in supported:
        yield errors.value_unsupported(where, value, supported)
    if name in _NEVER_NEGATIVE and value < 0:
        yield errors.value_invalid(where, str(value), NOT_NEGATIVE)
    if name in _PORTS and not 0 <= value <= _HIGHEST_PORT:
        why = f"must be between 1 and {_HIGHEST_PORT}, inclusive"
        yield errors.value_invalid(where, str(value), why)


NOT_NEGATIVE = "must be greater than or equal to 0"
