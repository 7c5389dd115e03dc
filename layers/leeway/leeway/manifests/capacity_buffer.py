"""SIG Autoscaling's CapacityBuffer of `autoscaling.x-k8s.io`: room for pods like a template's."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from leeway.headroom.pause_pods import MAX_NAME_LENGTH
from leeway.headroom.plan import ScaleTarget, TemplateBuffer, template_deployment_name
from leeway.manifests.amounts import Amounts
from leeway.manifests.base import Manifest, Name, Strict


class PodTemplateRef(Strict):
    """A PodTemplate in the CapacityBuffer's own namespace."""

    name: Name
    """Its name."""


class ScalableRef(Strict):
    """An object with a scale subresource and a pod template, in the CapacityBuffer's namespace."""

    api_group: Literal["apps"] = "apps"
    """Its API group."""
    kind: Literal["Deployment", "ReplicaSet", "StatefulSet"]
    """Its kind."""
    name: Name
    """Its name."""


class CapacityBufferSpec(Strict):
    """Room for so many pods like a template's."""

    provisioning_strategy: Literal["", "buffer.x-k8s.io/active-capacity"] = (
        "buffer.x-k8s.io/active-capacity"
    )
    """How the room is held: by running pods."""
    pod_template_ref: PodTemplateRef | None = None
    """The pods that room is held for."""
    scalable_ref: ScalableRef | None = None
    """The object whose pods room is held for."""
    replicas: Annotated[int, Field(ge=0, le=100_000)] | None = None
    """So many pods."""
    percentage: Annotated[int, Field(ge=0, le=10_000)] | None = None
    """A share of the object's size, rounded up, one at least."""
    limits: Amounts = Field(default_factory=dict)
    """The most that the pods may request in all. Alone, they are as many as fit."""

    @model_validator(mode="after")
    def _means_one_thing(self) -> Self:
        if (self.pod_template_ref is None) == (self.scalable_ref is None):
            raise ValueError("expected either podTemplateRef or scalableRef")
        if self.percentage is not None and self.scalable_ref is None:
            raise ValueError("percentage: expected scalableRef with it")
        if self.percentage is not None and self.replicas is not None:
            # One version of its documentation has the larger of both, another the smaller.
            raise ValueError("expected either replicas or percentage: of both, it is not settled")
        if self.replicas is None and self.percentage is None and not self.limits:
            raise ValueError("expected replicas, percentage or limits")
        return self


class CapacityBuffer(Manifest):
    """Keeps room for pods like those of a template."""

    api_version: Literal["autoscaling.x-k8s.io/v1alpha1", "autoscaling.x-k8s.io/v1beta1"]
    kind: Literal["CapacityBuffer"]
    spec: CapacityBufferSpec
    """What room is kept."""

    summary_columns: ClassVar[tuple[str, ...]] = ("FOR", "REPLICAS")

    def summary(self) -> tuple[str, ...]:
        """Return what `leeway get` shows in a table."""
        spec, like = self.spec, self.template_buffer().template_of
        size = f"{spec.percentage}%" if spec.percentage is not None else spec.replicas
        return (f"{like.kind}/{like.name}", "as many as fit" if size is None else str(size))

    @model_validator(mode="after")
    def _of_a_name_that_fits(self) -> Self:
        excess = len(template_deployment_name(self.template_buffer())) - MAX_NAME_LENGTH
        if excess > 0:
            most = len(self.metadata.name) - excess
            raise ValueError(
                f"metadata.name: expected {most} characters at most, got {len(self.metadata.name)}"
            )
        return self

    def template_buffer(self) -> TemplateBuffer:
        """Return the buffer that it defines."""
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
