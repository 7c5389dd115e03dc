"""State that all parts of the embedded AWS share: the lock, timers, journal and faults."""

import heapq
import itertools
import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from moto.ec2.models.instances import Instance

from leeway_sandbox.aws.faults import Faults
from leeway_sandbox.control import Journal
from leeway_sandbox.lag import lag

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
        timer = Timer(time.monotonic() + seconds + lag(), callback, arguments)
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


ACCOUNT = "123456789012"

InstanceObserver = Callable[[Instance, str], None]


@dataclass(frozen=True)
class Delays:
    """Durations in seconds. They are much shorter than AWS's, so that a rehearsal is short."""

    instance_start: float = 1.0  # pending → running
    instance_stop: float = 1.0  # shutting-down → terminated, stopping → stopped
    health_check: float = 2.0  # until a group notices that an instance does not run
    reaction: float = 0.5  # until a group replaces a lost instance
    detach: float = 1.0  # Detaching → out of the group
    minimum_heartbeat: int = 30  # the shortest heartbeat timeout of a hook


@dataclass
class Cloud:
    """One account in one region, and the lock that every reader and writer of moto's models holds.

    moto's models are not thread-safe, so each request and each timed callback holds this reentrant
    lock. It costs no speed, because the interpreter runs one thread at a time.
    """

    region: str
    delays: Delays = field(default_factory=Delays)
    seed: int | None = None

    def __post_init__(self) -> None:
        self.lock = threading.RLock()
        self.random = random.Random(self.seed)
        self.journal = Journal()
        self.timers = Timers(self.lock)
        self.faults = Faults(random.Random(self.seed))
        self._observers: list[InstanceObserver] = []

    def watch_instances(self, observer: InstanceObserver) -> None:
        """Call `observer(instance, state)` after every change of an instance's state."""
        self._observers.append(observer)

    def instance_changed(self, instance: Instance) -> None:
        """Call every observer with the present state of the instance."""
        for observer in self._observers:
            observer(instance, instance.state)
