"""Headroom in proportion to the size of a cluster, linear or by a ladder of steps.

Both rules and their terms are those of the cluster-proportional-autoscaler.
"""

from bisect import bisect_right
from dataclasses import dataclass

from leeway.headroom.reasons import (
    BELOW_LADDER,
    LADDER_STEP,
    NO_PROPORTION,
    PROPORTIONAL_SIZE,
    PROPORTIONAL_SIZE_LIMITED,
)
from leeway.headroom.schedule import Size


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
        return Size(linear.minimum, NO_PROPORTION())
    replicas, each, unit = max(shares, key=lambda share: share[0])
    bounded = max(replicas, linear.minimum)
    if linear.maximum is not None:
        bounded = min(bounded, linear.maximum)
    if bounded == replicas:
        return Size(replicas, PROPORTIONAL_SIZE(each=each, unit=unit))
    bound = "minimum" if bounded > replicas else "maximum"
    reason = PROPORTIONAL_SIZE_LIMITED(each=each, unit=unit, replicas=replicas, bound=bound)
    return Size(bounded, reason)


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
        return Size(0, BELOW_LADDER(size=size, unit=unit))
    step = steps[reached - 1]
    return Size(step.replicas, LADDER_STEP(size=size, unit=unit, step=step.size))
