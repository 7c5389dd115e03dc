"""Steps the drains of all lost nodes together, from the notice to the last successor. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType

from leeway.notices import InterruptionAction, Notice, NoticeKind
from leeway.policy.rules import SPOT_WARNING, ClusterPolicy, rule
from leeway.ports.kubernetes_objects import Pod
from leeway.retirement.plan import give_up, next_request, plan
from leeway.retirement.pods import Meaning, Terms, read_answer
from leeway.retirement.progress import (
    Drain,
    PodProgress,
    Stage,
    expire,
    is_expired,
    observe,
    observe_volumes,
    record_answer,
    record_budgets,
)

from leeway_cli.rehearse.cluster import Cluster
from leeway_cli.rehearse.pace import Pace
from leeway_cli.rehearse.placement import Placements
from leeway_cli.rehearse.series import Series
from leeway_cli.rehearse.world import Happening, LivePod, World

SETTLED_AFTER = timedelta(minutes=10)
"""After the notice; what is not Ready by then counts as not Ready for good."""

_ANSWER_TIME = timedelta(milliseconds=20)

type RequestTimes = Mapping[str, Sequence[datetime]]
"""When the API server answered the evictions and deletions of pods in a real run, by UID and in the
order of time."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What happens to one pod on a lost node. Times are seconds from the notice.

    `progress` is what the drain knows about it at the end, None if it appeared after the drain.
    `granted` is its grace period in seconds, None if it was not asked to end. `ready_at` is when
    the pod in its place is Ready, None for never. `returned`: it is the successor of another pod of
    the node.
    """

    pod: str
    node: str
    workload: str
    progress: PodProgress | None
    granted: float | None
    ended_at: float | None
    ready_at: float | None
    cut: bool
    died: bool
    returned: bool

    @property
    def left(self) -> bool:
        """Whether the drain leaves it on purpose, as a pod of a DaemonSet."""
        return self.progress is not None and self.progress.stage is Stage.LEFT and not self.returned


@dataclass(frozen=True)
class Storm:
    """The result of one rehearsal: the lost nodes, the fate of each pod on them, and how many pods
    of each affected workload are Ready and of each affected budget healthy."""

    notice: datetime
    lost: frozenset[str]
    fates: tuple[Fate, ...]
    ready: Mapping[str, Series]
    healthy: Mapping[str, Series]
    placements: Placements

    @property
    def until(self) -> datetime:
        """The end of the rehearsal."""
        return self.notice + SETTLED_AFTER


def rehearse(
    cluster: Cluster,
    lost: frozenset[str],
    placements: Placements,
    policy: ClusterPolicy,
    pace: Pace,
    notice: datetime,
    recorded: RequestTimes = MappingProxyType({}),
) -> Storm:
    """Rehearse the interruption of some nodes: EC2 warns of all of them at `notice`, and ends them
    two minutes later. With times that are `recorded` of a real run, each request is made when
    that run made it, and no sooner."""
    world = World(cluster, lost, placements, pace, notice)
    arrives = notice + timedelta(seconds=pace.late)
    terms = _terms(policy, notice, arrives)
    drains: dict[str, _NodeDrain] = {}
    for node in sorted(lost):
        usually = arrives + timedelta(seconds=pace.reaction)
        begins = _first_recorded(world.pods_on(node), recorded) or usually
        drains[node] = _NodeDrain(node, terms, begins, recorded)
        world.at(begins, Happening.WAKE, node)
    world.at(notice + SPOT_WARNING, Happening.RECLAIM, "")
    for now, due in world.next():
        if now > notice + SETTLED_AFTER:
            break
        for node in sorted(due & drains.keys()):
            drains[node].step(world, now)
    fates = tuple(_fate(live, drains[live.running.node], notice) for live in world.seen)
    ready = {key: series for key, series in world.ready.items() if key in cluster.workloads}
    return Storm(notice, lost, fates, ready, dict(world.healthy), placements)


def _terms(policy: ClusterPolicy, notice: datetime, arrives: datetime) -> Terms:
    """Return the terms of a drain after a Spot interruption, by the cluster's policy."""
    warning = Notice(
        "rehearsal",
        NoticeKind.SPOT_INTERRUPTION,
        "",
        "",
        notice,
        (),
        action=InterruptionAction.TERMINATE,
    )
    ruling = rule(warning, policy.notices[NoticeKind.SPOT_INTERRUPTION], arrives)
    return Terms(ruling.deadline, ruling.on_blocked)


