"""Lifecycle actions: an instance waits for a hook until it is completed or a timeout ends it.

moto only stores hooks. The rules are those of "Amazon EC2 Auto Scaling lifecycle hooks" in the Auto
Scaling user guide.
"""

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import FakeAutoScalingGroup, InstanceState, LifecycleHook

from leeway_sandbox.aws.cloud import Cloud, Timer
from leeway_sandbox.aws.eventbridge import EventBus
from leeway_sandbox.aws.notices import LAUNCHING, TERMINATING, lifecycle_action

CONTINUE, ABANDON = "CONTINUE", "ABANDON"
LONGEST_WAIT = 48 * 3600  # seconds; the limit is the smaller of this and a hundred heartbeats
LONGEST_HEARTBEAT = 7200  # seconds
DEFAULT_HEARTBEAT = 3600  # seconds

Finished = Callable[[InstanceState, str, str], None]  # state, transition, result


class WaitingHook(LifecycleHook):
    """A hook with its own role and target, where moto invents both."""

    def __init__(
        self,
        name: str,
        group: str,
        transition: str,
        heartbeat: int | None,
        result: str | None,
        metadata: str | None = None,
        target: str | None = None,
        role: str | None = None,
    ):
        super().__init__(name, group, transition, heartbeat or DEFAULT_HEARTBEAT, result)
        self.global_timeout = min(LONGEST_WAIT, 100 * self.heartbeat_timeout)
        self.notification_metadata = metadata
        self.notification_target_arn = target or None  # type: ignore[assignment]
        self.role_arn = role or None  # type: ignore[assignment]


def check(transition: str | None, heartbeat: int | None, result: str | None, least: int) -> None:
    """Raise ValidationError for a hook that Auto Scaling refuses; `least` is in seconds."""
    if transition not in {LAUNCHING, TERMINATING}:
        raise ValidationError(f"LifecycleTransition {transition} is not valid.")
    if result not in {None, CONTINUE, ABANDON}:
        raise ValidationError(f"Default Result {result} is not valid. Use CONTINUE or ABANDON.")
    if heartbeat is not None and not least <= heartbeat <= LONGEST_HEARTBEAT:
        raise ValidationError(
            f"Heartbeat Timeout {heartbeat} must be between {least} and {LONGEST_HEARTBEAT}."
        )


@dataclass(eq=False)
class LifecycleAction:
    """An instance that waits for a hook."""

    hook: WaitingHook
    group: FakeAutoScalingGroup
    state: InstanceState
    finished: Finished
    token: str = field(default_factory=lambda: str(uuid.uuid4()))
    began: float = field(default_factory=time.monotonic)
    timer: Timer | None = None


class LifecycleActions:
    """All active lifecycle actions."""

    def __init__(self, cloud: Cloud, bus: EventBus):
        self._cloud = cloud
        self._bus = bus
        self._active: dict[str, list[LifecycleAction]] = {}  # by instance

    def begin(
        self,
        group: FakeAutoScalingGroup,
        state: InstanceState,
        hooks: list[WaitingHook],
        finished: Finished,
    ) -> None:
        """Start an action for each hook; call `finished` once, after the last action ends."""
        actions = [LifecycleAction(hook, group, state, finished) for hook in hooks]
        self._active.setdefault(state.instance_id, []).extend(actions)
        for action in actions:
            hook = action.hook
            self._schedule(action)
            self._record(action, "begun")
            self._bus.emit(
                lifecycle_action(
                    group,
                    state.instance,
                    str(hook.lifecycle_transition),
                    hook.name,
                    action.token,
                    hook.notification_metadata,
                )
            )

    def heartbeat(self, group: str, hook: str, token: str | None, instance: str | None) -> None:
        """Restart the heartbeat timeout; raises ValidationError if no such action is active."""
        action = self._find(group, hook, token, instance)
        self._schedule(action)
        self._record(action, "heartbeat")

    def complete(
        self, group: str, hook: str, token: str | None, instance: str | None, result: str
    ) -> None:
        """Complete an action; raises ValidationError if no such action is active."""
        if result not in {CONTINUE, ABANDON}:
            raise ValidationError(f"The result {result} is not valid. Use CONTINUE or ABANDON.")
        self._end(self._find(group, hook, token, instance), result, result)

    def drop(self, state: InstanceState) -> None:
        """Cancel all actions of an instance without a callback."""
        for action in list(self._active.get(state.instance_id, ())):
            self._remove(action)

    def drop_hook(self, group: str, hook: str) -> None:
        """End the actions of a deleted hook: continue a termination, abandon a launch."""
        for action in self._all():
            if (action.group.name, action.hook.name) == (group, hook):
                launching = action.hook.lifecycle_transition == LAUNCHING
                self._end(action, ABANDON if launching else CONTINUE, "hook-deleted")

    def _all(self) -> list[LifecycleAction]:
        return [action for waiting in self._active.values() for action in waiting]

    def _find(
        self, group: str, hook: str, token: str | None, instance: str | None
    ) -> LifecycleAction:
        for action in self._all() if token else self._active.get(instance or "", ()):
            if (action.group.name, action.hook.name) == (group, hook) and (
                token is None or token == action.token
            ):
                return action
        identifier = f"token {token}" if token else f"instance ID {instance}"
        raise ValidationError(f"No active Lifecycle Action found with {identifier}")

    def _schedule(self, action: LifecycleAction) -> None:
        if action.timer:
            action.timer.cancel()
        left = action.began + action.hook.global_timeout - time.monotonic()
        wait = min(float(action.hook.heartbeat_timeout), left)
        action.timer = self._cloud.timers.after(wait, self._time_out, action)

    def _time_out(self, action: LifecycleAction) -> None:
        self._end(action, action.hook.default_result, "timed-out")

    def _end(self, action: LifecycleAction, result: str, outcome: str) -> None:
        self._remove(action)
        self._record(action, outcome)
        if result == ABANDON:
            self.drop(action.state)  # ABANDON ends the other actions too
        elif action.state.instance_id in self._active:
            return
        action.finished(action.state, str(action.hook.lifecycle_transition), result)

    def _remove(self, action: LifecycleAction) -> None:
        waiting = self._active[action.state.instance_id]
        waiting.remove(action)
        if not waiting:
            del self._active[action.state.instance_id]
        if action.timer:
            action.timer.cancel()

    def _record(self, action: LifecycleAction, outcome: str) -> None:
        self._cloud.journal.add(
            "lifecycle-action",
            instance=action.state.instance_id,
            group=action.group.name,
            hook=action.hook.name,
            transition=action.hook.lifecycle_transition,
            token=action.token,
            outcome=outcome,
        )
