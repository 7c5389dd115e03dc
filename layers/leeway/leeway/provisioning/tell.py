"""Which pods have an Event about why they get no node, so that it is not repeated each minute.

A key is a hash of the pod's uid and the reason code: a pod has another Event if the code changes.
The API server keeps Events for an hour, so an Event is written again after that.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from leeway.capacity_requests import CapacityAnswer, CapacityRequest
from leeway.launch.intent import LaunchOutcome, PodWithoutNode
from leeway.provisioning.cluster_state import WaitingPod
from leeway.reasons import Reason
from leeway.selection.pods import Pod


@dataclass(frozen=True, slots=True)
class PodEvent:
    """A Kubernetes Event about a pod. `name` is that of the Event: a second Event of the same name
    is not written."""

    name: str
    namespace: str
    pod: str
    uid: str
    reason: str
    message: str


class PodEvents(Protocol):
    """Events about the pods of one cluster."""

    def write(self, event: PodEvent) -> None:
        """Write an Event. An Event of the same name, or a missing namespace, is no error.

        Raises:
            ClusterUnavailable, ClusterRefused: the API server did not answer, or refused.
        """
        ...


KEPT_FOR = timedelta(minutes=55)
"""A little shorter than the time for which the API server keeps an Event."""

MOST_TOLD = 20_000
"""Keys that are kept: 240 KB in an item of DynamoDB, which holds 400 KB."""

KEY_BYTES = 8


@dataclass(frozen=True, slots=True)
class DueEvent:
    """An Event to write, and its key."""

    key: bytes
    event: PodEvent


def due_events(
    pods: Iterable[PodWithoutNode],
    waiting: Iterable[WaitingPod],
    told: Mapping[bytes, datetime],
    now: datetime,
) -> tuple[DueEvent, ...]:
    """Return the Events that have not been written. Pods that still run on a retiring node get
    none: the answer to their retirement has the reason."""
    uids = {one.pod.name: one.uid for one in waiting}
    kept = _kept(told, now)
    due = (_due(one, uids[one.pod]) for one in pods if one.pod in uids)
    return tuple(one for one in due if one.key not in kept)


def remembered(
    told: Mapping[bytes, datetime], written: Sequence[bytes], now: datetime
) -> Mapping[bytes, datetime]:
    """Return what to store after these keys were written: the youngest keys."""
    kept = {**_kept(told, now), **dict.fromkeys(written, now)}
    youngest = sorted(kept.items(), key=lambda item: item[1], reverse=True)[:MOST_TOLD]
    return dict(youngest)


def _kept(told: Mapping[bytes, datetime], now: datetime) -> dict[bytes, datetime]:
    return {key: at for key, at in told.items() if now - at < KEPT_FOR}


def _due(pod: PodWithoutNode, uid: str) -> DueEvent:
    key = hashlib.sha256(f"{uid}/{pod.cause.code}".encode()).digest()[:KEY_BYTES]
    namespace, _, name = pod.pod.partition("/")
    # Names of Events have at most 253 characters, as those of pods.
    event = f"{name[:230]}.{key.hex()}"
    return DueEvent(key, PodEvent(event, namespace, name, uid, pod.cause.code, pod.reason.message))


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
