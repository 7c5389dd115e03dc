"""A lifecycle hook that is held open: when a heartbeat is due, and when waiting ends for good."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from leeway.notices import LifecycleHook

# Source: EC2 Auto Scaling user guide, "How lifecycle hooks work" and "Lifecycle hooks":
# a heartbeat timeout is 30 to 7,200 seconds, and an action waits for the smaller of 48 hours and a
# hundred heartbeat timeouts.
LEAST_TIMEOUT = 30
LONGEST_TIMEOUT = 7200
HEARTBEATS = 100
LONGEST_WAIT = timedelta(hours=48)

SHORTEST_PAUSE = 1.0
"""Seconds between two tries of a heartbeat, at the least."""

TRIES_IN_A_TIMEOUT = 8
"""How often a heartbeat that fails is tried while the timeout runs; half of them come in time."""

ENDS_BEFORE = timedelta(seconds=5)
"""How long before the end of its wait an instance's work should be done."""

EKS_HOOKS = frozenset({"Launch-LC-Hook", "Terminate-LC-Hook"})
"""Hooks that EKS puts on the groups of managed node groups: it drains by them too, and answers them
when it is done. Leeway drains beside it where the policy takes these nodes, and answers neither."""


@dataclass(frozen=True, slots=True)
class HeldHook:
    """A lifecycle action that is kept waiting since `since`.

    `timeout` is the hook's HeartbeatTimeout in seconds, None until Auto Scaling was asked for it.
    `alive_at` is when the wait began or was last prolonged. `next_at` is when something is to be
    done about it; None says that nothing is any more, and `problem` why, or what failed last.
    """

    hook: LifecycleHook
    since: datetime
    alive_at: datetime
    next_at: datetime | None
    timeout: int | None = None
    problem: str = ""

    @property
    def ends_at(self) -> datetime:
        """When the action ends though every heartbeat arrives."""
        return self.since + min(LONGEST_WAIT, HEARTBEATS * timedelta(seconds=self._timeout))

    @property
    def _timeout(self) -> int:
        return LEAST_TIMEOUT if self.timeout is None else self.timeout

    def known(self, timeout: int) -> "HeldHook":
        """Take in the hook's own HeartbeatTimeout, in seconds."""
        return _scheduled(replace(self, timeout=timeout), self.alive_at)

    def beaten(self, now: datetime) -> "HeldHook":
        """Take in that a heartbeat arrived."""
        return _scheduled(replace(self, alive_at=now, problem=""), now)

    def failed(self, problem: str, now: datetime) -> "HeldHook":
        """Take in that one did not: it is tried again until the action must have timed out."""
        if now >= self.alive_at + timedelta(seconds=self._timeout):
            return self.over(f"no heartbeat arrived in time: {problem}")
        pause = max(SHORTEST_PAUSE, self._timeout / TRIES_IN_A_TIMEOUT)
        return replace(self, next_at=now + timedelta(seconds=pause), problem=problem)

    def over(self, reason: str) -> "HeldHook":
        """Take in that the action waits no more."""
        return replace(self, next_at=None, problem=reason)


def _scheduled(held: HeldHook, alive_at: datetime) -> HeldHook:
    """Put the next heartbeat at half of the timeout, unless the wait ends before it is needed."""
    timeout = timedelta(seconds=held._timeout)
    if alive_at + timeout >= held.ends_at:
        return replace(held, next_at=None)
    return replace(held, next_at=alive_at + timeout / 2)


def hold(
    hook: LifecycleHook, since: datetime | None, now: datetime, timeout: int | None = None
) -> HeldHook:
    """Begin to hold an action that waits `since` then; None where that is not known, and its
    first heartbeat is due at once."""
    if since is None:
        return HeldHook(hook, now, now, now, timeout)
    return _scheduled(HeldHook(hook, since, since, None, timeout), since)


def joined(
    held: Sequence[HeldHook],
    hooks: Sequence[LifecycleHook],
    since: datetime | None,
    now: datetime,
) -> tuple[HeldHook, ...]:
    """Hold those of the hooks, too, that are not held yet."""
    known = {one.hook for one in held}
    return (*held, *(hold(hook, since, now) for hook in hooks if hook not in known))


def next_heartbeat(held: Sequence[HeldHook]) -> datetime | None:
    """Return when the first of the hooks needs something; None where none does."""
    return min((one.next_at for one in held if one.next_at is not None), default=None)


def with_hooks(deadline: datetime | None, held: Sequence[HeldHook]) -> datetime | None:
    """Return the deadline of work that these hooks keep the instance for.

    An action whose wait ends earlier takes the instance with it: the end that Auto Scaling sets is
    the deadline then. One that is over, or of which the timeout is not known, sets none.
    """
    ends = [one.ends_at - ENDS_BEFORE for one in held if one.timeout is not None and _waits(one)]
    return min([*ends, deadline] if deadline is not None else ends, default=None)


def none_waits(held: Sequence[HeldHook], now: datetime) -> bool:
    """Whether there were hooks, and each has been answered or has run out by now."""
    return bool(held) and not any(_waits(one) and now < one.ends_at for one in held)


def _waits(held: HeldHook) -> bool:
    return not held.problem or held.next_at is not None
