"""What headroom a cluster is to have now: the size of each buffer and scaled target, and why."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median_low
from typing import Any

from leeway.headroom.pause_pods import PausePods
from leeway.headroom.proportion import ClusterSize, Ladder, Linear, by_ladder, by_line
from leeway.headroom.schedule import Schedule, Size, largest_ahead, size_at
from leeway.selection.quantities import amount
from leeway.selection.resources import Resources

TICK = timedelta(minutes=1)
"""How often headroom is looked after: what is not asked for now is asked for a tick later."""

USUAL_JOIN = timedelta(minutes=2)
"""How long a node takes to come where it has not been measured."""


@dataclass(frozen=True, slots=True)
class ScaleTarget:
    """An object that somebody else owns and that has a size."""

    api_version: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Buffer:
    """Pause pods that Leeway owns. `source` names the manifest that wants them.

    Its size is the largest of what its schedule, its proportions and `at_least` give, which `why`
    explains. `lead` is how long before a window its pods come; None: as long as nodes have been
    seen to take.
    """

    source: str
    pods: PausePods
    schedule: Schedule | None = None
    linear: Linear | None = None
    ladder: Ladder | None = None
    at_least: int = 0
    why: str = "always"
    lead: timedelta | None = None

    @property
    def is_proportional(self) -> bool:
        """Whether its size depends on the cluster's."""
        return self.linear is not None or self.ladder is not None


@dataclass(frozen=True, slots=True)
class Chunks:
    """Room for pods like those that `like` has a template for, as a CapacityBuffer asks for it.

    `limits` are the most that they may request in all, as quantities by resource.
    """

    source: str
    name: str
    like: ScaleTarget
    replicas: int | None
    percentage: int | None
    limits: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ScaledTarget:
    """A target that is only scaled.

    `restore`: it gets its old size back when the manifest goes. `paused`: it stays as it is;
    `fixed`: it has this size whatever the schedule says.
    """

    source: str
    target: ScaleTarget
    schedule: Schedule
    restore: bool = False
    paused: bool = False
    fixed: int | None = None


def deployment_like(chunks: Chunks) -> str:
    """Name the Deployment that holds room for pods like others."""
    return f"capacity-buffer-{chunks.name}"


def pods_like(chunks: Chunks, spec: Mapping[str, Any], requests: Resources) -> PausePods:
    """Return pause pods that need the same place as pods of a spec.

    They have none of its labels: a Service would take them for the pods that they stand in for.
    """
    return PausePods(
        name=deployment_like(chunks),
        namespace=chunks.like.namespace,
        requests=requests.printed(),
        node_selector=spec.get("nodeSelector") or {},
        affinity=spec.get("affinity") or {},
        tolerations=spec.get("tolerations") or (),
        spread=spec.get("topologySpreadConstraints") or (),
    )


class NoSize(ValueError):
    """What is asked for comes to no number of pods; the message says why."""


def chunk_count(chunks: Chunks, like_replicas: int | None, requests: Resources) -> Size:
    """Decide how many pods a CapacityBuffer holds room with.

    `like_replicas` is the size of the object whose pods they are like, `requests` those of one pod.

    Raises:
        NoSize: there is nothing to count by.
    """
    fits = [
        amount(name, limit) // requests.of(name)
        for name, limit in chunks.limits.items()
        if requests.of(name)
    ]
    if chunks.percentage is not None and like_replicas is not None:
        share = max(1, -(-like_replicas * chunks.percentage // 100))
        wanted = Size(share, f"{chunks.percentage}% of {like_replicas}")
    elif chunks.replicas is not None:
        wanted = Size(chunks.replicas, "always")
    elif fits:
        return Size(min(fits), "as many as its limits allow")
    else:
        raise NoSize(f"its limits are of nothing that the pods of {chunks.like} request")
    if fits and min(fits) < wanted.replicas:
        return Size(min(fits), f"{wanted.reason}, of which its limits allow {min(fits)}")
    return wanted


def lead_of(buffer: Buffer, joins: Sequence[timedelta]) -> timedelta:
    """Return how long before a window the buffer's pods are to come."""
    if buffer.lead is not None:
        return buffer.lead
    return median_low(joins) if joins else USUAL_JOIN


def buffer_size(
    buffer: Buffer, cluster: ClusterSize, joins: Sequence[timedelta], at: datetime
) -> Size:
    """Decide a buffer's size at an instant.

    `joins` are the times that its pods had to wait for a node. A window counts from its lead
    before its start on, and one tick earlier: whoever looks once a minute would be late by that.
    """
    sizes = [Size(buffer.at_least, buffer.why)]
    if buffer.schedule is not None:
        lead = lead_of(buffer, joins)
        ahead = largest_ahead(buffer.schedule, at, lead + TICK if lead else lead)
        early = f" from {ahead.at:%H:%M} UTC on, asked for ahead" if ahead.at > at else ""
        sizes.append(Size(ahead.size.replicas, ahead.size.reason + early))
    if buffer.linear is not None:
        sizes.append(by_line(buffer.linear, cluster))
    if buffer.ladder is not None:
        sizes.append(by_ladder(buffer.ladder, cluster))
    return max(reversed(sizes), key=lambda size: size.replicas)


def target_size(scaled: ScaledTarget, at: datetime) -> Size | None:
    """Decide a scaled target's size at an instant; None leaves it as it is.

    There is no lead here: users' pods come when their window does.
    """
    if scaled.fixed is not None:
        return Size(scaled.fixed, "paused at this size")
    return None if scaled.paused else size_at(scaled.schedule, at)


@dataclass(frozen=True, slots=True)
class Need:
    """Room that will be needed: `replicas` more pods like a target's, from an instant on."""

    target: ScaleTarget
    replicas: int
    since: datetime


def needs_ahead(targets: Iterable[ScaledTarget], at: datetime, lead: timedelta) -> tuple[Need, ...]:
    """List what users' targets will grow by within a lead, for whoever buys nodes ahead of them."""
    needs = []
    for scaled in targets:
        now = size_at(scaled.schedule, at).replicas
        ahead = largest_ahead(scaled.schedule, at, lead)
        if ahead.size.replicas > now:
            needs.append(Need(scaled.target, ahead.size.replicas - now, ahead.at))
    return tuple(needs)


def claimed_twice(targets: Iterable[ScaledTarget]) -> Mapping[ScaleTarget, tuple[str, ...]]:
    """Return the targets that several manifests want to scale, with those manifests' names."""
    sources: dict[ScaleTarget, list[str]] = {}
    for scaled in targets:
        sources.setdefault(scaled.target, []).append(scaled.source)
    return {target: tuple(sorted(named)) for target, named in sources.items() if len(named) > 1}
