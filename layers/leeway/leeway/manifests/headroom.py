"""The Headroom manifest of `leeway.sh/v1`: buffers of pause pods, on a cron and in proportion."""

from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from leeway.headroom.pause_pods import IMAGE, LOWEST_PRIORITY, MAX_NAME_LENGTH, NAMESPACE, PausePods
from leeway.headroom.plan import Buffer
from leeway.headroom.proportion import Ladder, Linear, Step
from leeway.headroom.schedule import Schedule
from leeway.headroom.windows import Window
from leeway.manifests.amounts import Amounts
from leeway.manifests.base import Duration, Labels, Manifest, Name, Strict
from leeway.manifests.cron_windows import CronExpression, TimeZone
from leeway.manifests.problems import Note
from leeway.selection.quantities import amount

Count = Annotated[int, Field(ge=0, le=100_000)]


class PodSize(Strict):
    """One pause pod: how much room it holds, and where."""

    requests: Annotated[Amounts, Field(min_length=1)]
    """What it requests, by resource: `cpu`, `memory`, `nvidia.com/gpu`, …"""
    labels: Labels = Field(default_factory=dict)
    """Labels on the pods, for selectors of others (a spread, an affinity)."""
    node_selector: Labels = Field(default_factory=dict)
    """Labels of the nodes that it holds room on."""
    tolerations: tuple[dict[str, Any], ...] = ()
    """Taints that it tolerates, as in a pod."""
    affinity: dict[str, Any] = Field(default_factory=dict)
    """Affinity, as in a pod."""
    topology_spread_constraints: tuple[dict[str, Any], ...] = ()
    """How its pods are spread, as in a pod; without a `labelSelector`, this buffer's pods count."""


class WindowSpec(Strict):
    """A recurring window in which the buffer has a size."""

    timezone: TimeZone
    """The time zone of `start` and `end`, as in the IANA database."""
    start: CronExpression
    """When the pods are to run: a cron expression of five fields."""
    end: CronExpression
    """When they go again."""
    replicas: Annotated[Count, Field(ge=1)]
    """How many pods."""

    @model_validator(mode="after")
    def _begins_and_ends(self) -> Self:
        if self.start.fields == self.end.fields:
            raise ValueError("expected start and end to differ")
        return self


class LinearSpec(Strict):
    """A size in proportion to the cluster, as the cluster-proportional-autoscaler has it."""

    cores_per_replica: Annotated[int, Field(ge=1)] | None = None
    """One pod for so many cores."""
    nodes_per_replica: Annotated[int, Field(ge=1)] | None = None
    """One pod for so many nodes. Of both, the larger size wins."""
    min: Count = 0
    """The least pods."""
    max: Count | None = None
    """The most pods."""

    @model_validator(mode="after")
    def _of_something(self) -> Self:
        if self.cores_per_replica is None and self.nodes_per_replica is None:
            raise ValueError("expected coresPerReplica, nodesPerReplica or both")
        if self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min}: expected at most max ({self.max})")
        return self


Rung = Annotated[tuple[Count, Count], Field(strict=False)]


def _ascending(steps: tuple[Rung, ...]) -> tuple[Rung, ...]:
    sizes = [size for size, _ in steps]
    if sizes != sorted(set(sizes)):
        raise ValueError("expected steps in ascending order")
    return steps


Rungs = Annotated[tuple[Rung, ...], AfterValidator(_ascending)]


class LadderSpec(Strict):
    """A size by steps, as the cluster-proportional-autoscaler has it."""

    cores_to_replicas: Rungs = ()
    """Pairs `[cores, pods]` in ascending order: from so many cores on, so many pods."""
    nodes_to_replicas: Rungs = ()
    """Pairs `[nodes, pods]` in ascending order. Of both, the larger size wins."""

    @model_validator(mode="after")
    def _of_something(self) -> Self:
        if not self.cores_to_replicas and not self.nodes_to_replicas:
            raise ValueError("expected coresToReplicas, nodesToReplicas or both")
        return self


def _lead(lead: timedelta) -> timedelta:
    if not timedelta(0) <= lead <= timedelta(hours=6):
        raise ValueError("expected a lead time of at most 6h")
    return lead


class BufferSpec(Strict):
    """Pause pods of one size. Of its sizes, the largest wins."""

    name: Annotated[Name, StringConstraints(max_length=63)]
    """The buffer's name."""
    pod: PodSize
    """One of its pods."""
    replicas: Count = 0
    """So many pods always."""
    windows: tuple[WindowSpec, ...] = ()
    """Sizes by the clock. Where several windows are open, the largest wins."""
    linear: LinearSpec | None = None
    """A size in proportion to the cluster's."""
    ladder: LadderSpec | None = None
    """A size by steps of the cluster's."""
    lead_time: Annotated[Duration, AfterValidator(_lead)] | None = None
    """How long before a window's start its pods come, so that they run at the start. Left out: as
    long as this buffer's pods have been seen to wait for nodes, two minutes at first."""

    @model_validator(mode="after")
    def _of_some_size(self) -> Self:
        if not (self.replicas or self.windows or self.linear or self.ladder):
            raise ValueError("expected replicas, windows, linear or ladder: something with a size")
        return self


