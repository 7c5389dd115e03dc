"""The schemas of Kubernetes objects, and their validation.

Schemas are restricted to the fields that selection and provisioning read; other fields are not
validated. pydantic validates because the CLI and the functions that read pools import it anyway.
"""

from functools import cache
from typing import Annotated, Any, Literal, Required, TypedDict

from pydantic import AfterValidator, Field, PlainValidator, TypeAdapter, ValidationError

from leeway.selection.reading.objects import BadObject, Document, shown
from leeway.selection.requirements import Requirement, check_key, check_value
from leeway.selection.resources import requested_quantity

_LARGEST = 2**31 - 1


def _amount(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError(f"expected a quantity like 500m, 2 or 1Gi, got {shown(value)}")
    requested_quantity(str(value))
    return str(value)


def _node_labels(labels: dict[str, str]) -> dict[str, str]:
    for key, value in labels.items():
        check_key(key)
        check_value(value)
    return labels


Amounts = dict[str, Annotated[str, PlainValidator(_amount)]] | None
Text = str | None
Texts = list[str] | None
Labels = dict[str, str] | None
NodeLabels = Annotated[dict[str, str], AfterValidator(_node_labels)] | None
Count = Annotated[int, Field(ge=0, le=_LARGEST)] | None
Whole = Annotated[int, Field(ge=1, le=_LARGEST)]
Weight = Annotated[int, Field(ge=1, le=100)]
Port = Annotated[int, Field(ge=0, le=65535)] | None
Effect = Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] | None
Heeded = Literal["Honor", "Ignore"] | None


class Owner(TypedDict, total=False):
    kind: Required[str]
    name: Required[str]
    controller: bool | None
    uid: Text


class Metadata(TypedDict, total=False):
    name: Text
    generateName: Text
    namespace: Text
    labels: Labels
    annotations: Labels
    ownerReferences: list[Owner] | None
    creationTimestamp: Text
    deletionTimestamp: Text
    uid: Text
    resourceVersion: Text


class _Expression(TypedDict, total=False):
    key: Required[str]
    operator: Required[str]
    values: Texts


def _requirement(expression: _Expression) -> _Expression:
    Requirement.of(expression["key"], expression["operator"], expression.get("values") or ())
    return expression


Expression = Annotated[_Expression, AfterValidator(_requirement)]


class FieldExpression(TypedDict, total=False):
    key: Required[Literal["metadata.name"]]
    operator: Required[Literal["In", "NotIn"]]
    values: Required[list[str]]


class NodeTerm(TypedDict, total=False):
    matchExpressions: list[Expression] | None
    matchFields: list[FieldExpression] | None


class NodeTerms(TypedDict, total=False):
    nodeSelectorTerms: list[NodeTerm] | None


class NodePreference(TypedDict, total=False):
    weight: Weight
    preference: NodeTerm | None


class NodeAffinity(TypedDict, total=False):
    requiredDuringSchedulingIgnoredDuringExecution: NodeTerms | None
    preferredDuringSchedulingIgnoredDuringExecution: list[NodePreference] | None


class Selector(TypedDict, total=False):
    matchLabels: Labels
    matchExpressions: list[Expression] | None


class PodTerm(TypedDict, total=False):
    labelSelector: Selector | None
    matchLabelKeys: Texts
    mismatchLabelKeys: Texts
    namespaces: Texts
    namespaceSelector: Selector | None
    topologyKey: Required[str]


class PodPreference(TypedDict, total=False):
    weight: Weight
    podAffinityTerm: Required[PodTerm]


class PodAffinity(TypedDict, total=False):
    requiredDuringSchedulingIgnoredDuringExecution: list[PodTerm] | None
    preferredDuringSchedulingIgnoredDuringExecution: list[PodPreference] | None


class Affinity(TypedDict, total=False):
    nodeAffinity: NodeAffinity | None
    podAffinity: PodAffinity | None
    podAntiAffinity: PodAffinity | None


class Toleration(TypedDict, total=False):
    key: Text
    operator: Literal["", "Equal", "Exists"] | None
    value: Text
    effect: Effect


class Spread(TypedDict, total=False):
    maxSkew: Whole
    minDomains: Whole | None
    topologyKey: Required[str]
    whenUnsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    labelSelector: Selector | None
    matchLabelKeys: Texts
    nodeAffinityPolicy: Heeded
    nodeTaintsPolicy: Heeded


