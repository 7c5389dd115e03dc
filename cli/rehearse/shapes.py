"""The shapes of the fields that a rehearsal reads besides those of selection, and their check.

Any user can write most of these fields: an object of another shape is reported, and not read.
"""

from typing import Any

import msgspec
from leeway.selection.reading.objects import Document
from msgspec import Struct, field


class _Owner(Struct):
    kind: str
    name: str
    uid: str = ""
    controller: bool | None = None
    apiVersion: str = ""  # noqa: N815 - the name in Kubernetes


class _Metadata(Struct):
    name: str
    namespace: str | None = None
    uid: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None
    owners: list[_Owner] | None = field(name="ownerReferences", default=None)
    created: str | None = field(name="creationTimestamp", default=None)
    deletion: str | None = field(name="deletionTimestamp", default=None)
    deletion_grace: int | None = field(name="deletionGracePeriodSeconds", default=None)


class _Toleration(Struct):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class _Claim(Struct):
    claim: str = field(name="claimName")


class _Volume(Struct):
    name: str = ""
    claim: _Claim | None = field(name="persistentVolumeClaim", default=None)
    empty: dict[str, Any] | None = field(name="emptyDir", default=None)
    ephemeral: dict[str, Any] | None = None


class _PodSpec(Struct):
    node: str | None = field(name="nodeName", default=None)
    grace: int | None = field(name="terminationGracePeriodSeconds", default=None)
    priority: str | None = field(name="priorityClassName", default=None)
    tolerations: list[_Toleration] | None = None
    volumes: list[_Volume] | None = None


class _Condition(Struct):
    type: str = ""
    status: str = ""
    since: str | None = field(name="lastTransitionTime", default=None)


class _PodStatus(Struct):
    phase: str | None = None
    conditions: list[_Condition] | None = None


class _Pod(Struct):
    metadata: _Metadata
    spec: _PodSpec
    status: _PodStatus | None = None


class _Requirement(Struct):
    key: str
    operator: str
    values: list[str] | None = None


class _Selector(Struct):
    labels: dict[str, str] | None = field(name="matchLabels", default=None)
    expressions: list[_Requirement] | None = field(name="matchExpressions", default=None)


class _BudgetSpec(Struct):
    selector: _Selector | None = None
    most: int | str | None = field(name="maxUnavailable", default=None)
    least: int | str | None = field(name="minAvailable", default=None)
    policy: str | None = field(name="unhealthyPodEvictionPolicy", default=None)


class _BudgetCondition(Struct):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _BudgetStatus(Struct):
    desired: int = field(name="desiredHealthy", default=0)
    expected: int = field(name="expectedPods", default=0)
    observed: int | None = field(name="observedGeneration", default=None)
    conditions: list[_BudgetCondition] | None = None


class _Budget(Struct):
    metadata: _Metadata
    spec: _BudgetSpec
    status: _BudgetStatus | None = None


class _WorkloadSpec(Struct):
    replicas: int | None = None
    policy: str | None = field(name="podManagementPolicy", default=None)


class _Workload(Struct):
    metadata: _Metadata
    spec: _WorkloadSpec | None = None


_SHAPES: dict[str, type[Struct]] = {"Pod": _Pod, "PodDisruptionBudget": _Budget}


def problem_of(document: Document) -> str:
    """Return why an object can't be read; empty if it can. A kind that is not a pod or a budget
    counts as a workload."""
    try:
        msgspec.convert(document, _SHAPES.get(str(document.get("kind")), _Workload))
    except msgspec.ValidationError as error:
        return str(error)
    return ""
