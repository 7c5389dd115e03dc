"""The other side of the drains: API server, budgets, controllers and kubelets in simulated time.

The drains themselves are those of `leeway.drain`. The arithmetic of budgets is the disruption
controller's: `max(0, healthy − desired)`, and a pod with a granted eviction is not healthy.
Source: Kubernetes documentation, "Disruptions", "API-initiated Eviction".
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from itertools import count

from leeway.ports.kubernetes_objects import Pod, Response
from leeway.reasons import counted
from leeway.retirement.pods import DAEMONSET, FINISHED_PHASES
from leeway.retirement.progress import PodRequest, RemovalMethod

from leeway_cli.rehearse.cluster import Cluster, Pace, RunningPod, Workload
from leeway_cli.rehearse.room import Placements


@dataclass
class Series:
    """How a number changes: (time, number), in the order of time."""

    steps: list[tuple[datetime, int]] = field(default_factory=list)

    def add(self, at: datetime, number: int) -> None:
        """Add the number at a time."""
        if self.steps and self.steps[-1][0] == at:
            self.steps[-1] = (at, number)
        else:
            self.steps.append((at, number))


def moments_below(series: Series, least: int, until: datetime) -> tuple[float, bool]:
    """Return for how many seconds a number was below the least, and whether it still is at the
    end."""
    total, steps = 0.0, series.steps
    for (at, number), (end, _) in zip(steps, [*steps[1:], (until, 0)], strict=True):
        if number < least:
            total += max(0.0, (min(end, until) - at).total_seconds())
    return total, bool(steps) and steps[-1][1] < least


def number_at(series: Series, moment: datetime) -> int:
    """Return the number at a time."""
    found = series.steps[0][1] if series.steps else 0
    for at, number in series.steps:
        if at > moment:
            break
        found = number
    return found


_BUDGETS_DO_NOT_APPLY = FINISHED_PHASES | {"Pending"}
_SEVERAL = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not "
    "support."
)
_STOPS_AT_ONCE = 0.5
"""Seconds until a pod has ended whose containers never started."""

_LONGEST_GRACE = 86_400
"""Seconds. Kubernetes accepts grace periods of millions of years, which timedelta does not."""


class Happening(Enum):
    """What happens at a time."""

    WAKE = "a drain is due"
    CREATE = "a controller creates a successor"
    START = "a pod is Ready"
    END = "the containers of a pod have ended"
    RECLAIM = "EC2 ends the lost instances"
    RECREATE = "a controller creates the successor of a pod that died"


@dataclass(eq=False, slots=True)
class LivePod:
    """A pod in its present state. `origin` is the pod that was on the lost node at the notice.

    `cut`: its grace period was shorter than the time that it needs or may need. `granted` is that
    grace period in seconds.
    """

    running: RunningPod
    pod: Pod
    ready: bool
    origin: "LivePod | None" = None
    ends_at: datetime | None = None
    ended_at: datetime | None = None
    ready_at: datetime | None = None
    cut: bool = False
    died: bool = False
    granted: float | None = None

    @property
    def first(self) -> "LivePod":
        """The pod on the lost node in whose place this one runs; itself if it is that pod."""
        return self.origin or self


class World:
    """The pods of a cluster from the notice on; time passes only here."""

    def __init__(
        self,
        cluster: Cluster,
        lost: frozenset[str],
        placements: Placements,
        pace: Pace,
        notice: datetime,
    ) -> None:
        self._cluster, self._lost, self._pace = cluster, lost, pace
        self._placements, self._notice = placements, notice
        self._queue: list[tuple[datetime, int, Happening, LivePod | str]] = []
        self._serial = count()
        self._attached: dict[str, dict[str, datetime]] = defaultdict(dict)
        self._on: dict[str, dict[str, LivePod]] = {name: {} for name in lost}
        self._waiting: dict[str, list[LivePod]] = defaultdict(list)
        self._needs_volume: dict[str, LivePod] = {}
        self._members: dict[str, dict[int, LivePod]] = defaultdict(dict)
        self._healthy: Counter[str] = Counter()
        self._ready: Counter[str] = Counter()
        self.healthy: dict[str, Series] = defaultdict(Series)
        self.ready: dict[str, Series] = defaultdict(Series)
        self.seen: list[LivePod] = []
        self.over = False
        self._begin()

    def _begin(self) -> None:
        affected = {one.workload for one in self._cluster.pods if one.node in self._lost}
        for one in self._cluster.pods:
            live = LivePod(one, one.pod, one.ready and one.pod.deletion is None)
            if live.ready:
                self._count(live, 1)
            if one.node in self._lost:
                self._on[one.node][one.pod.uid] = live
                self.seen.append(live)
                if one.pod.deletion is not None and one.pod.deletion > self._notice:
                    live.ends_at = one.pod.deletion
                    self.at(one.pod.deletion, Happening.END, live)
            if one.workload in affected and self._workload(one).keeps_names:
                self._members[one.workload][one.ordinal] = live
        for key in affected:
            self.ready[key].add(self._notice, self._ready[key])
        for one in self._cluster.pods:
            if one.node in self._lost:
                for budget in one.budgets:
                    self.healthy[budget].add(self._notice, self._healthy[budget])

    def at(self, when: datetime, what: Happening, about: "LivePod | str") -> None:
        """Let something happen at a time."""
        heapq.heappush(self._queue, (when, next(self._serial), what, about))

    def next(self) -> Iterator[tuple[datetime, set[str]]]:
        """Let everything happen in the order of time; yield each time with the nodes whose drains
        are due or whose pods changed."""
        while self._queue:
            now, due = self._queue[0][0], set[str]()
            while self._queue and self._queue[0][0] <= now:
                _, _, what, about = heapq.heappop(self._queue)
                if isinstance(about, str):
                    due |= self._reclaim(now) if what is Happening.RECLAIM else {about}
                else:
                    due |= self._happen(now, what, about)
            yield now, due

    def _happen(self, now: datetime, what: Happening, live: LivePod) -> set[str]:
        match what:
            case Happening.END if live.ends_at == now and live.ended_at is None:
                return self._end(now, live)
            case Happening.CREATE | Happening.RECREATE:
                return self._create(now, live, elsewhere=what is Happening.RECREATE)
            case Happening.START if live.pod.deletion is None and not live.died:
                self._start(now, live)
        return set()

    def pods_on(self, node: str) -> list[Pod]:
        """Return the pods that the API server lists for a lost node."""
        return [live.pod for live in self._on[node].values()]

    def attached(self, node: str, now: datetime) -> set[str]:
        """Return the claims whose volumes are attached to a lost node."""
        used = {claim for live in self._on[node].values() for claim in live.pod.claims}
        return used | {claim for claim, until in self._attached[node].items() if until > now}

    def budgets_of(self, pod: Pod, node: str) -> tuple[str, ...]:
        """Return the names of the budgets that select a pod on a lost node."""
        keys = self._on[node][pod.uid].running.budgets
        return tuple(self._cluster.budgets[key].name for key in keys)

    def answer(self, request: PodRequest, node: str, now: datetime) -> Response:
        """Answer an eviction or a deletion as the API server does."""
        live = self._on[node].get(request.pod.uid)
        if live is None:
            return Response(404, f'pods "{request.pod.name}" not found')
        evicts = request.method is RemovalMethod.EVICT
        if evicts and (refusal := self._refusal(live)):
            return refusal
        self._delete(live, request.grace, now)
        return Response(201 if evicts else 200)

    def _refusal(self, live: LivePod) -> Response | None:
        if live.pod.deletion is not None or live.pod.phase in _BUDGETS_DO_NOT_APPLY:
            return None
        keys = live.running.budgets
        if len(keys) > 1:
            return Response(500, _SEVERAL)
        for budget in (self._cluster.budgets[key] for key in keys):
            healthy = self._healthy[budget.key]
            if not live.ready and (budget.evicts_unready or healthy >= budget.desired > 0):
                return None
            if budget.problem or healthy <= budget.desired:
                why = (
                    f"The disruption budget {budget.name} needs "
                    f"{counted(budget.desired, 'healthy pod')} and has {healthy} currently"
                )
                if budget.problem:
                    why = f"The disruption budget {budget.name} allows nothing: {budget.problem}"
                return Response(429, causes=(("DisruptionBudget", why),))
        return None

    def _delete(self, live: LivePod, grace: int | None, now: datetime) -> None:
        granted = min(max(live.pod.grace if grace is None else grace, 0), _LONGEST_GRACE)
        needs = self._stop_time(live)
        first = live.pod.deletion is None
        deletion = now + timedelta(seconds=granted)
        if first or (live.pod.deletion is not None and deletion < live.pod.deletion):
            live.pod = replace(live.pod, deletion=deletion)
            live.granted = granted
            live.cut = needs > granted and live.pod.phase not in FINISHED_PHASES
            live.ends_at = now + timedelta(seconds=min(needs, granted))
            self.at(live.ends_at, Happening.END, live)
        if first:
            self._set_unready(live, now)
            if live.pod.controller is not None and not self._workload(live.running).keeps_names:
                soon = now + timedelta(seconds=self._pace.control_loop)
                self.at(soon, Happening.CREATE, live)

    def _stop_time(self, live: LivePod) -> float:
        if live.pod.phase in FINISHED_PHASES | {"Pending"}:
            return _STOPS_AT_ONCE
        stops_in = live.running.stops_in
        return live.pod.grace if stops_in is None else stops_in

    def _end(self, now: datetime, live: LivePod) -> set[str]:
        node = live.running.node
        live.ended_at = now
        self._set_unready(live, now)
        detached = now + timedelta(seconds=self._pace.detach)
        for claim in live.pod.claims:
            self._attached[node][claim] = detached
        if live.pod.claims:
            self.at(detached, Happening.WAKE, node)
        if (before := self._needs_volume.pop(live.pod.uid, None)) is not None:
            self.at(now, Happening.CREATE, before)
        if live.running.finalizers:
            live.pod = replace(live.pod, kept_by=live.running.finalizers)
            return {node}
        self._remove(live)
        if live.pod.controller is not None and self._workload(live.running).keeps_names:
            soon = now + timedelta(seconds=self._pace.control_loop)
            self.at(soon, Happening.CREATE, live)
        return {node}

    def _remove(self, live: LivePod) -> None:
        self._on[live.running.node].pop(live.pod.uid, None)

    def _create(self, now: datetime, before: LivePod, elsewhere: bool) -> set[str]:
        """Create the successor of a pod; return the lost node to which it came back."""
        running, first = before.running, before.first
        if running.pod.controller is None or running.pod.controller.kind == DAEMONSET:
            return set()
        if self._workload(running).in_order and self._waits_for_lower(running):
            self._waiting[running.workload].append(before)
            return set()
        if running.pod.claims and before.ended_at is None:
            self._needs_volume[before.pod.uid] = before
            return set()
        uid = f"{before.pod.uid}+"
        pod = replace(before.pod, uid=uid, deletion=None, kept_by=(), phase="Pending")
        live = LivePod(running, pod, ready=False, origin=first)
        if self._workload(running).keeps_names:
            self._members[running.workload][running.ordinal] = live
        comes_back = running.returns and not elsewhere and not self.over
        if comes_back:
            live.pod = replace(pod, phase="Running")
            self._on[running.node][uid] = live
            self.seen.append(live)
            self.at(now + timedelta(seconds=running.starts_in), Happening.START, live)
            return {running.node}
        place = self._placements.places.get(first.running.pod.key)
        if place is not None:
            begins = max(now, self._notice + timedelta(seconds=place.ready_in))
            begins = max([begins, *self._detached(running)])
            self.at(begins + timedelta(seconds=running.starts_in), Happening.START, live)
        return set()

    def _detached(self, running: RunningPod) -> list[datetime]:
        """Return when the volumes of a pod are detached from its old node."""
        attached = self._attached[running.node]
        return [attached[claim] for claim in running.pod.claims if claim in attached]

    def _waits_for_lower(self, running: RunningPod) -> bool:
        members = self._members[running.workload]
        return any(not one.ready for number, one in members.items() if number < running.ordinal)

    def _start(self, now: datetime, live: LivePod) -> None:
        live.ready = True
        if live.pod.uid not in self._on[live.running.node]:
            live.first.ready_at = now
        self._count(live, 1)
        self._note(live, now)
        waiting = self._waiting.pop(live.running.workload, [])
        for before in sorted(waiting, key=lambda one: one.running.ordinal):
            self.at(now, Happening.CREATE, before)

    def _set_unready(self, live: LivePod, now: datetime) -> None:
        if live.ready:
            live.ready = False
            self._count(live, -1)
            self._note(live, now)

    def _count(self, live: LivePod, change: int) -> None:
        self._ready[live.running.workload] += change
        for key in live.running.budgets:
            self._healthy[key] += change

    def _note(self, live: LivePod, now: datetime) -> None:
        self.ready[live.running.workload].add(now, self._ready[live.running.workload])
        for key in live.running.budgets:
            self.healthy[key].add(now, self._healthy[key])

    def _reclaim(self, now: datetime) -> set[str]:
        """End the lost machines with the pods that still run on them."""
        self.over = True
        recreated = now + timedelta(seconds=self._pace.node_removal)
        for node in self._lost:
            for live in list(self._on[node].values()):
                if live.ended_at is None:
                    live.died = live.pod.phase not in FINISHED_PHASES
                    live.ended_at = now
                    had_successor = live.pod.deletion is not None
                    self._set_unready(live, now)
                    if not had_successor or self._workload(live.running).keeps_names:
                        self.at(recreated, Happening.RECREATE, live)
        return set()

    def _workload(self, running: RunningPod) -> Workload:
        return self._cluster.workloads[running.workload]
