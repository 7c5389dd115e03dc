"""Runs callbacks later, one at a time, while it holds the lock of the models."""

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)


class Timer:
    """A pending callback, which can be cancelled."""

    def __init__(self, due: float, callback: Callable[..., None], arguments: tuple[Any, ...]):
        self.due = due
        self.cancelled = False
        self._callback = callback
        self._arguments = arguments

    def cancel(self) -> None:
        """Cancel the callback, if it has not started."""
        self.cancelled = True

    def run(self) -> None:
        """Run the callback unless it was cancelled; log its errors."""
        if self.cancelled:
            return
        try:
            self._callback(*self._arguments)
        except Exception:
            log.exception("A timed callback failed")


class Timers:
    """A thread with a heap of timers; callbacks hold `lock`, so they never race with a request."""

    def __init__(self, lock: threading.RLock):
        self._lock = lock
        self._heap: list[tuple[float, int, Timer]] = []
        self._changed = threading.Condition()
        self._order = itertools.count()
        threading.Thread(target=self._run, name="timers", daemon=True).start()

    def after(self, seconds: float, callback: Callable[..., None], *arguments: Any) -> Timer:
        """Run `callback(*arguments)` once, after `seconds` (at once if not positive)."""
        timer = Timer(time.monotonic() + seconds, callback, arguments)
        with self._changed:
            heapq.heappush(self._heap, (timer.due, next(self._order), timer))
            self._changed.notify()
        return timer

    def _next_due(self) -> Timer:
        with self._changed:
            while True:
                wait = self._heap[0][0] - time.monotonic() if self._heap else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._heap)[2]
                self._changed.wait(wait)

    def _run(self) -> None:
        while True:
            timer = self._next_due()
            with self._lock:
                timer.run()
