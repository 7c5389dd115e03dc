"""What went wrong, in words for the people who run Leeway."""

import traceback
from pathlib import PurePath


def describe_error(error: Exception) -> str:
    """Name an error and what it says; one that is none of Leeway's own with the line that it came
    from, since nobody foresaw it and its message alone seldom helps."""
    said = f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    if type(error).__module__.startswith("leeway.") or not frames:
        return said
    return f"{said} ({PurePath(frames[-1].filename).name}:{frames[-1].lineno})"
