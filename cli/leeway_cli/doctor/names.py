"""The names that template.yaml gives: functions, schedules, queues, and the events of the rules."""

from collections.abc import Mapping
from dataclasses import dataclass

DURABLE = ("retire-node", "admit-node")
"""The functions that are invoked through their alias."""

ALIAS = "live"
BUYER = "provision-nodes"
RECEIVER = "receive-notice"
FUNCTIONS = (
    RECEIVER,
    *DURABLE,
    "keep-headroom",
    "watch-pods",
    "reconcile",
    "refresh-catalog",
    BUYER,
)

SCHEDULES = ("keep-headroom", "watch-pods", "reconcile", "refresh-catalog")
"""The functions that a schedule of the same name invokes."""

AWAKE = (RECEIVER, *DURABLE, BUYER)
"""The functions that a schedule keeps awake in a VPC."""

_EC2, _SCALING, _HEALTH = "aws.ec2", "aws.autoscaling", "aws.health"


@dataclass(frozen=True, slots=True)
class Event:
    """A kind of event that receive_notice needs. `detail` has the values that it may have."""

    source: str
    detail_type: str
    detail: Mapping[str, tuple[str, ...]]


EVENTS = (
    *(
        Event(_EC2, name, {})
        for name in (
            "EC2 Spot Instance Interruption Warning",
            "EC2 Instance Rebalance Recommendation",
            "EC2 Capacity Reservation Instance Interruption Warning",
            "EC2 Interruptible Capacity Reservation Instance Interruption Warning",
            "Capacity Block Expiration Warning",
            "Capacity Block Reservation Expiration Warning",
        )
    ),
    Event(
        _EC2,
        "EC2 Instance State-change Notification",
        {"state": ("running", "stopping", "stopped", "shutting-down", "terminated")},
    ),
    Event(_SCALING, "EC2 Instance-terminate Lifecycle Action", {}),
    Event(_SCALING, "EC2 Instance-launch Lifecycle Action", {}),
    Event(
        _HEALTH,
        "AWS Health Event",
        {"service": ("EC2",), "eventTypeCategory": ("scheduledChange",)},
    ),
)


def function_name(stack: str, function: str) -> str:
    """Return the name of a function in Lambda."""
    return f"{stack}-{function}"


def schedule_names(stack: str, *, in_vpc: bool) -> Mapping[str, str]:
    """Return the function that each schedule invokes, by the name of the schedule."""
    found = {function_name(stack, one): one for one in SCHEDULES}
    if in_vpc:
        found |= {f"{function_name(stack, one)}-stays-awake": one for one in AWAKE}
    return found
