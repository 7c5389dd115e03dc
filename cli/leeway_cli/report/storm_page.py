"""The report of a storm: as sections with a picture, and as JSON."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from leeway.reasons import counted

from leeway_cli.output import as_json
from leeway_cli.report import chart
from leeway_cli.report.chart import GUTTER, TOP, WIDTH, Figure, Shape, TimeAxis
from leeway_cli.report.evaluation import (
    Summary,
    drained_in_time,
    launch_texts,
    missing_for,
    owner_of,
    shortage_text,
    summarize,
    to_cordon,
    to_ready,
)
from leeway_cli.report.model import NodeReport, Outcome, PodReport, Replacement, StormReport
from leeway_cli.report.page import (
    Cell,
    Column,
    Lines,
    Page,
    Row,
    Run,
    Table,
    Tile,
    Tiles,
    after,
    seconds,
)


def storm_as_data(report: StormReport, run: Run) -> dict[str, Any]:
    """Render the report. Times are RFC 3339, durations seconds; a missing observation is null."""
    return {
        "good": report.good,
        "faults": list(report.all_faults),
        "run": {
            **run.as_data(
                nodes=run.options["nodes"],
                pods=run.pods,
                interruptions=run.options["interruptions"],
            ),
            "warningSeconds": report.plan.warning,
            "secondsLeftOnArrival": report.plan.warning - report.plan.late,
        },
        "summary": as_json(summarize(report)),
        "nodes": [
            {
                **as_json(node, epoch=True),
                "drained": drained_in_time(node),
                "cordonedAfterSeconds": as_json(to_cordon(node)),
                "replacedAfterSeconds": as_json(to_ready(node)),
            }
            for node in report.nodes
        ],
        "launches": as_json(report.launches, epoch=True),
        "shortages": as_json(report.shortages, epoch=True),
        "unmanagedInstances": as_json(report.unmanaged, epoch=True),
    }


OUTCOMES = {
    Outcome.MOVED: "moved in time",
    Outcome.ENDED: "ended in time",
    Outcome.STAYED: "stayed",
    Outcome.CUT: "cut short",
    Outcome.NOT_RESCHEDULED: "not rescheduled",
    Outcome.DIED: "died",
}
NUMBERS = (
    *("No", "One", "Two", "Three", "Four", "Five", "Six"),
    *("Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve"),
)
LEGEND: tuple[tuple[str | Shape, str], ...] = (
    (chart.path("m notice", "M1.5 2h9L6 9.5z"), "notice"),
    (chart.path("m cordon", "M6 1l5 5-5 5-5-5z"), "cordon"),
    ("s draining", "draining"),
    ("s empty", "empty"),
    (chart.path("m death", "M2 2l8 8M10 2l-8 8"), "instance gone"),
    ("s coming", "replacement starting"),
    ("s ready", "Ready"),
    (chart.circle("m refused", 6, 6, 3), "eviction blocked by a budget"),
    ("s ending", "pod terminating"),
    (chart.circle("m arrival", 6, 6, 3.5), "runs on another node"),
)


def storm_page(report: StormReport, run: Run) -> Page:
    """Return the sections of the report of a run."""
    count, plan = summarize(report), report.plan
    left = plan.warning - plan.late
    return Page(
        headline=headline(report),
        lede=f"EC2 interrupted {count.nodes} of the {run.options['nodes']} Spot instances of "
        f"cluster {plan.cluster}, which ran {counted(run.pods, 'pod')}. Of the two minutes "
        f"that EC2 gives, {left:.0f} s were left: each warning arrived {plan.late:.0f} s after the "
        "time written in it, so that the demo fits into a minute.",
        about=f"{counted(int(run.options['nodes']), 'node')}, {counted(run.pods, 'pod')}, "
        f"{count.pods} of them to move. Each warning arrived {plan.late:.0f} s late on purpose:\n"
        f"{left:.0f} s were left until EC2 reclaims the instances. "
        "All times below start at the notice.",
        sections=[
            _tiles(report, count),
            _timeline(report),
            _nodes(report),
            *_launches(report),
            Lines([*_sentences(report, run)]),
            _pods(report),
        ],
        faults=report.all_faults,
        faults_title="Faults that a correct drain would have prevented",
        source="All values except those that Leeway reported come from the journals of the "
        "sandbox's API server, kubelets and EC2. A pod counts as lost if it died or does not run "
        "again.",
        run=run.about,
    )


def headline(report: StormReport) -> str:
    """Return the result of the storm in one sentence."""
    count = summarize(report)
    number = NUMBERS[count.nodes] if count.nodes < len(NUMBERS) else str(count.nodes)
    interrupted = f"{number} {'node' if count.nodes == 1 else 'nodes'} interrupted"
    if count.pods_lost:
        return f"{interrupted}, {count.pods_lost} of {count.pods} pods lost."
    if not report.good:
        return f"{interrupted}, with faults."
    if count.pods_cut_short:
        in_time = count.pods - count.pods_cut_short
        return f"{interrupted}, {in_time} of {count.pods} pods moved in time."
    return f"{interrupted}, every pod moved in time."


def _tiles(report: StormReport, count: Summary) -> Tiles:
    cordon, ready = count.cordoned_after_seconds, count.replaced_after_seconds
    changed = any(other.faults for other in report.unmanaged)
    twice = count.duplicate_notices
    ended = f"{count.pods_lost} lost" if count.pods_lost else "none lost"
    if count.pods_cut_short:
        ended = f"{count.pods_cut_short} needed more time than there was"
    elif count.pods_ended:
        ended = f"{count.pods_ended} of them without an owner that recreates it"
    spare = seconds(count.least_seconds_to_spare)
    return Tiles(
        [
            Tile(
                count.nodes_drained,
                count.nodes,
                "nodes drained",
                f"the slowest one {spare} before the reclaim",
                count.nodes_drained == count.nodes,
            ),
            Tile(
                count.pods_moved + count.pods_ended,
                count.pods,
                "pods moved in time",
                ended,
                count.pods_lost == 0,
            ),
            Tile(
                seconds(cordon.median if cordon else None),
                None,
                "from notice to cordon",
                f"the slowest {seconds(cordon.worst if cordon else None)}",
            ),
            Tile(
                count.nodes_replaced,
                count.nodes,
                "nodes replaced",
                f"Ready {seconds(ready.median if ready else None)} after the notice",
                count.nodes_replaced == count.nodes,
            ),
            Tile(
                count.refusals_by_budgets,
                None,
                "evictions blocked by budgets",
                f"{counted(twice, 'duplicate notice')}, "
                f"{counted(len(report.unmanaged), 'instance')} of another cluster "
                f"{'changed' if changed else 'not changed'}",
                not changed,
            ),
        ]
    )


def _nodes(report: StormReport) -> Table:
    figures = ("Notices>", "Cordoned>", "Moved>", "Drained>", "Spare>", "Replaced>")
    of_page = (Column("Instance gone", "", "page"), Column("Replaced by", where="page"))
    told = Column("What Leeway reported", "", "page")
    return Table(
        ("", "Node", Column("Owner", ""), *figures, *of_page, told),
        [_node(node) for node in report.nodes],
        "Node by node",
        [
            f"{one.instance} of another cluster: {'; '.join(one.faults) or 'not changed'}."
            for one in report.unmanaged
        ],
    )


def _node(node: NodeReport) -> Row:
    trace, since = node.trace, node.trace.noticed_at
    fine = not node.faults and not any(pod.evaluation.fault for pod in node.pods)
    in_time = {Outcome.MOVED, Outcome.ENDED}
    moved = sum(1 for pod in node.moving if pod.evaluation.outcome in in_time)
    drained = node.drained_at if drained_in_time(node) else None
    gone = "reclaimed by EC2" if trace.reclaimed_by_ec2 else "terminated after its drain"
    new = trace.replacement
    return (
        Cell("✓", kind="moved") if fine else Cell("✗", kind="fault"),
        Cell(short(trace.target.node), trace.target.instance),
        owner_of(trace.target),
        str(len(trace.notices)),
        seconds(to_cordon(node)),
        f"{moved}/{len(node.moving)}",
        after(drained, since),
        after(trace.reclaim_at, drained),
        seconds(to_ready(node)),
        f"after {after(trace.instance_gone_at, since)}, {gone}" if trace.instance_gone_at else "–",
        short(new.node or new.instance) if new else "–",
        "; ".join(event.text for event in trace.leeway_events) or "nothing",
    )


def _launches(report: StormReport) -> Iterator[Table]:
    """What Leeway launched; nothing in a storm without launches and shortages."""
    if not report.launches and not report.shortages:
        return
    began = report.began_at
    yield Table(
        ("Instance", "Pool", "Type", "Zone", "Capacity", "Launched after>", "Ready after>"),
        [
            (
                Cell(short(one.node or one.instance), one.instance),
                one.pool,
                one.instance_type,
                one.zone,
                f"{one.capacity_type}{' instead of Spot' if one.fallback else ''}",
                after(one.at, began),
                after(one.ready_at, began),
            )
            for one in report.launches
        ],
        title="What Leeway launched",
        lines=[
            f"{after(one.at, began)} after the first notice: {shortage_text(one)}"
            for one in report.shortages
        ],
        where="page",
    )


def _sentences(report: StormReport, run: Run) -> Iterator[str]:
    count = summarize(report)
    results = Counter(event.result for node in report.nodes for event in node.trace.leeway_events)
    reported = ", ".join(
        f"{result} {counted(number, 'time')}" for result, number in results.items()
    )
    yield from map(shortage_text, report.shortages)
    yield from launch_texts(report.launches)
    for one in report.unmanaged:
        if not one.faults:
            yield f"[dim]{one.instance} of another cluster: not changed.[/]"
    yield (
        f"[dim]{counted(count.refusals_by_budgets, 'eviction')} refused by budgets, "
        f"{counted(count.duplicate_notices, 'duplicate notice')}, {run.duration:.0f} s in total.[/]"
    )
    yield f"[dim]Leeway reported: {reported or 'nothing'}.[/]"


def _pods(report: StormReport) -> Table:
    rows = []
    for node in report.nodes:
        for pod in node.pods:
            trace, evaluation = pod.trace, pod.evaluation
            stayed = evaluation.outcome is Outcome.STAYED
            kind = "fault" if evaluation.fault else evaluation.outcome.value
            new = trace.successor
            rows.append(
                (
                    trace.pod,
                    short(trace.node),
                    Cell(OUTCOMES[evaluation.outcome], kind=kind),
                    "–" if stayed else after(trace.requested_at, node.trace.noticed_at),
                    "–" if stayed else after(trace.ended_at, trace.requested_at),
                    seconds(missing_for(trace)),
                    short(new.node) if new and new.node else "–",
                    evaluation.reason,
                )
            )
    figures = ("Terminating after>", "Ended in>", "Missing for>", "Runs on", Column("Reason", ""))
    columns = (Column("Pod", ""), "Node", "Outcome", *figures)
    return Table(columns, rows, title="Pod by pod", where="page")


MARGIN_RIGHT = 96.0  # room for the name of the node that a pod moved to
NODE_ROW = 46.0
POD_ROW = 15.0
GAP = 20.0
LEAD = 1.5  # seconds shown before the first notice
TAIL = 1.0


def short(name: str) -> str:
    """Return a node's name without its domain."""
    return name.split(".", 1)[0]


