"""Renders the report of a storm as JSON, text and a page, with the parameters to repeat its run."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.table import Table

from leeway_cli.html_templates import environment
from leeway_cli.report.evaluation import (
    drained_in_time,
    launch_lines,
    missing_for,
    owner_of,
    shortage_text,
    summarize,
    to_cordon,
    to_ready,
)
from leeway_cli.report.model import (
    Launch,
    NodeReport,
    Notice,
    Outcome,
    PodReport,
    Shortage,
    StormReport,
    UnmanagedReport,
)
from leeway_cli.report.timeline import lay_out, short

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True)
class Run:
    """A run of `leeway demo`, which its report shows so that it can be repeated: its `options`, its
    start and its duration in seconds. `pods` are those of a storm's cluster."""

    seed: int
    began: datetime
    duration: float
    options: Mapping[str, int | str] = field(default_factory=dict)
    pods: int = 0

    @property
    def command(self) -> str:
        """The command that repeats the run."""
        given = {"scenario": self.options.get("scenario"), "seed": self.seed, **self.options}
        return " ".join(
            ["leeway demo", *(f"--{name} {value}" for name, value in given.items() if value)]
        )

    def as_data(self, **fields: object) -> dict[str, Any]:
        """Render the run as JSON, with the fields of its scenario."""
        return {
            "command": self.command,
            "seed": self.seed,
            **fields,
            "began": self.began.isoformat(),
            "durationSeconds": round(self.duration, 1),
        }


def columns(*names: str) -> Table:
    """Return a table without borders. The name of a column of numbers ends with `>`."""
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="dim")
    for name in names:
        justify: Literal["right", "left"] = "right" if name.endswith(">") else "left"
        table.add_column(name.removesuffix(">"), justify=justify, no_wrap=bool(name))
    return table


def print_parts(
    console: Console, headline: str, about: str, parts: Sequence[Table | str], faults: Sequence[str]
) -> None:
    """Print a report: the headline, what it is about, its parts and the faults."""
    console.print(f"\n[bold {'red' if faults else 'green'}]{headline}[/]")
    console.print(f"[dim]{about}[/]\n")
    for part in parts:
        console.print(part, highlight=False)
    for fault in faults:
        console.print(f"[red]✗[/] {fault}", highlight=False)


def as_data(report: StormReport, run: Run) -> dict[str, Any]:
    """Render the report. Times are RFC 3339, durations seconds; a missing observation is null."""
    count = summarize(report)
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
        "summary": {
            "nodes": count.nodes,
            "nodesDrained": count.drained,
            "nodesReplaced": count.replaced,
            "pods": count.pods,
            "podsMoved": count.moved,
            "podsEnded": count.ended,
            "podsCutShort": count.cut,
            "podsLost": count.lost,
            "refusalsByBudgets": count.refusals,
            "duplicateNotices": count.duplicates,
            "cordonedAfterSeconds": _spread(count.to_cordon),
            "replacedAfterSeconds": _spread(count.to_ready),
            "leastSecondsToSpare": rounded(count.to_spare),
        },
        "nodes": [_node(node) for node in report.nodes],
        "launches": [launch_as_data(launch) for launch in report.launches],
        "shortages": [shortage_as_data(shortage) for shortage in report.shortages],
        "unmanagedInstances": [_unmanaged(unmanaged) for unmanaged in report.unmanaged],
    }


def _node(node: NodeReport) -> dict[str, Any]:
    trace = node.trace
    return {
        "node": trace.target.node,
        "instance": trace.target.instance,
        "group": trace.target.group or None,
        "pool": trace.target.pool or None,
        "notices": [_notice(notice) for notice in trace.notices],
        "cordonedAt": [moment_as_text(cordon) for cordon in trace.cordons],
        "cordonedAfterSeconds": rounded(to_cordon(node)),
        "drained": drained_in_time(node),
        "drainedAt": moment_as_text(node.drained_at),
        "reclaimAt": moment_as_text(trace.reclaim_at),
        "instanceGoneAt": moment_as_text(trace.instance_gone_at),
        "reclaimedByEC2": trace.reclaimed_by_ec2,
        "nodeGoneAt": moment_as_text(trace.node_gone_at),
        "replacement": None
        if trace.replacement is None
        else {
            "instance": trace.replacement.instance,
            "node": trace.replacement.node,
            "launchedAt": moment_as_text(trace.replacement.launched_at),
            "readyAt": moment_as_text(trace.replacement.ready_at),
            "afterSeconds": rounded(to_ready(node)),
        },
        "leewayEvents": [
            {
                "at": moment_as_text(event.at),
                "kind": event.kind,
                "result": event.result,
                "evicted": event.evicted,
                "deleted": event.deleted,
                "failed": event.failed,
            }
            for event in trace.leeway_events
        ],
        "faults": list(node.faults),
        "pods": [_pod(pod) for pod in node.pods],
    }


def _pod(pod: PodReport) -> dict[str, Any]:
    trace, successor = pod.trace, pod.trace.successor
    return {
        "pod": trace.pod,
        "uid": trace.uid,
        "owner": trace.workload.owner,
        "outcome": pod.evaluation.outcome.value,
        "fault": pod.evaluation.fault,
        "reason": pod.evaluation.reason,
        "evictions": [
            {"at": moment_as_text(attempt.at), "status": attempt.status}
            for attempt in trace.attempts
        ],
        "terminationRequestedAt": moment_as_text(trace.requested_at),
        "requestedBy": trace.requested_by,
        "graceSeconds": trace.workload.grace,
        "graceGivenSeconds": rounded(trace.grace_given),
        "endedAt": moment_as_text(trace.ended_at),
        "ended": trace.how,
        "missingForSeconds": rounded(missing_for(trace)),
        "replacement": None
        if successor is None
        else {
            "pod": successor.pod,
            "node": successor.node,
            "runningAt": moment_as_text(successor.running_at),
        },
    }


