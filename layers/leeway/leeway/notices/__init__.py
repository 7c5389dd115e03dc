"""Notices: what happens to which instances, and when, according to an EventBridge event.

`leeway.notices.parse` is not imported here: retire_node does not parse events, and the pydantic
models of the events would lengthen its cold start.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NewType

InstanceId = NewType("InstanceId", str)
"""The id of an EC2 instance; it matches INSTANCE_ID."""

INSTANCE_ID = r"i-(?:[0-9a-f]{8}|[0-9a-f]{17})"
"""The pattern of an instance id. Source: EC2 user guide, "Resource IDs"."""


class NoticeKind(StrEnum):
    """The kind of a notice. Policies, taints and logs contain these values.

    A `capacity-return` is no event: a run of provision_nodes decides that a node of Leeway's own is
    not needed, or not as it is. `impaired-status` and `unhealthy-node` are what reconcile finds in
    EC2 and in the cluster.
    """

    SPOT_INTERRUPTION = "spot-interruption"
    REBALANCE = "rebalance"
    TERMINATE_HOOK = "terminate-hook"
    LAUNCH_HOOK = "launch-hook"
    STATE_CHANGE = "state-change"
    SCHEDULED_CHANGE = "scheduled-change"
    CAPACITY_RESERVATION = "capacity-reservation"
    IMPAIRED_STATUS = "impaired-status"
    UNHEALTHY_NODE = "unhealthy-node"
    TEST_NOTIFICATION = "test-notification"
    CAPACITY_RETURN = "capacity-return"


class InterruptionAction(StrEnum):
    """What EC2 does to an interrupted Spot instance two minutes after the warning."""

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
    """One EventBridge event about one or more instances. All times are aware and in UTC.

    - `time`: when AWS created the event, not when it arrived.
    - `effective_at`: when the announced change happens, None if the event does not say that.
    - `action`: what EC2 does to an interrupted Spot instance.
    - `hook`: the lifecycle action that waits. `into_pool`: its instance enters the warm pool.
    - `state`: the new state of the instance.
    - `event`: the id of the announced change. Several notices about one change have the same id:
      the pages of a list, updates, cancellations.
    - `over`: the instances for which the change is cancelled or completed.
    - `reservation`: the capacity reservation whose instances the notice is about, if it names no
      instance itself.
    - `replay`: the name of the replay that sent the event again from an archive, else empty.
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
    """The event is not valid: it is not a JSON object, or a field is missing or wrong."""


class UnknownNotice(ValueError):
    """The event is valid, but Leeway does not handle its source or detail-type."""


BLOCK_ENDS_BEFORE = timedelta(minutes=30)
"""How long before the end of a Capacity Block EC2 begins to terminate its instances. The event
comes 10 minutes before that. Source: EC2 user guide, "Monitor Capacity Blocks using EventBridge".
"""

ULTRASERVER_ENDS_BEFORE = timedelta(minutes=60)
"""The same for an UltraServer. Source: EC2 user guide, "Capacity Blocks for ML"."""

_ULTRASERVERS = ("p6e-", "trn2u.")


def block_ends_instances_at(ends: datetime, instance_type: str) -> datetime:
    """Return when EC2 begins to terminate the instances of a Capacity Block that ends at a time."""
    is_ultraserver = instance_type.startswith(_ULTRASERVERS)
    return ends - (ULTRASERVER_ENDS_BEFORE if is_ultraserver else BLOCK_ENDS_BEFORE)
