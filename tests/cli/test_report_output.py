"""The report as an HTML page, as JSON and on the terminal."""

import json
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from io import StringIO

import pytest
from leeway_cli.report.from_journal import report_from_journal
from leeway_cli.report.model import StormReport
from leeway_cli.report.output import Run, as_data, print_report, render_page
from leeway_cli.report.timeline import GUTTER, WIDTH, lay_out
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


@pytest.mark.parametrize("report", [good_report(), bad_report()], ids=["good", "bad"])
def test_the_page_is_well_formed_and_self_contained(report: StormReport) -> None:
    page = render_page(report, RUN)

    balance = Balance()
    balance.feed(page)
    assert balance.open == []
    assert not re.search(r"(src|href)=|url\(|@import|https?:", page)


def test_the_page_shows_the_remaining_time_and_the_command_of_the_run() -> None:
    page = render_page(good_report(), RUN)

    assert "40 seconds were left" in page
    assert "leeway demo --seed 7 --nodes 20 --interruptions 1" in page
    assert "One node interrupted, every pod moved in time." in page


def test_the_page_of_a_storm_with_faults_lists_them() -> None:
    page = render_page(bad_report(), RUN)

    assert "One node interrupted, 1 of 1 pods lost." in page
    assert "It got no termination request before its instance ended." in page


def test_names_are_escaped() -> None:
    report = report_from_journal(good_storm().moved("shop/<script>", WEB, at=0.5).entries, PLAN)

    assert "<script>" not in render_page(report, RUN)


def test_all_parts_of_the_timeline_are_inside_the_picture() -> None:
    timeline = lay_out(good_report())

    (lane,) = timeline.lanes
    parts = [*lane.segments, *lane.pods[0].segments]
    assert all(part.x >= GUTTER for part in parts)
    assert all(part.x + part.width <= WIDTH for part in parts)
    assert lane.y + lane.height <= timeline.height


def test_a_report_without_journal_entries_is_rendered() -> None:
    report = report_from_journal(Journal().entries, PLAN)

    assert "Its notice was not delivered." in render_page(report, RUN)


def test_the_data_is_json() -> None:
    data = json.loads(json.dumps(as_data(good_report(), RUN)))

    assert data["good"] is True
    assert data["summary"]["podsMoved"] == 1
    assert data["nodes"][0]["pods"][0]["outcome"] == "moved"
    assert data["nodes"][0]["cordonedAfterSeconds"] == 0.3


@pytest.mark.parametrize(("report", "mark"), [(good_report(), "✓"), (bad_report(), "✗")])
def test_the_terminal_shows_every_node_with_its_result(report: StormReport, mark: str) -> None:
    screen = StringIO()
    print_report(report, RUN, Console(file=screen, width=160))

    (row,) = [line for line in screen.getvalue().splitlines() if "ip-10-0-0-1" in line]
    assert row.lstrip().startswith(mark)
