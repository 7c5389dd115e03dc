"""The progress of a drain as `leeway status` shows it: each pod with its stage and the reason."""

from dataclasses import dataclass
from datetime import datetime

from leeway.drain.progress import Drain, RemovalMethod, Stage
from leeway.reasons import Reason


@dataclass(frozen=True, slots=True)
class PodState:
    """The progress of one pod; `method` is None until the API server accepted a request."""

    pod: str
    stage: Stage
    method: RemovalMethod | None
    reason: Reason


@dataclass(frozen=True, slots=True)
class DrainState:
    """The progress of a node's drain at a moment, in UTC. `problem` is why listing its pods failed,
    None if it did not."""

    instance: str
    attempt: int
    node: str
    at: datetime
    problem: Reason | None
    pods: tuple[PodState, ...]


def summarise(instance: str, attempt: int, node: str, drain: Drain, at: datetime) -> DrainState:
    """Return the progress of a drain, without the pods that stay on the node."""
    pods = tuple(
        PodState(pod.pod, pod.stage, pod.method if pod.requested_at else None, pod.reason)
        for pod in drain.pods.values()
        if pod.stage is not Stage.LEFT
    )
    return DrainState(instance, attempt, node, at, drain.problem, pods)
