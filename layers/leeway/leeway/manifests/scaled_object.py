"""KEDA's ScaledObject of `keda.sh/v1alpha1`, with cron triggers."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from leeway.headroom.plan import ScaledTarget, ScaleTarget
from leeway.headroom.schedule import Schedule
from leeway.headroom.windows import Window
from leeway.manifests.base import Manifest, Name, NotActedOn, Strict
from leeway.manifests.cron_windows import CronExpression, TimeZone
from leeway.manifests.problems import Note

PAUSED = "autoscaling.keda.sh/paused"
PAUSED_REPLICAS = "autoscaling.keda.sh/paused-replicas"
"""KEDA's annotations: the target stays as it is, or at this size, whatever the triggers say."""

_HALF_PAUSED = ("autoscaling.keda.sh/paused-scale-in", "autoscaling.keda.sh/paused-scale-out")
_NOT_PAUSED = frozenset({"0", "f", "F", "FALSE", "false", "False"})
"""Any other value pauses, also one that is no boolean. Source: KEDA's `NeedToBePausedByAnnotation`,
by Go's `strconv.ParseBool`."""

_EVERY_MINUTE = NotActedOn("Leeway looks at its windows once a minute")
_NO_HPA = NotActedOn("Leeway scales the target itself, without an HPA")
_NO_METRICS = NotActedOn("a cron trigger asks for no metrics")


def _replicas(value: Any) -> Any:
    """KEDA takes text here, and people write numbers."""
    if isinstance(value, str):
        if not value.isascii() or not value.isdecimal():
            raise ValueError("expected a whole number of replicas")
        return int(value)
    return value


class CronMetadata(Strict):
    """A recurring window, and the size that is wanted within it."""

    timezone: TimeZone
    """The time zone of `start` and `end`, as in the IANA database."""
    start: CronExpression
    """When the window begins: a cron expression of five fields."""
    end: CronExpression
    """When the window ends; its last minute is the one before."""
    desired_replicas: Annotated[int, BeforeValidator(_replicas), Field(ge=1, le=2**31 - 1)]
    """The size within the window: a number, or text with a number in it."""

    @model_validator(mode="after")
    def _begins_and_ends(self) -> Self:
        if self.start.fields == self.end.fields:
            raise ValueError("expected start and end to differ")
        return self


class Trigger(Strict):
    """What scales the target. Leeway knows triggers of type `cron`."""

    type: Literal["cron"]
    """The type of the trigger: `cron`."""
    name: str | None = None
    """A name for people."""
    metadata: CronMetadata
    """The window."""
    authentication_ref: Annotated[Any, _NO_METRICS] = None
    """Credentials of the trigger's source."""
    metric_type: Annotated[Any, _NO_METRICS] = None
    """How the trigger's metric is averaged."""
    use_cached_metrics: Annotated[Any, _NO_METRICS] = None
    """Whether the trigger's metric is cached."""

    @model_validator(mode="before")
    @classmethod
    def _of_a_known_type(cls, value: Any) -> Any:
        given = value.get("type") if isinstance(value, dict) else None
        if isinstance(given, str) and given != "cron":
            raise ValueError(f"expected a trigger of type cron, got {given[:60]}")
        return value


class ScaleTargetRef(Strict):
    """The object that is scaled, in the ScaledObject's own namespace."""

    api_version: Annotated[
        str, StringConstraints(pattern=r"^([a-z0-9][a-z0-9.-]*/)?v[0-9][a-z0-9]*$")
    ] = "apps/v1"
    """Its API group and version."""
    kind: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Za-z0-9]*$")] = "Deployment"
    """Its kind: any that has a scale subresource."""
    name: Name
    """Its name."""
    env_source_container_name: Annotated[Any, _NO_METRICS] = None
    """The container whose environment triggers read."""


class Advanced(Strict):
    """What happens besides scaling."""

    restore_to_original_replica_count: bool = False
    """Whether the target gets its former size back when the ScaledObject is deleted."""
    horizontal_pod_autoscaler_config: Annotated[Any, _NO_HPA] = None
    """Settings of the HPA that KEDA would make."""
    scaling_modifiers: Annotated[Any, _NO_METRICS] = None
    """A formula over several triggers' metrics."""


class ScaledObjectSpec(Strict):
    """What is scaled, and when."""

    scale_target_ref: ScaleTargetRef
    """The object that is scaled."""
    min_replica_count: Annotated[int, Field(ge=0)] = 0
    """The size while no window is open, and the least within one."""
    max_replica_count: Annotated[int, Field(ge=1)] = 100
    """The largest size."""
    idle_replica_count: Annotated[int, Field(ge=0)] | None = None
    """The size while no window is open, where it is to be less than `minReplicaCount`."""
    triggers: Annotated[tuple[Trigger, ...], Field(min_length=1, max_length=100)]
    """The windows. Where several are open, the largest size wins."""
    advanced: Advanced = Advanced()
    """What happens besides scaling."""
    polling_interval: Annotated[Any, _EVERY_MINUTE] = None
    """How often KEDA would look, in seconds."""
    cooldown_period: Annotated[
        Any, NotActedOn("the target shrinks when its window ends, not some time later")
    ] = None
    """How long KEDA would wait before it scales to nothing, in seconds."""
    initial_cooldown_period: Annotated[Any, _EVERY_MINUTE] = None
    """How long KEDA would wait at first, in seconds."""
    fallback: Annotated[Any, _NO_METRICS] = None
    """The size while a trigger's source fails."""

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
    """Scales an object by cron windows."""

    api_version: Literal["keda.sh/v1alpha1"]
    kind: Literal["ScaledObject"]
    spec: ScaledObjectSpec
    """What is scaled, and when."""

    summary_columns: ClassVar[tuple[str, ...]] = ("TARGET", "MIN", "MAX", "TRIGGERS")

    def summary(self) -> tuple[str, ...]:
        """Return what `leeway get` shows in a table."""
        spec = self.spec
        counts = (spec.min_replica_count, spec.max_replica_count, len(spec.triggers))
        target = spec.scale_target_ref
        return (f"{target.kind}/{target.name}", *(str(count) for count in counts))

    def notes(self) -> tuple[Note, ...]:
        """Warn of annotations that would keep KEDA from scaling one way."""
        return super().notes() + tuple(
            Note(("metadata", "annotations", name), "Leeway does not act on it")
            for name in _HALF_PAUSED
            if name in self.metadata.annotations
        )

    def target(self) -> ScaledTarget:
        """Return what is to be scaled, and by which schedule."""
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
        """Return its windows and bounds."""
        spec = self.spec
        windows = (trigger.metadata for trigger in spec.triggers)
        return Schedule(
            tuple(Window(w.timezone, w.start, w.end, w.desired_replicas) for w in windows),
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
            raise ValueError(f"{PAUSED_REPLICAS}: expected a whole number, got {given!r}")
        return self
