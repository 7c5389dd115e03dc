"""How a number of pods changes in a rehearsal."""

from dataclasses import dataclass, field
from datetime import datetime


@dataclass
class Series:
    """How a number changes: (time, number), in the order of time."""

    steps: list[tuple[datetime, int]] = field(default_factory=list)

    def add(self, at: datetime, number: int) -> None:
        """Add the number at a time."""
        if self.steps and self.steps[-1][0] == at:
            self.steps[-1] = (at, number)
        else:
            self.steps.append((at, number))


def moments_below(series: Series, least: int, until: datetime) -> tuple[float, bool]:
    """Return for how many seconds a number was below the least, and whether it still is at the
    end."""
    total, steps = 0.0, series.steps
    for (at, number), (end, _) in zip(steps, [*steps[1:], (until, 0)], strict=True):
        if number < least:
            total += max(0.0, (min(end, until) - at).total_seconds())
    return total, bool(steps) and steps[-1][1] < least


def number_at(series: Series, moment: datetime) -> int:
    """Return the number at a time."""
    found = series.steps[0][1] if series.steps else 0
    for at, number in series.steps:
        if at > moment:
            break
        found = number
    return found
