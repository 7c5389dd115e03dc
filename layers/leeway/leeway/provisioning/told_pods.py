"""Which pods have an Event about why they get no node, so that it is not repeated each minute.

A key is a hash of the pod's uid and the reason code: a pod has another Event if the code changes.
The API server keeps Events for an hour, so an Event is written again after that.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from leeway.launch.outcome import PodWithoutNode
from leeway.provisioning.cluster_state import WaitingPod
from leeway.provisioning.ports import PodEvent

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
