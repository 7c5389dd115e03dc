"""Renders exceptions for the people who operate Leeway."""

import traceback
from pathlib import PurePath


def describe_error(error: Exception) -> str:
    """Return `Type: message`. An exception that Leeway does not define gets `(file.py:line)` of the
    code that raised it, because its message alone is seldom enough to find the cause."""
    text = f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    if type(error).__module__.startswith("leeway.") or not frames:
        return text
    return f"{text} ({PurePath(frames[-1].filename).name}:{frames[-1].lineno})"
