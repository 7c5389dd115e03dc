"""Durations as Go and kubectl write them: `90s`, `30m`, `1h30m`, `1.5h`."""

import re
from datetime import timedelta

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def parse_duration(text: str) -> timedelta:
    """Parse a duration.

    Raises:
        ValueError: the text is not a duration, or is longer than a timedelta can hold.
    """
    if not re.fullmatch(rf"(?:{_PART.pattern})+", text, re.ASCII):
        raise ValueError(f"expected a duration such as 90s or 1h30m, got {text!r}")
    try:
        return timedelta(seconds=sum(float(n) * _SECONDS[unit] for n, unit in _PART.findall(text)))
    except OverflowError:
        raise ValueError(f"expected a duration of less than a billion days, got {text!r}") from None


def render_duration(duration: timedelta) -> str:
    """Render a duration in hours, minutes, seconds and milliseconds, rounded to a millisecond."""
    milliseconds = round(duration / timedelta(milliseconds=1))
    parts = []
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, milliseconds = divmod(milliseconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
