"""Reads durations of options: `120s`, `2m`, `1m30s`, `1.5h`, or a number of seconds."""

import re
from datetime import timedelta

from leeway import durations

from leeway_cli.errors import BadInputError, as_clause


def parse_duration(option: str, text: str) -> timedelta:
    """Read the duration of an option.

    Raises:
        BadInputError: the text is no duration.
    """
    if re.fullmatch(r"\d+", text, re.ASCII):
        return durations.parse_duration(f"{text}s")
    try:
        return durations.parse_duration(text)
    except ValueError as error:
        raise BadInputError(f"{option}: {as_clause(error)}.") from error
