"""Notices from source `aws.ec2`: interruptions, rebalance recommendations, state changes."""

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
    """Read the reservation's own time format, `2026-11-20 09:45:00 UTC`, besides RFC 3339."""
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


# A Capacity Block's instances begin to end half an hour before the block does, of which EC2 warns
# ten minutes ahead. Source: EC2 user guide, "Monitor Capacity Blocks using EventBridge".
BLOCK_CLOSES = timedelta(minutes=30)


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
    named = [detail.instance_id] if detail.instance_id else []
    listed = [m.group(1) for arn in envelope.resources if (m := _INSTANCE_IN_ARN.search(arn))]
    instances = dict.fromkeys([*named, *listed])
    if not instances:
        raise MalformedNotice("detail.instance-id: missing, and resources names no instance either")
    return envelope.notice(
        NoticeKind.CAPACITY_RESERVATION, instances, effective_at=detail.termination_time
    )


def _block_expiration(envelope: Envelope) -> Notice:
    """A Capacity Block ends; the event names no instance, but the reservation that they run in."""
    detail = _BlockExpiration.model_validate(envelope.detail)
    return envelope.notice(
        NoticeKind.CAPACITY_RESERVATION,
        [],
        effective_at=detail.ends - BLOCK_CLOSES,
        reservation=detail.reservation,
    )


PARSERS: Parsers = {
    "EC2 Spot Instance Interruption Warning": _spot_interruption,
    "EC2 Instance Rebalance Recommendation": _rebalance,
    "EC2 Instance State-change Notification": _state_change,
    # Editions of the EC2 user guide give different names to each of these: "Monitor Capacity Blocks
    # using EventBridge", "Monitor interruptible Capacity Reservations with EventBridge".
    "Capacity Block Expiration Warning": _block_expiration,
    "Capacity Block Reservation Expiration Warning": _block_expiration,
    "EC2 Capacity Reservation Instance Interruption Warning": _reservation_interruption,
    "EC2 Interruptible Capacity Reservation Instance Interruption Warning": (
        _reservation_interruption
    ),
}
