"""NodePool of `karpenter.sh/v1`: the nodes that may be launched, their taints and limits."""

from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from leeway.manifests.base import (
    Duration,
    LabelKey,
    LabelValue,
    Manifest,
    Name,
    NotActedOn,
    Note,
    Strict,
)
from leeway.manifests.fields import NOT_ACTED_ON, Amounts, BudgetSchedule, check_pool_label
from leeway.manifests.kubelet import KUBELET, KubeletSettings
from leeway.selection.requirements import Operator, Requirement

PoolLabelKey = Annotated[LabelKey, AfterValidator(check_pool_label)]
PoolLabels = dict[PoolLabelKey, LabelValue]


class LabelRequirement(Strict):
    """A requirement on a node label."""

    key: PoolLabelKey
    """Label key."""
    operator: Operator
    """How the label's value is compared with `values`."""
    values: tuple[str, ...] = ()
    """Values: at least one for `In` and `NotIn`, one integer for `Gt`, `Lt`, `Gte` and `Lte`, none
    for `Exists` and `DoesNotExist`."""

    @model_validator(mode="after")
    def _can_be_meant(self) -> Self:
        Requirement.of(self.key, self.operator, self.values)
        return self


class FlexibleRequirement(LabelRequirement):
    """A requirement on a node label, with the number of values that a launch request must offer."""

    min_values: Annotated[int, Field(ge=1, le=50)] | None = None
    """Minimum number of different values among the instance types of one launch request."""

    @model_validator(mode="after")
    def _has_as_many(self) -> Self:
        if self.operator is Operator.IN and len(set(self.values)) < (self.min_values or 0):
            raise ValueError(f"expected at least minValues ({self.min_values}) values")
        return self


class TaintSpec(Strict):
    """A taint."""

    key: LabelKey
    """Key of the taint."""
    value: LabelValue = ""
    """Value of the taint."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    """Effect on pods that do not tolerate the taint."""
    time_added: Annotated[Any, NotActedOn("Kubernetes sets this field")] = None
    """Time at which the taint was added."""


class NodeClassRef(Strict):
    """A reference to the node class of the nodes."""

    group: Literal["karpenter.k8s.aws"] = "karpenter.k8s.aws"
    """API group of the node class."""
    kind: Literal["EC2NodeClass"] = "EC2NodeClass"
    """Kind of the node class."""
    name: Name
    """Name of the node class."""


class TemplateMetadata(Strict):
    """Labels and annotations of nodes."""

    labels: PoolLabels = Field(default_factory=dict)
    """Labels of the nodes."""
    annotations: dict[LabelKey, str] = Field(default_factory=dict)
    """Annotations of the nodes."""


Never = Literal["Never"]


class TemplateSpec(Strict):
    """The specification of nodes."""

    node_class_ref: NodeClassRef = Field(default_factory=lambda: NodeClassRef(name="default"))
    """Node class of the nodes. If it has no manifest, the Cluster's defaults apply."""
    requirements: Annotated[tuple[FlexibleRequirement, ...], Field(max_length=100)] = ()
    """Requirements on the labels of the nodes."""
    taints: tuple[TaintSpec, ...] = ()
    """Taints of the nodes; pods must tolerate them."""
    startup_taints: tuple[TaintSpec, ...] = ()
    """Taints that another component removes while a node starts; pods do not have to tolerate
    them."""
    expire_after: Duration | Never = timedelta(hours=720)
    """Maximum age of a node."""
    termination_grace_period: Duration | None = None
    """Maximum time of a node's drain. With it, a node that has expired or drifted goes although an
    annotation or a PodDisruptionBudget forbids to disrupt its pods."""


class Template(Strict):
    """A template of nodes."""

    metadata: TemplateMetadata = Field(default_factory=TemplateMetadata)
    """Labels and annotations of the nodes."""
    spec: TemplateSpec = Field(default_factory=TemplateSpec)
    """Requirements, taints and node class of the nodes."""


class Budget(Strict):
    """How many nodes may be disrupted at once, and when."""

    nodes: Annotated[str, StringConstraints(pattern=r"^((100|[0-9]{1,2})%|[0-9]+)$")] = "10%"
    """Number or percentage of nodes; a percentage is rounded up."""
    reasons: tuple[Literal["Underutilized", "Empty", "Drifted"], ...] | None = None
    """Reasons to which the budget applies; without any, it applies to all."""
    schedule: BudgetSchedule | None = None
    """Cron expression in UTC: when the budget begins to apply."""
    duration: Duration | None = None
    """How long the budget applies after each start."""

    @model_validator(mode="after")
    def _schedule_with_duration(self) -> Self:
        if (self.schedule is None) != (self.duration is None):
            raise ValueError("expected schedule and duration together")
        return self


class Disruption(Strict):
    """When nodes are removed."""

    consolidate_after: Duration | Never = timedelta(0)
    """How long a node has to be empty or underutilized."""
    consolidation_policy: Literal["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"] = (
        "WhenEmptyOrUnderutilized"
    )
    """Which nodes are removed."""
    budgets: Annotated[tuple[Budget, ...], Field(max_length=50)] = (Budget(),)
    """Disruption budgets; the strictest applies."""


class NodePoolSpec(Strict):
    """The nodes that may be launched."""

    template: Template = Field(default_factory=Template)
    """Template of the nodes."""
    disruption: Disruption = Field(default_factory=Disruption)
    """When nodes are removed."""
    limits: Amounts = Field(default_factory=dict)
    """Limits on the sum of all nodes of the pool: `cpu`, `memory`, any other resource, or
    `nodes`."""
    weight: Annotated[int, Field(ge=1, le=100)] | None = None
    """Weight of the pool: of the pools that fit a pod, the one with the largest weight is used."""
    replicas: Annotated[Any, NotActedOn("a fixed number of nodes is not supported")] = None
    """Fixed number of nodes."""


class NodePool(Manifest):
    """The nodes that may be launched. Leeway launches them for pods that have no place."""

    api_version: Literal["karpenter.sh/v1"]
    kind: Literal["NodePool"]
    spec: NodePoolSpec
    """The nodes that may be launched."""

    @model_validator(mode="after")
    def _kubelet_can_be_read(self) -> Self:
        try:
            self.kubelet()
        except ValidationError:
            raise ValueError(
                f"metadata.annotations: expected kubelet settings as JSON in {KUBELET}"
            ) from None
        return self

    def kubelet(self) -> KubeletSettings | None:
        """Return the kubelet settings of a converted manifest; None if it has none."""
        written = self.metadata.annotations.get(KUBELET)
        return None if written is None else KubeletSettings.model_validate_json(written)

    summary_columns: ClassVar[tuple[str, ...]] = ("NODECLASS", "WEIGHT", "REQUIREMENTS")

    def summary(self) -> tuple[str, ...]:
        """Return the values of `summary_columns`."""
        spec = self.spec.template.spec
        asked = ", ".join(
            str(Requirement.of(r.key, r.operator, r.values)) for r in spec.requirements
        )
        return (spec.node_class_ref.name, str(self.spec.weight or 0), asked)

    def notes(self) -> tuple[Note, ...]:
        """Warn also about requirements on labels that Leeway does not support."""
        asked = self.spec.template.spec.requirements
        unknown = (
            Note(("spec", "template", "spec", "requirements", i, "key"), NOT_ACTED_ON[r.key])
            for i, r in enumerate(asked)
            if r.key in NOT_ACTED_ON
        )
        return (*super().notes(), *unknown)
