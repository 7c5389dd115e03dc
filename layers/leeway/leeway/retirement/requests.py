"""Makes requests to the API server concurrently; a request that hangs does not delay the others."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from leeway.ports.kubernetes_objects import Pod, Response
from leeway.retirement.progress import PodRequest, RemovalMethod

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
