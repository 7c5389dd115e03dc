"""Durations of options: `120s`, `2m`, `1m30s`, `1.5h`, or bare seconds."""

import re
from datetime import timedelta

from leeway import durations

from cli.errors import BadInputError


def parse_duration(option: str, text: str) -> timedelta:
    """Read a duration; `option` is named where it is none."""
    if re.fullmatch(r"\d+", text, re.ASCII):
        return durations.parse_duration(f"{text}s")
    try:
        return durations.parse_duration(text)
    except ValueError as error:
        raise BadInputError(f"{option}: {error}") from error
