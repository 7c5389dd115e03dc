"""How long pods waited for a node: each pod once, by the clock of its API server.

A run stores which pods wait. Of these, a later run counts those that were bound since, whichever
Lambda environment it is in. It reads the record before it reads the cluster, and writes it over the
version that it read: of two runs at once, one counts. A run that ends after the write and before
its log line has counted the pods in the record alone.

- A pod counts if a run saw it waiting: the scheduler binds most pods to nodes that exist.
- A pod that fits nowhere counts when it is bound. Until then it is one of those that wait.
- A pod that is deleted before it is bound does not count.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from leeway.execution.retrying import API_ERRORS
from leeway.provisioning.cluster_state import BoundPod, ClusterState, ObservedPod
from leeway.provisioning.tell import NOT_WRITTEN
from leeway.reasons import Reason, clause
from leeway.table import Record, RecordChanged, Table, UnreadableRecord

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