class HeadroomSpec(Strict):
    """Spare capacity that pause pods hold until real pods need it."""

    namespace: Annotated[Name, StringConstraints(max_length=63)] = NAMESPACE
    """The namespace of the pause pods. One other than `leeway-headroom` must exist, and bind the
    group `leeway:headroom` to the ClusterRole `leeway-headroom-buffer`."""
    priority: Annotated[int, Field(ge=-(2**31), le=-1)] = LOWEST_PRIORITY
    """Their priority: below that of every pod that may take their room."""
    image: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,255}$")] = (
        IMAGE
    )
    """The image of the pause pods."""
    buffers: Annotated[tuple[BufferSpec, ...], Field(min_length=1, max_length=100)]
    """The buffers, each with its own size and place."""

    @model_validator(mode="after")
    def _of_different_names(self) -> Self:
        names = [buffer.name for buffer in self.buffers]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(
                f"expected every buffer to have a name of its own, got {twice[0]!r} twice"
            )
        return self


class Headroom(Manifest):
    """Keeps capacity warm: on a cron, in proportion to the cluster, or always."""

    api_version: Literal["leeway.sh/v1"]
    kind: Literal["Headroom"]
    spec: HeadroomSpec
    """What is kept warm."""

    summary_columns: ClassVar[tuple[str, ...]] = ("BUFFERS", "PRIORITY")

    def summary(self) -> tuple[str, ...]:
        """Return what `leeway get` shows in a table."""
        return (",".join(buffer.name for buffer in self.spec.buffers), str(self.spec.priority))

    def notes(self) -> tuple[Note, ...]:
        """Warn of a priority that autoscalers take no notice of, and of growth without end."""
        notes = super().notes()
        if self.spec.priority < LOWEST_PRIORITY:
            said = (
                f"node autoscalers ignore pending pods below {LOWEST_PRIORITY} unless they are "
                "told otherwise: the room that is taken may not be filled again"
            )
            notes += (Note(("spec", "priority"), said),)
        return notes + tuple(
            Note(("spec", "buffers", index, "linear"), _WITHOUT_END)
            for index, buffer in enumerate(self.spec.buffers)
            if _feeds_itself(buffer)
        )

    @model_validator(mode="after")
    def _of_names_that_fit(self) -> Self:
        for buffer in self.buffers():
            if len(buffer.pods.name) > MAX_NAME_LENGTH:
                raise ValueError(
                    f"metadata.name: expected, with the name of each buffer, {MAX_NAME_LENGTH} "
                    f"characters at most: {buffer.pods.name} has {len(buffer.pods.name)}"
                )
        return self

    def buffers(self) -> tuple[Buffer, ...]:
        """Return the pause pods that it wants."""
        return tuple(self._buffer(spec) for spec in self.spec.buffers)

    def _buffer(self, spec: BufferSpec) -> Buffer:
        pod = spec.pod
        return Buffer(
            source=f"headroom.leeway.sh {self.metadata.name}",
            pods=PausePods(
                name=f"{self.metadata.name}-{spec.name}",
                namespace=self.spec.namespace,
                requests=pod.requests,
                priority=self.spec.priority,
                image=self.spec.image,
                labels=pod.labels,
                node_selector=pod.node_selector,
                affinity=pod.affinity,
                tolerations=pod.tolerations,
                spread=pod.topology_spread_constraints,
            ),
            schedule=_schedule(spec.windows),
            linear=_linear(spec.linear),
            ladder=_ladder(spec.ladder),
            at_least=spec.replicas,
            lead=spec.lead_time,
        )


_WITHOUT_END = (
    "its own pods need as many cores as it counts for them, so that every node brings another: "
    "expected max"
)


def _feeds_itself(buffer: BufferSpec) -> bool:
    """Whether a node for one of its pods asks for one more pod at least."""
    linear = buffer.linear
    if linear is None or linear.max is not None or linear.cores_per_replica is None:
        return False
    return amount("cpu", buffer.pod.requests.get("cpu", "0")) >= 1000 * linear.cores_per_replica


def _schedule(windows: tuple[WindowSpec, ...]) -> Schedule | None:
    if not windows:
        return None
    largest = max(window.replicas for window in windows)
    return Schedule(
        tuple(Window(w.timezone, w.start, w.end, w.replicas) for w in windows), maximum=largest
    )


def _linear(spec: LinearSpec | None) -> Linear | None:
    if spec is None:
        return None
    return Linear(spec.cores_per_replica, spec.nodes_per_replica, spec.min, spec.max)


def _ladder(spec: LadderSpec | None) -> Ladder | None:
    if spec is None:
        return None
    return Ladder(
        tuple(Step(*rung) for rung in spec.cores_to_replicas),
        tuple(Step(*rung) for rung in spec.nodes_to_replicas),
    )