def _timeline(report: StormReport) -> Figure:
    """Draw a lane for each node with its replacement, and a row for each of its pods."""
    axis = TimeAxis(
        first=report.began_at - LEAD,
        last=_last_time(report) + TAIL,
        left=GUTTER,
        right=WIDTH - MARGIN_RIGHT,
        zero=report.began_at,
    )
    shapes: list[Shape] = []
    y = TOP
    for node in report.nodes:
        height = NODE_ROW + len(node.pods) * POD_ROW
        if shapes:
            shapes.append(chart.line("rule", 0, y - 9, WIDTH, y - 9))
        shapes.append(chart.group("lane", _lane(axis, node, y, height)))
        y += height + GAP
    if report.nodes:
        x = axis.x(report.nodes[-1].trace.reclaim_at) - 6
        shapes.append(chart.label("limit-label", x, y - 8, "EC2 reclaims it at the latest", "end"))
    about = "When each node was drained and each pod moved"
    shapes[:0] = chart.ticks(axis.ticks, y - 18, "zero")
    return Figure("Second by second", about, LEGEND, shapes, y)


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


def _lane(axis: TimeAxis, node: NodeReport, y: float, height: float) -> Iterator[Shape]:
    trace, new = node.trace, node.trace.replacement
    name, limit = short(trace.target.node), axis.x(trace.reclaim_at)
    end = trace.instance_gone_at if trace.instance_gone_at is not None else axis.last
    yield chart.label("name", 0, y + 14, name)
    yield chart.label("quiet", 0, y + 30, f"{trace.target.owner} · {trace.target.instance}")
    latest = "EC2 reclaims the instance at the latest"
    yield chart.line("limit", limit, y - 2, limit, y + height, latest)
    cordoned = min(trace.cordoned_at[0] if trace.cordoned_at else end, end)
    drained = max(min(node.drained_at if node.drained_at is not None else end, end), cordoned)
    bars = (
        (axis.first, cordoned, "serving", "accepts pods"),
        (cordoned, drained, "draining", "is drained"),
        (drained, end, "empty", "is empty"),
    )
    for start, stop, kind, what in bars:
        if stop > start:
            yield _bar(axis, start, stop, f"s {kind}", y + 5, 12, f"{name} {what}")
    if new is not None:
        yield from _replacement(axis, new, y)
    for place, notice in enumerate(trace.notices):
        yield _mark(axis, "notice", notice.at, y + 11, f"notice {place + 1}")
    for cordon in trace.cordoned_at:
        yield _mark(axis, "cordon", cordon, y + 11, "cordoned")
    if trace.instance_gone_at is not None:
        owner = "the group" if trace.target.group else "Leeway"
        how = "EC2 reclaims" if trace.reclaimed_by_ec2 else f"{owner} ends"
        yield _mark(axis, "death", end, y + 11, f"{how} the instance")
    for place, pod in enumerate(node.pods):
        yield _pod_row(axis, pod, y + NODE_ROW + place * POD_ROW)


