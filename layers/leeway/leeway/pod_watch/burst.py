"""Collects pods that appear together, so that one run of the buyer serves them all.

All times are seconds of one monotonic clock, and are arguments.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Hashable
from dataclasses import dataclass

SILENCE = 0.5
"""A burst ends after this many seconds without a further pod."""

LONGEST = 3.0
"""A burst ends after this many seconds, even if further pods appear."""

SPACING = 2.0
"""Minimum seconds between two wakes of one cluster. Whoever may create pods could otherwise cause a
run of the buyer for each of them; a run takes about as long."""

RETRY_AFTER = 5.0
"""Seconds after which a wake that failed is repeated."""


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


@dataclass(frozen=True, slots=True)
class ManifestMark:
    """A manifest in the answer of a watch. Its mark changes if its users change it."""

    uid: str
    mark: int


MOST_MANIFESTS = 10_000
"""Manifests of one kind in a cluster whose changes are noticed at once: those of tenants must not
fill the memory. The schedule of each minute finds the changes of others."""


class PodBursts:
    """The pods of one cluster that need a node, and the burst that collects them.

    A pod belongs to one burst only, whatever changes about it later, until it needs no node
    any more. What a burst leaves undone is found by the schedule of each minute.
    """

    def __init__(self) -> None:
        self._collected: set[str] = set()
        self._reported: set[str] = set()
        self._reported_before: set[str] = set()
        self._began = self._last = -math.inf
        self._not_before = -math.inf

    def restart(self) -> None:
        """The watch begins again and repeats all existing pods. Reported pods that it repeats stay
        reported; those that it does not repeat are forgotten at the restart after this one."""
        self._reported_before, self._reported = self._reported, set()
        self._collected.clear()

    def see(self, pod: UnscheduledPod, now: float) -> None:
        """Take in a new or changed pod."""
        if not needs_new_node(pod):
            self.forget(pod.uid)
            return
        if pod.uid in self._reported_before:
            self._reported_before.discard(pod.uid)
            self._reported.add(pod.uid)
        self.collect(pod.uid, now)

    def collect(self, uid: str, now: float) -> None:
        """Take in what needs a run of the buyer, if it is not known yet."""
        if uid in self._reported or uid in self._collected:
            return
        if not self._collected:
            self._began = now
        self._collected.add(uid)
        self._last = now

    def forget(self, uid: str) -> None:
        """Remove a pod that was bound or deleted, or that waits for something else."""
        for uids in (self._collected, self._reported, self._reported_before):
            uids.discard(uid)

    def due_at(self) -> float:
        """Return when the burst ends; infinity if no pod has been collected."""
        if not self._collected:
            return math.inf
        return max(min(self._last + SILENCE, self._began + LONGEST), self._not_before)

    def take(self, now: float) -> frozenset[str]:
        """End the burst: return the UIDs of its pods, which count as reported from now on."""
        taken = frozenset(self._collected)
        self._reported |= taken
        self._collected.clear()
        self._not_before = now + SPACING
        return taken

    def give_back(self, uids: Collection[str], now: float) -> None:
        """Collect pods again whose wake failed, except those that are bound or gone meanwhile."""
        waiting = self._reported.intersection(uids)
        if not waiting:
            return
        if not self._collected:
            self._began = self._last = now
        self._reported -= waiting
        self._collected |= waiting
        self._not_before = now + RETRY_AFTER


UNSCHEDULABLE = "Unschedulable"
"""Reason of the condition PodScheduled. `SchedulerError` and `SchedulingGated` are others."""


class ManifestBursts(PodBursts):
    """The manifests of one cluster that have changed, and the burst that collects them. A fresh
    watch repeats all manifests, and those that are known are no changes."""

    def __init__(self) -> None:
        super().__init__()
        self._marks: dict[Hashable, dict[str, int]] = defaultdict(dict)

    def change(self, kind: Hashable, manifest: ManifestMark, gone: bool, now: float) -> None:
        """Take in a manifest as it is now; `gone`: it was deleted, or Leeway does not read it."""
        marks, uid = self._marks[kind], manifest.uid
        before = marks.get(uid)
        if (gone and before is None) or (not gone and before == manifest.mark):
            return
        if gone:
            del marks[uid]
        elif before is not None or len(marks) < MOST_MANIFESTS:
            marks[uid] = manifest.mark
        else:
            return
        self.forget(uid)
        self.collect(uid, now)


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
