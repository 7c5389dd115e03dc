"""Parses events of source `aws.health`: scheduled changes of EC2 instances."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BeforeValidator, Field

from leeway.notices.envelope import Detail, Envelope, Parsers, Text
from leeway.notices.model import INSTANCE_ID, InstanceId, Notice, NoticeKind

SOURCE = "aws.health"


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


PARSERS: Parsers = {"AWS Health Event": _scheduled_change}


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
