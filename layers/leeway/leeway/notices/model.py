"""The notice: what an EventBridge event says will happen to which instances, and when."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NewType

InstanceId = NewType("InstanceId", str)
"""An EC2 instance id, of the form of INSTANCE_ID."""

INSTANCE_ID = r"i-(?:[0-9a-f]{8}|[0-9a-f]{17})"
"""The form of an instance id. Source: EC2 user guide, "Resource IDs"."""


class NoticeKind(StrEnum):
    """What is announced. The values are also the words of policies, taints and logs."""

    SPOT_INTERRUPTION = "spot-interruption"
    REBALANCE = "rebalance"
    TERMINATE_HOOK = "terminate-hook"
    LAUNCH_HOOK = "launch-hook"
    STATE_CHANGE = "state-change"
    SCHEDULED_CHANGE = "scheduled-change"
    CAPACITY_RESERVATION = "capacity-reservation"
    IMPAIRED_STATUS = "impaired-status"
    TEST_NOTIFICATION = "test-notification"


class InterruptionAction(StrEnum):
    """What EC2 does to an interrupted Spot instance when its warning has run out."""

    TERMINATE = "terminate"
    STOP = "stop"
    HIBERNATE = "hibernate"


@dataclass(frozen=True, slots=True)
class LifecycleHook:
    """An Auto Scaling lifecycle action that waits for an answer."""

    group: str
    name: str


@dataclass(frozen=True, slots=True)
class Notice:
    """One EventBridge event about one or more instances.

    `time` is when AWS says it happened, not when it arrived. `effective_at` is when the
    announced thing happens, where the event itself says so. All times are aware and in UTC.
    `event` names what is announced where several notices tell of one thing: pages of a list,
    later news. `over` are those of the instances for which it will not happen, or has happened.
    `into_pool` says that a hook keeps an instance on its way into its group's warm pool.
    `reservation` is the capacity reservation whose instances the notice is about, where it names
    none. `replay` is the name of the replay that sent the event again out of an archive.
    """

    id: str
    kind: NoticeKind
    account: str
    region: str
    time: datetime
    instances: tuple[InstanceId, ...]
    effective_at: datetime | None = None
    action: InterruptionAction | None = None
    hook: LifecycleHook | None = None
    state: str | None = None
    event: str = ""
    over: frozenset[InstanceId] = frozenset()
    into_pool: bool = False
    reservation: str = ""
    replay: str = ""


class MalformedNotice(ValueError):
    """The event is of a known type but lacks something, or is no event at all."""


class UnknownNotice(ValueError):
    """The event is well formed, but of a source or type that Leeway has no rule for."""
