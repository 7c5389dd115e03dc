"""CapacityBuffer of `autoscaling.x-k8s.io`: spare capacity for the pods of a template."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from leeway.headroom.pause_pods import MAX_NAME_LENGTH
from leeway.headroom.plan import ScaleTarget, TemplateBuffer, template_deployment_name
from leeway.manifests.amounts import Amounts
from leeway.manifests.base import Manifest, Name, Strict


class PodTemplateRef(Strict):
    """A PodTemplate in the namespace of the CapacityBuffer."""

    name: Name
    """Name of the PodTemplate."""


class ScalableRef(Strict):
    """A workload with a pod template, in the namespace of the CapacityBuffer."""

    api_group: Literal["apps"] = "apps"
    """API group of the workload."""
    kind: Literal["Deployment", "ReplicaSet", "StatefulSet"]
    """Kind of the workload."""
    name: Name
    """Name of the workload."""


class CapacityBufferSpec(Strict):
    """Which pods to keep capacity for, and how many."""

    provisioning_strategy: Literal["", "buffer.x-k8s.io/active-capacity"] = (
        "buffer.x-k8s.io/active-capacity"
    )
    """How the capacity is kept: `buffer.x-k8s.io/active-capacity`, which runs pause pods."""
    pod_template_ref: PodTemplateRef | None = None
    """The PodTemplate to keep capacity for. Set either this or `scalableRef`."""
    scalable_ref: ScalableRef | None = None
    """The workload to keep capacity for. Set either this or `podTemplateRef`."""
    replicas: Annotated[int, Field(ge=0, le=100_000)] | None = None
    """Number of pods to keep capacity for."""
    percentage: Annotated[int, Field(ge=0, le=10_000)] | None = None
    """Percentage of the replicas of `scalableRef`, rounded up, at least one pod."""
    limits: Amounts = Field(default_factory=dict)
    """Upper bound on the sum of the pods' requests. Without `replicas` and `percentage`, as many
    pods as fit into it."""

    @model_validator(mode="after")
    def _means_one_thing(self) -> Self:
        if (self.pod_template_ref is None) == (self.scalable_ref is None):
            raise ValueError("expected either podTemplateRef or scalableRef")
        if self.percentage is not None and self.scalable_ref is None:
            raise ValueError("percentage: expected scalableRef as well")
        if self.percentage is not None and self.replicas is not None:
            # One version of the API's documentation takes the larger of both, another the smaller.
            raise ValueError("expected either replicas or percentage, not both")
        if self.replicas is None and self.percentage is None and not self.limits:
            raise ValueError("expected replicas, percentage or limits")
        return self


class CapacityBuffer(Manifest):
    """Keeps spare capacity for the pods of a template."""

    api_version: Literal["autoscaling.x-k8s.io/v1alpha1", "autoscaling.x-k8s.io/v1beta1"]
    kind: Literal["CapacityBuffer"]
    spec: CapacityBufferSpec
    """The capacity to keep."""

    summary_columns: ClassVar[tuple[str, ...]] = ("FOR", "REPLICAS")

    def summary(self) -> tuple[str, ...]:
        """Return the values of `summary_columns`."""
        spec, like = self.spec, self.template_buffer().template_of
        size = f"{spec.percentage}%" if spec.percentage is not None else spec.replicas
        return (f"{like.kind}/{like.name}", "as many as fit" if size is None else str(size))

    @model_validator(mode="after")
    def _of_a_name_that_fits(self) -> Self:
        excess = len(template_deployment_name(self.template_buffer())) - MAX_NAME_LENGTH
        if excess > 0:
            most = len(self.metadata.name) - excess
            raise ValueError(
                f"metadata.name: expected at most {most} characters, got {len(self.metadata.name)}"
            )
        return self

    def template_buffer(self) -> TemplateBuffer:
        """Return the pause pods to keep, with the object whose template they are made from."""
        spec = self.spec
        namespace = self.metadata.namespace or "default"
        if spec.scalable_ref is not None:
            ref = spec.scalable_ref
            template_of = ScaleTarget("apps/v1", ref.kind, namespace, ref.name)
        else:
            name = spec.pod_template_ref.name if spec.pod_template_ref else ""
            template_of = ScaleTarget("v1", "PodTemplate", namespace, name)
        return TemplateBuffer(
            source=f"capacitybuffer.autoscaling.x-k8s.io {namespace}/{self.metadata.name}",
            name=self.metadata.name,
            template_of=template_of,
            replicas=spec.replicas,
            percentage=spec.percentage,
            limits=spec.limits,
        )
