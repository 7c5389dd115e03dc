"""The report of a simulated day, from records to the page."""

import json
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest
from leeway.disruption.rules import Cause
from leeway_cli import main
from leeway_cli.demo.pools import simulate_days
from leeway_cli.report.chart import Figure
from leeway_cli.report.page import Run, print_page, render_page
from leeway_cli.report.scale_down import (
    ScaleDownReport,
    cause_of,
    headline,
    kinds_chart,
    moves_chart,
    scale_down_as_data,
    scale_down_page,
)
from leeway_cli.simulated_day.record import GivenBack, Launched, Moment, Record
from rich.console import Console

from tests.cli.test_report_output import checked

RUN = Run(7, datetime(2026, 11, 22, 12, 0, tzinfo=UTC), 70.0, {"scenario": "scale-down"})
SMALL, LARGE = ("c7a.large", "spot"), ("m7a.2xlarge", "on-demand")


def record(price: float, *given_back: GivenBack, faults: tuple[str, ...] = ()) -> Record:
    """A day of two hours; its nodes become fewer in the second one."""
    moments = [
        Moment(minute, price, 0.5, {SMALL: 2, LARGE: 4 if minute < 60 else 1}, 30, 0)
        for minute in range(120)
    ]
    launched = [Launched(0, "ip-10-0-0-10", SMALL, 3, 0, 0, frozenset(), (1, 1))]
    moved = sum(one.pods for one in given_back)
    return Record(moments, [*given_back], launched, moved=moved, faults=[*faults])


def returned(
    minute: int, cause: Cause, pods: int, reason: str, replaced: bool = False
) -> GivenBack:
    return GivenBack(
        minute, f"ip-10-0-0-{minute}", LARGE, cause, reason, 0.1, pods, replaced, (1, 1)
    )


REPORT = ScaleDownReport(
    leeway=record(
        1.0,
        returned(61, Cause.EMPTY, 0, "Node a is empty."),
        returned(62, Cause.UNDERUTILIZED, 4, "Node <b> is not needed."),
        returned(70, Cause.UNDERUTILIZED, 5, "Node c is replaced.", replaced=True),
    ),
    only_empty=record(1.5),
    never=record(2.0),
)


def test_the_headline_compares_with_the_day_without_give_back() -> None:
    assert headline(REPORT) == "A day for 2.00 instead of 4.00 USD: 50% less."
    broken = ScaleDownReport(record(1.0, faults=("A rule.",)), record(1.5), record(2.0))
    assert headline(broken).endswith("with faults.")


def test_the_page_is_balanced_says_that_it_is_simulated_and_escapes_reasons() -> None:
    page = checked(render_page(scale_down_page(REPORT, RUN)))
    assert "This day is simulated" in page
    assert "Node &lt;b&gt; is not needed." in page
    assert "leeway demo --scenario scale-down --seed 7" in page


def test_the_areas_of_the_types_add_up_to_all_nodes() -> None:
    chart = kinds_chart(REPORT)
    labels = [text for _, text in chart.legend]
    assert labels == ["m7a.2xlarge, on-demand", "c7a.large, spot", "others"]
    areas = [str(one.at["points"]) for one in chart.shapes if one.tag == "polygon"]
    tops = [min(float(point.partition(",")[2]) for point in each.split()) for each in areas]
    assert min(tops) == 24.0, "the topmost area reaches the largest number of nodes"


@pytest.mark.parametrize(
    ("chart", "levels"),
    [(kinds_chart(REPORT), ["0", "3", "6"]), (moves_chart(REPORT), ["0", "2", "4"])],
)
def test_the_levels_of_counts_are_whole_numbers(chart: Figure, levels: list[str]) -> None:
    assert [one.text for one in chart.shapes if one.at.get("text-anchor") == "end"] == levels


def bars(chart: Figure) -> list[tuple[str, str]]:
    return [(one.kind, one.title) for one in chart.shapes if one.tag == "rect"]


def test_each_cause_has_its_bar_and_its_sum() -> None:
    title = "01:00: 3 nodes, 9 pods moved"
    moved = [("why-not-needed", title), ("why-replaced", title)]
    assert bars(moves_chart(REPORT)) == [("why-empty", title), *moved]
    assert bars(moves_chart(REPORT, of_pods=True)) == moved
    sums = {one.cause: (one.nodes, one.pods) for one in REPORT.causes}
    assert sums == {"empty": (1, 0), "not-needed": (1, 4), "replaced": (1, 5)}
    assert [cause_of(one) for one in REPORT.leeway.given_back] == [*sums]


def test_the_report_as_json_and_on_the_terminal() -> None:
    data = json.loads(json.dumps(scale_down_as_data(REPORT, RUN)))
    assert data["simulated"] is True
    assert data["days"]["leeway"] == {
        "cost": 2.0,
        "lowerBound": 1.0,
        "nodeHours": 9.0,
        "nodesGivenBack": 3,
        "nodesLaunched": 1,
        "podsMoved": 9,
        "podMinutesPending": 0,
    }
    text = StringIO()
    print_page(scale_down_page(REPORT, RUN), Console(file=text, width=120))
    assert "only empty nodes are given back" in text.getvalue()
    assert "This day is simulated" in text.getvalue()
    (bound,) = (line for line in text.getvalue().splitlines() if "lower bound" in line)
    assert bound.split()[-1] == "1.00"


def test_a_simulated_hour_gives_a_report_without_faults() -> None:
    report = simulate_days(3, Console(file=StringIO()), minutes=20)
    assert not report.faults
    assert [len(day.moments) for _, day in report.days] == [20, 20, 20]
    assert not report.never.given_back


def test_options_of_other_scenarios_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    for option in ("--nodes", "--interruptions", "--replicas"):
        command = ["demo", "--scenario", "scale-down", option, "5", "--report", str(page)]
        assert main.run(command) == 2, option
        assert option in capsys.readouterr().err
        assert not page.exists()
