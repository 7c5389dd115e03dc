"""NodePool of `karpenter.sh/v1beta1`, and its conversion to v1."""

import json
from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from leeway.manifests.amounts import Amounts
from leeway.manifests.base import Duration, Manifest, Name, NotActedOn, Strict
from leeway.manifests.interpreting import Converted
from leeway.manifests.kubelet import KUBELET, KubeletSettings
from leeway.manifests.node_pool import (
    Budget,
    FlexibleRequirement,
    Never,
    NodePool,
    TaintSpec,
    TemplateMetadata,
)


class NodeClassRefV1Beta1(Strict):
    """A reference to the node class of the nodes."""

    api_version: str | None = None
    """API version of the node class."""
    kind: str | None = None
    """Kind of the node class."""
    name: Name
    """Name of the node class."""


class TemplateSpecV1Beta1(Strict):
    """The specification of nodes."""

    node_class_ref: NodeClassRefV1Beta1 = Field(
        default_factory=lambda: NodeClassRefV1Beta1(name="default")
    )
    """Node class of the nodes. If it has no manifest, the Cluster's defaults apply."""
    requirements: Annotated[tuple[FlexibleRequirement, ...], Field(max_length=100)] = ()
    """Requirements on the labels of the nodes."""
    taints: tuple[TaintSpec, ...] = ()
    """Taints of the nodes; pods must tolerate them."""
    startup_taints: tuple[TaintSpec, ...] = ()
    """Taints that another component removes while a node starts; pods do not have to tolerate
    them."""
    kubelet: KubeletSettings | None = None
    """Kubelet settings."""
    resources: Annotated[Any, NotActedOn("Karpenter sets this field")] = None
    """Requests of the pods of a node."""


class TemplateV1Beta1(Strict):
    """A template of nodes."""

    metadata: TemplateMetadata = Field(default_factory=TemplateMetadata)
    """Labels and annotations of the nodes."""
    spec: TemplateSpecV1Beta1 = Field(default_factory=TemplateSpecV1Beta1)
    """Requirements, taints and node class of the nodes."""


class DisruptionV1Beta1(Strict):
    """When nodes are removed."""

    consolidate_after: Duration | Never | None = None
    """How long a node has to be empty; only with `WhenEmpty`."""
    consolidation_policy: Literal["WhenEmpty", "WhenUnderutilized"] = "WhenUnderutilized"
    """Which nodes are removed."""
    expire_after: Duration | Never = timedelta(hours=720)
    """Maximum age of a node."""
    budgets: Annotated[tuple[Budget, ...], Field(max_length=50)] = (Budget(),)
    """Disruption budgets; the strictest applies."""

    @model_validator(mode="after")
    def _after_with_its_policy(self) -> Self:
        waits = self.consolidate_after not in (None, "Never")
        if waits and self.consolidation_policy == "WhenUnderutilized":
            raise ValueError("expected consolidateAfter only with WhenEmpty")
        if self.consolidate_after is None and self.consolidation_policy == "WhenEmpty":
            raise ValueError("expected consolidateAfter with WhenEmpty")
        return self


class NodePoolV1Beta1Spec(Strict):
    """The nodes that may be launched."""

    template: TemplateV1Beta1 = Field(default_factory=TemplateV1Beta1)
    """Template of the nodes."""
    disruption: DisruptionV1Beta1 = Field(default_factory=DisruptionV1Beta1)
    """When nodes are removed."""
    limits: Amounts = Field(default_factory=dict)
    """Limits on the sum of all nodes of the pool: `cpu`, `memory` or any other resource."""
    weight: Annotated[int, Field(ge=1, le=100)] | None = None
    """Weight of the pool: of the pools that fit a pod, the one with the largest weight is used."""


class NodePoolV1Beta1(Manifest):
    """Nodes that may be launched, in Karpenter's second API. Leeway converts it to a NodePool of
    v1."""

    api_version: Literal["karpenter.sh/v1beta1"]
    kind: Literal["NodePool"]
    spec: NodePoolV1Beta1Spec
    """The nodes that may be launched."""


def as_node_pool(old: NodePoolV1Beta1) -> Converted:
    """Convert a NodePool of v1beta1 to the equivalent one of v1."""
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
