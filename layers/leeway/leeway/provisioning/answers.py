"""The answers to capacity requests."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from leeway.capacity_requests.request import CapacityAnswer, CapacityRequest
from leeway.launch.outcome import LaunchOutcome
from leeway.reasons import Reason
from leeway.selection.pods import Pod

MOST_REASONS = 10
"""Reasons of one answer: those of a node's other pods are equal or similar."""


def answer_of(
    pods: Sequence[Pod],
    outcome: LaunchOutcome,
    joined: Collection[str],
    starting: Mapping[str, str],
    now: datetime,
) -> CapacityAnswer:
    """Answer a request for these pods.

    `joined` are the names of all Nodes, `starting` the instances of Nodes that start, by name. The
    outcome names a node that has not joined by its instance.
    """
    names = {pod.name for pod in pods}
    launched: dict[str, None] = {}
    existing = 0
    for placement in outcome.placed:
        count = sum(pod in names for pod in placement.pods)
        if not count:
            continue
        if placement.node in starting:
            launched[starting[placement.node]] = None
        elif placement.node in joined:
            existing += count
        else:
            launched[placement.node] = None
    without: dict[Reason, None] = dict.fromkeys(
        one.reason for one in outcome.without_node if one.pod in names
    )
    return CapacityAnswer(
        answered_at=now,
        launched=tuple(launched),
        existing=existing,
        without_node=tuple(without)[:MOST_REASONS],
    )


def says_the_same(request: CapacityRequest, answer: CapacityAnswer) -> bool:
    """Whether a request has this answer already, apart from its time."""
    given = request.answer
    return (
        given is not None and given.model_copy(update={"answered_at": answer.answered_at}) == answer
    )
