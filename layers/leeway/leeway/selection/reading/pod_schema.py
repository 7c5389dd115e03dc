"""The schema of Pods, restricted to the fields that selection and provisioning read."""

from typing import Annotated, Any, Literal, Required, TypedDict

from pydantic import AfterValidator, Field, PlainValidator

from leeway.selection.quantities import requested_quantity
from leeway.selection.reading.objects import shown
from leeway.selection.requirements import Requirement, check_key, check_value

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
    """An owner reference."""

    kind: Required[str]
    name: Required[str]
    controller: bool | None
    uid: Text


class Metadata(TypedDict, total=False):
    """The metadata of an object."""

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
    """A requirement on a field of the node."""

    key: Required[Literal["metadata.name"]]
    operator: Required[Literal["In", "NotIn"]]
    values: Required[list[str]]


class NodeTerm(TypedDict, total=False):
    """A node selector term."""

    matchExpressions: list[Expression] | None
    matchFields: list[FieldExpression] | None


class NodeTerms(TypedDict, total=False):
    """Alternative node selector terms."""

    nodeSelectorTerms: list[NodeTerm] | None


class NodePreference(TypedDict, total=False):
    """A preferred node selector term."""

    weight: Weight
    preference: NodeTerm | None


class NodeAffinity(TypedDict, total=False):
    """Node affinity."""

    requiredDuringSchedulingIgnoredDuringExecution: NodeTerms | None
    preferredDuringSchedulingIgnoredDuringExecution: list[NodePreference] | None


class Selector(TypedDict, total=False):
    """A label selector."""

    matchLabels: Labels
    matchExpressions: list[Expression] | None


class PodTerm(TypedDict, total=False):
    """A pod affinity term."""

    labelSelector: Selector | None
    matchLabelKeys: Texts
    mismatchLabelKeys: Texts
    namespaces: Texts
    namespaceSelector: Selector | None
    topologyKey: Required[str]


class PodPreference(TypedDict, total=False):
    """A weighted pod affinity term."""

    weight: Weight
    podAffinityTerm: Required[PodTerm]


class PodAffinity(TypedDict, total=False):
    """Pod affinity or anti-affinity."""

    requiredDuringSchedulingIgnoredDuringExecution: list[PodTerm] | None
    preferredDuringSchedulingIgnoredDuringExecution: list[PodPreference] | None


class Affinity(TypedDict, total=False):
    """All affinities of a pod."""

    nodeAffinity: NodeAffinity | None
    podAffinity: PodAffinity | None
    podAntiAffinity: PodAffinity | None


class Toleration(TypedDict, total=False):
    """A toleration."""

    key: Text
    operator: Literal["", "Equal", "Exists"] | None
    value: Text
    effect: Effect


class Spread(TypedDict, total=False):
    """A topology spread constraint."""

    maxSkew: Whole
    minDomains: Whole | None
    topologyKey: Required[str]
    whenUnsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    labelSelector: Selector | None
    matchLabelKeys: Texts
    nodeAffinityPolicy: Heeded
    nodeTaintsPolicy: Heeded


class Resources(TypedDict, total=False):
    """Requests and limits."""

    requests: Amounts
    limits: Amounts


class ContainerPort(TypedDict, total=False):
    """A port of a container."""

    hostPort: Port
    containerPort: Port
    hostIP: Text
    protocol: Text


class Container(TypedDict, total=False):
    """A container."""

    resources: Resources | None
    ports: list[ContainerPort] | None
    restartPolicy: Text


class ClaimSpec(TypedDict, total=False):
    """The spec of a claim."""

    volumeName: Text
    storageClassName: Text


class NamedClaim(TypedDict, total=False):
    """A reference to a claim."""

    claimName: Required[str]


class ClaimTemplate(TypedDict, total=False):
    """A template of a claim."""

    metadata: Metadata | None
    spec: ClaimSpec | None


class EphemeralVolume(TypedDict, total=False):
    """A generic ephemeral volume."""

    volumeClaimTemplate: ClaimTemplate | None


class PodVolume(TypedDict, total=False):
    """A volume of a pod."""

    persistentVolumeClaim: NamedClaim | None
    ephemeral: EphemeralVolume | None
    awsElasticBlockStore: dict[str, Any] | None


class PodSpec(TypedDict, total=False):
    """The spec of a pod."""

    containers: list[Container] | None
    initContainers: list[Container] | None
    resources: Resources | None
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
    """A condition of a pod or a node."""

    type: Text
    status: Text
    reason: Text
    lastTransitionTime: Text


class PodStatus(TypedDict, total=False):
    """The status of a pod."""

    phase: Text
    startTime: Text
    conditions: list[Condition] | None
    nominatedNodeName: Text


class Pod(TypedDict, total=False):
    """A pod or a pod template."""

    metadata: Metadata | None
    spec: PodSpec | None
    status: PodStatus | None
