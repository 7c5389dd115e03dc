"""Shapes of the pictures in reports, in the pixels of an SVG, and axes that place them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

WIDTH = 1120.0
GUTTER = 232.0
"""The column of the names."""
TOP = 30.0
"""The height of the labels of the axis."""


@dataclass(frozen=True)
class Shape:
    """An element of SVG. `kind` is its CSS class, `at` its attributes, `title` its tooltip."""

    tag: str
    kind: str
    at: Mapping[str, object] = field(default_factory=dict)
    title: str = ""
    text: str = ""
    parts: tuple["Shape", ...] = ()


@dataclass(frozen=True)
class Figure:
    """A picture with a title. An entry of the `legend` is a CSS class or a shape of 12 × 12 pixels,
    and a label; `about` says what the picture shows."""

    title: str
    about: str
    legend: Sequence[tuple[str | Shape, str]]
    shapes: Sequence[Shape]
    height: float
    lines: Sequence[str] = ()
    form = "figure"


def rect(
    kind: str, x: float, y: float, width: float, height: float, title: str = "", rx: float = 2
) -> Shape:
    """Return a rectangle with round corners."""
    return Shape(
        "rect", kind, {"x": x, "y": y, "width": width, "height": height, "rx": rx}, title=title
    )


def line(kind: str, x1: float, y1: float, x2: float, y2: float, title: str = "") -> Shape:
    """Return a line between two points."""
    return Shape("line", kind, {"x1": x1, "x2": x2, "y1": y1, "y2": y2}, title=title)


def path(kind: str, points: str, title: str = "") -> Shape:
    """Return a path, by its commands."""
    return Shape("path", kind, {"d": points}, title=title)


def circle(kind: str, x: float, y: float, radius: float, title: str = "") -> Shape:
    """Return a circle."""
    return Shape("circle", kind, {"cx": x, "cy": y, "r": radius}, title=title)


def label(kind: str, x: float, y: float, text: str, anchor: str = "start") -> Shape:
    """Return a text."""
    return Shape("text", kind, {"x": x, "y": y, "text-anchor": anchor}, text=text)


def group(kind: str, parts: Iterable[Shape], title: str = "") -> Shape:
    """Return shapes that a style applies to together."""
    return Shape("g", kind, title=title, parts=tuple(parts))


def area(kind: str, points: Iterable[tuple[float, float]]) -> Shape:
    """Return a polygon."""
    return Shape("polygon", kind, {"points": " ".join(f"{x},{y}" for x, y in points)})


def ticks(labels: Iterable[tuple[float, str]], bottom: float, first: str = "grid") -> list[Shape]:
    """Return the labelled vertical lines of an axis; `first` is the class of the first one."""
    shapes = []
    for number, (x, text) in enumerate(labels):
        shapes.append(line("grid" if number else first, x, 20, x, bottom))
        shapes.append(label("tick", x, 12, text, "middle"))
    return shapes


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

    def span(self, start: float, end: float) -> tuple[float, float]:
        """Return the place and the width of a bar between two times, at least one pixel."""
        x = self.x(start)
        return x, max(round(self.x(end) - x, 1), 1.0)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """The labels from zero on, twelve intervals at the most if the axis has up to 12 min."""
        length = self.last - self.zero
        step = next((size for size in (1, 2, 5, 10, 20, 30, 60) if length / size <= 12), 120)
        return [
            (self.x(self.zero + second), f"{second} s")
            for second in range(0, math.floor(length) + 1, step)
        ]


@dataclass(frozen=True)
class Plot:
    """Values over time: from 0 at `bottom` to `most` at 24 pixels."""

    axis: TimeAxis
    most: float
    bottom: float

    def y(self, value: float) -> float:
        """Return the height of a value."""
        return round(self.bottom - value / self.most * (self.bottom - 24.0), 1)

    def stack(
        self, kind: str, moments: Sequence[float], lower: Sequence[float], upper: Sequence[float]
    ) -> Shape:
        """Return the area between two curves."""
        places = [self.axis.x(moment) for moment in moments]
        there = zip(places, map(self.y, upper), strict=True)
        back = reversed([*zip(places, map(self.y, lower), strict=True)])
        return area(kind, chain(there, back))

    def curve(self, kind: str, moments: Sequence[float], values: Sequence[float]) -> Shape:
        """Return a curve."""
        points = area(kind, zip(map(self.axis.x, moments), map(self.y, values), strict=True))
        return Shape("polyline", kind, points.at)

    def levels(self, form: str, middle: float) -> list[Shape]:
        """Return labelled horizontal lines at the bottom, at a value and at the top."""
        shapes = []
        for value in (0, middle, self.most):
            y = self.y(value)
            shapes.append(line("rule", self.axis.left, y, self.axis.right, y))
            shapes.append(label("tick", 40, y + 4, form.format(value), "end"))
        return shapes
