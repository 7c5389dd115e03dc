"""Use case: lifecycle hooks are kept waiting while their instance is worked on, then answered."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from leeway.clock import Clock
from leeway.cloud.ports import CloudRefused, CloudUnavailable, Groups, LifecycleActionOver
from leeway.execution.steps import Steps
from leeway.hooks import HeldHook, HookResult
from leeway.notices import LifecycleHook

LONGEST_PAUSE = 60
"""Seconds between two tries of an answer that is refused, at the most."""

ANSWERS = 130
"""How often that is tried: for over two hours, in which the longest heartbeat timeout runs out, and
the group goes on by itself."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A hook whose answer AWS refused, and in what words."""

    hook: LifecycleHook
    said: str


@dataclass(frozen=True, slots=True)
class Answered:
    """What came of answering hooks: those that were refused still wait."""

    refused: tuple[Refusal, ...] = ()


class Timeouts(Protocol):
    """Whoever knows hooks' time-outs, so that Auto Scaling is not asked by each instance."""

    def timeout_of(self, hook: LifecycleHook) -> int | None:
        """Return a hook's HeartbeatTimeout in seconds; None where the group has no such hook."""
        ...


class LifecycleActions:
    """Sends heartbeats and answers."""

    def __init__(self, groups: Groups, clock: Clock, timeouts: Timeouts | None = None) -> None:
        self._groups = groups
        self._clock = clock
        self._timeouts = timeouts

    def keep(self, instance: str, held: Sequence[HeldHook]) -> tuple[HeldHook, ...]:
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
                timeout = self._timeout_of(held.hook)
            except (CloudUnavailable, CloudRefused):
                pass  # a heartbeat helps without it, and it is read again before the next
            else:
                if timeout is None:
                    return held.over(f"group {held.hook.group} has no hook {held.hook.name} now")
                held = held.known(timeout)
                if held.next_at is None or held.next_at > self._clock.now():
                    return held
        try:
            self._groups.heartbeat(instance, held.hook)
        except LifecycleActionOver as error:
            return held.over(str(error))
        except (CloudUnavailable, CloudRefused) as error:
            return held.failed(str(error), self._clock.now())
        return held.beaten(self._clock.now())

    def _timeout_of(self, hook: LifecycleHook) -> int | None:
        if self._timeouts is not None:
            return self._timeouts.timeout_of(hook)
        return self._groups.heartbeat_timeout(hook)

    def answer(self, instance: str, hooks: Sequence[LifecycleHook], result: HookResult) -> Answered:
        """Answer every hook, whatever becomes of the others. One that waits no more is answered.

        Raises:
            CloudUnavailable: one of them is worth another try; all of them may be tried again.
        """
        refused: list[Refusal] = []
        unavailable: CloudUnavailable | None = None
        for hook in hooks:
            try:
                self._groups.complete(instance, hook, result)
            except LifecycleActionOver:
                continue  # answered by an earlier attempt of this step, or its time ran out
            except CloudRefused as error:
                refused.append(Refusal(hook, str(error)))
            except CloudUnavailable as error:
                unavailable = error
        if unavailable is not None:
            raise unavailable
        return Answered(tuple(refused))

    def insist(self, instance: str, answered: Answered, result: HookResult, steps: Steps) -> None:
        """Go on answering what was refused, until it is taken or has run out by itself: somebody
        may be mending the rights, and a hook that waits holds up its group."""
        for turn in range(1, ANSWERS + 1):
            if not answered.refused:
                return
            steps.wait(f"before-answer-{turn}", min(2 ** min(turn, 10), LONGEST_PAUSE))
            hooks = tuple(refusal.hook for refusal in answered.refused)
            again = partial(self.answer, instance, hooks, result)
            answered = steps.run(f"answer-{turn}", Answered, again)
