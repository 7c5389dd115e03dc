"""NodePool of `karpenter.sh/v1`: which nodes may be launched, for which pods, and how many."""

from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from leeway.manifests.amounts import Amounts
from leeway.manifests.base import Duration, LabelKey, LabelValue, Manifest, Name, NotActedOn, Strict
from leeway.manifests.kubelet import KUBELET, KubeletSettings
from leeway.manifests.pool_labels import NOT_ACTED_ON, check_pool_label
from leeway.manifests.problems import Note
from leeway.selection.requirements import Operator, Requirement

NOT_GIVEN_BACK = NotActedOn("this version does not give nodes back")

PoolLabelKey = Annotated[LabelKey, AfterValidator(check_pool_label)]
PoolLabels = dict[PoolLabelKey, LabelValue]


class LabelRequirement(Strict):
    """What a label of a node has to be."""

    key: PoolLabelKey
    """The label."""
    operator: Operator
    """How its values are meant."""
    values: tuple[str, ...] = ()
    """The values: at least one for In and NotIn, one integer for Gt, Lt, Gte and Lte."""

    @model_validator(mode="after")
    def _can_be_meant(self) -> Self:
        Requirement.of(self.key, self.operator, self.values)
        return self


class FlexibleRequirement(LabelRequirement):
    """What a label of a node has to be, and how many of its values a launch may choose from."""

    min_values: Annotated[int, Field(ge=1, le=50)] | None = None
    """How many different values the instance types of a launch have at least."""

    @model_validator(mode="after")
    def _has_as_many(self) -> Self:
        if self.operator is Operator.IN and len(set(self.values)) < (self.min_values or 0):
            raise ValueError(f"expected at least {self.min_values} values, as minValues says")
        return self


class TaintSpec(Strict):
    """A taint."""

    key: LabelKey
    """The taint's key."""
    value: LabelValue = ""
    """The taint's value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    """What it does to pods that do not tolerate it."""
    time_added: Annotated[Any, NotActedOn("the kubelet sets it")] = None
    """When it was added."""


class NodeClassRef(Strict):
    """Which node class makes the nodes."""

    group: Literal["karpenter.k8s.aws"] = "karpenter.k8s.aws"
    """Its API group."""
    kind: Literal["EC2NodeClass"] = "EC2NodeClass"
    """Its kind."""
    name: Name
    """Its name."""


class TemplateMetadata(Strict):
    """What nodes are labelled and annotated with."""

    labels: PoolLabels = Field(default_factory=dict)
    """Labels of the nodes."""
    annotations: dict[LabelKey, str] = Field(default_factory=dict)
    """Annotations of the nodes."""


Never = Literal["Never"]


class TemplateSpec(Strict):
    """What the nodes are like."""

    node_class_ref: NodeClassRef = Field(default_factory=lambda: NodeClassRef(name="default"))
    """Which node class makes them; where there is none of that name, the Cluster's defaults do."""
    requirements: Annotated[tuple[FlexibleRequirement, ...], Field(max_length=100)] = ()
    """What their labels have to be."""
    taints: tuple[TaintSpec, ...] = ()
    """Taints that pods must tolerate."""
    startup_taints: tuple[TaintSpec, ...] = ()
    """Taints that somebody takes off while a node starts; pods need not tolerate them."""
    expire_after: Annotated[Duration | Never, NOT_GIVEN_BACK] = timedelta(hours=720)
    """How old a node may become."""
    termination_grace_period: Annotated[Duration | None, NOT_GIVEN_BACK] = None
    """How long a node's drain may take."""


class Template(Strict):
    """What the nodes are like."""

    metadata: TemplateMetadata = Field(default_factory=TemplateMetadata)
    """Their labels and annotations."""
    spec: TemplateSpec = Field(default_factory=TemplateSpec)
    """Their requirements, taints and node class."""


class Budget(Strict):
    """How many nodes may leave at once, and when."""

    nodes: Annotated[str, StringConstraints(pattern=r"^((100|[0-9]{1,2})%|[0-9]+)$")] = "10%"
    """A number, or a share, which is rounded up."""
    reasons: tuple[Literal["Underutilized", "Empty", "Drifted"], ...] | None = None
    """For which reasons; for all where none is named."""
    schedule: str | None = None
    """A cron expression, in UTC: when the budget begins to hold."""
    duration: Duration | None = None
    """How long it holds from then on."""

    @model_validator(mode="after")
    def _schedule_with_duration(self) -> Self:
        if (self.schedule is None) != (self.duration is None):
            raise ValueError("expected schedule and duration together")
        return self


class Disruption(Strict):
    """When nodes are given back."""

    consolidate_after: Duration | Never = timedelta(0)
    """How long a node has to be empty or under-used."""
    consolidation_policy: Literal["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"] = (
        "WhenEmptyOrUnderutilized"
    )
    """Which nodes are given back."""
    budgets: Annotated[tuple[Budget, ...], Field(max_length=50)] = (Budget(),)
    """How many at once; the strictest holds."""


class NodePoolSpec(Strict):
    """Which nodes may be launched."""

    template: Template = Field(default_factory=Template)
    """What the nodes are like."""
    disruption: Annotated[Disruption, NOT_GIVEN_BACK] = Field(default_factory=Disruption)
    """When they are given back."""
    limits: Amounts = Field(default_factory=dict)
    """What all nodes together may have: cpu, memory, any resource, `nodes`."""
    weight: Annotated[int, Field(ge=1, le=100)] | None = None
    """Of pools that would do, that of the larger weight is taken."""
    replicas: Annotated[Any, NotActedOn("nodes are launched for pods, not by number")] = None
    """A fixed number of nodes."""


class NodePool(Manifest):
    """Which nodes may be launched, for which pods, and how many."""

    api_version: Literal["karpenter.sh/v1"]
    kind: Literal["NodePool"]
    spec: NodePoolSpec
    """Which nodes may be launched."""

    @model_validator(mode="after")
    def _kubelet_can_be_read(self) -> Self:
        try:
            self.kubelet()
        except ValidationError:
            raise ValueError(
                f"metadata.annotations: expected {KUBELET} to be a kubelet's settings, as JSON"
            ) from None
        return self

    def kubelet(self) -> KubeletSettings | None:
        """Return the kubelet's settings that came with a Provisioner, None where none did."""
        written = self.metadata.annotations.get(KUBELET)
        return None if written is None else KubeletSettings.model_validate_json(written)

    summary_columns: ClassVar[tuple[str, ...]] = ("NODECLASS", "WEIGHT", "REQUIREMENTS")

    def summary(self) -> tuple[str, ...]:
        """Return what `leeway get` shows in a table."""
        spec = self.spec.template.spec
        asked = ", ".join(
            str(Requirement.of(r.key, r.operator, r.values)) for r in spec.requirements
        )
        return (spec.node_class_ref.name, str(self.spec.weight or 0), asked)

    def notes(self) -> tuple[Note, ...]:
        """Name requirements too that nothing is known to meet."""
        asked = self.spec.template.spec.requirements
        unknown = (
            Note(("spec", "template", "spec", "requirements", i, "key"), NOT_ACTED_ON[r.key])
            for i, r in enumerate(asked)
            if r.key in NOT_ACTED_ON
        )
        return (*super().notes(), *unknown)
