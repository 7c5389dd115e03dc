"""Auto Scaling lifecycle hooks: heartbeats while Leeway works on their instance, and the answer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from leeway.clock import Clock
from leeway.execution.attempt import Steps
from leeway.execution.shared_cache import SharedCache
from leeway.instances.facts import GroupRules
from leeway.notices import LifecycleHook
from leeway.ports.aws import (
    CloudRefused,
    CloudUnavailable,
    Groups,
    HookResult,
    HookSettings,
    LifecycleActionOver,
)
from leeway.reasons import Reason
from leeway.retirement.reasons import ANSWER_REFUSED, HEARTBEAT_FAILED, HOOK_OVER

# Source: EC2 Auto Scaling user guide, "How lifecycle hooks work" and "Lifecycle hooks": a heartbeat
# timeout is 30 to 7,200 seconds, and a lifecycle action waits at most 48 hours or 100 heartbeat
# timeouts, the smaller of the two.
SHORTEST_TIMEOUT = 30
LONGEST_TIMEOUT = 7200
MAX_HEARTBEATS = 100
LONGEST_WAIT = timedelta(hours=48)

SHORTEST_PAUSE = timedelta(seconds=1)
"""The shortest pause between two attempts of a heartbeat."""

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
        """When the lifecycle action ends even if every heartbeat arrives: at the latest, if its
        timeout is not known."""
        return self.since + min(LONGEST_WAIT, MAX_HEARTBEATS * self._longest_timeout)

    @property
    def _longest_timeout(self) -> timedelta:
        return timedelta(seconds=LONGEST_TIMEOUT if self.timeout is None else self.timeout)

    def _shortest_timeout(self, now: datetime) -> timedelta:
        """Return the timeout, or the shortest one with which the action can still wait. With a
        shorter one it has timed out since the last heartbeat, or has lasted MAX_HEARTBEATS of it.
        """
        if self.timeout is not None:
            return timedelta(seconds=self.timeout)
        shortest = timedelta(seconds=SHORTEST_TIMEOUT)
        return max(shortest, now - self.alive_at, (now - self.since) / MAX_HEARTBEATS)

    def is_due(self, now: datetime) -> bool:
        """Return whether the next heartbeat is due. It may be SHORTEST_PAUSE early: a durable wait
        has whole seconds, and would otherwise end in a pass before it."""
        return self.next_at is not None and self.next_at <= now + SHORTEST_PAUSE

    def with_timeout(self, timeout: int) -> "HeldHook":
        """Set the HeartbeatTimeout of the hook, in seconds."""
        return _schedule_heartbeat(replace(self, timeout=timeout))

    def heartbeat_sent(self, now: datetime) -> "HeldHook":
        """Record a heartbeat that succeeded."""
        return _schedule_heartbeat(replace(self, alive_at=now, problem=None))

    def heartbeat_failed(self, error: str, now: datetime) -> "HeldHook":
        """Record a heartbeat that failed. It is retried until the action has timed out: for as long
        as that can take, if its timeout is not known."""
        hook, group = self.hook.name, self.hook.group
        if now >= self.alive_at + self._longest_timeout:
            return self.over(
                HEARTBEAT_FAILED(hook=hook, group=group, why=f"{error}. The hook has timed out")
            )
        pause = max(SHORTEST_PAUSE, self._shortest_timeout(now) / TRIES_PER_TIMEOUT)
        return replace(
            self,
            next_at=now + pause,
            problem=HEARTBEAT_FAILED(hook=hook, group=group, why=f"{error}. It is retried"),
        )

    def over(self, reason: Reason) -> "HeldHook":
        """Record that the lifecycle action does not wait any more, or not for Leeway."""
        return replace(self, next_at=None, problem=reason)


def _schedule_heartbeat(held: HeldHook) -> HeldHook:
    """Schedule the next heartbeat at half of the timeout; none if the action ends before that."""
    timeout = held._shortest_timeout(held.alive_at)
    if held.alive_at + timeout >= held.ends_at:
        return replace(held, next_at=None)
    return replace(held, next_at=held.alive_at + timeout / 2)


def hold(
    hook: LifecycleHook, since: datetime | None, now: datetime, timeout: int | None = None
) -> HeldHook:
    """Begin to hold a lifecycle action that waits since `since`. If that is None, because it is not
    known, the first heartbeat is due at once."""
    if since is None:
        return HeldHook(hook, now, now, now, timeout)
    return _schedule_heartbeat(HeldHook(hook, since, since, None, timeout))


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


MAX_ANSWER_PAUSE = 60
"""Seconds: the longest pause between two attempts of an answer that Auto Scaling refuses."""

ANSWER_TRIES = 130
"""How often such an answer is attempted: for more than two hours. The longest heartbeat timeout is
two hours; then the group continues by itself."""


@dataclass(frozen=True, slots=True)
class RefusedAnswer:
    """A hook whose answer Auto Scaling refused, and why. At `until` its lifecycle action has timed
    out: an action that waits after that is another one, and this answer is not for it."""

    hook: LifecycleHook
    reason: Reason
    until: datetime


@dataclass(frozen=True, slots=True)
class HookAnswers:
    """The result of answering hooks: the refused answers, whose hooks still wait."""

    refused: tuple[RefusedAnswer, ...] = ()


class GroupCache:
    """Reads groups' rules, which are at most FRESH_FOR old."""

    def __init__(self, groups: Groups, cache: SharedCache) -> None:
        self._groups = groups
        self._cache = cache

    def rules_of(self, group: str) -> GroupRules:
        """Return the group's rules.

        Raises:
            CloudUnavailable: Auto Scaling did not answer.
            CloudRefused: Auto Scaling refused to answer, or there is no such group.
        """
        read = partial(self._groups.rules, group)
        return self._cache.get_or_read(f"group/{group}", GroupRules, read)

    def hook_settings(self, hook: LifecycleHook) -> HookSettings | None:
        """Return a hook's settings; None if the group has no such hook.

        Raises:
            CloudUnavailable, CloudRefused: Auto Scaling did not answer, or refused to.
        """
        try:
            rules = self.rules_of(hook.group)
        except CloudRefused:
            return self._groups.hook_settings(hook)
        timeout = rules.timeouts.get(hook.name)
        if timeout is None:  # the hook may be newer than the cached rules
            return self._groups.hook_settings(hook)
        return HookSettings(timeout, hook.name in rules.with_target)


