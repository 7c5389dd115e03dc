"""Executes a node's drain for a given time: observes, decides, requests, waits.

Requests run concurrently: one that hangs does not delay the others.
"""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from leeway.clock import Clock
from leeway.ports.kubernetes import (
    EVICTION_SECONDS,
    EVICTION_SETTLES_SECONDS,
    Cluster,
    ClusterRefused,
    ClusterUnavailable,
    PodFeed,
)
from leeway.ports.kubernetes_objects import Pod, Response
from leeway.retirement.plan import give_up, next_moment, plan
from leeway.retirement.pods import Answer, Meaning, Terms, read_answer
from leeway.retirement.progress import (
    Drain,
    PodRequest,
    RemovalMethod,
    Stage,
    displaced,
    expire,
    is_expired,
    observe,
    observe_volumes,
    record_answer,
    record_budgets,
    without_volumes,
)
from leeway.retirement.reasons import (
    EVICTION_FAILED,
    LOAD_BALANCERS_EXCLUDE_NODE,
    LOAD_BALANCERS_KEEP_NODE,
    PODS_NOT_LISTED,
)

MOST_CONCURRENT = 16
"""Concurrent requests for one node: enough for 110 pods in a second or two, and few enough that a
hundred nodes at once do not fill the API server's priority level."""

MOST_CONCURRENT_OF_WORKLOAD = 3
"""Concurrent evictions of the pods of one workload, which usually share a budget. An API server
writes the budget's status in each eviction, and pauses half a second after a conflicting write."""

HANGS_AFTER = 1.0
"""Seconds. A request that is not answered after them does not count as concurrent any longer."""

MOST_THREADS = 320
"""The most threads that hang at once: MOST_CONCURRENT new ones each second, each for twenty seconds
until its request times out."""


@dataclass(eq=False, slots=True)
class _OpenRequest:
    request: PodRequest
    began: float = 0.0
    answer: Response | BaseException | None = None

    @property
    def evicts(self) -> bool:
        return self.request.method is RemovalMethod.EVICT


class Requests:
    """Makes requests in threads; calls `wake` each time one is answered."""

    def __init__(self, make: Callable[[PodRequest], Response], wake: Callable[[], None]) -> None:
        self._make = make
        self._wake = wake
        self._lock = threading.Lock()
        self._queued: list[_OpenRequest] = []
        self._running: set[_OpenRequest] = set()
        self._known: list[_OpenRequest] = []
        self._open = 0
        self._all_answered = threading.Event()
        self._all_answered.set()

    def __enter__(self) -> "Requests":
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._queued.clear()

    def drop_evictions(self, pods: Sequence[Pod]) -> None:
        """Drop the evictions that wait for other requests and whose pods have gone or terminate.
        An eviction with an old UID uses a disruption of the budget before it is refused."""
        staying = {pod.uid for pod in pods if pod.deletion is None}
        with self._lock:
            for one in [one for one in self._queued if one.evicts]:
                if one.request.pod.uid in staying:
                    continue
                self._queued.remove(one)
                self._known.remove(one)
                self._close()

    def start(self, requests: tuple[PodRequest, ...]) -> None:
        """Start these requests, except those that are in progress already."""
        in_progress = {(one.request.pod.uid, one.request.method) for one in self._known}
        for request in requests:
            if (request.pod.uid, request.method) not in in_progress:
                opened = _OpenRequest(request)
                self._known.append(opened)
                with self._lock:
                    self._queued.append(opened)
                    self._open += 1
                    self._all_answered.clear()
        self._start_more()

    def answered(self, timeout: float) -> list[tuple[PodRequest, Response]]:
        """Return the answers that have arrived, after all have or the timeout, in seconds."""
        self._start_more()
        self._all_answered.wait(timeout)
        known, self._known = self._known, []
        answers: list[tuple[PodRequest, Response]] = []
        for one in known:
            if one.answer is None:
                self._known.append(one)
            elif isinstance(one.answer, BaseException):
                raise one.answer
            else:
                answers.append((one.request, one.answer))
        return answers

    def evictions(self, seconds: float = 0.0) -> frozenset[str]:
        """Return the UIDs of the pods whose evictions have been in progress for this long."""
        latest = time.monotonic() - seconds
        return frozenset(
            one.request.pod.uid
            for one in self._known
            if one.evicts and one.answer is None and 0 < one.began <= latest
        )

    @property
    def queued(self) -> bool:
        """Whether requests wait until others are answered."""
        return bool(self._queued)

    def unanswered(self) -> list[tuple[PodRequest, float]]:
        """Return the requests that were made and whose answers have not arrived, with the seconds
        since they were made."""
        now = time.monotonic()
        return [(one.request, now - one.began) for one in self._known if one.began]

    def _start_more(self) -> None:
        with self._lock:
            hanging_since = time.monotonic() - HANGS_AFTER
            busy = Counter(
                one.request.pod.workload for one in self._running if one.began > hanging_since
            )
            for opened in [*self._queued]:
                if busy.total() >= MOST_CONCURRENT or len(self._running) >= MOST_THREADS:
                    return
                workload = opened.request.pod.workload
                if opened.evicts and busy[workload] >= MOST_CONCURRENT_OF_WORKLOAD:
                    continue
                self._queued.remove(opened)
                opened.began = time.monotonic()
                self._running.add(opened)
                busy[workload] += 1
                # Daemon threads, so that the process can exit while requests hang.
                threading.Thread(target=self._run, args=(opened,), daemon=True).start()

    def _close(self) -> None:
        self._open -= 1
        if not self._open:
            self._all_answered.set()

    def _run(self, opened: _OpenRequest) -> None:
        try:
            opened.answer = self._make(opened.request)
        except BaseException as error:  # noqa: BLE001 (raised in the thread that reads the answer)
            opened.answer = error
        with self._lock:
            self._running.discard(opened)
            self._close()
        try:
            self._start_more()
        except RuntimeError:
            return  # the process exits, and no new thread can start
        self._wake()


