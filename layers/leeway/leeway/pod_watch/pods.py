"""Which unscheduled pods need a node that does not exist yet.

The scheduler tries a new pod within milliseconds. If no node has room, it writes the condition
PodScheduled=False with the reason Unschedulable. This write is the earliest proof that a pod fits
nowhere: a pod without it may be bound a moment later. A scheduler that does not write the condition
leaves its pods to the schedule of each minute.
"""

from dataclasses import dataclass

UNSCHEDULABLE = "Unschedulable"
"""Reason of the condition PodScheduled. `SchedulerError` and `SchedulingGated` are others."""


@dataclass(frozen=True, slots=True)
class UnscheduledPod:
    """A pod in the answer of a watch.

    - `phase`: `Pending` until all containers have been started.
    - `node`: the name of its node, empty if it has none.
    - `nominated`: the node on which the scheduler preempts other pods for it, or empty.
    - `gated`: it has scheduling gates.
    - `terminating`: it is being deleted.
    - `of_daemon_set`: a DaemonSet created it.
    - `unscheduled_because`: the reason of its condition PodScheduled=False, or empty.
    """

    uid: str
    phase: str = "Pending"
    node: str = ""
    nominated: str = ""
    gated: bool = False
    terminating: bool = False
    of_daemon_set: bool = False
    unscheduled_because: str = ""


def needs_new_node(pod: UnscheduledPod) -> bool:
    """Return whether the buyer should look at this pod now.

    A pod of a DaemonSet belongs to one existing node, and no other node helps it. A pod with a
    nominated node gets its place by preemption, for example that of a pause pod.
    """
    return (
        pod.phase == "Pending"
        and pod.unscheduled_because == UNSCHEDULABLE
        and not (pod.node or pod.nominated or pod.gated or pod.terminating or pod.of_daemon_set)
    )
