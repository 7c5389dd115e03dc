"""Parses events of source `aws.ec2`: interruptions, rebalance recommendations, state changes."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from leeway.notices.envelope import Detail, Envelope, InstanceIdText, Parsers, Text
from leeway.notices.model import (
    INSTANCE_ID,
    InterruptionAction,
    MalformedNotice,
    Notice,
    NoticeKind,
)

SOURCE = "aws.ec2"

_INSTANCE_IN_ARN = re.compile(rf"instance/({INSTANCE_ID})\Z")


class _Interruption(Detail):
    instance_id: Annotated[InstanceIdText, Field(alias="instance-id")]
    action: Annotated[InterruptionAction, Field(alias="instance-action")]


class _Rebalance(Detail):
    instance_id: Annotated[InstanceIdText, Field(alias="instance-id")]


class _StateChange(Detail):
    instance_id: Annotated[InstanceIdText, Field(alias="instance-id")]
    state: Literal["pending", "running", "stopping", "stopped", "shutting-down", "terminated"]


def _parse_time(value: Any) -> Any:
    """Accept the time format of capacity reservations, `2026-11-20 09:45:00 UTC`, besides RFC
    3339."""
    if isinstance(value, str) and value.endswith(" UTC"):
        return value.removesuffix(" UTC").replace(" ", "T") + "Z"
    return value


def _in_utc(value: datetime) -> datetime:
    return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)


_When = Annotated[datetime, BeforeValidator(_parse_time), AfterValidator(_in_utc)]


class _BlockExpiration(Detail):
    reservation: Annotated[
        str, StringConstraints(pattern=r"^cr-[0-9a-f]+$"), Field(alias="capacity-reservation-id")
    ]
    ends: Annotated[_When, Field(alias="end-date")]


# EC2 begins to terminate the instances of a Capacity Block 30 minutes before the block ends, and
# sends the event 10 minutes before that. Source: EC2 user guide, "Monitor Capacity Blocks using
# EventBridge".
BLOCK_ENDS_BEFORE = timedelta(minutes=30)


class _ReservationInterruption(Detail):
    instance_id: Annotated[InstanceIdText | None, Field(alias="instance-id")] = None
    termination_time: Annotated[_When, Field(alias="instance-termination-time")]
    reservation: Annotated[Text | None, Field(alias="capacity-reservation-id")] = None


def _spot_interruption(envelope: Envelope) -> Notice:
    detail = _Interruption.model_validate(envelope.detail)
    return envelope.notice(NoticeKind.SPOT_INTERRUPTION, [detail.instance_id], action=detail.action)


def _rebalance(envelope: Envelope) -> Notice:
    detail = _Rebalance.model_validate(envelope.detail)
    return envelope.notice(NoticeKind.REBALANCE, [detail.instance_id])


def _state_change(envelope: Envelope) -> Notice:
    detail = _StateChange.model_validate(envelope.detail)
    return envelope.notice(NoticeKind.STATE_CHANGE, [detail.instance_id], state=detail.state)


def _reservation_interruption(envelope: Envelope) -> Notice:
    detail = _ReservationInterruption.model_validate(envelope.detail)
    in_detail = [detail.instance_id] if detail.instance_id else []
    in_resources = [m.group(1) for arn in envelope.resources if (m := _INSTANCE_IN_ARN.search(arn))]
    instances = dict.fromkeys([*in_detail, *in_resources])
    if not instances:
        raise MalformedNotice("detail.instance-id: missing, and resources names no instance")
    return envelope.notice(
        NoticeKind.CAPACITY_RESERVATION, instances, effective_at=detail.termination_time
    )


def _block_expiration(envelope: Envelope) -> Notice:
    """Parse the end of a Capacity Block. The event names the reservation, not its instances."""
    detail = _BlockExpiration.model_validate(envelope.detail)
    return envelope.notice(
        NoticeKind.CAPACITY_RESERVATION,
        [],
        effective_at=detail.ends - BLOCK_ENDS_BEFORE,
        reservation=detail.reservation,
    )


PARSERS: Parsers = {
    "EC2 Spot Instance Interruption Warning": _spot_interruption,
    "EC2 Instance Rebalance Recommendation": _rebalance,
    "EC2 Instance State-change Notification": _state_change,
    # Versions of the EC2 user guide have two names for each of these events: "Monitor Capacity
    # Blocks using EventBridge", "Monitor interruptible Capacity Reservations with EventBridge".
    "Capacity Block Expiration Warning": _block_expiration,
    "Capacity Block Reservation Expiration Warning": _block_expiration,
    "EC2 Capacity Reservation Instance Interruption Warning": _reservation_interruption,
    "EC2 Interruptible Capacity Reservation Instance Interruption Warning": (
        _reservation_interruption
    ),
}
