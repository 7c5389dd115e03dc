"""How far a drain is, for those who watch: each pod with its stage and the reason."""

from dataclasses import dataclass
from datetime import datetime

from leeway.drain.progress import Drain, RemovalMethod, Stage


@dataclass(frozen=True, slots=True)
class PodState:
    """Where one pod stands; `way` is None until it is asked to go."""

    pod: str
    stage: Stage
    way: RemovalMethod | None
    reason: str


@dataclass(frozen=True, slots=True)
class DrainState:
    """Where a node's drain stood at a moment, in UTC. `problem` is why its pods could not be
    listed then, if they could not."""

    instance: str
    attempt: int
    node: str
    at: datetime
    problem: str
    pods: tuple[PodState, ...]


def summarise(instance: str, attempt: int, node: str, drain: Drain, at: datetime) -> DrainState:
    """Tell how far a drain is; pods that stay on the node are left out."""
    pods = tuple(
        PodState(pod.pod, pod.stage, pod.way if pod.asked_at else None, pod.reason)
        for pod in drain.pods.values()
        if pod.stage is not Stage.LEFT
    )
    return DrainState(instance, attempt, node, at, drain.problem, pods)