class LifecycleActions:
    """Sends heartbeats and answers."""

    def __init__(self, groups: Groups, clock: Clock, settings: GroupCache | None = None) -> None:
        self._groups = groups
        self._clock = clock
        self._settings: Groups | GroupCache = settings or groups

    def send_heartbeats(self, instance: str, held: Sequence[HeldHook]) -> tuple[HeldHook, ...]:
        """Send the heartbeats that are due, and return the hooks with their next heartbeats.

        A failure is not raised: it is the hook's `problem`, and `next_heartbeat` says when this
        method must be called again.
        """
        now = self._clock.now()
        return tuple(self._heartbeat(instance, one) if one.is_due(now) else one for one in held)

    def _heartbeat(self, instance: str, held: HeldHook) -> HeldHook:
        if held.timeout is None:
            held = self._with_settings(held)
            if not held.is_due(self._clock.now()):
                return held
        try:
            self._groups.heartbeat(instance, held.hook)
        except LifecycleActionOver as error:
            return held.over(
                HOOK_OVER(
                    hook=held.hook.name,
                    group=held.hook.group,
                    why=f"it does not wait any more: {error}",
                )
            )
        except (CloudUnavailable, CloudRefused) as error:
            return held.heartbeat_failed(str(error), self._clock.now())
        return held.heartbeat_sent(self._clock.now())

    def _with_settings(self, held: HeldHook) -> HeldHook:
        """Read the timeout of the hook. If it cannot be read, the heartbeat is sent all the same,
        and the timeout is read before the next one."""
        hook = held.hook
        try:
            settings = self._settings.hook_settings(hook)
        except (CloudUnavailable, CloudRefused):
            return held
        if settings is None:
            return held.over(
                HOOK_OVER(
                    hook=hook.name, group=hook.group, why="the group has no such hook any more"
                )
            )
        if settings.has_target:
            return held.over(
                HOOK_OVER(
                    hook=hook.name,
                    group=hook.group,
                    why=("it notifies a target of its own, which answers it"),
                )
            )
        return held.with_timeout(settings.timeout)

    def answer(
        self, instance: str, hooks: Sequence[LifecycleHook], result: HookResult
    ) -> HookAnswers:
        """Answer every hook, even if another one fails. A hook that does not wait any more counts
        as answered. A hook that notifies a target of its own is not answered.

        Raises:
            CloudUnavailable: at least one answer may succeed later; all of them can be repeated.
        """
        refused: list[RefusedAnswer] = []
        unavailable: CloudUnavailable | None = None
        for hook in hooks:
            try:
                settings = self._settings_if_readable(hook)
                if settings is None or not settings.has_target:
                    self._groups.complete(instance, hook, result)
            except LifecycleActionOver:
                continue  # an earlier attempt of this step answered it, or it timed out
            except CloudRefused as error:
                waits = settings.timeout if settings else LONGEST_TIMEOUT
                until = self._clock.now() + timedelta(seconds=waits)
                reason = ANSWER_REFUSED(hook=hook.name, group=hook.group, error=error)
                refused.append(RefusedAnswer(hook, reason, until))
            except CloudUnavailable as error:
                unavailable = error
        if unavailable is not None:
            raise unavailable
        return HookAnswers(tuple(refused))

    def _settings_if_readable(self, hook: LifecycleHook) -> HookSettings | None:
        """Read the settings of a hook; None if Auto Scaling refuses or the hook does not exist."""
        try:
            return self._settings.hook_settings(hook)
        except CloudRefused:
            return None

    def retry_refused(
        self, instance: str, answered: HookAnswers, result: HookResult, steps: Steps
    ) -> None:
        """Retry the refused answers until they succeed or their hooks time out: the missing right
        may be granted meanwhile, and a hook that waits blocks its group."""
        for number in range(1, ANSWER_TRIES + 1):
            if not answered.refused:
                return
            steps.wait(f"before-answer-{number}", min(2 ** min(number, 10), MAX_ANSWER_PAUSE))
            again = partial(self._answer_again, instance, answered.refused, result)
            answered = steps.run(f"answer-{number}", HookAnswers, again)

    def _answer_again(
        self, instance: str, refused: Sequence[RefusedAnswer], result: HookResult
    ) -> HookAnswers:
        """Answer the refused hooks that have not timed out."""
        now = self._clock.now()
        until = {one.hook: one.until for one in refused if now < one.until}
        answered = self.answer(instance, tuple(until), result)
        return HookAnswers(tuple(replace(one, until=until[one.hook]) for one in answered.refused))
