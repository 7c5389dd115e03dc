"""The desired headroom of a cluster: the size of each buffer and scaled target, and why; and the
Protocol of its workloads.

A size in proportion to the cluster follows the rules of the cluster-proportional-autoscaler.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median_low
from typing import Any, Protocol

from leeway.headroom.pause_pods import (
    PausePods,
    anti_affinity_terms,
    may_keep_away,
    may_tolerate,
)
from leeway.headroom.reasons import SIZE_CHOSEN, TARGET_PAUSED
from leeway.headroom.windows import Schedule, Size, change_points, largest_size_within, size_at
from leeway.policy.rules import ClusterPolicy
from leeway.reasons import Reason
from leeway.selection.resources import Resources, amount

_FIXED = SIZE_CHOSEN("The manifest sets a fixed size")


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """The size of a cluster: its Ready, schedulable nodes, and their millicores of CPU."""

    nodes: int
    millicores: int


@dataclass(frozen=True, slots=True)
class Linear:
    """One replica for each `cores_per_replica` cores or `nodes_per_replica` nodes, the larger of
    both; None turns one of them off."""

    cores_per_replica: int | None = None
    nodes_per_replica: int | None = None
    minimum: int = 0
    maximum: int | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """`replicas` for a cluster of at least `size` cores or nodes."""

    size: int
    replicas: int


@dataclass(frozen=True, slots=True)
class Ladder:
    """Steps by cores and by nodes, each in ascending order of size; the larger result applies."""

    cores: tuple[Step, ...] = ()
    nodes: tuple[Step, ...] = ()


def linear_size(linear: Linear, cluster: ClusterSize) -> Size:
    """Return the size in proportion to the cluster, rounded up."""
    shares = []
    if linear.cores_per_replica:
        replicas = -(-cluster.millicores // (1000 * linear.cores_per_replica))
        shares.append((replicas, linear.cores_per_replica, "cores"))
    if linear.nodes_per_replica:
        replicas = -(-cluster.nodes // linear.nodes_per_replica)
        shares.append((replicas, linear.nodes_per_replica, "nodes"))
    if not shares:
        return Size(linear.minimum, SIZE_CHOSEN("The manifest sets no proportion"))
    replicas, each, unit = max(shares, key=lambda share: share[0])
    bounded = max(replicas, linear.minimum)
    if linear.maximum is not None:
        bounded = min(bounded, linear.maximum)
    rule = f"One replica for each {each} {unit}"
    if bounded != replicas:
        bound = "minimum" if bounded > replicas else "maximum"
        rule += f" results in {replicas}; the {bound} applies"
    return Size(bounded, SIZE_CHOSEN(rule))


def ladder_size(ladder: Ladder, cluster: ClusterSize) -> Size:
    """Return the size of the highest step that the cluster reaches; 0 below the first step."""
    return max(
        _step_size(ladder.cores, cluster.millicores // 1000, "cores"),
        _step_size(ladder.nodes, cluster.nodes, "nodes"),
        key=lambda size: size.replicas,
    )


def _step_size(steps: tuple[Step, ...], size: int, unit: str) -> Size:
    reached = bisect_right(steps, size, key=lambda step: step.size)
    if not reached:
        rule = f"The cluster has {size} {unit}, which is below the first step"
        return Size(0, SIZE_CHOSEN(rule))
    step = steps[reached - 1]
    rule = f"The cluster has {size} {unit}, which reaches the step of {step.size}"
    return Size(step.replicas, SIZE_CHOSEN(rule))


RUN_EVERY = timedelta(minutes=1)
"""How often keep_headroom runs: a size that is not requested now is requested a minute later."""

SCALED_WITHIN = 3 * RUN_EVERY
"""How long after its window opens a target may have its earlier size: keep_headroom runs at any
second of a minute, and a run may fail."""

DEFAULT_JOIN_TIME = timedelta(minutes=2)
"""How long a node takes to join, if that has not been measured."""


@dataclass(frozen=True, slots=True)
class ScaleTarget:
    """An object with replicas that a user owns."""

    api_version: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Buffer:
    """Pause pods that Leeway owns. `source` names their manifest.

    The size is the largest of those of its schedule, its proportions and `at_least`, whose reason
    is `why` (None: a fixed size). `lead` is how long before a window its pods are created; None
    means as long as nodes have taken to join.
    """

    source: str
    pods: PausePods
    schedule: Schedule | None = None
    linear: Linear | None = None
    ladder: Ladder | None = None
    at_least: int = 0
    why: Reason | None = None
    lead: timedelta | None = None

    @property
    def is_proportional(self) -> bool:
        """Whether its size depends on the size of the cluster."""
        return self.linear is not None or self.ladder is not None


@dataclass(frozen=True, slots=True)
class TemplateBuffer:
    """A buffer whose pods are made from the pod template of another object (CapacityBuffer).

    `limits` is the maximum of the requests of all its pods, as quantities by resource.
    """

    source: str
    name: str
    template_of: ScaleTarget
    replicas: int | None
    percentage: int | None
    limits: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ScaledTarget:
    """A target that Leeway scales and does not own.

    - `restore`: its original size is restored when the manifest is deleted.
    - `paused`: it is not scaled.
    - `fixed`: it has this size, whatever the schedule says.
    """

    source: str
    target: ScaleTarget
    schedule: Schedule
    restore: bool = False
    paused: bool = False
    fixed: int | None = None


def template_deployment_name(buffer: TemplateBuffer) -> str:
    """Return the name of the Deployment of a template buffer."""
    return f"capacity-buffer-{buffer.name}"


def template_pods(
    buffer: TemplateBuffer, spec: Mapping[str, Any], requests: Resources
) -> PausePods:
    """Return pause pods with the requests and the scheduling constraints of a pod spec.

    They get none of its labels: a Service would select them. Tolerations and anti-affinity that a
    pause pod may not have are left out.
    """
    affinity = dict(spec.get("affinity") or {})
    if not all(map(may_keep_away, anti_affinity_terms(affinity))):
        del affinity["podAntiAffinity"]
    return PausePods(
        name=template_deployment_name(buffer),
        namespace=buffer.template_of.namespace,
        requests=requests.printed(),
        node_selector=spec.get("nodeSelector") or {},
        affinity=affinity,
        tolerations=tuple(one for one in spec.get("tolerations") or () if may_tolerate(one)),
        spread=spec.get("topologySpreadConstraints") or (),
    )


class NoBufferSize(ValueError):
    """The manifest defines no number of pods; the message says why."""


def template_buffer_size(buffer: TemplateBuffer, replicas: int | None, requests: Resources) -> Size:
    """Return the number of pods of a template buffer.

    `replicas` is the size of the object with the pod template, `requests` those of one pod.

    Raises:
        NoBufferSize: the limits name no resource that the pods request, and no size is set.
    """
    allowed = [
        amount(name, limit) // requests.of(name)
        for name, limit in buffer.limits.items()
        if requests.of(name)
    ]
    if buffer.percentage is not None and replicas is not None:
        share = max(1, -(-replicas * buffer.percentage // 100))
        wanted = Size(share, SIZE_CHOSEN(f"{buffer.percentage}% of {replicas} replicas"))
    elif buffer.replicas is not None:
        wanted = Size(buffer.replicas, _FIXED)
    elif allowed:
        rule = "As many pods as the limits of the buffer allow"
        return Size(min(allowed), SIZE_CHOSEN(rule))
    else:
        raise NoBufferSize(
            f"its limits name no resource that the pods of {buffer.template_of} request"
        )
    if allowed and min(allowed) < wanted.replicas:
        rule = f"The limits of the buffer allow {min(allowed)} of {wanted.replicas} pods"
        return Size(min(allowed), SIZE_CHOSEN(rule))
    return wanted


def lead_of(buffer: Buffer, join_times: Sequence[timedelta]) -> timedelta:
    """Return how long before a window the pods of a buffer are created."""
    if buffer.lead is not None:
        return buffer.lead
    return median_low(join_times) if join_times else DEFAULT_JOIN_TIME


def buffer_size(
    buffer: Buffer, cluster: ClusterSize, join_times: Sequence[timedelta], at: datetime
) -> Size:
    """Return the size of a buffer at an instant.

    `join_times` are the times that its pods waited for a node. A window counts from its lead before
    its start, and one run earlier: the next run would be too late by a minute.
    """
    sizes = [Size(buffer.at_least, buffer.why or _FIXED)]
    if buffer.schedule is not None:
        lead = lead_of(buffer, join_times)
        ahead = largest_size_within(buffer.schedule, at, lead + RUN_EVERY if lead else lead)
        size = ahead.size
        if ahead.at > at:
            reason = SIZE_CHOSEN(
                f"This size applies from {ahead.at:%H:%M} UTC on. Leeway requests it ahead, so "
                f"that its nodes join in time. {size.reason}"
            )
            size = Size(size.replicas, reason)
        sizes.append(size)
    if buffer.linear is not None:
        sizes.append(linear_size(buffer.linear, cluster))
    if buffer.ladder is not None:
        sizes.append(ladder_size(buffer.ladder, cluster))
    return max(reversed(sizes), key=lambda size: size.replicas)


def target_size(scaled: ScaledTarget, at: datetime) -> Size | None:
    """Return the size of a scaled target at an instant; None if it is not scaled.

    A target has no lead: its pods are created when the window opens.
    """
    if scaled.fixed is not None:
        return Size(scaled.fixed, TARGET_PAUSED(effect=" at this size"))
    return None if scaled.paused else size_at(scaled.schedule, at)


@dataclass(frozen=True, slots=True)
class UpcomingNeed:
    """A target that has a size of `size` from `since` on, which is `replicas` more than before, by
    its schedule."""

    target: ScaleTarget
    replicas: int
    size: int
    since: datetime


def upcoming_needs(
    targets: Iterable[ScaledTarget],
    at: datetime,
    lead: timedelta,
    scaled_within: timedelta = timedelta(0),
) -> tuple[UpcomingNeed, ...]:
    """List how many pods targets will have more within a lead, so that nodes can be launched ahead
    of them. A target that is not scaled, or has a fixed size, needs nothing.

    A need ends `scaled_within` after its window has opened: until then it may wait to be scaled.
    """
    needs = []
    for scaled in targets:
        if scaled.paused or scaled.fixed is not None:
            continue
        # The window that starts exactly at the end of the lead counts too.
        until = at + lead + timedelta(microseconds=1)
        points = change_points(scaled.schedule, at - scaled_within, until)
        past = [point for point in points if point.at <= at]
        ahead = max(points[len(past) - 1 :], key=lambda point: point.size.replicas)
        size, before = ahead.size.replicas, min(point.size.replicas for point in past)
        if size > before:
            needs.append(UpcomingNeed(scaled.target, size - before, size, ahead.at))
    return tuple(needs)


def conflicting_targets(targets: Iterable[ScaledTarget]) -> Mapping[ScaleTarget, tuple[str, ...]]:
    """Return the targets that several manifests scale, with the names of these manifests."""
    sources: dict[ScaleTarget, list[str]] = {}
    for scaled in targets:
        sources.setdefault(scaled.target, []).append(scaled.source)
    return {target: tuple(sorted(named)) for target, named in sources.items() if len(named) > 1}


@dataclass(frozen=True, slots=True)
class DesiredHeadroom:
    """The headroom of one cluster. `unreadable` are the manifests that cannot be read; the objects
    of these are not changed."""

    policy: ClusterPolicy
    buffers: tuple[Buffer, ...]
    template_buffers: tuple[TemplateBuffer, ...]
    targets: tuple[ScaledTarget, ...]
    unreadable: frozenset[str]

    @property
    def is_empty(self) -> bool:
        """Whether the manifests define no headroom."""
        return not (self.buffers or self.template_buffers or self.targets)


@dataclass(frozen=True, slots=True)
class FoundDeployment:
    """A Deployment. `ours` says that Leeway applied it, whatever its labels are now; `ready` is the
    number of its Ready pods."""

    namespace: str
    name: str
    priority_class: str
    ours: bool
    ready: int = 0


@dataclass(frozen=True, slots=True)
class TargetScale:
    """The current size of a scaled target, and the object's uid."""

    replicas: int
    uid: str


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """The pod spec of an object as the API returns it, and the object's replicas; None for an
    object without replicas, such as a PodTemplate. `labels` are those of its pods."""

    spec: Mapping[str, Any]
    replicas: int | None
    labels: Mapping[str, str] = field(default_factory=dict)


