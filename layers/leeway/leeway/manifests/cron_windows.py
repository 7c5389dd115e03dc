"""The field types of schedules: cron expressions and time zones."""

from functools import cache
from importlib.resources import files
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, WithJsonSchema

from leeway.headroom.cron import Cron, parse_cron
from leeway.manifests.problems import near_miss


def _cron(value: Any) -> Any:
    return parse_cron(value) if isinstance(value, str) else value


_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


def _cron_or_descriptor(value: Any) -> Any:
    return _cron(_DESCRIPTORS.get(value, value)) if isinstance(value, str) else value


def _timezone(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value not in _zones():
        raise ValueError(
            "expected a time zone of the IANA database such as Europe/Berlin"
            + near_miss(value[:64], _zones())
        )
    return ZoneInfo(value)


@cache
def _zones() -> frozenset[str]:
    """Return the names in the layer's copy of the database. The machine that checks a manifest may
    have others, and some file systems ignore case; the functions would not find these names."""
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
BudgetSchedule = Annotated[
    Cron,
    BeforeValidator(_cron_or_descriptor),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": rf"^(\\S+ +\\S+ +\\S+ +\\S+ +\\S+|{'|'.join(_DESCRIPTORS)})$",
            "description": "A cron expression of five fields, or a descriptor such as @daily.",
        }
    ),
]
"""The schedule of a disruption budget; Karpenter accepts descriptors there, too."""
TimeZone = Annotated[
    ZoneInfo,
    BeforeValidator(_timezone),
    WithJsonSchema(
        {
            "type": "string",
            "description": "A time zone of the IANA database, for example Europe/Berlin.",
        }
    ),
]
