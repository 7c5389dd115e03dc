"""Bursts: pods that appear together wake the buyer once, and no pod is lost."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway.pod_watch.burst import (
    LONGEST,
    RETRY_AFTER,
    SILENCE,
    SPACING,
    UNSCHEDULABLE,
    PodBursts,
    UnscheduledPod,
    needs_new_node,
)


def pod(uid: str = "a", because: str = UNSCHEDULABLE) -> UnscheduledPod:
    return UnscheduledPod(uid, unscheduled_because=because)


@pytest.mark.parametrize(
    ("changes", "needs"),
    [
        ({}, True),
        ({"unscheduled_because": ""}, False),  # the scheduler has not tried it yet
        ({"unscheduled_because": "SchedulerError"}, False),
        ({"unscheduled_because": "SchedulingGated", "gated": True}, False),
        ({"gated": True}, False),
        ({"terminating": True}, False),
        ({"nominated": "node-1"}, False),  # it preempts other pods
        ({"node": "node-1"}, False),
        ({"of_daemon_set": True}, False),
        ({"phase": "Failed"}, False),
    ],
)
def test_only_a_pod_that_the_scheduler_gave_up_needs_a_new_node(
    changes: dict[str, object], needs: bool
) -> None:
    assert needs_new_node(replace(pod(), **changes)) is needs  # type: ignore[arg-type]


def test_a_burst_ends_after_silence() -> None:
    bursts = PodBursts()
    assert bursts.due_at() == math.inf
    bursts.see(pod("a"), 10.0)
    bursts.see(pod("b"), 10.4)
    assert bursts.due_at() == 10.4 + SILENCE
    assert bursts.take(10.9) == {"a", "b"}
    assert bursts.due_at() == math.inf


def test_a_burst_without_silence_ends_at_its_longest() -> None:
    bursts = PodBursts()
    for number in range(100):
        bursts.see(pod(str(number)), number * 0.1)
    assert bursts.due_at() == LONGEST


def test_a_change_of_a_reported_pod_wakes_nobody_again() -> None:
    bursts = PodBursts()
    bursts.see(pod(), 0.0)
    bursts.take(0.5)
    bursts.see(pod(), 60.0)
    assert bursts.due_at() == math.inf


def test_a_pod_that_is_bound_before_the_burst_ends_wakes_nobody() -> None:
    bursts = PodBursts()
    bursts.see(pod(), 0.0)
    bursts.forget("a")
    assert bursts.due_at() == math.inf


def test_a_pod_whose_preemption_failed_wakes_again() -> None:
    bursts = PodBursts()
    bursts.see(pod(), 0.0)
    bursts.take(0.5)
    bursts.see(replace(pod(), nominated="node-1"), 5.0)
    bursts.see(pod(), 60.0)
    assert bursts.due_at() == 60.0 + SILENCE


def test_pods_that_are_created_and_deleted_in_a_loop_wake_the_buyer_every_two_seconds_at_most() -> (
    None
):
    bursts = PodBursts()
    wakes = 0
    for step in range(6_000):
        now = step / 100
        if step % 70 == 0:  # one pod after the other, each after the silence of the last one
            bursts.see(pod(str(step)), now)
        if now >= bursts.due_at():
            bursts.take(now)
            wakes += 1
    assert wakes <= 60 / SPACING + 1


def test_pods_of_a_wake_that_failed_are_reported_again_unless_they_are_gone() -> None:
    bursts = PodBursts()
    bursts.see(pod("a"), 0.0)
    bursts.see(pod("b"), 0.0)
    taken = bursts.take(0.5)
    bursts.forget("b")
    bursts.give_back(taken, 1.0)
    assert bursts.due_at() == 1.0 + RETRY_AFTER
    assert bursts.take(6.0) == {"a"}
    bursts.give_back(["b"], 7.0)
    assert bursts.due_at() == math.inf


def test_a_watch_that_begins_again_reports_only_pods_that_are_new() -> None:
    bursts = PodBursts()
    bursts.see(pod("a"), 0.0)
    bursts.take(0.5)
    bursts.restart()
    bursts.see(pod("a"), 10.0)
    assert bursts.due_at() == math.inf
    bursts.see(pod("b"), 11.0)
    assert bursts.take(11.5) == {"b"}


def test_an_open_burst_is_collected_anew_by_a_watch_that_begins_again() -> None:
    bursts = PodBursts()
    bursts.see(pod("bound-meanwhile"), 0.0)
    bursts.see(pod("waits"), 0.0)
    bursts.restart()
    bursts.see(pod("waits"), 0.1)
    assert bursts.take(0.6) == {"waits"}


EVENTS = st.lists(
    st.tuples(
        st.floats(0.0, 2.0),
        st.sampled_from("abcd"),
        st.sampled_from(["waits", "untried", "gone", "restart", "fails"]),
    ),
    max_size=60,
)


@given(EVENTS)
def test_every_pod_that_goes_on_waiting_is_reported_in_time(
    events: list[tuple[float, str, str]],
) -> None:
    bursts = PodBursts()
    now, waiting, reported, since = 0.0, set[str](), set[str](), dict[str, float]()
    last: frozenset[str] = frozenset()
    taken_at: list[float] = []
    for pause, uid, what in events:
        until = now + pause
        while bursts.due_at() <= until:
            now = max(now, bursts.due_at())
            last = bursts.take(now)
            assert last
            assert last <= waiting
            taken_at.append(now)
            reported |= last
            for one in last:
                assert now - since.pop(one) <= LONGEST + SPACING + 1e-9
        now = until
        if what == "waits":
            bursts.see(pod(uid), now)
            waiting.add(uid)
            if uid not in reported:
                since.setdefault(uid, now)
        elif what in ("untried", "gone"):
            if what == "gone":
                bursts.forget(uid)
            else:
                bursts.see(pod(uid, because=""), now)
            waiting.discard(uid)
            reported.discard(uid)
            since.pop(uid, None)
        elif what == "restart":
            bursts.restart()
            for one in sorted(waiting):
                bursts.see(pod(one), now)
                if one not in reported:
                    since[one] = now
    while bursts.due_at() < math.inf:
        now = max(now, bursts.due_at())
        reported |= bursts.take(now)
    assert waiting <= reported
    assert all(b - a >= SPACING - 1e-9 for a, b in pairwise(taken_at))
