"""Fields that cron windows are written with, wherever they stand."""

from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BeforeValidator, WithJsonSchema

from leeway.headroom.cron import Cron, parse_cron


def _cron(value: Any) -> Any:
    return parse_cron(value) if isinstance(value, str) else value


def _timezone(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            "expected a time zone of the IANA database, such as Europe/Berlin"
        ) from None


CronExpression = Annotated[
    Cron,
    BeforeValidator(_cron),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": r"^\S+ +\S+ +\S+ +\S+ +\S+$",
            "description": "A cron expression: minute, hour, day of month, month, day of week.",
        }
    ),
]
TimeZone = Annotated[
    ZoneInfo,
    BeforeValidator(_timezone),
    WithJsonSchema({"type": "string", "description": "A time zone of the IANA database."}),
]
