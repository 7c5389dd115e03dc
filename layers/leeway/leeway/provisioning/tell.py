"""Tells what a run decided: Events about pods without a node, answers to capacity requests, and how
long pods waited.

Which pods have an Event is stored, so that it is not repeated each minute. A key is a hash of the
pod's uid and the reason code: a pod has another Event if the code changes. The API server keeps
Events for an hour, so an Event is written again after that. Each Event is a write in etcd, and a
tenant decides how many pods have no place: so a cluster gets MOST_EVENTS a minute, whatever the
number of pods and runs. Log and status count the pods without one.
"""

import hashlib
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from leeway.capacity_requests import CAPACITY_REQUEST, CapacityAnswer, CapacityRequest
from leeway.clock import Clock
from leeway.execution.retrying import API_ERRORS, Conflicts
from leeway.launch.intent import LaunchOutcome, PodWithoutNode
from leeway.parallel import in_parallel
from leeway.ports.kubernetes import Event, ObjectReference
from leeway.provisioning.cluster_state import BoundPod, ClusterState, ObservedPod
from leeway.provisioning.demand import ClusterRead
from leeway.reasons import Reason, ReasonCode, clause, counted
from leeway.selection.pods import Pod
from leeway.table import Record, RecordChanged, Table, UnreadableRecord

NOT_WRITTEN = ReasonCode(
    "ProvisioningNotWritten",
    "Leeway could not write {what} of cluster {cluster}: {error}.",
    "clusterproblemsalarm",
)


EVENTS_AT_ONCE = 16

MOST_EVENTS = 200
"""Events of a cluster in MINUTE."""

MINUTE = timedelta(minutes=1)

KEPT_FOR = timedelta(minutes=55)
"""A little shorter than the time for which the API server keeps an Event."""

MOST_TOLD = 12_000
"""Keys that are kept: MOST_EVENTS a minute for KEPT_FOR, and 144 KB in an item of DynamoDB, which
holds 400 KB."""

KEY_BYTES = 8

_ENTRY = struct.Struct(f">{KEY_BYTES}sI")
"""A key, and the time in seconds since 1970."""

type Told = Mapping[bytes, datetime]


def _packed(told: Told) -> bytes:
    return b"".join(_ENTRY.pack(key, int(at.timestamp())) for key, at in told.items())


def _unpacked(packed: bytes) -> Told:
    return {key: datetime.fromtimestamp(at, UTC) for key, at in _ENTRY.iter_unpack(packed)}


TOLD = Record[Told](dict, "PROVISIONING#{cluster}", "TOLD", packed=(_packed, _unpacked))
"""Which Events were written, and when (see the top of this file). An unreadable record counts as
missing."""


@dataclass(frozen=True, slots=True)
class DueEvent:
    """An Event to write, and its key."""

    key: bytes
    event: Event


def due_events(
    pods: Iterable[PodWithoutNode],
    waiting: Iterable[ObservedPod],
    told: Mapping[bytes, datetime],
    now: datetime,
) -> tuple[DueEvent, ...]:
    """Return all Events that have not been written, in the order in which they are to be written:
    namespaces and their reason codes take turns, so that many pods of one do not delay the Events
    of others. Pods that still run on a retiring node get none: the answer to their retirement has
    the reason."""
    uids = {one.pod.name: one.uid for one in waiting}
    kept = _kept(told, now)
    found = (_due(one, uids[one.pod]) for one in pods if one.pod in uids)
    turns: Counter[tuple[str, str]] = Counter()
    due: list[tuple[int, DueEvent]] = []
    for one in found:
        if one.key not in kept:
            group = (one.event.about.namespace, one.event.reason)
            due.append((turns[group], one))
            turns[group] += 1
    return tuple(one for _, one in sorted(due, key=lambda turn: turn[0]))


def events_left(told: Mapping[bytes, datetime], now: datetime) -> int:
    """Return how many Events may be written now."""
    return max(0, MOST_EVENTS - sum(now - at < MINUTE for at in told.values()))


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
    about = ObjectReference("Pod", name, uid, namespace)
    return DueEvent(key, Event(event, about, pod.cause.code, pod.reason.message))


MOST_REASONS = 10
"""Reasons of one answer: those of a node's other pods are equal or similar."""


