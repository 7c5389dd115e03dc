"""NodePool of `karpenter.sh/v1beta1`, read as the one of v1 that it became."""

import json
from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from leeway.manifests.amounts import Amounts
from leeway.manifests.base import Duration, Manifest, Name, NotActedOn, Strict
from leeway.manifests.interpreting import Converted
from leeway.manifests.kubelet import KUBELET, KubeletSettings
from leeway.manifests.node_pool import (
    NOT_GIVEN_BACK,
    Budget,
    FlexibleRequirement,
    Never,
    NodePool,
    TaintSpec,
    TemplateMetadata,
)


class NodeClassRefV1Beta1(Strict):
    """Which node class makes the nodes."""

    api_version: str | None = None
    """Its API version."""
    kind: str | None = None
    """Its kind."""
    name: Name
    """Its name."""


class TemplateSpecV1Beta1(Strict):
    """What the nodes are like."""

    node_class_ref: NodeClassRefV1Beta1 = Field(
        default_factory=lambda: NodeClassRefV1Beta1(name="default")
    )
    """Which node class makes them; where there is none of that name, the Cluster's defaults do."""
    requirements: Annotated[tuple[FlexibleRequirement, ...], Field(max_length=100)] = ()
    """What their labels have to be."""
    taints: tuple[TaintSpec, ...] = ()
    """Taints that pods must tolerate."""
    startup_taints: tuple[TaintSpec, ...] = ()
    """Taints that somebody takes off while a node starts; pods need not tolerate them."""
    kubelet: KubeletSettings | None = None
    """How the kubelet is set."""
    resources: Annotated[Any, NotActedOn("Karpenter sets it")] = None
    """What the pods of a node request."""


class TemplateV1Beta1(Strict):
    """What the nodes are like."""

    metadata: TemplateMetadata = Field(default_factory=TemplateMetadata)
    """Their labels and annotations."""
    spec: TemplateSpecV1Beta1 = Field(default_factory=TemplateSpecV1Beta1)
    """Their requirements, taints and node class."""


class DisruptionV1Beta1(Strict):
    """When nodes are given back."""

    consolidate_after: Duration | Never | None = None
    """How long a node has to be empty, with WhenEmpty."""
    consolidation_policy: Literal["WhenEmpty", "WhenUnderutilized"] = "WhenUnderutilized"
    """Which nodes are given back."""
    expire_after: Duration | Never = timedelta(hours=720)
    """How old a node may become."""
    budgets: Annotated[tuple[Budget, ...], Field(max_length=50)] = (Budget(),)
    """How many at once; the strictest holds."""

    @model_validator(mode="after")
    def _after_with_its_policy(self) -> Self:
        waits = self.consolidate_after not in (None, "Never")
        if waits and self.consolidation_policy == "WhenUnderutilized":
            raise ValueError("expected consolidateAfter only with WhenEmpty")
        if self.consolidate_after is None and self.consolidation_policy == "WhenEmpty":
            raise ValueError("expected consolidateAfter with WhenEmpty")
        return self


class NodePoolV1Beta1Spec(Strict):
    """Which nodes may be launched."""

    template: TemplateV1Beta1 = Field(default_factory=TemplateV1Beta1)
    """What the nodes are like."""
    disruption: Annotated[DisruptionV1Beta1, NOT_GIVEN_BACK] = Field(
        default_factory=DisruptionV1Beta1
    )
    """When they are given back."""
    limits: Amounts = Field(default_factory=dict)
    """What all nodes together may have: cpu, memory, any resource."""
    weight: Annotated[int, Field(ge=1, le=100)] | None = None
    """Of pools that would do, that of the larger weight is taken."""


class NodePoolV1Beta1(Manifest):
    """Which nodes may be launched, as Karpenter's second API has it. A NodePool of v1 says the
    same."""

    api_version: Literal["karpenter.sh/v1beta1"]
    kind: Literal["NodePool"]
    spec: NodePoolV1Beta1Spec
    """Which nodes may be launched."""


def as_node_pool(old: NodePoolV1Beta1) -> Converted:
    """Convert a NodePool of v1beta1 to the one of v1 that means the same."""
    written = old.spec.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    template = written.get("template", {})
    spec = template.get("spec", {})
    annotations = dict(old.metadata.annotations)
    if kubelet := spec.pop("kubelet", None):
        annotations[KUBELET] = json.dumps(kubelet)
    spec.pop("resources", None)
    spec["nodeClassRef"] = {"name": old.spec.template.spec.node_class_ref.name}
    disruption = written.get("disruption", {})
    if "expireAfter" in disruption:
        spec["expireAfter"] = disruption.pop("expireAfter")
    if disruption.get("consolidationPolicy") == "WhenUnderutilized":
        disruption["consolidationPolicy"] = "WhenEmptyOrUnderutilized"
    pool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {
            "name": old.metadata.name,
            "labels": old.metadata.labels,
            "annotations": annotations,
        },
        "spec": {**written, "template": {**template, "spec": spec}, "disruption": disruption},
    }
    return Converted(NodePool.model_validate_json(json.dumps(pool)))
