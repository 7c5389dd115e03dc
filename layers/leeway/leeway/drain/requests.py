"""Requests under way: many at once, and none that waits for one that hangs."""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from leeway.drain.plan import PodRequest
from leeway.drain.progress import RemovalMethod
from leeway.ports.kubernetes_objects import Response

AT_ONCE = 16
"""Requests that are answered at the same time for one node: enough for 110 pods in a second or two,
and few enough that a hundred nodes at once do not fill the API server's priority level."""

HANGS_AFTER = 1.0
"""Seconds. A request that is not answered after them no longer counts against AT_ONCE."""

MOST_THREADS = 320
"""As many as hang at most when AT_ONCE are begun each second, and each is given up after twenty."""


@dataclass(eq=False, slots=True)
class _Request:
    ask: PodRequest
    began: float = 0.0
    answer: Response | BaseException | None = None


class Requests:
    """Makes requests in threads; tells, by calling `wake`, when one is answered."""

    def __init__(self, make: Callable[[PodRequest], Response], wake: Callable[[], None]) -> None:
        self._make = make
        self._wake = wake
        self._lock = threading.Lock()
        self._queued: deque[_Request] = deque()
        self._running: set[_Request] = set()
        self._known: list[_Request] = []
        self._open = 0
        self._all_answered = threading.Event()
        self._all_answered.set()

    def __enter__(self) -> "Requests":
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._queued.clear()

    def begin(self, asks: tuple[PodRequest, ...]) -> None:
        """Make these requests, but for those that are under way already."""
        under_way = {(one.ask.pod.uid, one.ask.way) for one in self._known}
        for ask in asks:
            if (ask.pod.uid, ask.way) not in under_way:
                request = _Request(ask)
                self._known.append(request)
                with self._lock:
                    self._queued.append(request)
                    self._open += 1
                    self._all_answered.clear()
        self._start_more()

    def answered(self, within: float) -> list[tuple[PodRequest, Response]]:
        """Return the answers that have come, waiting so many seconds for the rest of them."""
        self._start_more()
        self._all_answered.wait(within)
        known, self._known = self._known, []
        answers: list[tuple[PodRequest, Response]] = []
        for one in known:
            if one.answer is None:
                self._known.append(one)
            elif isinstance(one.answer, BaseException):
                raise one.answer
            else:
                answers.append((one.ask, one.answer))
        return answers

    def evictions(self, seconds: float = 0.0) -> frozenset[str]:
        """Return the UIDs of the pods whose evictions have been under way for so long."""
        latest = time.monotonic() - seconds
        return frozenset(
            one.ask.pod.uid
            for one in self._known
            if one.ask.way is RemovalMethod.EVICT and one.answer is None and 0 < one.began <= latest
        )

    @property
    def queued(self) -> bool:
        """Whether requests wait for others to be answered."""
        return bool(self._queued)

    def unanswered(self) -> list[PodRequest]:
        """Return the requests whose answers have not come."""
        return [one.ask for one in self._known]

    def _start_more(self) -> None:
        with self._lock:
            young = time.monotonic() - HANGS_AFTER
            busy = sum(one.began > young for one in self._running)
            while self._queued and busy < AT_ONCE and len(self._running) < MOST_THREADS:
                request = self._queued.popleft()
                request.began = time.monotonic()
                self._running.add(request)
                busy += 1
                # Daemons: a process that ends waits for none of them.
                threading.Thread(target=self._run, args=(request,), daemon=True).start()

    def _run(self, request: _Request) -> None:
        try:
            request.answer = self._make(request.ask)
        except BaseException as error:  # noqa: BLE001 (told to whoever waits, whatever it is)
            request.answer = error
        with self._lock:
            self._running.discard(request)
            self._open -= 1
            if not self._open:
                self._all_answered.set()
        try:
            self._start_more()
        except RuntimeError:
            return  # the process ends: nobody waits for the rest
        self._wake()
