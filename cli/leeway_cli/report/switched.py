"""The report of a switch from Karpenter and back: a line for each pod, and the steps.

Built from the sandbox's journals. Times are epoch seconds (floats).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leeway.reasons import counted

from leeway_cli.output import as_json
from leeway_cli.report.chart import GUTTER, WIDTH, Figure, TimeAxis, label, line, rect
from leeway_cli.report.page import Page, Run, Table, Tile, Tiles, seconds

if TYPE_CHECKING:
    from leeway_sandbox.karpenter import Karpenter

ROW = 16.0
"""The height of the line of a pod."""


@dataclass(frozen=True)
class Mark:
    """When a step began."""

    at: float
    title: str


@dataclass(frozen=True)
class PodLine:
    """A pod: since when it runs, and until when; None if it still does."""

    pod: str
    node: str
    running_at: float
    ended_at: float | None = None


@dataclass(frozen=True)
class SwitchReport:
    """What was observed: the pods, the steps, the NodeClaims that Karpenter has at the end, and the
    instances that it launched and ended."""

    began_at: float
    ended_at: float
    pods: Sequence[PodLine]
    marks: Sequence[Mark]
    claims: Sequence[str]
    launched: int
    ended: int
    cordons: int

    @property
    def faults(self) -> tuple[str, ...]:
        """What a correct switch does not do."""
        ended = [one for one in self.pods if one.ended_at is not None]
        found = [f"Pod {one.pod} ended on node {one.node}." for one in ended]
        if self.ended:
            found.append(f"Karpenter ended {counted(self.ended, 'instance')}.")
        if self.cordons:
            found.append(f"{counted(self.cordons, 'node was', 'nodes were')} cordoned.")
        return tuple(found)


def switch_from_journal(
    entries: Iterable[Mapping[str, Any]],
    owner: str,
    began_at: float,
    ended_at: float,
    marks: Sequence[Mark],
    claims: Sequence[str],
    karpenter: "Karpenter",
) -> SwitchReport:
    """Read the pods of an owner from the journals."""
    pods: dict[str, dict[str, Any]] = {}
    cordons = 0
    for one in entries:
        if one["kind"] == "node-cordoned" and one["at"] >= began_at:
            cordons += 1
        if "uid" not in one:
            continue
        pod = pods.setdefault(one["uid"], {"pod": one["pod"]})
        pod["owner"] = one.get("owner") or pod.get("owner")
        match one["kind"]:
            case "pod-bound":
                pod["node"] = one["node"]
            case "pod-running":
                pod["running_at"] = one["at"]
            case "pod-ended" | "pod-deletion":
                pod.setdefault("ended_at", one["at"])
    lines = [
        PodLine(one["pod"], one.get("node", ""), one["running_at"], one.get("ended_at"))
        for one in pods.values()
        if one["owner"] == owner and "running_at" in one
    ]
    return SwitchReport(
        began_at,
        ended_at,
        tuple(sorted(lines, key=lambda one: (one.running_at, one.pod))),
        tuple(marks),
        tuple(sorted(claims)),
        len(karpenter.began),
        len(karpenter.ended),
        cordons,
    )


def switch_as_data(report: SwitchReport, run: Run) -> dict[str, Any]:
    """Render it for JSON."""
    return {**as_json(report), "run": as_json(run), "faults": list(report.faults)}


def switch_page(report: SwitchReport, run: Run) -> Page:
    """Return the report as a page."""
    unbroken = sum(one.ended_at is None for one in report.pods)
    tiles = [
        Tile(unbroken, len(report.pods), "pods", "ran without a break", not report.faults),
        Tile(len(report.claims), len(report.claims), "NodeClaims", "at the end"),
    ]
    rows = [(seconds(one.at - report.began_at), one.title) for one in report.marks]
    headline = (
        f"{unbroken} of {counted(len(report.pods), 'pod')} ran through the switch to Leeway and "
        "back without a restart."
    )
    return Page(
        headline=headline,
        lede="Karpenter ran the nodes of this cluster. `leeway switch --from karpenter` gave them "
        "to Leeway, which launched one more, and `--to karpenter` gave all of them back.",
        sections=[
            Tiles(tiles),
            _figure(report),
            Table(["after>", "step"], rows, title="The steps"),
        ],
        source="The journals of the sandbox, and the lines of the command.",
        run=run.about,
        about="Karpenter's nodes went to Leeway, which launched one more, and all went back.",
        faults=report.faults,
    )


def _figure(report: SwitchReport) -> Figure:
    """Draw a line for each pod, and a vertical one for each command and step."""
    axis = TimeAxis(report.began_at, report.ended_at, GUTTER, WIDTH, report.began_at)
    bottom = 24 + ROW * len(report.pods)
    moments = [(axis.x(one.at), one.title) for one in report.marks]
    shapes = [line("grid", x, 20, x, bottom, title) for x, title in moments]
    for number, one in enumerate(report.pods):
        top = 24 + ROW * number
        start, width = axis.span(one.running_at, one.ended_at or report.ended_at)
        shapes.append(label("name", GUTTER - 8, top + 11, one.pod.rpartition("/")[2], "end"))
        shapes.append(rect("bar", start, top + 2, width, ROW - 6, f"{one.pod} on {one.node}"))
    about = "Each pod of the Deployment over time; vertical lines are the steps"
    return Figure("Pods", about, [("bar", "the pod runs")], shapes, bottom + 8)