def launch_as_data(launch: Launch) -> dict[str, Any]:
    """Render an instance that Leeway launched."""
    return {
        "at": moment_as_text(launch.at),
        "instance": launch.instance,
        "pool": launch.pool,
        "instanceType": launch.instance_type,
        "zone": launch.zone,
        "capacityType": launch.capacity_type,
        "fallback": launch.fallback,
        "node": launch.node,
        "readyAt": moment_as_text(launch.ready_at),
    }


def shortage_as_data(shortage: Shortage) -> dict[str, Any]:
    """Render a shortage of capacity."""
    return {
        "at": moment_as_text(shortage.at),
        "pool": shortage.pool,
        "code": shortage.code,
        "capacityType": shortage.capacity_type,
        "instanceTypes": list(shortage.instance_types),
        "zones": list(shortage.zones),
    }


def _unmanaged(unmanaged: UnmanagedReport) -> dict[str, Any]:
    return {
        "instance": unmanaged.instance,
        "notices": [_notice(notice) for notice in unmanaged.notices],
        "faults": list(unmanaged.faults),
    }


def _notice(notice: Notice) -> dict[str, Any]:
    return {
        "id": notice.id,
        "at": moment_as_text(notice.at),
        "time": moment_as_text(notice.sent_at),
    }


def _spread(spread: Any) -> dict[str, float] | None:
    if spread is None:
        return None
    return {"median": round(spread.median, 3), "worst": round(spread.maximum, 3)}


def rounded(value: float | None) -> float | None:
    """Round seconds or a ratio to three decimals."""
    return None if value is None else round(value, 3)


def moment_as_text(moment: float | None) -> str | None:
    """Render an epoch second as RFC 3339."""
    if moment is None:
        return None
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")


def print_report(report: StormReport, run: Run, console: Console) -> None:
    """Print the headline, the table of nodes and the faults."""
    count = summarize(report)
    left = report.plan.warning - report.plan.late
    results = Counter(event.result for node in report.nodes for event in node.trace.leeway_events)
    reported = ", ".join(f"{result} {number} times" for result, number in results.items())
    foreign = [one.instance for one in report.unmanaged if not one.faults]
    refused = f"{count.refusals} evictions refused by budgets, {count.duplicates} duplicate notices"
    print_parts(
        console,
        headline(report),
        f"{run.options['nodes']} nodes, {run.pods} pods, {count.pods} of them to move. Each"
        f" warning arrived {report.plan.late:.0f} s late on purpose:\n{left:.0f} s were left until"
        " EC2 reclaims the instances. All times below start at the notice.",
        [
            _nodes(report),
            *launch_lines(report),
            *(f"[dim]{one} of another cluster: not changed.[/]" for one in foreign),
            f"[dim]{refused}, {run.duration:.0f} s in total.[/]",
            f"[dim]Leeway reported: {reported or 'nothing'}.[/]",
        ],
        report.all_faults,
    )


def _nodes(report: StormReport) -> Table:
    figures = ("Notices>", "Cordoned>", "Moved>", "Drained>", "Spare>", "Replaced>")
    table = columns("", "Node", "Owner", *figures)
    for node in report.nodes:
        table.add_row(*_row(node))
    return table


def _row(node: NodeReport) -> list[str]:
    trace = node.trace
    fine = not node.faults and not any(pod.evaluation.fault for pod in node.pods)
    moved = sum(
        1 for pod in node.moving if pod.evaluation.outcome in {Outcome.MOVED, Outcome.ENDED}
    )
    drained = node.drained_at if drained_in_time(node) else None
    since = trace.noticed_at
    return [
        "[green]✓[/]" if fine else "[red]✗[/]",
        short(trace.target.node),
        owner_of(trace.target),
        str(len(trace.notices)),
        _seconds(to_cordon(node)),
        f"{moved}/{len(node.moving)}",
        _seconds(None if drained is None or since is None else drained - since),
        _seconds(None if drained is None else trace.reclaim_at - drained),
        _seconds(to_ready(node)),
    ]


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} s"


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


def render_page(report: StormReport, run: Run) -> str:
    """Render the report of a run as a self-contained HTML document."""
    return (
        page_environment()
        .get_template("report.html.j2")
        .render(
            report=report,
            run=run,
            summary=summarize(report),
            timeline=lay_out(report),
            headline=headline(report),
            faults=report.all_faults,
            outcomes=OUTCOMES,
            to_cordon=to_cordon,
            to_ready=to_ready,
            missing_for=missing_for,
            owner_of=owner_of,
            shortage_text=shortage_text,
        )
    )


def headline(report: StormReport) -> str:
    """Return the result of the storm in one sentence."""
    count = summarize(report)
    number = NUMBERS[count.nodes] if count.nodes < len(NUMBERS) else str(count.nodes)
    interrupted = f"{number} node{'s' if count.nodes != 1 else ''} interrupted"
    if count.lost:
        return f"{interrupted}, {count.lost} of {count.pods} pods lost."
    if not report.good:
        return f"{interrupted}, with faults."
    if count.cut:
        return f"{interrupted}, {count.pods - count.cut} of {count.pods} pods moved in time."
    return f"{interrupted}, every pod moved in time."


def page_environment() -> "Environment":
    """Return the environment of the reports' templates."""
    found = environment()
    found.filters["seconds"] = _page_seconds
    found.filters["short"] = short
    return found


def _page_seconds(value: float | None) -> str:
    """Render seconds: two decimals below one second, a dash without a measurement."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.2f} s" if abs(value) < 1 else f"{value:.1f} s"
