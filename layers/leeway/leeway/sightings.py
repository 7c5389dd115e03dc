"""What a look at AWS shows of instances: their states, hooks, interruptions, scheduled changes."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from leeway.notices import InterruptionAction, LifecycleHook
from leeway.records.retirement import InstanceFacts


@dataclass(frozen=True, slots=True)
class SeenInstance:
    """An instance as EC2 has just described it; `state` is EC2's word. `group` is the name of the
    Auto Scaling group that it is in, whoever made that group, and empty where it is in none."""

    facts: InstanceFacts
    state: str
    launched_at: datetime
    group: str = ""


@dataclass(frozen=True, slots=True)
class SeenHook:
    """An instance that waits for the answer to a lifecycle hook. `timeout` is the hook's
    HeartbeatTimeout in seconds, an hour where its group was told none."""

    instance: str
    hook: LifecycleHook
    launching: bool
    timeout: int = 3600


@dataclass(frozen=True, slots=True)
class SeenInterruption:
    """A Spot instance that EC2 is about to take back; its two minutes began at `marked_at`."""

    instance: str
    action: InterruptionAction
    marked_at: datetime


CHANGE_PREFIX = "instance-event-"
"""Begins the ids that EC2 gives to scheduled changes of instances; AWS Health has others for the
same."""


@dataclass(frozen=True, slots=True)
class SeenChange:
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


def is_over(changes: Iterable[SeenChange], instance: str, starts_at: datetime) -> bool:
    """Whether EC2 says that what it had scheduled for an instance at this time is done or called
    off. What it does not tell of may still come: AWS Health knows of more."""
    then = [
        one.over
        for one in changes
        if one.instance == instance and abs(one.starts_at - starts_at) <= SAME_MOMENT
    ]
    return bool(then) and all(then)
