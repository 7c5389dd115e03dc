"""Lays a story out on a time axis: pure geometry, in the pixels of the report's SVG."""

import math
from dataclasses import dataclass

from cli.report.story import NodeStory, Outcome, PodStory, Story

WIDTH = 1120.0
GUTTER = 232.0  # where the names stand
MARGIN_RIGHT = 96.0  # room for the name of the node that a pod moved to
TOP = 30.0
NODE_ROW = 46.0
POD_ROW = 15.0
GAP = 20.0
LEAD = 1.5  # seconds shown before the first notice
TAIL = 1.0


@dataclass(frozen=True)
class HeadroomReconciler:
    """A labelled second of the axis."""

    x: float
    label: str


@dataclass(frozen=True)
class Segment:
    """A stretch of a bar; `kind` names its look, `title` what it says when pointed at."""

    x: float
    width: float
    kind: str
    title: str


@dataclass(frozen=True)
class Mark:
    """A moment on a row."""

    x: float
    kind: str
    title: str


@dataclass(frozen=True)
class PodRow:
    """One pod: alive, asked to go, gone, and running again elsewhere."""

    y: float
    name: str
    outcome: Outcome
    fault: bool
    segments: tuple[Segment, ...]
    marks: tuple[Mark, ...]
    moved_to: str


@dataclass(frozen=True)
class Lane:
    """One node with its replacement and its pods."""

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
    ticks: tuple[HeadroomReconciler, ...]
    lanes: tuple[Lane, ...]


@dataclass(frozen=True)
class _Axis:
    """Turns moments (epoch seconds) into pixels."""

    zero: float
    last: float

    def x(self, moment: float) -> float:
        span = self.last - self.zero + LEAD
        share = (min(max(moment, self.zero - LEAD), self.last) - self.zero + LEAD) / span
        return round(GUTTER + share * (WIDTH - GUTTER - MARGIN_RIGHT), 1)

    def after(self, moment: float) -> str:
        return f"+{moment - self.zero:.1f} s"

    def segment(self, start: float, end: float, kind: str, title: str) -> Segment:
        x = self.x(start)
        return Segment(x, max(round(self.x(end) - x, 1), 1.0), kind, title)


def lay_out(story: Story) -> Timeline:
    """Place every node and pod of the story."""
    axis = _Axis(story.began_at, _last_moment(story) + TAIL)
    lanes, y = [], TOP
    for node in story.nodes:
        lane = _lane(axis, node, y)
        lanes.append(lane)
        y += lane.height + GAP
    return Timeline(
        width=WIDTH,
        height=y,
        left=GUTTER,
        right=WIDTH - MARGIN_RIGHT,
        ticks=_ticks(axis),
        lanes=tuple(lanes),
    )


def short(name: str) -> str:
    """A node's name without its domain."""
    return name.split(".", 1)[0]


def _last_moment(story: Story) -> float:
    moments = [story.began_at + 1.0]
    for node in story.nodes:
        replacement = node.trace.replacement
        moments += [
            moment
            for moment in (
                node.trace.takes_at,
                node.trace.dead_at,
                replacement.ready_at if replacement else None,
                *(pod.trace.ended_at for pod in node.pods),
                *(pod.trace.successor.running_at for pod in node.pods if pod.trace.successor),
            )
            if moment is not None
        ]
    return max(moments)


def _ticks(axis: _Axis) -> tuple[HeadroomReconciler, ...]:
    length = axis.last - axis.zero
    step = next((size for size in (1, 2, 5, 10, 20, 30, 60) if length / size <= 12), 120)
    return tuple(
        HeadroomReconciler(axis.x(axis.zero + second), f"{second} s")
        for second in range(0, math.floor(length) + 1, step)
    )


