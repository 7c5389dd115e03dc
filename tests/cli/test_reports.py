"""The report as page, as data and on the terminal."""

import json
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from io import StringIO

import pytest
from rich.console import Console

from cli.report.data import as_data
from cli.report.page import render_page
from cli.report.reading import read_story
from cli.report.run import Run
from cli.report.story import Story
from cli.report.terminal import show
from cli.report.timeline import GUTTER, WIDTH, lay_out
from tests.cli.journals import PLAN, WEB, Journal, good_storm

RUN = Run(7, 20, 150, 1, datetime(2026, 11, 20, 9, tzinfo=UTC), 51.2)


def good_story() -> Story:
    return read_story(good_storm().moved("shop/web-1", WEB, at=0.5).entries, PLAN)


def bad_story() -> Story:
    journal = good_storm().runs("shop/web-1", WEB)
    return read_story(journal.ended(40, "shop/web-1", WEB, how="died-with-node").entries, PLAN)


class Balance(HTMLParser):
    """Complains of a tag that is closed out of turn."""

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


@pytest.mark.parametrize("story", [good_story(), bad_story()], ids=["good", "bad"])
def test_the_page_is_well_formed_and_needs_nothing_else(story: Story) -> None:
    page = render_page(story, RUN)

    balance = Balance()
    balance.feed(page)
    assert balance.open == []
    assert not re.search(r"(src|href)=|url\(|@import|https?:", page)


def test_the_page_says_how_much_of_the_warning_was_left_and_how_to_repeat_the_run() -> None:
    page = render_page(good_story(), RUN)

    assert "40 seconds were left" in page
    assert "leeway demo --seed 7 --nodes 20 --interruptions 1" in page
    assert "One node taken, every pod moved in time." in page


def test_the_page_of_a_bad_storm_lists_what_went_wrong() -> None:
    page = render_page(bad_story(), RUN)

    assert "One node taken, 1 of 1 pods lost." in page
    assert "nobody asked it to end before its instance went" in page


def test_names_are_escaped() -> None:
    story = read_story(good_storm().moved("shop/<script>", WEB, at=0.5).entries, PLAN)

    assert "<script>" not in render_page(story, RUN)


def test_everything_on_the_timeline_lies_within_the_picture() -> None:
    timeline = lay_out(good_story())

    (lane,) = timeline.lanes
    parts = [*lane.segments, *lane.pods[0].segments]
    assert all(part.x >= GUTTER for part in parts)
    assert all(part.x + part.width <= WIDTH for part in parts)
    assert lane.y + lane.height <= timeline.height


def test_a_story_without_a_single_entry_can_still_be_shown() -> None:
    story = read_story(Journal().entries, PLAN)

    assert "its notice was never delivered" in render_page(story, RUN)


def test_the_data_is_plain_json() -> None:
    data = json.loads(json.dumps(as_data(good_story(), RUN)))

    assert data["good"] is True
    assert data["summary"]["podsMoved"] == 1
    assert data["nodes"][0]["pods"][0]["outcome"] == "moved"
    assert data["nodes"][0]["cordonedAfterSeconds"] == 0.3


@pytest.mark.parametrize(("story", "mark"), [(good_story(), "✓"), (bad_story(), "✗")])
def test_the_terminal_shows_every_node_with_its_verdict(story: Story, mark: str) -> None:
    screen = StringIO()
    show(story, RUN, Console(file=screen, width=160))

    (row,) = [line for line in screen.getvalue().splitlines() if "ip-10-0-0-1" in line]
    assert row.lstrip().startswith(mark)
