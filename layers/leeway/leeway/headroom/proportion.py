"""Headroom in proportion to a cluster's size, by a line or by a ladder.

The two rules, and their words, are those of the cluster-proportional-autoscaler.
"""

from bisect import bisect_right
from dataclasses import dataclass

from leeway.headroom.schedule import Size


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """How large a cluster is: its Ready, schedulable nodes, and their millicores of CPU."""

    nodes: int
    millicores: int


@dataclass(frozen=True, slots=True)
class Linear:
    """One replica for each so many cores or nodes, whichever gives more; None leaves one out."""

    cores_per_replica: int | None = None
    nodes_per_replica: int | None = None
    minimum: int = 0
    maximum: int | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """From `size` cores or nodes on: so many replicas."""

    size: int
    replicas: int


@dataclass(frozen=True, slots=True)
class Ladder:
    """Steps by cores and by nodes, each in ascending order of size; the larger result holds."""

    cores: tuple[Step, ...] = ()
    nodes: tuple[Step, ...] = ()


def by_line(linear: Linear, cluster: ClusterSize) -> Size:
    """Size in proportion: every replica that is begun counts whole."""
    shares = []
    if linear.cores_per_replica:
        wanted = -(-cluster.millicores // (1000 * linear.cores_per_replica))
        shares.append((wanted, f"one for each {linear.cores_per_replica} cores"))
    if linear.nodes_per_replica:
        wanted = -(-cluster.nodes // linear.nodes_per_replica)
        shares.append((wanted, f"one for each {linear.nodes_per_replica} nodes"))
    wanted, why = max(shares, default=(0, "no proportion"))
    if wanted < linear.minimum:
        return Size(linear.minimum, f"{why} is {wanted}: the minimum")
    if linear.maximum is not None and wanted > linear.maximum:
        return Size(linear.maximum, f"{why} is {wanted}: the maximum")
    return Size(wanted, why)


def by_ladder(ladder: Ladder, cluster: ClusterSize) -> Size:
    """Size by the highest step that the cluster has reached; none below the first."""
    return max(
        _on(ladder.cores, cluster.millicores // 1000, "cores"),
        _on(ladder.nodes, cluster.nodes, "nodes"),
        key=lambda size: size.replicas,
    )


def _on(steps: tuple[Step, ...], size: int, unit: str) -> Size:
    reached = bisect_right(steps, size, key=lambda step: step.size)
    if not reached:
        return Size(0, f"{size} {unit} reach no step")
    step = steps[reached - 1]
    return Size(step.replicas, f"{size} {unit} reach the step of {step.size}")