def _first_recorded(pods: Sequence[Pod], recorded: RequestTimes) -> datetime | None:
    return min((recorded[pod.uid][0] for pod in pods if recorded.get(pod.uid)), default=None)


class _NodeDrain:
    """The drain of one node, as `leeway.retirement.executor` runs it.

    The nth request for a pod is not made before the nth time that is recorded of it: it is decided
    again then. At the deadline, what is due is requested without regard to the record.
    """

    def __init__(self, node: str, terms: Terms, begins: datetime, recorded: RequestTimes) -> None:
        self.drain = Drain()
        self._node, self._terms, self._begins = node, terms, begins
        self._recorded = recorded
        self._finished = False
        self._answered_at: datetime | None = None

    def step(self, world: World, now: datetime) -> None:
        """Observe, decide and request once, unless the drain has not begun or is over."""
        if self._finished or now < self._begins:
            return
        pods = world.pods_on(self._node)
        drain = observe(self.drain, pods, self._terms, now)
        drain = observe_volumes(drain, pods, world.attached(self._node, now), now)
        expired = is_expired(self._terms, now)
        # Twice at the deadline: a pod whose eviction is refused then is still deleted.
        for _ in range(2 if expired else 1):
            drain = give_up(drain, pods, self._terms, now)
            drain = self._request(world, drain, pods, now)
        self.drain = expire(drain) if expired else drain
        self._finished = expired or drain.over
        if not self._finished:
            self._schedule(world, now)

    def _request(self, world: World, drain: Drain, pods: Sequence[Pod], now: datetime) -> Drain:
        for request in plan(drain, pods, self._terms, now):
            if (until := self._delayed(request.pod, drain, now)) is not None:
                world.at(until, Happening.WAKE, self._node)
                continue
            answer = read_answer(world.answer(request, self._node, now))
            drain = record_answer(drain, request, answer, self._terms, now)
            if answer.meaning is Meaning.NOT_EVICTABLE:
                budgets = world.budgets_of(request.pod, self._node)
                drain = record_budgets(drain, request.pod.uid, budgets)
            # The executor decides again when an answer arrives.
            self._answered_at = now
        return drain

    def _delayed(self, pod: Pod, drain: Drain, now: datetime) -> datetime | None:
        """Return until when the next request for a pod is delayed by the record; None for now."""
        number, recorded = drain.pods[pod.uid].attempts, self._recorded.get(pod.uid, ())
        if number >= len(recorded) or is_expired(self._terms, now):
            return None
        return recorded[number] if now < recorded[number] else None

    def _schedule(self, world: World, now: datetime) -> None:
        pods = [pod for pod in world.pods_on(self._node) if pod.uid in self.drain.pods]
        due = next_request(self.drain, pods, self._terms, now)
        answered = now + _ANSWER_TIME if self._answered_at == now else None
        moments = [at for at in (due, answered, self._terms.deadline) if at is not None]
        if later := [at for at in moments if at > now]:
            world.at(min(later), Happening.WAKE, self._node)


def _fate(live: LivePod, drained: _NodeDrain, notice: datetime) -> Fate:
    running = live.running

    def after(moment: datetime | None) -> float | None:
        return None if moment is None else round((moment - notice).total_seconds(), 3)

    return Fate(
        pod=live.pod.key,
        node=running.node,
        workload=running.workload,
        progress=drained.drain.pods.get(live.pod.uid),
        granted=live.granted,
        ended_at=after(live.ended_at),
        ready_at=after(live.ready_at) if live.origin is None else None,
        cut=live.cut,
        died=live.died,
        returned=live.origin is not None,
    )
