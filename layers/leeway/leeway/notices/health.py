"""Notices from source `aws.health`: scheduled changes of EC2 instances."""

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
    """Read `Thu, 03 Dec 2026 02:00:00 GMT`, the form in which Health writes its times."""
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


# An end of support or of an attempt, which asks people to act in the next months. It lists all
# that it is about, and at its time nothing happens to an instance: EC2 announces that by itself.
# Source: AWS Health user guide, "Planned lifecycle events".
_FOR_PEOPLE = "_PLANNED_LIFECYCLE_EVENT"

_CLOSED = frozenset({"closed", "cancelled", "canceled"})
_RESOLVED = "resolved"

_INSTANCE = re.compile(INSTANCE_ID)


def _instance_of(text: str) -> str:
    """Return the id in `i-…` or in an ARN that ends in `instance/i-…`."""
    return text.rsplit("/", 1)[-1]


def _scheduled_change(envelope: Envelope) -> Notice:
    detail = _ScheduledChange.model_validate(envelope.detail)
    if detail.code.endswith(_FOR_PEOPLE):
        return envelope.notice(NoticeKind.SCHEDULED_CHANGE, [], effective_at=detail.start)
    named = [_instance_of(entity.value) for entity in detail.entities]
    listed = [_instance_of(resource) for resource in envelope.resources]
    instances = [name for name in dict.fromkeys([*named, *listed]) if _INSTANCE.fullmatch(name)]
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
    """Return the same event about one of its instances alone, to be received again later: a list
    of hundreds would not fit into a schedule, nor is each of them due again."""
    detail = event["detail"]
    entities = [e for e in detail.get("affectedEntities", []) if _names(e, instance)]
    return {
        **event,
        "resources": [instance],
        "detail": {**detail, "affectedEntities": entities},
    }


def _names(entity: dict[str, Any], instance: str) -> bool:
    return _instance_of(str(entity.get("entityValue", ""))) == instance