class Workloads(Protocol):
    """The headroom objects of one cluster.

    Every method may raise ClusterUnavailable or ClusterRefused.
    """

    def apply(self, desired: Mapping[str, Any]) -> None:
        """Apply an object with server-side apply; fields of other managers stay."""
        ...

    def deployments(self, namespace: str) -> list[FoundDeployment]:
        """List the Deployments of a namespace; empty if the namespace does not exist."""
        ...

    def join_times(self) -> dict[tuple[str, str], list[timedelta]]:
        """Return how long running pause pods waited for a node, by namespace and buffer.

        Pods that were scheduled at once are left out.
        """
        ...

    def size(self) -> ClusterSize:
        """Count the Ready and schedulable nodes and their cores."""
        ...

    def remove_deployment(self, namespace: str, name: str) -> None:
        """Delete a Deployment with its pods; no error if it does not exist."""
        ...

    def remove_priority_class(self, name: str) -> None:
        """Delete a PriorityClass of Leeway; no error if it does not exist."""
        ...

    def scale_of(self, target: ScaleTarget) -> TargetScale | None:
        """Read the size of a target; None if the object does not exist."""
        ...

    def scale(self, target: ScaleTarget, replicas: int) -> None:
        """Set the size of a target."""
        ...

    def template(self, target: ScaleTarget) -> PodTemplate | None:
        """Read the pod template of an object; None if the object does not exist."""
        ...
