"""The observed state of instances: states, hooks, interruptions, scheduled changes."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from leeway.instances.facts import InstanceFacts
from leeway.notices import InterruptionAction, LifecycleHook


@dataclass(frozen=True, slots=True)
class ObservedInstance:
    """An instance as EC2 describes it now. `state` is EC2's state name; `group` is the name of its
    Auto Scaling group, also of a group that EKS created, and empty if it is in none. `intent` is
    the id of the launch intent that its tag names, empty if it has no such tag."""

    facts: InstanceFacts
    state: str
    launched_at: datetime
    group: str = ""
    intent: str = ""


@dataclass(frozen=True, slots=True)
class CurrentInstance:
    """An instance as EC2 describes it now. `launched_at` is its latest start; `interrupted` says
    that the status of its Spot request announces an interruption."""

    state: str
    launched_at: datetime
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class ObservedHook:
    """An instance that waits for the answer to a lifecycle hook. `timeout` is the HeartbeatTimeout
    of the hook in seconds; the default of Auto Scaling is an hour."""

    instance: str
    hook: LifecycleHook
    launching: bool
    timeout: int = 3600


@dataclass(frozen=True, slots=True)
class ObservedInterruption:
    """A Spot instance that EC2 interrupts two minutes after `marked_at`."""

    instance: str
    action: InterruptionAction
    marked_at: datetime


@dataclass(frozen=True, slots=True)
class ObservedImpairment:
    """A running instance with failing status checks. `since` maps each failing check (`instance`,
    `system`, `attached-ebs`) to the time since when it fails."""

    instance: str
    since: Mapping[str, datetime]

    def failing_since(self, checks: Collection[str]) -> datetime | None:
        """Return since when the first of these checks fails; None if none of them fails."""
        return min((at for check, at in self.since.items() if check in checks), default=None)


CHANGE_PREFIX = "instance-event-"
"""The prefix of EC2's ids of scheduled changes. AWS Health has other ids for the same changes."""


@dataclass(frozen=True, slots=True)
class ObservedChange:
    """A change that EC2 has scheduled for an instance. `event` is EC2's id of the change, `code`
    its kind, as `instance-retirement`; it begins at `starts_at`. `over` says that it is completed
    or cancelled: EC2 lists such changes for about a week."""

    instance: str
    event: str
    code: str
    starts_at: datetime
    over: bool = False


SAME_MOMENT = timedelta(minutes=5)
"""How far the times that AWS Health and EC2 give for one change can differ."""


def is_over(changes: Iterable[ObservedChange], instance: str, starts_at: datetime) -> bool:
    """Return whether EC2 lists a change of an instance at this time, and lists it as completed or
    cancelled. A change that EC2 does not list may still happen: AWS Health announces more
    changes."""
    at_that_time = [
        one.over
        for one in changes
        if one.instance == instance and abs(one.starts_at - starts_at) <= SAME_MOMENT
    ]
    return bool(at_that_time) and all(at_that_time)


def is_scheduled(changes: Iterable[ObservedChange], instance: str, starts_at: datetime) -> bool:
    """Return whether EC2 still has a change scheduled for an instance at this time."""
    return any(
        not one.over and one.instance == instance and abs(one.starts_at - starts_at) <= SAME_MOMENT
        for one in changes
    )