_MAY_BE_GRANTED = frozenset({Meaning.BLOCKED, Meaning.TRANSIENT})


def evict(cluster: Cluster, pod: Pod, grace: int | None) -> Response:
    """Evict a pod; return the API server's answer.

    An API server evicts in two steps: it counts the pod in its budget's status, then it deletes
    the pod. If the client disconnects between the two steps, the disruption is counted and the
    pod still runs: further evictions of it are refused, or count another disruption. Such a pod is
    deleted by its UID.
    """
    response = cluster.evict(pod, grace)
    if read_answer(response).meaning not in _MAY_BE_GRANTED:
        return response
    try:
        granted = cluster.eviction_is_granted(pod)
    except (ClusterUnavailable, ClusterRefused):
        return response
    return cluster.delete(pod, grace) if granted else response


ANSWERS_TIMEOUT = 0.02
"""Seconds to wait for answers in each cycle, so that several are handled together."""

FINAL_ANSWERS_TIMEOUT = 2.0
"""Seconds to wait for the last answers at the deadline."""

FINAL_LIST_TIMEOUT = 2.0
"""Seconds that a list may take at the deadline."""

LIST_VOLUMES_EVERY = timedelta(seconds=2)
"""Between two lists of the cluster's volume attachments, which cannot be filtered by node."""

LIST_RETRIES_AFTER_DEADLINE = timedelta(seconds=5)
"""How long a drain that begins after its deadline retries its first list."""

RETRY_LOAD_BALANCERS_EVERY = timedelta(seconds=2)
"""Between two tries to exclude the node from load balancers."""

NODE_CHECK_VALID_FOR = timedelta(seconds=5)
"""How long a check of the Node object's UID is valid."""


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """The UID of the Node object that is drained, and when it was last seen under the node's name.

    Nodes are named by IP addresses, which are reused: pods that are listed under the name may soon
    run on another machine.
    """

    uid: str
    seen_at: datetime


type Watcher = Callable[[Drain], None]