def answer_of(
    pods: Sequence[Pod],
    outcome: LaunchOutcome,
    joined: Collection[str],
    starting: Mapping[str, str],
    earlier: Mapping[str, str],
    now: datetime,
    in_place_of: str = "",
    pool: str = "",
) -> CapacityAnswer:
    """Answer a request for these pods.

    `joined` are the names of all Nodes. `starting` are the instances of Nodes that are not ready
    for pods, by name, and `earlier` those of Nodes in service that an earlier answer names: pods
    may have moved to them already. The outcome names a node that has not joined by its instance.
    `in_place_of` is the instance of a static `pool` that goes only when another one is in its
    place; empty if there is none.
    """
    names = {pod.name for pod in pods}
    launched = dict.fromkeys(earlier.values())
    existing = 0
    for placement in outcome.placed:
        count = sum(pod in names for pod in placement.pods)
        if not count:
            continue
        if placement.node in starting:
            launched[starting[placement.node]] = None
        elif placement.node in joined:
            existing += count if placement.node not in earlier else 0
        else:
            launched[placement.node] = None
    launched |= dict.fromkeys(outcome.replacements.get(in_place_of, ()))
    without: dict[Reason, None] = dict.fromkeys(
        one.reason for one in outcome.without_node if one.pod in names
    )
    if in_place_of and in_place_of not in outcome.replacements and pool in outcome.short:
        without[outcome.short[pool]] = None
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


def answer_requests(
    table: Table, answers: Iterable[tuple[CapacityRequest, CapacityAnswer]], clock: Clock
) -> tuple[Reason, ...]:
    """Write answers to capacity requests; return what could not be written."""
    failures = []
    for request, answer in answers:
        try:
            _answer_one(table, request, answer, clock)
        except API_ERRORS as error:
            what = f"the answer to the capacity request of {request.instance}"
            failures.append(NOT_WRITTEN(what=what, cluster=request.cluster, error=clause(error)))
    return tuple(failures)


def _answer_one(
    table: Table, request: CapacityRequest, answer: CapacityAnswer, clock: Clock
) -> None:
    """Write an answer, unless the retirement has ended its request or requests anew."""
    conflicts = Conflicts(f"the capacity request of {request.instance}")
    while True:
        with conflicts:
            one: CapacityRequest | None = request
            if not conflicts.first:
                one = table.get(
                    CAPACITY_REQUEST, cluster=request.cluster, instance=request.instance
                )
            if one is None or one.attempt != request.attempt:
                return
            if one.is_open(clock.now()) and not says_the_same(one, answer):
                table.put(CAPACITY_REQUEST, one.answered(answer))
            return


@dataclass(frozen=True, slots=True)
class EventsWritten:
    """What became of the Events of a run: `waiting` pods have none yet, because of MOST_EVENTS."""

    waiting: int = 0
    failures: tuple[Reason, ...] = ()


def write_events(
    read: ClusterRead,
    pods: Sequence[PodWithoutNode],
    events_in: Callable[[str], Callable[[Event], None]],
    table: Table,
    clock: Clock,
    until: datetime,
) -> EventsWritten:
    """Write an Event about each of these pods that has none, as long as there is time, and at most
    MOST_EVENTS a minute."""
    if not pods:
        return EventsWritten()
    now, cluster = clock.now(), read.cluster

    def write(write_event: Callable[[Event], None], due: DueEvent) -> str | None:
        if clock.now() >= until:
            return "the run has no time left"
        try:
            write_event(due.event)
        except API_ERRORS as error:
            return str(error) or type(error).__name__
        return None

    try:
        told = table.get(TOLD, cluster=cluster, unreadable=lambda _: None) or {}
        due = due_events(pods, read.state.waiting, told, now)
        begun = due[: events_left(told, now)]
        waiting = len(due) - len(begun)
        if not begun:
            return EventsWritten(waiting)
        errors = in_parallel(partial(write, events_in(cluster)), begun, EVENTS_AT_ONCE)
        written = [one.key for one, error in zip(begun, errors, strict=True) if error is None]
        table.put(TOLD, remembered(told, written, now), cluster=cluster)
    except API_ERRORS as error:
        what = counted(len(pods), "Event about a pod", "Events about pods")
        failure = NOT_WRITTEN(what=what, cluster=cluster, error=clause(error))
        return EventsWritten(failures=(failure,))
    failed = [error for error in errors if error]
    if not failed:
        return EventsWritten(waiting)
    what = counted(len(failed), "Event about a pod", "Events about pods")
    failure = NOT_WRITTEN(what=what, cluster=cluster, error=clause(failed[0]))
    return EventsWritten(waiting, (failure,))


