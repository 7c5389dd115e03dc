"""Durations as people and kubectl write them: `120s`, `2m`, `1m30s`, `1.5h`, or bare seconds."""

import re
from datetime import timedelta

from cli.errors import BadInputError

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def parse_duration(option: str, text: str) -> timedelta:
    """Read a duration; `option` is named where it is none."""
    if re.fullmatch(r"\d+", text):
        return timedelta(seconds=int(text))
    if not re.fullmatch(rf"(?:{_PART.pattern})+", text):
        raise BadInputError(f"{option}: expected a duration such as 120s or 2m, got {text!r}")
    parts = _PART.findall(text)
    return timedelta(seconds=sum(float(number) * _SECONDS[unit] for number, unit in parts))
