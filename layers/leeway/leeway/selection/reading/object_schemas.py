"""The schemas of Kubernetes objects, and their validation.

Schemas are restricted to the fields that selection and provisioning read; other fields are not
validated.
pydantic validates because the CLI and the functions that read pools import it anyway.
"""

from functools import cache
from typing import Annotated, Any, Required, TypedDict

from pydantic import AfterValidator, TypeAdapter, ValidationError

from leeway.selection.reading.objects import BadObject, Document, shown
from leeway.selection.reading.pod_schema import (
    Amounts,
    ClaimSpec,
    Condition,
    Count,
    Metadata,
    NodeLabels,
    NodeTerms,
    Pod,
    Selector,
    Text,
    Toleration,
)
from leeway.selection.requirements import Requirement


class _Ordinals(TypedDict, total=False):
    start: Count


class _ReplicaTemplate(TypedDict, total=False):
    metadata: Required[Metadata]
    spec: ClaimSpec | None


class _WorkloadSpec(TypedDict, total=False):
    template: Required[Pod]
    replicas: int | None
    parallelism: int | None
    completions: int | None
    suspend: bool | None
    ordinals: _Ordinals | None
    volumeClaimTemplates: list[_ReplicaTemplate] | None


class Workload(TypedDict, total=False):
    """A workload with a pod template."""

    metadata: Metadata | None
    spec: Required[_WorkloadSpec]


class _Taint(TypedDict, total=False):
    key: Required[str]
    value: Text
    effect: Required[str]


class _NodeSpec(TypedDict, total=False):
    taints: list[_Taint] | None
    unschedulable: bool | None
    providerID: Text


class _NodeStatus(TypedDict, total=False):
    allocatable: Amounts
    capacity: Amounts
    conditions: list[Condition] | None


class Node(TypedDict, total=False):
    """A node."""

    metadata: Metadata | None
    spec: _NodeSpec | None
    status: _NodeStatus | None


class _NodeClaimSpec(TypedDict, total=False):
    taints: list[_Taint] | None
    startupTaints: list[_Taint] | None


class _NodeClaimStatus(_NodeStatus, total=False):
    providerID: Text


class NodeClaim(TypedDict, total=False):
    """A NodeClaim of Karpenter (karpenter.sh/v1)."""

    metadata: Metadata | None
    spec: _NodeClaimSpec | None
    status: _NodeClaimStatus | None


class Claim(TypedDict, total=False):
    """A PersistentVolumeClaim."""

    metadata: Metadata | None
    spec: ClaimSpec | None


class _VolumeAffinity(TypedDict, total=False):
    required: NodeTerms | None


class _Csi(TypedDict, total=False):
    driver: Text


class _VolumeSpec(TypedDict, total=False):
    nodeAffinity: _VolumeAffinity | None
    csi: _Csi | None
    awsElasticBlockStore: dict[str, Any] | None


class Volume(TypedDict, total=False):
    """A PersistentVolume."""

    metadata: Metadata | None
    spec: _VolumeSpec | None


class _Need(TypedDict, total=False):
    key: Required[str]
    values: Required[list[str]]


def _met_by_some(need: _Need) -> _Need:
    Requirement.of(need["key"], "In", need["values"])
    return need


class _Topology(TypedDict, total=False):
    matchLabelExpressions: list[Annotated[_Need, AfterValidator(_met_by_some)]] | None


class StorageClass(TypedDict, total=False):
    """A StorageClass."""

    metadata: Metadata | None
    provisioner: Text
    allowedTopologies: list[_Topology] | None


class PriorityClass(TypedDict, total=False):
    """A PriorityClass."""

    metadata: Metadata | None
    value: int | None


class _Allocatable(TypedDict, total=False):
    count: Count


class _Driver(TypedDict, total=False):
    name: Text
    allocatable: _Allocatable | None


class _CsiNodeSpec(TypedDict, total=False):
    drivers: list[_Driver] | None


class CsiNode(TypedDict, total=False):
    """The storage drivers of a node."""

    metadata: Metadata | None
    spec: _CsiNodeSpec | None


class _Limit(TypedDict, total=False):
    type: Text
    default: Amounts
    defaultRequest: Amounts
    max: Amounts
    min: Amounts


class _LimitRangeSpec(TypedDict, total=False):
    limits: list[_Limit] | None


class LimitRange(TypedDict, total=False):
    """Defaults for the containers of a namespace."""

    metadata: Metadata | None
    spec: _LimitRangeSpec | None


class _Overhead(TypedDict, total=False):
    podFixed: Amounts


class _Scheduling(TypedDict, total=False):
    nodeSelector: NodeLabels
    tolerations: list[Toleration] | None


class RuntimeClass(TypedDict, total=False):
    """A container runtime with its overhead and its nodes."""

    metadata: Metadata | None
    overhead: _Overhead | None
    scheduling: _Scheduling | None


class _BudgetSpec(TypedDict, total=False):
    selector: Selector | None


class _BudgetStatus(TypedDict, total=False):
    disruptionsAllowed: int | None


class PodDisruptionBudget(TypedDict, total=False):
    """A PodDisruptionBudget."""

    metadata: Metadata | None
    spec: _BudgetSpec | None
    status: _BudgetStatus | None


class _Object(TypedDict, total=False):
    metadata: Metadata | None


SCHEMAS: dict[str, Any] = {
    "CSINode": CsiNode,
    "DaemonSet": Workload,
    "Deployment": Workload,
    "Job": Workload,
    "LimitRange": LimitRange,
    "Node": Node,
    "NodeClaim": NodeClaim,
    "PersistentVolume": Volume,
    "PersistentVolumeClaim": Claim,
    "Pod": Pod,
    "PodDisruptionBudget": PodDisruptionBudget,
    "PriorityClass": PriorityClass,
    "ReplicaSet": Workload,
    "ReplicationController": Workload,
    "RuntimeClass": RuntimeClass,
    "StatefulSet": Workload,
    "StorageClass": StorageClass,
}
"""The schema of every kind that is read."""


def check(document: Document, kind: str) -> None:
    """Validate a document by the schema of its kind.

    Raises:
        BadObject: the document is invalid.
    """
    try:
        _adapter(kind).validate_python(document, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise BadObject(first["loc"], _message(first)) from None


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    return TypeAdapter(SCHEMAS.get(kind, _Object))


_EXPECTED = {
    "bool_type": "expected true or false",
    "dict_type": "expected a mapping",
    "int_from_float": "expected a whole number",
    "int_type": "expected a whole number",
    "list_type": "expected a list",
    "string_type": "expected text, in quotes",
}


def _message(error: Any) -> str:
    context = error.get("ctx", {})
    match error["type"]:
        case "missing":
            return "is missing"
        case "value_error":
            return str(context["error"])
        case "literal_error":
            message = f"expected {context['expected']}"
        case "greater_than_equal":
            message = f"expected at least {context['ge']}"
        case "less_than_equal":
            message = f"expected at most {context['le']}"
        case other:
            message = _EXPECTED.get(other, error["msg"])
    return f"{message}, got {shown(error['input'])}"
