"""How a retirement lets others watch its drain."""

from datetime import datetime, timedelta

from leeway.clock import Clock
from leeway.drain.ports import DrainStates
from leeway.drain.progress import Drain
from leeway.drain.summary import DrainState, PodState, summarise
from leeway.execution.attempt import AttemptId
from leeway.ports.aws import CloudRefused, CloudUnavailable

PACE = timedelta(seconds=2)
"""How often a drain that changes is shown. A storm's hundred drains share one table."""

PAUSE = timedelta(seconds=30)
"""How long a table that did not take it is left alone."""


class ProgressPublisher:
    """Shows one pass of a drain: its changes at a pace, and its end. `before` is the drain at its
    beginning, as the pass before it has shown it, if there was one."""

    def __init__(
        self, drains: DrainStates, clock: Clock, order: AttemptId, node: str, before: Drain
    ) -> None:
        self._drains = drains
        self._clock = clock
        self._order = order
        self._node = node
        self._next = clock.now() + PACE
        self._last: tuple[PodState, ...] | None = None
        if before.listed:
            self._last = self._state(before, clock.now()).pods

    def round(self, drain: Drain) -> None:
        """Show how far the drain is, if it has changed and it is time."""
        now = self._clock.now()
        if now >= self._next:
            self._show(drain, now)

    def end(self, drain: Drain) -> None:
        """Show how far the drain is at the end of the pass, if it has changed. One that is over so
        soon that nobody has seen it is told of as a whole, elsewhere."""
        if drain.over and self._last is None:
            return
        now = self._clock.now()
        if now + PACE >= self._next:
            self._show(drain, now)

    def _show(self, drain: Drain, now: datetime) -> None:
        """That nobody could be told holds up nothing."""
        state = self._state(drain, now)
        if state.pods == self._last and not state.problem:
            return
        self._last, self._next = state.pods, now + PACE
        try:
            self._drains.show(state)
        except (CloudUnavailable, CloudRefused):
            self._next = now + PAUSE

    def _state(self, drain: Drain, now: datetime) -> DrainState:
        return summarise(self._order.instance, self._order.attempt, self._node, drain, now)
