"""Writes the progress of a retirement's drain to the table, for `leeway status`."""

from datetime import datetime, timedelta

from leeway.clock import Clock
from leeway.drain.ports import DrainStates
from leeway.drain.progress import Drain
from leeway.drain.summary import DrainState, PodState, summarise
from leeway.execution.attempt import AttemptId
from leeway.ports.aws import CloudRefused, CloudUnavailable

PUBLISH_EVERY = timedelta(seconds=2)
"""The shortest pause between two writes. A storm's hundred drains share one table."""

RETRY_AFTER = timedelta(seconds=30)
"""The pause after a write that failed."""


class ProgressPublisher:
    """Publishes one pass of a drain: changes every PUBLISH_EVERY, and the end. `before` is the
    drain at the beginning of the pass, which the pass before has published."""

    def __init__(
        self, drains: DrainStates, clock: Clock, attempt_id: AttemptId, node: str, before: Drain
    ) -> None:
        self._drains = drains
        self._clock = clock
        self._attempt_id = attempt_id
        self._node = node
        self._next = clock.now() + PUBLISH_EVERY
        self._last: tuple[PodState, ...] | None = None
        if before.listed:
            self._last = self._state(before, clock.now()).pods

    def publish(self, drain: Drain) -> None:
        """Publish the progress if it changed and the pause is over."""
        now = self._clock.now()
        if now >= self._next:
            self._write(drain, now)

    def publish_end(self, drain: Drain) -> None:
        """Publish the progress at the end of the pass if it changed. A drain that is over before
        the first write is not published: the outcome reports it."""
        if drain.over and self._last is None:
            return
        now = self._clock.now()
        if now + PUBLISH_EVERY >= self._next:
            self._write(drain, now)

    def _write(self, drain: Drain, now: datetime) -> None:
        """Write the progress; a failed write does not delay the drain."""
        state = self._state(drain, now)
        if state.pods == self._last and not state.problem:
            return
        self._last, self._next = state.pods, now + PUBLISH_EVERY
        try:
            self._drains.put(state)
        except (CloudUnavailable, CloudRefused):
            self._next = now + RETRY_AFTER

    def _state(self, drain: Drain, now: datetime) -> DrainState:
        attempt_id = self._attempt_id
        return summarise(attempt_id.instance, attempt_id.attempt, self._node, drain, now)
