"""What `leeway status` shows of a retirement: its pods, and what it cannot do at present."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from leeway.execution.attempt import AttemptId
from leeway.execution.retrying import API_ERRORS
from leeway.reasons import Reason
from leeway.retirement.context import Attempt
from leeway.retirement.progress import Drain, RemovalMethod, Stage
from leeway.table import Record


@dataclass(frozen=True, slots=True)
class PodState:
    """The progress of one pod; `method` is None until the API server accepted a request."""

    pod: str
    stage: Stage
    method: RemovalMethod | None
    reason: Reason


@dataclass(frozen=True, slots=True)
class DrainState:
    """The progress of a node's drain at a moment, in UTC. `problem` is what Leeway could not do
    then, such as reach the API server, or what the retirement waits for; None if there is nothing.
    """

    cluster: str
    instance: str
    attempt: int
    node: str
    at: datetime
    problem: Reason | None
    pods: tuple[PodState, ...]


DRAIN_STATE = Record(
    DrainState,
    "PROGRESS#{cluster}#{instance}",
    "DRAIN",
    kept_for=lambda state: state.at + timedelta(days=1),
)
"""The progress for `leeway status`. The record of the retirement keeps the outcome for longer."""


def summarise(attempt: AttemptId, node: str, drain: Drain, at: datetime) -> DrainState:
    """Return the progress of a drain, without the pods that stay on the node."""
    pods = tuple(
        PodState(pod.pod, pod.stage, pod.method if pod.requested_at else None, pod.reason)
        for pod in drain.pods.values()
        if pod.stage is not Stage.LEFT
    )
    return DrainState(
        attempt.cluster, attempt.instance, attempt.attempt, node, at, drain.problem, pods
    )


def publish_problem(attempt: Attempt, problem: Reason | None, node: str = "") -> None:
    """Publish what keeps a retirement from its drain, or that nothing does any more. A table that
    does not take it delays nothing."""
    state = summarise(attempt.id, node, Drain(problem=problem), attempt.now())
    with suppress(*API_ERRORS):
        attempt.ports.fast_table.put(DRAIN_STATE, state)
