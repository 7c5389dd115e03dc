"""The runbook is held to the drills: what wakes people is drilled, or stands here with a reason."""

import pytest

from tests.drills import night, test_drills  # noqa: F401 - it declares the drills
from tests.drills.page import RUNBOOK, Section, sections, wakes

PAGE = sections(RUNBOOK.read_text(encoding="utf-8"))

WAKING = [section for section in PAGE.values() if wakes(section)]

NOT_DRILLED = {
    "retirementsthrottledalarm": "the sandbox's Lambda limits each function, and no account; the "
    "command is that of NoticesLateAlarm, which has a drill",
}
"""Sections without a drill, with the reason."""


@pytest.mark.parametrize("section", WAKING, ids=lambda one: one.anchor)
def test_what_wakes_people_has_a_drill_and_says_when_it_is_seen(section: Section) -> None:
    assert (section.anchor in night.DRILLED) != (section.anchor in NOT_DRILLED)
    assert section.seen.endswith(".")
    assert section.look or "](#" in section.parts["Look"], "no command, and no other section"


def test_every_exception_is_a_section() -> None:
    assert NOT_DRILLED.keys() <= PAGE.keys()
    assert all(NOT_DRILLED.values())
