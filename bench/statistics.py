"""Percentiles of small samples, and the peak memory of a process."""

import math
from collections.abc import Sequence
from pathlib import Path


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the sample does not exceed."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def peak_mb(process: int | str = "self") -> int:
    """Return the peak memory of a process. `getrusage` would count that of its parent, too."""
    status = (Path("/proc") / str(process) / "status").read_text()
    (line,) = [each for each in status.splitlines() if each.startswith("VmHWM:")]
    return int(line.split()[1]) // 1024
