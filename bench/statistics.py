"""Percentiles of small samples."""

import math
from collections.abc import Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the sample does not exceed."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
