"""The time axis of the reports' pictures: converts times to the pixels of an SVG."""

import math
from dataclasses import dataclass

WIDTH = 1120.0
GUTTER = 232.0
"""The column of the names."""
TOP = 30.0
"""The height of the labels of the axis."""


@dataclass(frozen=True)
class Tick:
    """A label of the time axis."""

    x: float
    label: str


@dataclass(frozen=True)
class Segment:
    """A part of a bar. `kind` is its CSS class, `title` its tooltip."""

    x: float
    width: float
    kind: str
    title: str


@dataclass(frozen=True)
class TimeAxis:
    """An axis from `first` to `last`, in seconds, whose ends are at `left` and `right`. Its labels
    count from `zero`."""

    first: float
    last: float
    left: float
    right: float
    zero: float

    def x(self, moment: float) -> float:
        """Return the place of a time; that of the nearer end if it is outside."""
        share = (min(max(moment, self.first), self.last) - self.first) / (self.last - self.first)
        return round(self.left + share * (self.right - self.left), 1)

    def after(self, moment: float) -> str:
        """Return how long after zero a time is."""
        return f"+{moment - self.zero:.1f} s"

    def segment(self, start: float, end: float, kind: str, title: str) -> Segment:
        """Return the bar between two times, at least one pixel wide."""
        x = self.x(start)
        return Segment(x, max(round(self.x(end) - x, 1), 1.0), kind, title)

    @property
    def ticks(self) -> tuple[Tick, ...]:
        """The labels from zero on, twelve intervals at the most if the axis has up to 12 min."""
        length = self.last - self.zero
        step = next((size for size in (1, 2, 5, 10, 20, 30, 60) if length / size <= 12), 120)
        return tuple(
            Tick(self.x(self.zero + second), f"{second} s")
            for second in range(0, math.floor(length) + 1, step)
        )