def _replacement(axis: TimeAxis, new: Replacement, y: float) -> Iterator[Shape]:
    """Draw the bar of the replacement: launched, then Ready."""
    name = short(new.node or new.instance)
    ready = new.ready_at if new.ready_at is not None else axis.last
    title = f"{name} launched {axis.after(new.launched_at)}"
    yield _bar(axis, new.launched_at, ready, "s coming", y + 25, 6, title)
    if new.ready_at is not None:
        title = f"{name} is Ready {axis.after(ready)}"
        yield _bar(axis, ready, axis.last, "s ready", y + 25, 6, title)
    yield chart.label("to", axis.right + 6, y + 32, name)


def _bar(
    axis: TimeAxis, start: float, end: float, kind: str, y: float, height: float, title: str
) -> Shape:
    x, width = axis.span(start, end)
    return chart.rect(kind, x, y, width, height, title)


def _mark(axis: TimeAxis, kind: str, moment: float, y: float, what: str) -> Shape:
    x, title = axis.x(moment), f"{what}, {axis.after(moment)}"
    match kind:
        case "notice":
            return chart.path("m notice", f"M{x - 5} {y - 14}h10l-5 8z", title)
        case "cordon":
            return chart.path("m cordon", f"M{x} {y - 7}l7 7-7 7-7-7z", title)
        case "death":
            return chart.path("m death", f"M{x - 4} {y - 4}l8 8M{x + 4} {y - 4}l-8 8", title)
        case "granted":
            return chart.path("m granted", f"M{x} {y - 4.5}v9", title)
    return chart.circle(f"m {kind}", x, y, 3.5 if kind == "arrival" else 2.8, title)


