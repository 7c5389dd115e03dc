"""KEDA's ScaledObject of `keda.sh/v1alpha1`, with cron triggers."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from leeway.headroom.plan import ScaledTarget, ScaleTarget
from leeway.headroom.windows import Schedule
from leeway.manifests.base import (
    Manifest,
    Name,
    NotActedOn,
    Note,
    Strict,
    TimeWindow,
    Wrong,
    at_annotation,
)

PAUSED = "autoscaling.keda.sh/paused"
PAUSED_REPLICAS = "autoscaling.keda.sh/paused-replicas"
"""KEDA's annotations: the target keeps its size, or has this size, and triggers have no effect."""

_HALF_PAUSED = ("autoscaling.keda.sh/paused-scale-in", "autoscaling.keda.sh/paused-scale-out")
_NOT_PAUSED = frozenset({"0", "f", "F", "FALSE", "false", "False"})
"""Any other value pauses, even if it is not a boolean. Source: KEDA's `NeedToBePausedByAnnotation`,
which uses Go's `strconv.ParseBool`."""

_EVERY_MINUTE = NotActedOn("Leeway evaluates cron windows once a minute")
_NO_HPA = NotActedOn("Leeway scales the target itself, without an HPA")
_NO_METRICS = NotActedOn("cron triggers use no metrics")


def _replicas(value: Any) -> Any:
    """Accept text, which KEDA requires, and numbers."""
    if isinstance(value, str):
        if not value.isascii() or not value.isdecimal():
            raise ValueError("expected a whole number of replicas")
        return int(value)
    return value


class CronMetadata(TimeWindow):
    """A recurring window and the number of replicas in it."""

    desired_replicas: Annotated[int, BeforeValidator(_replicas), Field(ge=1, le=2**31 - 1)]
    """Number of replicas while the window is open: a number, or a number as text."""


class Trigger(Strict):
    """A trigger. Leeway supports triggers of type `cron`."""

    type: Literal["cron"]
    """Type of the trigger. Other types are refused."""
    name: str | None = None
    """Name of the trigger, for display."""
    metadata: CronMetadata
    """The cron window."""
    authentication_ref: Annotated[Any, _NO_METRICS] = None
    """Credentials for the source of metrics."""
    metric_type: Annotated[Any, _NO_METRICS] = None
    """Metric type of the HPA."""
    use_cached_metrics: Annotated[Any, _NO_METRICS] = None
    """Whether the metric is cached."""

    @model_validator(mode="before")
    @classmethod
    def _of_a_known_type(cls, value: Any) -> Any:
        given = value.get("type") if isinstance(value, dict) else None
        if isinstance(given, str) and given != "cron":
            raise ValueError(f"expected a trigger of type cron, got {given[:60]}")
        return value


class ScaleTargetRef(Strict):
    """The workload to scale, in the namespace of the ScaledObject."""

    api_version: Annotated[
        str, StringConstraints(pattern=r"^([a-z0-9][a-z0-9.-]*/)?v[0-9][a-z0-9]*$")
    ] = "apps/v1"
    """API group and version of the workload."""
    kind: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Za-z0-9]*$")] = "Deployment"
    """Kind of the workload: any kind with a scale subresource."""
    name: Name
    """Name of the workload."""
    env_source_container_name: Annotated[Any, _NO_METRICS] = None
    """Container whose environment variables triggers read."""


class Advanced(Strict):
    """Other settings."""

    restore_to_original_replica_count: bool = False
    """Whether Leeway restores the target's original number of replicas when the ScaledObject is
    deleted."""
    horizontal_pod_autoscaler_config: Annotated[Any, _NO_HPA] = None
    """Settings of the HPA that KEDA creates."""
    scaling_modifiers: Annotated[Any, _NO_METRICS] = None
    """A formula over the metrics of several triggers."""


