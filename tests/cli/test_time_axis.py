"""The time axis of the reports' pictures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway_cli.report.chart import TimeAxis

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
