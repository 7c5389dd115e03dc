"""Use case: work on a node's drain, as far as it goes in a given time."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta

from leeway.clock import Clock
from leeway.cluster.ports import Cluster, ClusterRefused, ClusterUnavailable
from leeway.drain.answers import Response, read_answer
from leeway.drain.deadline import Terms
from leeway.drain.pods import Pod
from leeway.drain.progress import (
    POLL,
    Ask,
    Drain,
    Way,
    expire,
    give_up,
    is_expired,
    next_moment,
    observe,
    plan,
    record,
)

EVICTIONS_AT_ONCE = 16
"""Requests under way at the same time for one node: enough for 110 pods in a second or two,
and few enough that a hundred nodes at once do not fill the API server's priority level."""

type Watcher = Callable[[Drain], None]


class Draining:
    """Drains nodes of one cluster."""

    def __init__(self, cluster: Cluster, clock: Clock, watcher: Watcher | None = None) -> None:
        self._cluster = cluster
        self._clock = clock
        self._watcher = watcher

    def work(
        self,
        node: str,
        drain: Drain,
        terms: Terms,
        until: datetime,
        wanted: Callable[[], bool] = lambda: True,
    ) -> Drain:
        """Work on a drain until it is over, or `until` has come, or its deadline, or it is no
        longer `wanted`, which is asked before every round of requests.

        An API server that fails is asked again; what it did not list is not taken for gone. One
        that refuses is too, if there is a deadline to which somebody may mend the rights.
        """
        while wanted():
            pods, drain = self._step(node, drain, terms)
            now = self._clock.now()
            if is_expired(terms, now):
                drain = expire(drain)
            if self._watcher:
                self._watcher(drain)
            if drain.over or now >= until or is_expired(terms, now):
                return drain
            wake_at = min(next_moment(drain, pods, terms, now), until)
            self._clock.sleep((wake_at - now).total_seconds())
        return drain

    def _step(self, node: str, drain: Drain, terms: Terms) -> tuple[Sequence[Pod], Drain]:
        try:
            pods = self._cluster.pods_on(node)
        except ClusterUnavailable as error:
            return (), replace(drain, problem=str(error))
        except ClusterRefused as error:
            if terms.deadline is None:
                raise
            return (), replace(drain, problem=str(error))
        drain = observe(drain, pods, self._clock.now())
        # Twice: a pod that is found blocked when its moment has come already is not kept waiting.
        for _ in range(2):
            now = self._clock.now()
            drain = give_up(drain, pods, terms, now)
            asks = plan(drain, pods, terms, now)
            for ask, response in zip(asks, self._make(asks), strict=True):
                answer = read_answer(response)
                drain = record(drain, ask, answer, terms, self._clock.now())
        return pods, drain

    def _make(self, asks: Sequence[Ask]) -> list[Response]:
        if not asks:
            return []
        with ThreadPoolExecutor(min(EVICTIONS_AT_ONCE, len(asks))) as pool:
            return list(pool.map(self._ask, asks))

    def _ask(self, ask: Ask) -> Response:
        if ask.way is Way.DELETE:
            return self._cluster.delete(ask.pod, ask.grace)
        return self._cluster.evict(ask.pod, ask.grace)


def pause_before_next(
    started_at: datetime,
    now: datetime,
    deadline: datetime | None,
    heartbeat: datetime | None = None,
) -> timedelta:
    """Return how long a drain that is not over may rest: not at all while it is urgent.

    Resting suspends the durable execution. It never rests into the last two minutes before the
    deadline, when the latest moments of its pods come, nor past the next heartbeat of a hook.
    """
    elapsed = now - started_at
    if elapsed < timedelta(minutes=10):
        rest = timedelta(0)
    elif elapsed < timedelta(hours=1):
        rest = timedelta(seconds=60)
    else:
        rest = timedelta(minutes=5)
    if deadline is not None:
        rest = min(rest, deadline - timedelta(minutes=2) - now)
    if heartbeat is not None:
        rest = min(rest, heartbeat - now)
    return rest if rest >= POLL else timedelta(0)