class ScaledObjectSpec(Strict):
    """The workload to scale, and its cron windows."""

    scale_target_ref: ScaleTargetRef
    """The workload to scale."""
    min_replica_count: Annotated[int, Field(ge=0)] = 0
    """Number of replicas while no window is open, and the minimum while one is open."""
    max_replica_count: Annotated[int, Field(ge=1)] = 100
    """Maximum number of replicas."""
    idle_replica_count: Annotated[int, Field(ge=0)] | None = None
    """Number of replicas while no window is open, if it is less than `minReplicaCount`."""
    triggers: Annotated[tuple[Trigger, ...], Field(min_length=1, max_length=100)]
    """The cron windows. If several windows are open, the largest number applies."""
    advanced: Advanced = Advanced()
    """Other settings."""
    polling_interval: Annotated[Any, _EVERY_MINUTE] = None
    """Interval, in seconds, at which KEDA evaluates triggers."""
    cooldown_period: Annotated[
        Any, NotActedOn("Leeway scales the target down as soon as the window closes")
    ] = None
    """How long, in seconds, KEDA waits before it scales to zero."""
    initial_cooldown_period: Annotated[Any, _EVERY_MINUTE] = None
    """How long, in seconds, KEDA waits after the ScaledObject is created."""
    fallback: Annotated[Any, _NO_METRICS] = None
    """Number of replicas while the source of metrics fails."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min_replica_count > self.max_replica_count:
            raise ValueError(
                f"minReplicaCount {self.min_replica_count}: expected at most maxReplicaCount "
                f"({self.max_replica_count})"
            )
        if self.idle_replica_count is not None and (
            self.idle_replica_count >= self.min_replica_count
        ):
            raise ValueError(
                f"idleReplicaCount {self.idle_replica_count}: expected less than minReplicaCount "
                f"({self.min_replica_count})"
            )
        return self


class ScaledObject(Manifest):
    """Scales a workload by cron windows."""

    api_version: Literal["keda.sh/v1alpha1"]
    kind: Literal["ScaledObject"]
    spec: ScaledObjectSpec
    """The workload to scale, and its cron windows."""

    summary_columns: ClassVar[tuple[str, ...]] = ("TARGET", "MIN", "MAX", "TRIGGERS")

    def summary(self) -> tuple[str, ...]:
        """Return the values of `summary_columns`."""
        spec = self.spec
        counts = (spec.min_replica_count, spec.max_replica_count, len(spec.triggers))
        target = spec.scale_target_ref
        return (f"{target.kind}/{target.name}", *(str(count) for count in counts))

    def notes(self) -> tuple[Note, ...]:
        """Warn about annotations that stop KEDA from scaling in one direction."""
        return super().notes() + tuple(
            Note(
                ("metadata", "annotations", name), "ignored: Leeway pauses only in both directions"
            )
            for name in _HALF_PAUSED
            if name in self.metadata.annotations
        )

    def target(self) -> ScaledTarget:
        """Return the workload to scale, with its schedule."""
        namespace = self.metadata.namespace or "default"
        ref = self.spec.scale_target_ref
        return ScaledTarget(
            source=f"scaledobject.keda.sh {namespace}/{self.metadata.name}",
            target=ScaleTarget(ref.api_version, ref.kind, namespace, ref.name),
            schedule=self.schedule(),
            restore=self.spec.advanced.restore_to_original_replica_count,
            paused=self.metadata.annotations.get(PAUSED, "false") not in _NOT_PAUSED,
            fixed=self._fixed_size(),
        )

    def schedule(self) -> Schedule:
        """Return the windows and bounds."""
        spec = self.spec
        windows = (trigger.metadata for trigger in spec.triggers)
        return Schedule(
            tuple(one.window(one.desired_replicas) for one in windows),
            spec.min_replica_count,
            spec.max_replica_count,
            spec.idle_replica_count,
        )

    def _fixed_size(self) -> int | None:
        given = self.metadata.annotations.get(PAUSED_REPLICAS)
        return int(given) if given is not None else None

    @model_validator(mode="after")
    def _paused_at_a_number(self) -> Self:
        given = self.metadata.annotations.get(PAUSED_REPLICAS)
        if given is not None and not (given.isascii() and given.isdecimal()):
            said = f"expected a whole number, got {given!r}"
            raise Wrong(at_annotation(PAUSED_REPLICAS), said)
        return self
