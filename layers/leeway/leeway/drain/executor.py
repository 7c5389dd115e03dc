"""Use case: work on a node's drain, as far as it goes in a given time."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from leeway.clock import Clock
from leeway.drain.answers import Answer, Meaning, read_answer
from leeway.drain.deadline import Terms
from leeway.drain.evict import evict
from leeway.drain.observe import observe, observe_volumes, without_volumes
from leeway.drain.plan import POLL, PodRequest, give_up, moved_at, next_moment, only_waits, plan
from leeway.drain.progress import Drain, RemovalMethod, Stage, displaced, expire, is_expired
from leeway.drain.record_answers import name_budgets, record
from leeway.drain.requests import HANGS_AFTER, Requests
from leeway.ports.kubernetes import Cluster, ClusterRefused, ClusterUnavailable, PodFeed
from leeway.ports.kubernetes_objects import Pod, Response

TOGETHER = 0.02
"""Seconds that answers are waited for before they are taken in, so as to take in several."""

LAST_ANSWERS = 2.0
"""Seconds that the last answers are waited for when a drain's time is up."""

LAST_LIST = 2.0
"""Seconds that a list may take when a drain's time is up."""

VOLUMES_EVERY = timedelta(seconds=2)
"""Between two lists of the cluster's volume attachments, which can't be had for one node."""

LAST_LISTS = timedelta(seconds=5)
"""How long a drain whose time is up from the first goes on trying to see which pods there are."""

BALANCERS_EVERY = timedelta(seconds=2)
"""Between two tries of having load balancers leave the node out."""

SURE_FOR = timedelta(seconds=5)
"""How long after a look at the Node object its name is taken to be the same machine's still."""


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """Which Node object is drained, by its UID, and when it was last seen to have its name.

    Addresses are used again, and nodes are named by them: pods that are listed under the name may
    be another machine's before long.
    """

    uid: str
    seen_at: datetime


STAYS_FOR = timedelta(seconds=3)
"""How long a drain is followed when nothing is left to ask for. Suspending and looking again costs
as much as one and a half seconds of a function with 1 GB; most pods end within three."""

LONGEST_LOOK_AWAY = timedelta(seconds=10)
"""Between two looks at pods that need time: so much longer, at the most, is an instance kept."""

LAST_LOOK = timedelta(seconds=20)
"""How long before its deadline a drain is not left alone any more."""

type Watcher = Callable[[Drain], None]


def _always() -> bool:
    return True


def _stays(_drain: Drain) -> bool:
    return False


