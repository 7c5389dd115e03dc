"""Decides when a lifecycle hook that Leeway holds open needs a heartbeat, and when it ends."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from leeway.lifecycle_hooks.reasons import HEARTBEAT_FAILED, HOOK_TIMED_OUT
from leeway.notices import LifecycleHook
from leeway.reasons import Reason

# Source: EC2 Auto Scaling user guide, "How lifecycle hooks work" and "Lifecycle hooks": a heartbeat
# timeout is 30 to 7,200 seconds, and a lifecycle action waits at most 48 hours or 100 heartbeat
# timeouts, the smaller of the two.
SHORTEST_TIMEOUT = 30
LONGEST_TIMEOUT = 7200
MAX_HEARTBEATS = 100
LONGEST_WAIT = timedelta(hours=48)

SHORTEST_PAUSE = 1.0
"""Seconds: the shortest pause between two attempts of a heartbeat."""

TRIES_PER_TIMEOUT = 8
"""How often a heartbeat that fails is attempted per timeout. Half of them are before the timeout,
because the first is at half of it."""

ENDS_BEFORE = timedelta(seconds=5)
"""How long before the end of the lifecycle action the work on its instance should be done."""

EKS_HOOKS = frozenset({"Launch-LC-Hook", "Terminate-LC-Hook"})
"""The hooks that EKS creates on the groups of managed node groups. EKS drains the node too, and
answers the hooks itself. If the policy retires these nodes, Leeway drains them and does not answer
the hooks."""


@dataclass(frozen=True, slots=True)
class HeldHook:
    """A lifecycle action that waits since `since` and that Leeway keeps waiting.

    - `timeout`: the HeartbeatTimeout of the hook in seconds, None until it is read.
    - `alive_at`: when the wait began or the last heartbeat arrived.
    - `next_at`: when the next heartbeat is due; None if none is needed any more.
    - `problem`: why no heartbeat is needed any more, or why the last one failed.
    """

    hook: LifecycleHook
    since: datetime
    alive_at: datetime
    next_at: datetime | None
    timeout: int | None = None
    problem: Reason | None = None

    @property
    def ends_at(self) -> datetime:
        """When the lifecycle action ends even if every heartbeat arrives."""
        return self.since + min(LONGEST_WAIT, MAX_HEARTBEATS * timedelta(seconds=self._timeout))

    @property
    def _timeout(self) -> int:
        return SHORTEST_TIMEOUT if self.timeout is None else self.timeout

    def with_timeout(self, timeout: int) -> "HeldHook":
        """Set the HeartbeatTimeout of the hook, in seconds."""
        return _schedule_heartbeat(replace(self, timeout=timeout), self.alive_at)

    def heartbeat_sent(self, now: datetime) -> "HeldHook":
        """Record a heartbeat that succeeded."""
        return _schedule_heartbeat(replace(self, alive_at=now, problem=None), now)

    def heartbeat_failed(self, error: str, now: datetime) -> "HeldHook":
        """Record a heartbeat that failed. It is retried until the action has timed out."""
        facts = {"hook": self.hook.name, "group": self.hook.group, "error": error}
        if now >= self.alive_at + timedelta(seconds=self._timeout):
            return self.over(HOOK_TIMED_OUT(**facts))
        pause = max(SHORTEST_PAUSE, self._timeout / TRIES_PER_TIMEOUT)
        next_at = now + timedelta(seconds=pause)
        return replace(self, next_at=next_at, problem=HEARTBEAT_FAILED(**facts))

    def over(self, reason: Reason) -> "HeldHook":
        """Record that the lifecycle action does not wait any more, or not for Leeway."""
        return replace(self, next_at=None, problem=reason)


def _schedule_heartbeat(held: HeldHook, alive_at: datetime) -> HeldHook:
    """Schedule the next heartbeat at half of the timeout; none if the action ends before that."""
    timeout = timedelta(seconds=held._timeout)
    if alive_at + timeout >= held.ends_at:
        return replace(held, next_at=None)
    return replace(held, next_at=alive_at + timeout / 2)


def hold(
    hook: LifecycleHook, since: datetime | None, now: datetime, timeout: int | None = None
) -> HeldHook:
    """Begin to hold a lifecycle action that waits since `since`. If that is None, because it is not
    known, the first heartbeat is due at once."""
    if since is None:
        return HeldHook(hook, now, now, now, timeout)
    return _schedule_heartbeat(HeldHook(hook, since, since, None, timeout), since)


def with_new_hooks(
    held: Sequence[HeldHook],
    hooks: Sequence[LifecycleHook],
    since: datetime | None,
    now: datetime,
) -> tuple[HeldHook, ...]:
    """Return the held hooks, and those of `hooks` that were not held yet."""
    known = {one.hook for one in held}
    return (*held, *(hold(hook, since, now) for hook in hooks if hook not in known))


def next_heartbeat(held: Sequence[HeldHook]) -> datetime | None:
    """Return when the first of the next heartbeats is due; None if no hook needs one."""
    return min((one.next_at for one in held if one.next_at is not None), default=None)


def earliest_deadline(deadline: datetime | None, held: Sequence[HeldHook]) -> datetime | None:
    """Return the deadline of the work for which these hooks are held.

    The instance ends with the first lifecycle action that ends, so the end of an action is a
    deadline too. An action that is over, or whose timeout is not known, sets none.
    """
    ends = [one.ends_at - ENDS_BEFORE for one in held if one.timeout is not None and _waits(one)]
    return min([*ends, deadline] if deadline is not None else ends, default=None)


def all_over(held: Sequence[HeldHook], now: datetime) -> bool:
    """Return whether there are hooks and none of them waits any more."""
    return bool(held) and not any(_waits(one) and now < one.ends_at for one in held)


def _waits(held: HeldHook) -> bool:
    return held.problem is None or held.next_at is not None
