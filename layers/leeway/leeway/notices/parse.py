"""Parses an EventBridge event into a notice, or raises an error of one line; creates events that
EventBridge did not deliver, in the form of the real ones.

receive_notice receives both alike. The id of a created event contains its subject, `about`, so that
the same event has the same id when it is created again.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)

from leeway.notices import (
    BLOCK_ENDS_BEFORE,
    INSTANCE_ID,
    ULTRASERVER_ENDS_BEFORE,
    InstanceId,
    InterruptionAction,
    LifecycleHook,
    MalformedNotice,
    Notice,
    NoticeKind,
    UnknownNotice,
)


def _as_list(value: Any) -> Any:
    # Events of capacity reservations have a string where all other events have a list.
    return [value] if isinstance(value, str) else value


Text = Annotated[str, StringConstraints(min_length=1)]
InstanceIdText = Annotated[InstanceId, StringConstraints(pattern=f"^{INSTANCE_ID}$")]


class Envelope(BaseModel):
    """The fields that all events have.

    Source: EventBridge user guide, "Events structure".
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: Text
    source: Text
    detail_type: Annotated[Text, Field(alias="detail-type")]
    account: Annotated[str, StringConstraints(pattern=r"^\d{12}$")]
    region: Text
    time: AwareDatetime
    resources: Annotated[tuple[str, ...], BeforeValidator(_as_list)] = ()
    detail: dict[str, Any]
    replay: Annotated[str, Field(alias="replay-name")] = ""

    def notice(self, kind: NoticeKind, instances: Iterable[str], **announced: Any) -> Notice:
        """Return the notice of this event; `announced` are fields that only its kind has."""
        return Notice(
            id=self.id,
            kind=kind,
            account=self.account,
            region=self.region,
            time=self.time.astimezone(UTC),
            instances=tuple(InstanceId(instance) for instance in instances),
            replay=self.replay,
            **announced,
        )


class Detail(BaseModel):
    """The base of all event details. Unknown fields are ignored, because AWS may add fields."""

    model_config = ConfigDict(frozen=True, extra="ignore")


type Parsers = dict[str, Callable[[Envelope], Notice]]
"""The parsers of a source: detail-type → parser."""


EC2 = "aws.ec2"

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


_WARNED_WITHIN = timedelta(minutes=15)


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
    # The event does not name the type. For an UltraServer it comes 70 minutes before the end.
    remaining = detail.ends - envelope.time
    early = ULTRASERVER_ENDS_BEFORE < remaining <= ULTRASERVER_ENDS_BEFORE + _WARNED_WITHIN
    return envelope.notice(
        NoticeKind.CAPACITY_RESERVATION,
        [],
        effective_at=detail.ends - (ULTRASERVER_ENDS_BEFORE if early else BLOCK_ENDS_BEFORE),
        reservation=detail.reservation,
    )


