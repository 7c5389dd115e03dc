"""Makes requests to the API server concurrently; a request that hangs does not delay the others."""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from leeway.drain.plan import PodRequest
from leeway.drain.progress import RemovalMethod
from leeway.ports.kubernetes_objects import Response

MOST_CONCURRENT = 16
"""Concurrent requests for one node: enough for 110 pods in a second or two, and few enough that a
hundred nodes at once do not fill the API server's priority level."""

HANGS_AFTER = 1.0
"""Seconds. A request that is not answered after them does not count against MOST_CONCURRENT."""

MOST_THREADS = 320
"""The most threads that hang at once: MOST_CONCURRENT new ones each second, each for twenty seconds
until its request times out."""


@dataclass(eq=False, slots=True)
class _OpenRequest:
    request: PodRequest
    began: float = 0.0
    answer: Response | BaseException | None = None


class Requests:
    """Makes requests in threads; calls `wake` each time one is answered."""

    def __init__(self, make: Callable[[PodRequest], Response], wake: Callable[[], None]) -> None:
        self._make = make
        self._wake = wake
        self._lock = threading.Lock()
        self._queued: deque[_OpenRequest] = deque()
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
            if one.request.method is RemovalMethod.EVICT
            and one.answer is None
            and 0 < one.began <= latest
        )

    @property
    def queued(self) -> bool:
        """Whether requests wait until others are answered."""
        return bool(self._queued)

    def unanswered(self) -> list[PodRequest]:
        """Return the requests whose answers have not arrived."""
        return [one.request for one in self._known]

    def _start_more(self) -> None:
        with self._lock:
            hanging_since = time.monotonic() - HANGS_AFTER
            busy = sum(one.began > hanging_since for one in self._running)
            while self._queued and busy < MOST_CONCURRENT and len(self._running) < MOST_THREADS:
                opened = self._queued.popleft()
                opened.began = time.monotonic()
                self._running.add(opened)
                busy += 1
                # Daemon threads, so that the process can exit while requests hang.
                threading.Thread(target=self._run, args=(opened,), daemon=True).start()

    def _run(self, opened: _OpenRequest) -> None:
        try:
            opened.answer = self._make(opened.request)
        except BaseException as error:  # noqa: BLE001 (raised in the thread that reads the answer)
            opened.answer = error
        with self._lock:
            self._running.discard(opened)
            self._open -= 1
            if not self._open:
                self._all_answered.set()
        try:
            self._start_more()
        except RuntimeError:
            return  # the process exits, and no new thread can start
        self._wake()