def _lane(axis: _Axis, node: NodeStory, y: float) -> Lane:
    trace = node.trace
    rows = tuple(
        _pod_row(axis, node, pod, y + NODE_ROW + place * POD_ROW)
        for place, pod in enumerate(node.pods)
    )
    end = trace.dead_at if trace.dead_at is not None else axis.last
    how = "EC2 takes the instance" if trace.taken_by_ec2 else "its group ends the instance"
    marks = [
        Mark(axis.x(notice.at), "notice", f"notice {place + 1}, {axis.after(notice.at)}")
        for place, notice in enumerate(trace.notices)
    ]
    marks += [
        Mark(axis.x(cordon), "cordon", f"cordoned {axis.after(cordon)}") for cordon in trace.cordons
    ]
    if trace.dead_at is not None:
        marks.append(Mark(axis.x(end), "death", f"{how}, {axis.after(end)}"))
    name, replacement = short(trace.target.node), trace.replacement
    return Lane(
        y=y,
        height=NODE_ROW + len(rows) * POD_ROW,
        name=name,
        about=f"{trace.target.group} · {trace.target.instance}",
        replacement=short(replacement.node or replacement.instance) if replacement else "",
        segments=(*_life(axis, node, end), *_new_life(axis, node)),
        marks=tuple(marks),
        limit=axis.x(trace.takes_at),
        pods=rows,
    )


def _life(axis: _Axis, node: NodeStory, end: float) -> list[Segment]:
    """The node's own bar: serving, draining, empty."""
    trace = node.trace
    cordoned = min(trace.cordons[0] if trace.cordons else end, end)
    drained = min(node.drained_at if node.drained_at is not None else end, end)
    drained = max(drained, cordoned)
    name = short(trace.target.node)
    parts = [axis.segment(axis.zero - LEAD, cordoned, "serving", f"{name} takes pods")]
    if drained > cordoned:
        parts.append(axis.segment(cordoned, drained, "draining", f"{name} is drained"))
    if end > drained:
        parts.append(axis.segment(drained, end, "empty", f"{name} is empty"))
    return parts


def _new_life(axis: _Axis, node: NodeStory) -> list[Segment]:
    """The replacement's bar: on its way, then Ready."""
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


def _pod_row(axis: _Axis, node: NodeStory, story: PodStory, y: float) -> PodRow:
    pod, verdict = story.trace, story.verdict
    end = pod.ended_at if pod.ended_at is not None else axis.last
    asked = min(pod.asked_at, end) if pod.asked_at is not None else end
    segments = [axis.segment(axis.zero - LEAD, asked, "alive", f"{pod.pod} runs")]
    if asked < end:
        told = f"{pod.pod}: asked to end {axis.after(asked)}, ended {axis.after(end)}"
        segments.append(axis.segment(asked, end, "ending", told))
    marks = [
        Mark(axis.x(attempt.at), _attempt_kind(attempt.status), f"eviction: {attempt.status}")
        for attempt in pod.attempts
    ]
    new, moved_to = pod.successor, ""
    if new is not None and new.running_at is not None and end <= new.running_at:
        waited = f"{new.pod} is on its way to {short(new.node or '')}"
        segments.append(axis.segment(end, new.running_at, "moving", waited))
    if new is not None and new.running_at is not None:
        moved_to = short(new.node or "")
        there = f"{new.pod} runs on {moved_to} {axis.after(new.running_at)}"
        segments.append(axis.segment(max(end, new.running_at), axis.last, "elsewhere", there))
        marks.append(Mark(axis.x(new.running_at), "arrival", there))
    if verdict.outcome is Outcome.DIED:
        marks.append(Mark(axis.x(end), "death", f"{pod.pod} died {axis.after(end)}"))
    return PodRow(
        y=y,
        name=pod.pod,
        outcome=verdict.outcome,
        fault=verdict.fault,
        segments=tuple(segments),
        marks=tuple(marks),
        moved_to=moved_to,
    )


def _attempt_kind(status: int) -> str:
    if status in {200, 201}:
        return "granted"
    return "refused" if status == 429 else "failed"
