"""What a look at AWS shows of instances: their states, hooks, interruptions, scheduled changes."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from leeway.instances.facts import InstanceFacts
from leeway.notices import InterruptionAction, LifecycleHook


@dataclass(frozen=True, slots=True)
class ObservedInstance:
    """An instance as EC2 has just described it; `state` is EC2's word. `group` is the name of the
    Auto Scaling group that it is in, whoever made that group, and empty where it is in none."""

    facts: InstanceFacts
    state: str
    launched_at: datetime
    group: str = ""


@dataclass(frozen=True, slots=True)
class CurrentInstance:
    """An instance as EC2 describes it now: `launched_at` is its latest start, and `interrupted`
    says that the status of its Spot request is one by which EC2 is about to take it back."""

    state: str
    launched_at: datetime
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class ObservedHook:
    """An instance that waits for the answer to a lifecycle hook. `timeout` is the hook's
    HeartbeatTimeout in seconds, an hour where its group was told none."""

    instance: str
    hook: LifecycleHook
    launching: bool
    timeout: int = 3600


@dataclass(frozen=True, slots=True)
class ObservedInterruption:
    """A Spot instance that EC2 is about to take back; its two minutes began at `marked_at`."""

    instance: str
    action: InterruptionAction
    marked_at: datetime


@dataclass(frozen=True, slots=True)
class ObservedImpairment:
    """A running instance whose status checks fail: for each check that does (`instance`, `system`,
    `attached-ebs`), since when."""

    instance: str
    since: Mapping[str, datetime]

    def failing_since(self, checks: Collection[str]) -> datetime | None:
        """Return since when one of these checks fails; None where none of them does."""
        return min((at for check, at in self.since.items() if check in checks), default=None)


CHANGE_PREFIX = "instance-event-"
"""Begins the ids that EC2 gives to scheduled changes of instances; AWS Health has others for the
same."""


@dataclass(frozen=True, slots=True)
class ObservedChange:
    """What EC2 itself schedules for an instance, as `instance-retirement`, from `starts_at` on.
    `event` is EC2's id for it; `over` says that it is done or called off, which is told of for
    about a week."""

    instance: str
    event: str
    code: str
    starts_at: datetime
    over: bool = False


SAME_MOMENT = timedelta(minutes=5)
"""How far the times may lie apart that AWS Health and EC2 give for one thing."""


def is_over(changes: Iterable[ObservedChange], instance: str, starts_at: datetime) -> bool:
    """Whether EC2 says that what it had scheduled for an instance at this time is done or called
    off. What it does not tell of may still come: AWS Health knows of more."""
    then = [
        one.over
        for one in changes
        if one.instance == instance and abs(one.starts_at - starts_at) <= SAME_MOMENT
    ]
    return bool(then) and all(then)


def is_scheduled(changes: Iterable[ObservedChange], instance: str, starts_at: datetime) -> bool:
    """Whether EC2 still has something scheduled for an instance at this time."""
    return any(
        not one.over and one.instance == instance and abs(one.starts_at - starts_at) <= SAME_MOMENT
        for one in changes
    )
