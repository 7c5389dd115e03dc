"""Lays a report out on a time axis: coordinates in the pixels of the report's SVG."""

import math
from dataclasses import dataclass

from leeway_cli.report.model import NodeReport, Outcome, PodReport, StormReport

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


MARGIN_RIGHT = 96.0  # room for the name of the node that a pod moved to
NODE_ROW = 46.0
POD_ROW = 15.0
GAP = 20.0
LEAD = 1.5  # seconds shown before the first notice
TAIL = 1.0


@dataclass(frozen=True)
class Mark:
    """A point in time on a row."""

    x: float
    kind: str
    title: str


@dataclass(frozen=True)
class PodRow:
    """The row of one pod: running, terminating, ended, running on another node."""

    y: float
    name: str
    outcome: Outcome
    fault: bool
    segments: tuple[Segment, ...]
    marks: tuple[Mark, ...]
    moved_to: str


@dataclass(frozen=True)
class Lane:
    """The rows of one node with its replacement and its pods."""

    y: float
    height: float
    name: str
    about: str
    replacement: str
    segments: tuple[Segment, ...]
    marks: tuple[Mark, ...]
    limit: float
    pods: tuple[PodRow, ...]


@dataclass(frozen=True)
class Timeline:
    """The whole picture."""

    width: float
    height: float
    left: float
    right: float
    ticks: tuple[Tick, ...]
    lanes: tuple[Lane, ...]


def lay_out(report: StormReport) -> Timeline:
    """Lay out every node and pod of the report."""
    axis = TimeAxis(
        first=report.began_at - LEAD,
        last=_last_time(report) + TAIL,
        left=GUTTER,
        right=WIDTH - MARGIN_RIGHT,
        zero=report.began_at,
    )
    lanes, y = [], TOP
    for node in report.nodes:
        lane = _lane(axis, node, y)
        lanes.append(lane)
        y += lane.height + GAP
    return Timeline(
        width=WIDTH,
        height=y,
        left=axis.left,
        right=axis.right,
        ticks=axis.ticks,
        lanes=tuple(lanes),
    )


def short(name: str) -> str:
    """Return a node's name without its domain."""
    return name.split(".", 1)[0]


def _last_time(report: StormReport) -> float:
    moments = [report.began_at + 1.0]
    for node in report.nodes:
        replacement = node.trace.replacement
        moments += [
            moment
            for moment in (
                node.trace.reclaim_at,
                node.trace.instance_gone_at,
                replacement.ready_at if replacement else None,
                *(pod.trace.ended_at for pod in node.pods),
                *(pod.trace.successor.running_at for pod in node.pods if pod.trace.successor),
            )
            if moment is not None
        ]
    return max(moments)


def _lane(axis: TimeAxis, node: NodeReport, y: float) -> Lane:
    trace = node.trace
    rows = tuple(
        _pod_row(axis, node, pod, y + NODE_ROW + place * POD_ROW)
        for place, pod in enumerate(node.pods)
    )
    end = trace.instance_gone_at if trace.instance_gone_at is not None else axis.last
    owner = "the group" if trace.target.group else "Leeway"
    how = "EC2 reclaims" if trace.reclaimed_by_ec2 else f"{owner} ends"
    how = f"{how} the instance"
    marks = [
        Mark(axis.x(notice.at), "notice", f"notice {place + 1}, {axis.after(notice.at)}")
        for place, notice in enumerate(trace.notices)
    ]
    marks += [
        Mark(axis.x(cordon), "cordon", f"cordoned {axis.after(cordon)}") for cordon in trace.cordons
    ]
    if trace.instance_gone_at is not None:
        marks.append(Mark(axis.x(end), "death", f"{how}, {axis.after(end)}"))
    name, replacement = short(trace.target.node), trace.replacement
    return Lane(
        y=y,
        height=NODE_ROW + len(rows) * POD_ROW,
        name=name,
        about=f"{trace.target.owner} · {trace.target.instance}",
        replacement=short(replacement.node or replacement.instance) if replacement else "",
        segments=(*_node_segments(axis, node, end), *_replacement_segments(axis, node)),
        marks=tuple(marks),
        limit=axis.x(trace.reclaim_at),
        pods=rows,
    )


def _node_segments(axis: TimeAxis, node: NodeReport, end: float) -> list[Segment]:
    """Return the bar of the node: serving, draining, empty."""
    trace = node.trace
    cordoned = min(trace.cordons[0] if trace.cordons else end, end)
    drained = min(node.drained_at if node.drained_at is not None else end, end)
    drained = max(drained, cordoned)
    name = short(trace.target.node)
    parts = [axis.segment(axis.first, cordoned, "serving", f"{name} accepts pods")]
    if drained > cordoned:
        parts.append(axis.segment(cordoned, drained, "draining", f"{name} is drained"))
    if end > drained:
        parts.append(axis.segment(drained, end, "empty", f"{name} is empty"))
    return parts


def _replacement_segments(axis: TimeAxis, node: NodeReport) -> list[Segment]:
    """Return the bar of the replacement: launched, then Ready."""
    new = node.trace.replacement
    if new is None:
        return []
    name = short(new.node or new.instance)
    ready = new.ready_at if new.ready_at is not None else axis.last
    coming = f"{name} launched {axis.after(new.launched_at)}"
    parts = [axis.segment(new.launched_at, ready, "coming", coming)]
    if new.ready_at is not None:
        parts.append(
            axis.segment(ready, axis.last, "ready", f"{name} is Ready {axis.after(ready)}")
        )
    return parts


def _pod_row(axis: TimeAxis, node: NodeReport, report: PodReport, y: float) -> PodRow:
    pod, evaluation = report.trace, report.evaluation
    end = pod.ended_at if pod.ended_at is not None else axis.last
    requested = min(pod.requested_at, end) if pod.requested_at is not None else end
    segments = [axis.segment(axis.first, requested, "alive", f"{pod.pod} runs")]
    if requested < end:
        title = f"{pod.pod}: terminating {axis.after(requested)}, ended {axis.after(end)}"
        segments.append(axis.segment(requested, end, "ending", title))
    marks = [
        Mark(axis.x(attempt.at), _attempt_kind(attempt.status), f"eviction: {attempt.status}")
        for attempt in pod.attempts
    ]
    new, moved_to = pod.successor, ""
    if new is not None and new.running_at is not None and end <= new.running_at:
        title = f"{new.pod} starts on {short(new.node or '')}"
        segments.append(axis.segment(end, new.running_at, "moving", title))
    if new is not None and new.running_at is not None:
        moved_to = short(new.node or "")
        there = f"{new.pod} runs on {moved_to} {axis.after(new.running_at)}"
        segments.append(axis.segment(max(end, new.running_at), axis.last, "elsewhere", there))
        marks.append(Mark(axis.x(new.running_at), "arrival", there))
    if evaluation.outcome is Outcome.DIED:
        marks.append(Mark(axis.x(end), "death", f"{pod.pod} died {axis.after(end)}"))
    return PodRow(
        y=y,
        name=pod.pod,
        outcome=evaluation.outcome,
        fault=evaluation.fault,
        segments=tuple(segments),
        marks=tuple(marks),
        moved_to=moved_to,
    )


def _attempt_kind(status: int) -> str:
    if status in {200, 201}:
        return "granted"
    return "refused" if status == 429 else "failed"