BUCKETS = (
    *(1, 2, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 60, 75, 90),
    *(120, 150, 180, 240, 300, 450, 600, 1200, 1800, 3600),
)
"""Upper bounds in seconds: those of Karpenter, less below ten seconds and more above 600."""

MOST_WATCHED = 5_000
"""Waiting pods that a record names, in 75 KB. Of more pods, those with the smallest hashes: a part
that neither age nor name chooses, so that pods that fit nowhere do not hide the others."""


@dataclass(frozen=True, slots=True)
class PodWaits:
    """The pods of a cluster that wait, and the times of those that were bound. The sums never go
    back, as those of a histogram of Prometheus.

    A run stores which pods wait. Of these, a later run counts those that were bound since, each
    once, whichever Lambda environment it is in. It reads the record before it reads the cluster,
    and writes it over the version that it read: of two runs at once, one counts. A run that ends
    after the write and before its log line has counted the pods in the record alone.

    A pod counts if a run saw it waiting: the scheduler binds most pods to nodes that exist. One
    that fits nowhere counts when it is bound. One that is deleted before it is bound does not.

    - `waiting`: hashes of their uids.
    - `counts`: pods by the bound of their bucket; those above the last one are in `count` alone.
    - `count`, `seconds`: all pods that were bound, and the sum of their times.
    """

    cluster: str
    version: int = 0
    waiting: tuple[str, ...] = ()
    counts: Mapping[int, int] = field(default_factory=dict)
    count: int = 0
    seconds: int = 0


POD_WAITS = Record(PodWaits, "PROVISIONING#{cluster}", "WAITS", versioned=True)


_WHAT = "how long pods waited"


def settle(
    before: PodWaits, waiting: Iterable[ObservedPod], bound: Iterable[BoundPod]
) -> tuple[PodWaits, tuple[BoundPod, ...]]:
    """Return the record after a read of the cluster, and the pods that count now."""
    known = frozenset(before.waiting)
    found = [one for one in bound if _key(one.uid) in known] if known else []
    found.sort(key=lambda one: one.uid)  # of many pods a part is logged: uids are random
    counts = dict(before.counts)
    for one in found:
        upper = next((each for each in BUCKETS if one.seconds <= each), None)
        if upper is not None:
            counts[upper] = counts.get(upper, 0) + 1
    after = replace(
        before,
        waiting=tuple(sorted(_key(one.uid) for one in waiting)[:MOST_WATCHED]),
        counts=counts,
        count=before.count + len(found),
        seconds=before.seconds + sum(one.seconds for one in found),
    )
    return after, tuple(found)


def _key(uid: str) -> str:
    return hashlib.sha256(uid.encode()).hexdigest()[:12]


def read_waits(table: Table, cluster: str) -> PodWaits | Reason:
    """Read the record of a cluster, or say why that failed: no launch depends on it."""
    try:
        return table.get(POD_WAITS, cluster=cluster) or PodWaits(cluster)
    except (*API_ERRORS, UnreadableRecord) as error:
        return NOT_WRITTEN(what=_WHAT, cluster=cluster, error=clause(error))


def count_waits(
    table: Table, before: PodWaits | Reason, state: ClusterState
) -> tuple[Sequence[BoundPod], tuple[Reason, ...]]:
    """Return the pods that count now, and what could not be written. `before` was read before the
    state. Of two runs at once, the table refuses the second, and the next run counts the rest."""
    if isinstance(before, Reason):
        return (), (before,)
    after, found = settle(before, state.waiting, state.bound)
    if after == before:
        return (), ()
    try:
        table.put(POD_WAITS, replace(after, version=before.version + 1))
    except RecordChanged:
        return (), ()
    except API_ERRORS as error:
        return (), (NOT_WRITTEN(what=_WHAT, cluster=before.cluster, error=clause(error)),)
    return found, ()