_EC2_PARSERS: Parsers = {
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


AUTO_SCALING = "aws.autoscaling"
TEST_NOTIFICATION = "autoscaling:TEST_NOTIFICATION"

WARM_POOL = "WarmPool"
"""The destination of an instance that enters the warm pool of its group. Source: EC2 Auto Scaling
user guide, "Warm pool example events and patterns"."""


class _LifecycleAction(Detail):
    instance_id: Annotated[InstanceIdText, Field(alias="EC2InstanceId")]
    group: Annotated[Text, Field(alias="AutoScalingGroupName")]
    hook: Annotated[Text, Field(alias="LifecycleHookName")]
    destination: Annotated[str, Field(alias="Destination")] = ""


def _is_test(envelope: Envelope) -> bool:
    """Return whether the event is the test notification that Auto Scaling sends when a hook is
    created."""
    detail = envelope.detail
    return TEST_NOTIFICATION in (detail.get("Event"), detail.get("LifecycleTransition"))


def _lifecycle_action(envelope: Envelope, kind: NoticeKind) -> Notice:
    if _is_test(envelope):
        return envelope.notice(NoticeKind.TEST_NOTIFICATION, [])
    detail = _LifecycleAction.model_validate(envelope.detail)
    hook = LifecycleHook(group=detail.group, name=detail.hook)
    into_pool = detail.destination == WARM_POOL
    return envelope.notice(kind, [detail.instance_id], hook=hook, into_pool=into_pool)


def _terminate(envelope: Envelope) -> Notice:
    return _lifecycle_action(envelope, NoticeKind.TERMINATE_HOOK)


def _launch(envelope: Envelope) -> Notice:
    return _lifecycle_action(envelope, NoticeKind.LAUNCH_HOOK)


_AUTO_SCALING_PARSERS: Parsers = {
    "EC2 Instance-terminate Lifecycle Action": _terminate,
    "EC2 Instance-launch Lifecycle Action": _launch,
}


HEALTH = "aws.health"


def _parse_rfc1123(value: Any) -> datetime:
    """Parse `Thu, 03 Dec 2026 02:00:00 GMT`, the time format of AWS Health."""
    if not isinstance(value, str):
        raise ValueError(f"expected an RFC 1123 time, got {value!r}")
    parsed = parsedate_to_datetime(value)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


class _Entity(Detail):
    value: Annotated[str, Field(alias="entityValue")]
    status: str = ""


class _ScheduledChange(Detail):
    event: Annotated[Text, Field(alias="eventArn")]
    code: Annotated[str, Field(alias="eventTypeCode")] = ""
    service: Literal["EC2"]
    category: Annotated[Literal["scheduledChange"], Field(alias="eventTypeCategory")]
    start: Annotated[AwareDatetime, BeforeValidator(_parse_rfc1123), Field(alias="startTime")]
    status: Annotated[str, Field(alias="statusCode")] = "upcoming"
    entities: Annotated[tuple[_Entity, ...], Field(alias="affectedEntities")] = ()


# The suffix of planned lifecycle events, for example an end of support. They ask people to act
# within months and list all affected resources, but at their time nothing happens to an instance:
# EC2 sends an event of its own before that.
# Source: AWS Health user guide, "Planned lifecycle events".
_PLANNED_LIFECYCLE = "_PLANNED_LIFECYCLE_EVENT"

_CLOSED = frozenset({"closed", "cancelled", "canceled"})
_RESOLVED = "resolved"

_INSTANCE = re.compile(INSTANCE_ID)


def _instance_of(text: str) -> str:
    """Return the id of an instance from `i-…`, or from an ARN that ends in `instance/i-…`."""
    return text.rsplit("/", 1)[-1]


def _scheduled_change(envelope: Envelope) -> Notice:
    detail = _ScheduledChange.model_validate(envelope.detail)
    if detail.code.endswith(_PLANNED_LIFECYCLE):
        return envelope.notice(NoticeKind.SCHEDULED_CHANGE, [], effective_at=detail.start)
    in_detail = [_instance_of(entity.value) for entity in detail.entities]
    in_resources = [_instance_of(resource) for resource in envelope.resources]
    listed = dict.fromkeys([*in_detail, *in_resources])
    instances = [name for name in listed if _INSTANCE.fullmatch(name)]
    closed = detail.status.lower() in _CLOSED
    resolved = {_instance_of(e.value) for e in detail.entities if e.status.lower() == _RESOLVED}
    over = [name for name in instances if closed or name in resolved]
    return envelope.notice(
        NoticeKind.SCHEDULED_CHANGE,
        instances,
        effective_at=detail.start,
        event=detail.event,
        over=frozenset(InstanceId(name) for name in over),
    )


_HEALTH_PARSERS: Parsers = {"AWS Health Event": _scheduled_change}


def narrow_event(event: Mapping[str, Any], instance: str) -> dict[str, Any]:
    """Return the same event for one of its instances only, as the input of a schedule: a list of
    hundreds of instances would not fit into a schedule."""
    detail = event["detail"]
    entities = [e for e in detail.get("affectedEntities", []) if _names(e, instance)]
    return {
        **event,
        "resources": [instance],
        "detail": {**detail, "affectedEntities": entities},
    }


def _names(entity: dict[str, Any], instance: str) -> bool:
    return _instance_of(str(entity.get("entityValue", ""))) == instance


LEEWAY = "leeway"
IMPAIRED = "Leeway Instance Status Impaired"


class _Impaired(Detail):
    instance_id: Annotated[InstanceIdText, Field(alias="instance-id")]
    status: Literal["impaired", "ok"] = "impaired"


def _impaired(envelope: Envelope) -> Notice:
    detail = _Impaired.model_validate(envelope.detail)
    over = {detail.instance_id} if detail.status == "ok" else set()
    return envelope.notice(NoticeKind.IMPAIRED_STATUS, [detail.instance_id], over=frozenset(over))


UNHEALTHY = "Leeway Node Unhealthy"


class _Unhealthy(Detail):
    instance_id: Annotated[InstanceIdText, Field(alias="instance-id")]


def _unhealthy(envelope: Envelope) -> Notice:
    detail = _Unhealthy.model_validate(envelope.detail)
    return envelope.notice(NoticeKind.UNHEALTHY_NODE, [detail.instance_id])


_OWN_PARSERS: Parsers = {IMPAIRED: _impaired, UNHEALTHY: _unhealthy}


_PARSERS: dict[str, Parsers] = {
    EC2: _EC2_PARSERS,
    AUTO_SCALING: _AUTO_SCALING_PARSERS,
    HEALTH: _HEALTH_PARSERS,
    LEEWAY: _OWN_PARSERS,
}


def parse_notice(event: Any) -> Notice:
    """Parse one EventBridge event.

    Raises:
        MalformedNotice: the event is not a JSON object, or a field is missing or wrong; the message
            names the field and what was expected.
        UnknownNotice: Leeway does not handle the source and detail-type of the event.
    """
    if not isinstance(event, dict):
        raise MalformedNotice(f"expected a JSON object, got {type(event).__name__}")
    try:
        envelope = Envelope.model_validate(event)
    except ValidationError as error:
        raise MalformedNotice(_first_problem(error)) from None
    parser = _PARSERS.get(envelope.source, {}).get(envelope.detail_type)
    if parser is None:
        raise UnknownNotice(
            f"source and detail-type: expected an event that Leeway handles, got "
            f"{envelope.source!r} and {envelope.detail_type!r}"
        )
    try:
        return parser(envelope)
    except ValidationError as error:
        raise MalformedNotice(_first_problem(error, below="detail")) from None


def _first_problem(error: ValidationError, below: str = "") -> str:
    """Return the first of pydantic's errors as `field: what was expected`, and count the others."""
    problems = error.errors(include_url=False, include_context=False)
    first = problems[0]
    path = ".".join(str(part) for part in ((below, *first["loc"]) if below else first["loc"]))
    given = first.get("input")
    got = "" if first["type"] == "missing" else f", got {str(given)[:80]!r}"
    said = "expected an object" if first["type"] == "dict_type" else first["msg"].lower()
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{path}: {said}{got}{more}"


type Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class EventOrigin:
    """The account and region of the created events."""

    account: str
    region: str

    def lifecycle_action(
        self, about: str, at: datetime, instance: str, hook: LifecycleHook, *, launching: bool
    ) -> Event:
        """Return the event of an instance that waits for the answer to a lifecycle hook."""
        verb = "LAUNCHING" if launching else "TERMINATING"
        detail = {
            "AutoScalingGroupName": hook.group,
            "LifecycleHookName": hook.name,
            "EC2InstanceId": instance,
            "LifecycleTransition": f"autoscaling:EC2_INSTANCE_{verb}",
        }
        action = "launch" if launching else "terminate"
        detail_type = f"EC2 Instance-{action} Lifecycle Action"
        return self._event(AUTO_SCALING, detail_type, about, at, detail)

    def interruption(
        self, about: str, at: datetime, instance: str, action: InterruptionAction
    ) -> Event:
        """Return the event of a Spot instance that EC2 interrupts two minutes after `at`."""
        detail = {"instance-id": instance, "instance-action": action.value}
        return self._event(EC2, "EC2 Spot Instance Interruption Warning", about, at, detail)

    def reservation_interruption(
        self, about: str, at: datetime, instance: str, ends_at: datetime
    ) -> Event:
        """Return the event of an instance that EC2 ends at a time, with its reserved capacity."""
        detail = {
            "instance-id": instance,
            "instance-action": "terminate",
            "instance-termination-time": ends_at.astimezone(UTC).isoformat(),
        }
        detail_type = "EC2 Capacity Reservation Instance Interruption Warning"
        return self._event(EC2, detail_type, about, at, detail)

    def rebalance(self, about: str, at: datetime, instance: str) -> Event:
        """Return a rebalance recommendation."""
        detail_type = "EC2 Instance Rebalance Recommendation"
        return self._event(EC2, detail_type, about, at, {"instance-id": instance})

    def state_change(self, about: str, at: datetime, instance: str, state: str) -> Event:
        """Return the event of an instance that has entered a state."""
        detail_type = "EC2 Instance State-change Notification"
        detail = {"instance-id": instance, "state": state}
        return self._event(EC2, detail_type, about, at, detail)

    def scheduled_change(
        self,
        about: str,
        at: datetime,
        instance: str,
        event: str,
        starts_at: datetime,
        *,
        called_off: bool = False,
    ) -> Event:
        """Return the event of a scheduled reboot, stop or retirement of an instance, or of its
        cancellation. `event` is EC2's id of the scheduled event."""
        detail = {
            "eventArn": event,
            "service": "EC2",
            "eventTypeCategory": "scheduledChange",
            "startTime": format_datetime(starts_at.astimezone(UTC), usegmt=True),
            "statusCode": "closed" if called_off else "upcoming",
            "affectedEntities": [{"entityValue": instance}],
        }
        return self._event(HEALTH, "AWS Health Event", about, at, detail)

    def impaired_status(
        self,
        about: str,
        at: datetime,
        instance: str,
        checks: Collection[str],
        *,
        over: bool = False,
    ) -> Event:
        """Return the event of status checks that fail, or that pass again with `over`. `checks` are
        the names of the failing checks."""
        status = "ok" if over else "impaired"
        detail = {"instance-id": instance, "status": status, "failed-checks": sorted(checks)}
        return self._event(LEEWAY, IMPAIRED, about, at, detail)

    def unhealthy_node(self, about: str, at: datetime, instance: str, why: str) -> Event:
        """Return the event of an instance whose Node is unhealthy by its conditions."""
        return self._event(LEEWAY, UNHEALTHY, about, at, {"instance-id": instance, "reason": why})

    def _event(
        self, source: str, detail_type: str, about: str, at: datetime, detail: dict[str, Any]
    ) -> Event:
        return {
            "version": "0",
            "id": f"leeway-{about}",
            "detail-type": detail_type,
            "source": source,
            "account": self.account,
            "time": at.astimezone(UTC).isoformat(),
            "region": self.region,
            "resources": [],
            "detail": detail,
        }