class Resources(TypedDict, total=False):
    requests: Amounts
    limits: Amounts
    claims: list[Any] | None


class ContainerPort(TypedDict, total=False):
    hostPort: Port
    containerPort: Port
    hostIP: Text
    protocol: Text


class Container(TypedDict, total=False):
    name: Text
    resources: Resources | None
    ports: list[ContainerPort] | None
    restartPolicy: Text


class ClaimSpec(TypedDict, total=False):
    volumeName: Text
    storageClassName: Text


class NamedClaim(TypedDict, total=False):
    claimName: Required[str]


class ClaimTemplate(TypedDict, total=False):
    metadata: Metadata | None
    spec: ClaimSpec | None


class EphemeralVolume(TypedDict, total=False):
    volumeClaimTemplate: ClaimTemplate | None


class PodVolume(TypedDict, total=False):
    name: Text
    persistentVolumeClaim: NamedClaim | None
    ephemeral: EphemeralVolume | None
    awsElasticBlockStore: dict[str, Any] | None


class PodSpec(TypedDict, total=False):
    containers: list[Container] | None
    initContainers: list[Container] | None
    resources: Resources | None
    resourceClaims: list[Any] | None
    overhead: Amounts
    runtimeClassName: Text
    nodeSelector: NodeLabels
    nodeName: Text
    schedulerName: Text
    affinity: Affinity | None
    tolerations: list[Toleration] | None
    topologySpreadConstraints: list[Spread] | None
    volumes: list[PodVolume] | None
    schedulingGates: list[Any] | None
    hostNetwork: bool | None
    priority: int | None
    priorityClassName: Text


class Condition(TypedDict, total=False):
    type: Text
    status: Text
    reason: Text
    lastTransitionTime: Text


class ContainerStatus(TypedDict, total=False):
    name: Text
    resources: Resources | None
    allocatedResources: Amounts


class PodStatus(TypedDict, total=False):
    phase: Text
    containerStatuses: list[ContainerStatus] | None
    initContainerStatuses: list[ContainerStatus] | None
    startTime: Text
    conditions: list[Condition] | None
    nominatedNodeName: Text


class Pod(TypedDict, total=False):
    metadata: Metadata | None
    spec: PodSpec | None
    status: PodStatus | None


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
    metadata: Metadata | None
    spec: _NodeSpec | None
    status: _NodeStatus | None


class _NodeClaimSpec(TypedDict, total=False):
    taints: list[_Taint] | None
    startupTaints: list[_Taint] | None


class _NodeClaimStatus(_NodeStatus, total=False):
    providerID: Text


class NodeClaim(TypedDict, total=False):
    metadata: Metadata | None
    spec: _NodeClaimSpec | None
    status: _NodeClaimStatus | None


class _ClaimStatus(TypedDict, total=False):
    phase: Text


class Claim(TypedDict, total=False):
    metadata: Metadata | None
    spec: ClaimSpec | None
    status: _ClaimStatus | None


class _VolumeAffinity(TypedDict, total=False):
    required: NodeTerms | None


class _Csi(TypedDict, total=False):
    driver: Text


class _VolumeSpec(TypedDict, total=False):
    nodeAffinity: _VolumeAffinity | None
    csi: _Csi | None
    awsElasticBlockStore: dict[str, Any] | None


class Volume(TypedDict, total=False):
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
    metadata: Metadata | None
    provisioner: Text
    volumeBindingMode: Text
    allowedTopologies: list[_Topology] | None


class PriorityClass(TypedDict, total=False):
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
    metadata: Metadata | None
    spec: _LimitRangeSpec | None


class _Overhead(TypedDict, total=False):
    podFixed: Amounts


class _Scheduling(TypedDict, total=False):
    nodeSelector: NodeLabels
    tolerations: list[Toleration] | None


class RuntimeClass(TypedDict, total=False):
    metadata: Metadata | None
    overhead: _Overhead | None
    scheduling: _Scheduling | None


class _BudgetSpec(TypedDict, total=False):
    unhealthyPodEvictionPolicy: str | None
    selector: Selector | None


class _BudgetStatus(TypedDict, total=False):
    currentHealthy: int | None
    desiredHealthy: int | None
    disruptionsAllowed: int | None


class PodDisruptionBudget(TypedDict, total=False):
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
