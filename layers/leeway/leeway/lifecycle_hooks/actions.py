"""Use case: lifecycle hooks are kept waiting while their instance is worked on, then answered."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from leeway.clock import Clock
from leeway.execution.steps import Steps
from leeway.lifecycle_hooks.held_hooks import LONGEST_TIMEOUT, HeldHook
from leeway.notices import LifecycleHook
from leeway.ports.aws import (
    CloudRefused,
    CloudUnavailable,
    Groups,
    HookResult,
    HookSettings,
    LifecycleActionOver,
)

LONGEST_PAUSE = 60
"""Seconds between two tries of an answer that is refused, at the most."""

ANSWERS = 130
"""How often that is tried: for over two hours, in which the longest heartbeat timeout runs out, and
the group goes on by itself."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A hook whose answer AWS refused, and in what words. At `until` its action has timed out: what
    the hook waits for after that is another action, which this answer is not for."""

    hook: LifecycleHook
    said: str
    until: datetime


@dataclass(frozen=True, slots=True)
class HookAnswers:
    """What came of answering hooks: those that were refused still wait."""

    refused: tuple[Refusal, ...] = ()


class KnownHooks(Protocol):
    """Whoever knows hooks, so that Auto Scaling is not asked by each instance."""

    def hook_settings(self, hook: LifecycleHook) -> HookSettings | None:
        """Return a hook's settings; None where the group has no such hook."""
        ...


class LifecycleActions:
    """Sends heartbeats and answers."""

    def __init__(self, groups: Groups, clock: Clock, known: KnownHooks | None = None) -> None:
        self._groups = groups
        self._clock = clock
        self._known = known or groups

    def send_heartbeats(self, instance: str, held: Sequence[HeldHook]) -> tuple[HeldHook, ...]:
        """Do what is due now. Nothing that fails is raised: it is tried again in time, by the next
        call after `next_heartbeat`, and stands in `problem`."""
        now = self._clock.now()
        return tuple(
            self._beat(instance, one) if one.next_at is not None and one.next_at <= now else one
            for one in held
        )

    def _beat(self, instance: str, held: HeldHook) -> HeldHook:
        if held.timeout is None:
            try:
                settings = self._known.hook_settings(held.hook)
            except (CloudUnavailable, CloudRefused):
                pass  # a heartbeat helps without it, and it is read again before the next
            else:
                if settings is None:
                    return held.over(f"group {held.hook.group} has no hook {held.hook.name} now")
                if settings.has_target:
                    return held.over(f"hook {held.hook.name} notifies a target, which answers it")
                held = held.known(settings.timeout)
                if held.next_at is None or held.next_at > self._clock.now():
                    return held
        try:
            self._groups.heartbeat(instance, held.hook)
        except LifecycleActionOver as error:
            return held.over(str(error))
        except (CloudUnavailable, CloudRefused) as error:
            return held.failed(str(error), self._clock.now())
        return held.beaten(self._clock.now())

    def answer(
        self, instance: str, hooks: Sequence[LifecycleHook], result: HookResult
    ) -> HookAnswers:
        """Answer every hook, whatever becomes of the others. One that waits no more is answered.
        One that notifies a target of its own is left to that.

        Raises:
            CloudUnavailable: one of them is worth another try; all of them may be tried again.
        """
        refused: list[Refusal] = []
        unavailable: CloudUnavailable | None = None
        for hook in hooks:
            try:
                settings = self._settings_if_told(hook)
                if settings is None or not settings.has_target:
                    self._groups.complete(instance, hook, result)
            except LifecycleActionOver:
                continue  # answered by an earlier attempt of this step, or its time ran out
            except CloudRefused as error:
                waits = settings.timeout if settings else LONGEST_TIMEOUT
                until = self._clock.now() + timedelta(seconds=waits)
                refused.append(Refusal(hook, str(error), until))
            except CloudUnavailable as error:
                unavailable = error
        if unavailable is not None:
            raise unavailable
        return HookAnswers(tuple(refused))

    def _settings_if_told(self, hook: LifecycleHook) -> HookSettings | None:
        """Read a hook's settings; None where it is not to be read, or gone."""
        try:
            return self._known.hook_settings(hook)
        except CloudRefused:
            return None

    def retry_refused(
        self, instance: str, answered: HookAnswers, result: HookResult, steps: Steps
    ) -> None:
        """Go on answering what was refused, until it is taken or its hook's timeout has run out:
        somebody may be mending the rights, and a hook that waits holds up its group."""
        for turn in range(1, ANSWERS + 1):
            if not answered.refused:
                return
            steps.wait(f"before-answer-{turn}", min(2 ** min(turn, 10), LONGEST_PAUSE))
            again = partial(self._answer_again, instance, answered.refused, result)
            answered = steps.run(f"answer-{turn}", HookAnswers, again)

    def _answer_again(
        self, instance: str, refused: Sequence[Refusal], result: HookResult
    ) -> HookAnswers:
        """Answer what was refused and still waits."""
        now = self._clock.now()
        until = {one.hook: one.until for one in refused if now < one.until}
        answered = self.answer(instance, tuple(until), result)
        return HookAnswers(tuple(replace(one, until=until[one.hook]) for one in answered.refused))