class DrainExecutor:
    """Drains nodes of one cluster.

    `watcher` sees every state of a drain. With `for_good`, the node will not come back, so that
    load balancers are told to leave it out. `may_leave` is asked whether a drain that is not over
    may be left alone for a while.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        watcher: Watcher | None = None,
        for_good: bool = True,
        may_leave: Callable[[Drain], bool] = _stays,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._watcher = watcher
        self._for_good = for_good
        self._may_leave = may_leave

    def work(
        self,
        node: str,
        drain: Drain,
        terms: Terms,
        until: datetime,
        wanted: Callable[[], bool] = _always,
        selector: str = "",
        machine: NodeIdentity | None = None,
        answers_until: datetime | None = None,
    ) -> Drain:
        """Work on a drain until it is over, or `until` has come, or its deadline, or it is no
        longer `wanted`, which is asked before requests are made. It is over, too, when another
        machine than the one given has the node's name.

        Evictions that are under way when `until` comes are followed on until `answers_until`:
        whoever leaves them may spend a budget's slot for nothing, and asks for them again.

        An API server that fails is asked again; what it did not list is not taken for gone. One
        that refuses is too, if there is a deadline to which somebody may mend the rights.
        With a label selector, only pods that it selects are drained.
        """
        with (
            self._cluster.watch_pods(node, selector) as feed,
            Requests(self._ask, feed.wake) as requests,
        ):
            turn = _Turn(self._cluster, self._clock, node, terms, feed, requests, machine)
            return self._turn_by_turn(turn, drain, until, answers_until or until, wanted)

    def _turn_by_turn(
        self,
        turn: "_Turn",
        drain: Drain,
        until: datetime,
        answers_until: datetime,
        wanted: Callable[[], bool],
    ) -> Drain:
        while True:
            drain = turn.look(drain)
            expired = is_expired(turn.terms, self._clock.now())
            # Twice at the end: who is found blocked when its moment has come meets its lot still.
            for _ in range(2 if expired else 1):
                drain, asks = turn.decide(drain)
                if asks and not wanted():
                    return drain
                if asks and not turn.is_the_machines(drain, asks):
                    return displaced(drain)
                drain = turn.act(drain, asks, LAST_ANSWERS if expired else TOGETHER)
            if self._for_good and not (expired and turn.tried_balancers):
                drain = turn.exclude_from_load_balancers(drain)
            if expired:
                drain = expire(drain)
            elif drain.over:
                drain = turn.look(drain, afresh=True)
            if self._watcher:
                self._watcher(drain)
            if drain.over or (expired and not turn.may_see_pods_yet(drain)):
                return drain
            ends = answers_until if turn.awaits_evictions else until
            if self._clock.now() >= ends or self._may_leave(drain):
                return turn.abandon(drain)
            turn.rest(drain, ends)

    def _ask(self, ask: PodRequest) -> Response:
        if ask.way is RemovalMethod.EVICT:
            return evict(self._cluster, ask.pod, ask.grace)
        return self._cluster.delete(ask.pod, ask.grace)


class _Turn:
    """What a drain does over and over: look, decide, act, rest."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        node: str,
        terms: Terms,
        feed: PodFeed,
        requests: Requests,
        machine: NodeIdentity | None,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._node = node
        self.terms = terms
        self._feed = feed
        self._requests = requests
        self._machine = machine
        self._began = self._volumes_at = self._balancers_at = clock.now()
        self.pods: Sequence[Pod] = ()

    def look(self, drain: Drain, afresh: bool = False) -> Drain:
        """Take in the node's pods, and its volumes where one is waited for."""
        try:
            self.pods = (self._feed.refresh if afresh else self._feed.pods)(self._patience())
        except ClusterUnavailable as error:
            self.pods = ()
            return replace(drain, problem=str(error))
        except ClusterRefused as error:
            if self.terms.deadline is None:
                raise
            self.pods = ()
            return replace(drain, problem=str(error))
        now = self._clock.now()
        if self._machine and not drain.listed and now - self._machine.seen_at < SURE_FOR:
            self._machine = replace(self._machine, seen_at=now)
        if not drain.listed:
            drain = replace(drain, unseen=self._why_late(now))
        awaited = [
            a.pod.uid for a in self._requests.unanswered() if a.way is not RemovalMethod.SHORTEN
        ]
        drain = observe(drain, self.pods, self.terms, now, awaited)
        return self._look_at_volumes(drain)

    def _why_late(self, now: datetime) -> str:
        """Say why a first list that comes now may lack pods; empty where it lacks none."""
        if is_expired(self.terms, now):
            return "its pods were first listed after its deadline, when its machine may be gone"
        if self._machine is None or now - self._machine.seen_at < SURE_FOR:
            return ""
        try:
            found = self._cluster.node(self._node)
        except (ClusterUnavailable, ClusterRefused):
            return ""
        if found is None or found.uid != self._machine.uid:
            return "its pods were first listed when its Node object was gone"
        return ""

    def _patience(self) -> float:
        """Return how many seconds a list may take: until the deadline, and then some all the same,
        to see what has become of the pods."""
        if self.terms.deadline is None:
            return math.inf
        left = (self.terms.deadline - self._clock.now()).total_seconds()
        return max(left, LAST_LIST)

    def _look_at_volumes(self, drain: Drain) -> Drain:
        now = self._clock.now()
        if not drain.at(Stage.DETACHING) or now < self._volumes_at:
            return drain
        self._volumes_at = now + VOLUMES_EVERY
        try:
            attached = {one.claim for one in self._cluster.attachments_on(self._node)}
        except ClusterUnavailable as error:
            return replace(drain, problem=str(error))
        except ClusterRefused as error:
            return without_volumes(drain, f"its volumes can't be seen: {error}")
        return observe_volumes(drain, self.pods, attached, now)

    def may_see_pods_yet(self, drain: Drain) -> bool:
        """Whether a node that has not been seen once is worth another look: a list that fails for a
        moment must not cost all of its pods their SIGTERM."""
        overdue = not drain.listed and is_expired(self.terms, self._began)
        return overdue and self._clock.now() < self._began + LAST_LISTS

    def decide(self, drain: Drain) -> tuple[Drain, tuple[PodRequest, ...]]:
        """Decide what is asked for now."""
        now = self._clock.now()
        drain = give_up(drain, self.pods, self.terms, now)
        return drain, plan(drain, self.pods, self.terms, now, self._requests.evictions(HANGS_AFTER))

    def is_the_machines(self, drain: Drain, asks: tuple[PodRequest, ...] = ()) -> bool:
        """Whether the node's name is the machine's still. It is looked up unless that was seen
        a moment ago, and since the pods of these requests came.

        What can't be looked up is not held against it: the time of pods that wait runs out.
        """
        if self._machine is None:
            return True
        now, seen_at = self._clock.now(), self._machine.seen_at
        came = max((drain.pods[ask.pod.uid].seen_at or now for ask in asks), default=seen_at)
        if now - seen_at < SURE_FOR and came <= seen_at:
            return True
        try:
            found = self._cluster.node(self._node)
        except (ClusterUnavailable, ClusterRefused):
            return True
        if found is not None and found.uid != self._machine.uid:
            return False
        self._machine = replace(self._machine, seen_at=now)
        return True

    def act(self, drain: Drain, asks: tuple[PodRequest, ...], within: float) -> Drain:
        """Make requests and take in the answers that come within so many seconds."""
        self._requests.begin(asks)
        for ask, response in self._requests.answered(within):
            answer = read_answer(response)
            drain = record(drain, ask, answer, self.terms, self._clock.now())
            if answer.meaning is Meaning.NOT_EVICTABLE:
                drain = self._name_budgets(drain, ask.pod)
        return drain

    def _name_budgets(self, drain: Drain, pod: Pod) -> Drain:
        try:
            budgets = drain.pods[pod.uid].budgets or self._cluster.budgets_of(pod)
            return name_budgets(drain, pod.uid, budgets)
        except (ClusterUnavailable, ClusterRefused):
            return drain  # the server's own words have to do

    @property
    def tried_balancers(self) -> bool:
        """Whether load balancers have been told, or were to be."""
        return self._balancers_at > self._began

    def exclude_from_load_balancers(self, drain: Drain) -> Drain:
        """Have load balancers leave the node out, when its pods have been asked to go: that takes
        several calls. Where asking takes long, it is not waited for."""
        now = self._clock.now()
        if drain.load_balancers or not drain.listed or now < self._balancers_at:
            return drain
        if self._requests.queued and now < self._began + BALANCERS_EVERY:
            return drain
        self._balancers_at = now + BALANCERS_EVERY
        if not self.is_the_machines(drain):
            return drain
        try:
            left_out = self._cluster.exclude_from_load_balancers(self._node)
        except ClusterUnavailable:
            return drain
        except ClusterRefused as error:
            return replace(drain, load_balancers=f"not told: {error}")
        kept = "keep it: without it more than half of the Ready nodes would be left out"
        return replace(drain, load_balancers="leave it out" if left_out else kept)

    @property
    def awaits_evictions(self) -> bool:
        """Whether the API server works on an eviction."""
        return bool(self._requests.evictions())

    def abandon(self, drain: Drain) -> Drain:
        """Take in the answers of the last moment, and write down which did not come."""
        drain = self.act(drain, (), TOGETHER)
        silence = Answer(Meaning.TRANSIENT, "no answer yet")
        for ask in self._requests.unanswered():
            drain = record(drain, ask, silence, self.terms, self._clock.now())
        return drain

    def rest(self, drain: Drain, until: datetime) -> None:
        """Wait until something changes, or a pod's moment comes."""
        now = self._clock.now()
        wake_at = min(next_moment(drain, self.pods, self.terms, now), until)
        self._feed.wait((wake_at - now).total_seconds())


def pause_while_they_go(
    drain: Drain, now: datetime, deadline: datetime | None, heartbeat: datetime | None
) -> timedelta:
    """Return how long a drain may be left alone whose pods have all been asked and only need time:
    not at all for the first seconds, in which most of them end, and then as long again as it has
    been quiet, up to LONGEST_LOOK_AWAY. Not so near the deadline that a pod that came back would
    miss its moment, nor past the next heartbeat of a hook.
    """
    moved = moved_at(drain)
    if moved is None or not only_waits(drain) or now - moved < STAYS_FOR:
        return timedelta(0)
    rest = min(now - moved, LONGEST_LOOK_AWAY)
    if deadline is not None:
        rest = min(rest, deadline - LAST_LOOK - now)
    if heartbeat is not None:
        rest = min(rest, heartbeat - now)
    return rest if rest >= 2 * POLL else timedelta(0)


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
