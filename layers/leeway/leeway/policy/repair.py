"""Decides by its conditions whether a node is unhealthy, since when it may be repaired, and whether
so many nodes are unhealthy that none is.

Source: Karpenter, node/health/controller.go; karpenter-provider-aws, cloudprovider.go,
RepairPolicies. The conditions but Ready are written by the EKS node monitoring agent.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from leeway.ports.kubernetes_objects import FOREVER, Condition

_SLOW, _HARDWARE = timedelta(minutes=30), timedelta(minutes=10)

TOLERATED: Mapping[tuple[str, str], timedelta] = {
    ("Ready", "False"): _SLOW,
    ("Ready", "Unknown"): _SLOW,
    ("AcceleratedHardwareReady", "False"): _HARDWARE,
    ("StorageReady", "False"): _SLOW,
    ("NetworkingReady", "False"): _SLOW,
    ("KernelReady", "False"): _SLOW,
    ("ContainerRuntimeReady", "False"): _SLOW,
}
"""The types and statuses of the conditions of an unhealthy node, and how long each is tolerated."""

MOST_PERCENT = 20
"""Percentage of the nodes, rounded up, that may be unhealthy: with more, the fault is likely to be
one of the network or of the API server, which new nodes do not mend."""


@dataclass(frozen=True, slots=True)
class Unhealthy:
    """Why a node is unhealthy: its condition, since when (None if the Node does not say it), and
    the time from which on it is repaired."""

    condition: str
    status: str
    since: datetime | None
    due: datetime

    def __str__(self) -> str:
        since = f" since {self.since:%Y-%m-%d %H:%M} UTC" if self.since else ""
        return f"its condition {self.condition} is {self.status}{since}"


def why_unhealthy(conditions: Iterable[Condition]) -> Unhealthy | None:
    """Return why a node is unhealthy, by the condition that is tolerated for the shortest time from
    now on; None if it is healthy. Without a time of the condition the node is never repaired."""
    found = [
        Unhealthy(one.type, one.status, one.since, _after(one.since, tolerated))
        for one in conditions
        if (tolerated := TOLERATED.get((one.type, one.status))) is not None
    ]
    return min(found, key=lambda one: one.due, default=None)


def _after(since: datetime | None, tolerated: timedelta) -> datetime:
    try:
        return FOREVER if since is None else since + tolerated
    except OverflowError:  # a kubelet writes what it likes
        return FOREVER


def too_many(unhealthy: int, nodes: int) -> bool:
    """Whether so many of these nodes are unhealthy that none is repaired."""
    return unhealthy > -(-nodes * MOST_PERCENT // 100)
