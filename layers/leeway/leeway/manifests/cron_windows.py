"""Fields that cron windows are written with, wherever they stand."""

from functools import cache
from importlib.resources import files
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, WithJsonSchema

from leeway.headroom.cron import Cron, parse_cron
from leeway.manifests.problems import near_miss


def _cron(value: Any) -> Any:
    return parse_cron(value) if isinstance(value, str) else value


def _timezone(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value not in _zones():
        raise ValueError(
            "expected a time zone of the IANA database, such as Europe/Berlin"
            + near_miss(value[:64], _zones())
        )
    return ZoneInfo(value)


@cache
def _zones() -> frozenset[str]:
    """The names that the layer's own database has. Whoever checks a manifest may have others, and
    some file systems take names in any case; functions would not know these."""
    return frozenset(files("tzdata").joinpath("zones").read_text(encoding="utf-8").split())


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
