"""The report of a storm as an HTML page with pictures, as JSON and on the terminal."""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from html.parser import HTMLParser
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway_cli.report.chart import GUTTER, WIDTH, Figure, Shape, TimeAxis
from leeway_cli.report.from_journal import report_from_journal
from leeway_cli.report.model import StormReport
from leeway_cli.report.page import Run, print_page, render_page
from leeway_cli.report.storm_page import storm_as_data, storm_page
from rich.console import Console

from tests.cli.journals import PLAN, WEB, Journal, good_storm

RUN = Run(
    7,
    datetime(2026, 11, 20, 9, tzinfo=UTC),
    51.2,
    {"nodes": 20, "interruptions": 1},
    pods=150,
)


def good_report() -> StormReport:
    return report_from_journal(good_storm().moved("shop/web-1", WEB, at=0.5).entries, PLAN)


def bad_report() -> StormReport:
    journal = good_storm().runs("shop/web-1", WEB)
    return report_from_journal(
        journal.ended(40, "shop/web-1", WEB, how="died-with-node").entries, PLAN
    )


class Balance(HTMLParser):
    """Fails on a tag that is closed in the wrong order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        return

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def checked(page: str) -> str:
    """Return a page that is well-formed and loads nothing."""
    balance = Balance()
    balance.feed(page)
    assert balance.open == []
    assert not re.search(r"(src|href)=|url\(|@import|https?:", page)
    return page


def page_of(report: StormReport) -> str:
    return checked(render_page(storm_page(report, RUN)))


def test_the_page_shows_the_remaining_time_and_the_command_of_the_run() -> None:
    page = page_of(good_report())

    assert "40 s were left" in page
    assert "leeway demo --seed 7 --nodes 20 --interruptions 1" in page
    assert "One node interrupted, every pod moved in time." in page


def test_the_page_of_a_storm_with_faults_lists_them() -> None:
    page = page_of(bad_report())

    assert "One node interrupted, 1 of 1 pods lost." in page
    assert "It got no termination request before its instance ended." in page


def test_names_are_escaped() -> None:
    report = report_from_journal(good_storm().moved("shop/<script>", WEB, at=0.5).entries, PLAN)

    assert "<script>" not in page_of(report)


def test_all_parts_of_the_timeline_are_inside_the_picture() -> None:
    (figure,) = (one for one in storm_page(good_report(), RUN).sections if isinstance(one, Figure))
    bars = [one for one in every(figure.shapes) if one.tag == "rect"]

    places = [(float(str(one.at["x"])), float(str(one.at["width"]))) for one in bars]
    assert all(x >= GUTTER and x + width <= WIDTH for x, width in places)
    assert max(float(str(one.at["y"])) for one in bars) < figure.height


def every(shapes: Sequence[Shape]) -> list[Shape]:
    """Return shapes with those inside of groups."""
    return [each for one in shapes for each in (one, *every(one.parts))]


def test_a_report_without_journal_entries_is_rendered() -> None:
    report = report_from_journal(Journal().entries, PLAN)

    assert "Its notice was not delivered." in page_of(report)


def test_the_data_is_json() -> None:
    data = json.loads(json.dumps(storm_as_data(good_report(), RUN)))

    assert data["good"] is True
    assert data["summary"]["podsMoved"] == 1
    assert data["nodes"][0]["pods"][0]["outcome"] == "moved"
    assert data["nodes"][0]["cordonedAfterSeconds"] == pytest.approx(0.3)
    assert data["nodes"][0]["cordonedAt"] == ["2026-11-20T09:00:00.300+00:00"]


@pytest.mark.parametrize(("report", "mark"), [(good_report(), "✓"), (bad_report(), "✗")])
def test_the_terminal_shows_every_node_with_its_result(report: StormReport, mark: str) -> None:
    screen = StringIO()
    print_page(storm_page(report, RUN), Console(file=screen, width=160))

    (row,) = [line for line in screen.getvalue().splitlines() if "ip-10-0-0-1" in line]
    assert row.lstrip().startswith(mark)


AXIS = TimeAxis(first=98, last=130, left=200, right=520, zero=100)

moments = st.floats(-1e6, 1e6)


def test_times_are_places_between_the_ends() -> None:
    assert [AXIS.x(moment) for moment in (98, 100, 114, 130)] == [200, 220, 360, 520]


@given(moments, moments)
def test_the_order_of_times_is_that_of_places_and_none_is_outside(one: float, two: float) -> None:
    early, late = AXIS.x(min(one, two)), AXIS.x(max(one, two))

    assert AXIS.left <= early <= late <= AXIS.right


def test_a_bar_is_never_invisible() -> None:
    assert AXIS.span(114, 114)[1] == 1


@pytest.mark.parametrize(("last", "step"), [(112, 1), (113, 2), (130, 5), (250, 20), (2000, 120)])
def test_the_labels_count_from_zero_and_do_not_crowd(last: float, step: int) -> None:
    axis = TimeAxis(first=98, last=last, left=0, right=1000, zero=100)

    assert [text for _, text in axis.ticks[:2]] == ["0 s", f"{step} s"]
    assert axis.ticks[0][0] == axis.x(100)
    assert len(axis.ticks) <= 16
