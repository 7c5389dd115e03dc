"""The names that template.yaml gives, the events of its rules, and the patterns that match them.

Leeway's own patterns and those of other handlers of notices are lists of values. A filter of
another kind (prefix, anything-but, …) counts as one that may match.
Source: EventBridge user guide, "Amazon EventBridge event patterns".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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


def matches(pattern: Mapping[str, Any], event: Event) -> bool:
    """Whether a pattern matches every event of a kind that receive_notice needs."""
    if not pattern or pattern.keys() - {"source", "detail-type", "detail"}:
        return False  # a further field, such as resources, leaves some events out
    detail = pattern.get("detail") or {}
    return (
        _has(pattern.get("source"), event.source)
        and _has(pattern.get("detail-type"), event.detail_type)
        and isinstance(detail, Mapping)
        and detail.keys() <= event.detail.keys()
        and all(_has(detail[name], value) for name in detail for value in event.detail[name])
    )


def _has(allowed: Any, value: str) -> bool:
    return allowed is None or (isinstance(allowed, list) and value in allowed)


def may_match(pattern: Mapping[str, Any], event: Event) -> bool:
    """Whether a pattern matches some events of a kind."""
    return bool(pattern) and (
        _may_have(pattern.get("source"), event.source)
        and _may_have(pattern.get("detail-type"), event.detail_type)
    )


def _may_have(allowed: Any, value: str) -> bool:
    if not isinstance(allowed, list):
        return True
    return value in allowed or any(not isinstance(one, str) for one in allowed)


def could_match_a_notice(pattern: Mapping[str, Any]) -> bool:
    """Whether a pattern matches some notice."""
    return any(may_match(pattern, event) for event in EVENTS)
