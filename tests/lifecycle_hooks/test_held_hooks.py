"""Lifecycle hooks that are held open: when heartbeats are due, and when they end."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from leeway.lifecycle_hooks.held_hooks import HeldHook, hold, next_heartbeat, with_hooks
from leeway.notices import LifecycleHook, NoticeKind
from leeway.retirement.hooks_of_record import held_for
from leeway.retirement.replacement_intent import Method, ReplacementIntent

from tests.retirement.retirements import HOOK, NOTICED, take

SECOND = timedelta(seconds=1)
TIMEOUTS = st.integers(30, 7200)


def test_a_heartbeat_is_due_at_half_of_the_hooks_own_timeout() -> None:
    held = hold(HOOK, NOTICED, NOTICED, timeout=300)
    assert held.next_at == NOTICED + 150 * SECOND
    assert held.beaten(NOTICED + 151 * SECOND).next_at == NOTICED + 301 * SECOND


def test_a_hook_whose_timeout_is_not_known_is_looked_at_in_time_for_the_shortest() -> None:
    held = hold(HOOK, NOTICED, NOTICED)
    assert held.next_at == NOTICED + 15 * SECOND
    assert held.known(3600).next_at == NOTICED + 1800 * SECOND


def test_a_hook_that_began_nobody_knows_when_has_a_heartbeat_at_once() -> None:
    assert hold(HOOK, None, NOTICED).next_at == NOTICED


@given(timeout=TIMEOUTS, late=st.floats(0, 0.45))
def test_heartbeats_keep_an_action_alive_up_to_its_longest_wait_and_end_there(
    timeout: int, late: float
) -> None:
    held = hold(HOOK, NOTICED, NOTICED, timeout)
    longest = NOTICED + min(timedelta(hours=48), 100 * timeout * SECOND)
    assert held.ends_at == longest
    beats = 0
    while held.next_at is not None:
        beats += 1
        beaten_at = held.next_at + late * timeout * SECOND
        assert beaten_at < held.alive_at + timeout * SECOND, "before it has timed out"
        held = held.beaten(beaten_at)
    assert held.alive_at + timeout * SECOND >= longest, "the last one lasts to the end"
    assert beats <= 200


@given(timeout=TIMEOUTS, failures=st.integers(0, 3))
def test_a_heartbeat_that_fails_is_tried_again_while_it_can_still_help(
    timeout: int, failures: int
) -> None:
    held = hold(HOOK, NOTICED, NOTICED, timeout)
    for _ in range(failures):
        assert held.next_at is not None
        held = held.failed("Throttling", held.next_at)
    assert held.next_at is not None
    assert held.next_at < NOTICED + timeout * SECOND
    assert not held.beaten(held.next_at).problem


def test_a_hook_that_no_heartbeat_reached_is_given_up_when_it_has_timed_out() -> None:
    held = hold(HOOK, NOTICED, NOTICED, timeout=60)
    held = held.failed("AccessDenied", NOTICED + 61 * SECOND)
    assert held.next_at is None
    assert "AccessDenied" in held.problem


def test_the_end_of_the_longest_wait_is_the_deadline_of_what_the_hook_is_held_for() -> None:
    in_an_hour = NOTICED + timedelta(hours=1)
    short = hold(HOOK, NOTICED, NOTICED, timeout=30)
    assert with_hooks(in_an_hour, [short]) == NOTICED + 2995 * SECOND
    assert with_hooks(None, [short]) == NOTICED + 2995 * SECOND
    assert with_hooks(in_an_hour, [short.over("No active Lifecycle Action found")]) == in_an_hour
    assert with_hooks(in_an_hour, [hold(HOOK, NOTICED, NOTICED)]) == in_an_hour
    assert with_hooks(in_an_hour, []) == in_an_hour


def test_a_hook_waits_since_the_notice_that_told_of_it_or_since_the_group_was_asked() -> None:
    told = take(None, NoticeKind.TERMINATE_HOOK, "n-1", hook=HOOK).record
    later = NOTICED + timedelta(minutes=10)
    assert [h.since for h in held_for(told, (), later)] == [NOTICED]
    asked = ReplacementIntent(method=Method.TERMINATE_IN_GROUP, reason="", asked_at=later)
    interrupted = take(None, NoticeKind.SPOT_INTERRUPTION, "n-1").record
    joined = interrupted.model_copy(update={"replacement_intent": asked, "hooks": (HOOK,)})
    assert [h.since for h in held_for(joined, (), later)] == [later]


def test_a_hook_that_is_announced_later_joins_those_that_are_held() -> None:
    record = take(None, NoticeKind.TERMINATE_HOOK, "n-1", hook=HOOK).record
    held = held_for(record, (), NOTICED)
    beaten = (held[0].beaten(NOTICED + 15 * SECOND),)
    another = LifecycleHook("ng", "another")
    both = held_for(record.model_copy(update={"hooks": (HOOK, another)}), beaten, NOTICED)
    assert both[0] == beaten[0]
    assert both[1].hook == another
    assert next_heartbeat(both) == min(h.next_at for h in both if h.next_at)
    assert next_heartbeat([HeldHook(HOOK, _OLD, _OLD, None)]) is None


_OLD = datetime(2026, 11, 1, tzinfo=UTC)