def _pod_row(axis: TimeAxis, report: PodReport, y: float) -> Shape:
    """Draw one pod: running, terminating, ended, running on another node."""
    pod, evaluation, new = report.trace, report.evaluation, report.trace.successor
    end = pod.ended_at if pod.ended_at is not None else axis.last
    requested = min(pod.requested_at, end) if pod.requested_at is not None else end
    shapes = [
        chart.label("pod", 12, y + 9, pod.pod),
        _bar(axis, axis.first, requested, "s alive", y + 5, 2, f"{pod.pod} runs"),
    ]
    if requested < end:
        title = f"{pod.pod}: terminating {axis.after(requested)}, ended {axis.after(end)}"
        shapes.append(_bar(axis, requested, end, "s ending", y + 2.5, 7, title))
    for attempt in pod.attempts:
        kind = "refused" if attempt.status == 429 else "failed"
        kind = "granted" if attempt.status in {200, 201} else kind
        what = f"eviction: {attempt.status}"
        shapes.append(_mark(axis, kind, attempt.at, y + 6, what))
    if new is not None and new.running_at is not None:
        name = short(new.node or "")
        if end <= new.running_at:
            title = f"{new.pod} starts on {name}"
            shapes.append(_bar(axis, end, new.running_at, "s moving", y + 5, 2, title))
        there = f"{new.pod} runs on {name}"
        began = max(end, new.running_at)
        shapes.append(_bar(axis, began, axis.last, "s elsewhere", y + 5, 2, there))
        shapes.append(_mark(axis, "arrival", new.running_at, y + 6, there))
        shapes.append(chart.label("to", axis.right + 6, y + 9.5, name))
    if evaluation.outcome is Outcome.DIED:
        shapes.append(_mark(axis, "death", end, y + 6, f"{pod.pod} died"))
    return chart.group(f"{evaluation.outcome}{' fault' if evaluation.fault else ''}", shapes)
