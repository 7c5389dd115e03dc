"""Sends heartbeats for lifecycle hooks during the work on their instance, and answers them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from leeway.clock import Clock
from leeway.execution.steps import Steps
from leeway.lifecycle_hooks.held_hooks import LONGEST_TIMEOUT, HeldHook
from leeway.lifecycle_hooks.reasons import (
    ANSWER_REFUSED,
    HOOK_ANSWERED,
    HOOK_HAS_TARGET,
    HOOK_MISSING,
)
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


class HookSettingsSource(Protocol):
    """Reads the settings of hooks, possibly from a cache."""

    def hook_settings(self, hook: LifecycleHook) -> HookSettings | None:
        """Return the settings of a hook; None if the group has no such hook.

        Raises:
            CloudUnavailable, CloudRefused: the settings cannot be read.
        """
        ...


class LifecycleActions:
    """Sends heartbeats and answers."""

    def __init__(
        self, groups: Groups, clock: Clock, settings: HookSettingsSource | None = None
    ) -> None:
        self._groups = groups
        self._clock = clock
        self._settings = settings or groups

    def send_heartbeats(self, instance: str, held: Sequence[HeldHook]) -> tuple[HeldHook, ...]:
        """Send the heartbeats that are due, and return the hooks with their next heartbeats.

        A failure is not raised: it is the hook's `problem`, and `next_heartbeat` says when this
        method must be called again.
        """
        now = self._clock.now()
        return tuple(
            self._heartbeat(instance, one)
            if one.next_at is not None and one.next_at <= now
            else one
            for one in held
        )

    def _heartbeat(self, instance: str, held: HeldHook) -> HeldHook:
        if held.timeout is None:
            held = self._with_settings(held)
            if held.next_at is None or held.next_at > self._clock.now():
                return held
        try:
            self._groups.heartbeat(instance, held.hook)
        except LifecycleActionOver as error:
            return held.over(HOOK_ANSWERED(hook=held.hook.name, group=held.hook.group, error=error))
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
            return held.over(HOOK_MISSING(hook=hook.name, group=hook.group))
        if settings.has_target:
            return held.over(HOOK_HAS_TARGET(hook=hook.name, group=hook.group))
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