class DrainExecutor:
    """Drains nodes of one cluster.

    `watcher` is called with every state of a drain. `terminates` says that the node will not come
    back, so that load balancers exclude it. `may_suspend` says whether a drain that is not over may
    be suspended now.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        watcher: Watcher | None = None,
        terminates: bool = True,
        may_suspend: Callable[[Drain], bool] = lambda _: False,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._watcher = watcher
        self._terminates = terminates
        self._may_suspend = may_suspend

    def run(
        self,
        node: str,
        drain: Drain,
        terms: Terms,
        until: datetime,
        is_current: Callable[[], bool] = lambda: True,
        selector: str = "",
        identity: NodeIdentity | None = None,
        answers_until: datetime | None = None,
    ) -> Drain:
        """Run a drain until it is over, until `until` or its deadline, or until `is_current`, which
        is called before requests, returns False. It also ends when another machine than `identity`
        has the node's name.

        The executor waits for evictions in progress until `answers_until`: an eviction without its
        answer may count a disruption twice.

        A list that fails is repeated, and its pods do not count as gone. A list that the API server
        refuses is repeated too if there is a deadline: the missing right may be added in time.
        With a label selector, only the pods that it selects are drained.
        """
        with (
            self._cluster.watch_pods(node, selector) as feed,
            Requests(self._make, feed.wake) as requests,
        ):
            drain_pass = _DrainPass(
                self._cluster, self._clock, node, terms, feed, requests, identity
            )
            while True:
                drain = drain_pass.observe(drain)
                expired = is_expired(drain_pass.terms, self._clock.now())
                # Twice at the deadline: a pod whose eviction is refused then is still deleted.
                for _ in range(2 if expired else 1):
                    drain, due = drain_pass.decide(drain)
                    if due and not is_current():
                        return drain
                    if due and not drain_pass.identity_holds(drain, due):
                        return displaced(drain)
                    timeout = FINAL_ANSWERS_TIMEOUT if expired else ANSWERS_TIMEOUT
                    drain = drain_pass.request(drain, due, timeout)
                if self._terminates and not (expired and drain_pass.tried_load_balancers):
                    drain = drain_pass.exclude_from_load_balancers(drain)
                if expired:
                    drain = expire(drain)
                elif drain.over:
                    drain = drain_pass.observe(drain, fresh=True)
                if self._watcher:
                    self._watcher(drain)
                if drain.over or (expired and not drain_pass.retries_first_list(drain)):
                    return drain
                ends = (answers_until or until) if drain_pass.has_open_evictions else until
                if self._clock.now() >= ends or self._may_suspend(drain):
                    return drain_pass.suspend(drain)
                drain_pass.wait(drain, ends)

    def _make(self, request: PodRequest) -> Response:
        if request.method is RemovalMethod.EVICT:
            return evict(self._cluster, request.pod, request.grace)
        return self._cluster.delete(request.pod, request.grace)


class _DrainPass:
    """The actions of one pass of a drain: observe, decide, request, wait."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        node: str,
        terms: Terms,
        feed: PodFeed,
        requests: Requests,
        identity: NodeIdentity | None,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._node = node
        self.terms = terms
        self._feed = feed
        self._requests = requests
        self._identity = identity
        self._began = self._list_volumes_at = self._try_load_balancers_at = clock.now()
        self.pods: Sequence[Pod] = ()

    def observe(self, drain: Drain, fresh: bool = False) -> Drain:
        """Update the drain from the node's pods and, if the drain waits for volumes, from the
        attached volumes."""
        try:
            self.pods = (self._feed.refresh if fresh else self._feed.pods)(self._list_timeout())
        except ClusterUnavailable as error:
            self.pods = ()
            return replace(
                drain,
                problem=PODS_NOT_LISTED(f"Leeway cannot list the pods of the node: {error}."),
            )
        except ClusterRefused as error:
            if self.terms.deadline is None:
                raise
            self.pods = ()
            return replace(
                drain,
                problem=PODS_NOT_LISTED(f"Leeway cannot list the pods of the node: {error}."),
            )
        now = self._clock.now()
        identity = self._identity
        if identity and not drain.listed and now - identity.seen_at < NODE_CHECK_VALID_FOR:
            self._identity = replace(identity, seen_at=now)
        if not drain.listed and (when := self._when_listed_late(now)):
            late = PODS_NOT_LISTED(
                f"Leeway first listed the pods of the node {when}: pods may be missing from the "
                "list."
            )
            drain = replace(drain, listed_late=late)
        self._requests.drop_evictions(self.pods)
        awaited = [
            request.pod.uid
            for request, _ in self._requests.unanswered()
            if request.method is not RemovalMethod.SHORTEN
        ]
        drain = observe(drain, self.pods, self.terms, now, awaited)
        return self._observe_volumes(drain)

    def _when_listed_late(self, now: datetime) -> str:
        """Return when a first list is made that may lack pods; empty if it lacks none."""
        if is_expired(self.terms, now):
            return "after the deadline, when its machine may have stopped"
        if self._identity is None or now - self._identity.seen_at < NODE_CHECK_VALID_FOR:
            return ""
        try:
            found = self._cluster.node(self._node)
        except (ClusterUnavailable, ClusterRefused):
            return ""
        if found is None or found.uid != self._identity.uid:
            return "when the Node object was gone"
        return ""

    def _list_timeout(self) -> float:
        """Return how many seconds a list may take: until the deadline, and FINAL_LIST_TIMEOUT at
        the least, to observe the result of the last requests."""
        if self.terms.deadline is None:
            return math.inf
        left = (self.terms.deadline - self._clock.now()).total_seconds()
        return max(left, FINAL_LIST_TIMEOUT)

    def _observe_volumes(self, drain: Drain) -> Drain:
        now = self._clock.now()
        if not drain.at(Stage.DETACHING) or now < self._list_volumes_at:
            return drain
        self._list_volumes_at = now + LIST_VOLUMES_EVERY
        try:
            attached = {one.claim for one in self._cluster.attachments_on(self._node)}
        except ClusterUnavailable as error:
            return replace(
                drain,
                problem=PODS_NOT_LISTED(
                    f"Leeway cannot read which volumes are attached to the node: {error}."
                ),
            )
        except ClusterRefused as error:
            return without_volumes(
                drain,
                PODS_NOT_LISTED(
                    f"Leeway cannot read which volumes are attached to the node: {error}."
                ),
            )
        return observe_volumes(drain, self.pods, attached, now)

    def retries_first_list(self, drain: Drain) -> bool:
        """Whether a drain that began after its deadline lists its pods again: a list that fails
        once must not leave all pods without their SIGTERM."""
        overdue = not drain.listed and is_expired(self.terms, self._began)
        return overdue and self._clock.now() < self._began + LIST_RETRIES_AFTER_DEADLINE

    def decide(self, drain: Drain) -> tuple[Drain, tuple[PodRequest, ...]]:
        """Decide which requests are due now."""
        now = self._clock.now()
        drain = give_up(drain, self.pods, self.terms, now)
        return drain, plan(drain, self.pods, self.terms, now, self._requests.evictions(HANGS_AFTER))

    def identity_holds(self, drain: Drain, due: tuple[PodRequest, ...] = ()) -> bool:
        """Whether the Node object of the same UID still has the node's name. The Node is read
        unless the last check is valid and these pods appeared before it.

        A check that fails counts as passed: the pods' time runs out.
        """
        if self._identity is None:
            return True
        now, seen_at = self._clock.now(), self._identity.seen_at
        appeared = max(
            (drain.pods[request.pod.uid].seen_at or now for request in due), default=seen_at
        )
        if now - seen_at < NODE_CHECK_VALID_FOR and appeared <= seen_at:
            return True
        try:
            found = self._cluster.node(self._node)
        except (ClusterUnavailable, ClusterRefused):
            return True
        if found is not None and found.uid != self._identity.uid:
            return False
        self._identity = replace(self._identity, seen_at=now)
        return True

    def request(self, drain: Drain, due: tuple[PodRequest, ...], timeout: float) -> Drain:
        """Start requests, and record the answers that arrive within the timeout, in seconds."""
        self._requests.start(due)
        for request, response in self._requests.answered(timeout):
            answer = read_answer(response)
            drain = record_answer(drain, request, answer, self.terms, self._clock.now())
            if answer.meaning is Meaning.NOT_EVICTABLE:
                drain = self._record_budgets(drain, request.pod)
        return drain

    def _record_budgets(self, drain: Drain, pod: Pod) -> Drain:
        try:
            budgets = drain.pods[pod.uid].budgets or self._cluster.budgets_of(pod)
            return record_budgets(drain, pod.uid, budgets)
        except (ClusterUnavailable, ClusterRefused):
            return drain  # the reason stays without the names

    @property
    def tried_load_balancers(self) -> bool:
        """Whether this pass tried to exclude the node from load balancers."""
        return self._try_load_balancers_at > self._began

    def exclude_from_load_balancers(self, drain: Drain) -> Drain:
        """Exclude the node from load balancers, which takes several calls, after the evictions are
        requested. If that takes long, do not wait for it."""
        now = self._clock.now()
        if drain.load_balancers or not drain.listed or now < self._try_load_balancers_at:
            return drain
        if self._requests.queued and now < self._began + RETRY_LOAD_BALANCERS_EVERY:
            return drain
        self._try_load_balancers_at = now + RETRY_LOAD_BALANCERS_EVERY
        if not self.identity_holds(drain):
            return drain
        try:
            excluded = self._cluster.exclude_from_load_balancers(self._node)
        except ClusterUnavailable:
            return drain
        except ClusterRefused as error:
            return replace(drain, load_balancers=LOAD_BALANCERS_KEEP_NODE(f"{error}"))
        if excluded:
            return replace(drain, load_balancers=LOAD_BALANCERS_EXCLUDE_NODE())
        why = "without it, more than half of the Ready nodes would be excluded"
        return replace(drain, load_balancers=LOAD_BALANCERS_KEEP_NODE(why))

    @property
    def has_open_evictions(self) -> bool:
        """Whether the API server has not answered an eviction yet."""
        return bool(self._requests.evictions())

    def suspend(self, drain: Drain) -> Drain:
        """Record the last answers, and which requests have none. An eviction without an answer is
        repeated only when it is over: two at a time would use two disruptions of the budget."""
        drain = self.request(drain, (), ANSWERS_TIMEOUT)
        for request, seconds in self._requests.unanswered():
            evicts = request.method is RemovalMethod.EVICT
            left = math.ceil(EVICTION_SECONDS + EVICTION_SETTLES_SECONDS - seconds)
            unanswered = Answer(
                Meaning.TRANSIENT,
                EVICTION_FAILED("the API server has not answered the eviction yet"),
                max(left, 0) if evicts else None,
            )
            drain = record_answer(drain, request, unanswered, self.terms, self._clock.now())
        return drain

    def wait(self, drain: Drain, until: datetime) -> None:
        """Wait until something changes or a request is due."""
        now = self._clock.now()
        wake_at = min(next_moment(drain, self.pods, self.terms, now), until)
        self._feed.wait((wake_at - now).total_seconds())
