"""Lifecycle hooks that are held open: when heartbeats are due, and when they end."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from leeway.notices import LifecycleHook, NoticeKind
from leeway.retirement.hooks import (
    HeldHook,
    earliest_deadline,
    hold,
    next_heartbeat,
    with_new_hooks,
)
from leeway.retirement.reasons import HEARTBEAT_FAILED, HOOK_OVER, SUCCESSOR_FOUND
from leeway.retirement.record import Method, ReplacementIntent, Retirement

from tests.retirement.retirements import HOOK, NOTICED, take

SECOND = timedelta(seconds=1)
TIMEOUTS = st.integers(30, 7200)


def test_a_heartbeat_is_due_at_half_of_the_hooks_own_timeout() -> None:
    held = hold(HOOK, NOTICED, NOTICED, timeout=300)
    assert held.next_at == NOTICED + 150 * SECOND
    assert held.heartbeat_sent(NOTICED + 151 * SECOND).next_at == NOTICED + 301 * SECOND


def test_a_hook_with_an_unknown_timeout_gets_a_heartbeat_in_time_for_the_shortest_timeout() -> None:
    held = hold(HOOK, NOTICED, NOTICED)
    assert held.next_at == NOTICED + 15 * SECOND
    assert held.with_timeout(3600).next_at == NOTICED + 1800 * SECOND


def test_a_hook_with_an_unknown_start_gets_a_heartbeat_at_once() -> None:
    assert hold(HOOK, None, NOTICED).next_at == NOTICED


@given(timeout=TIMEOUTS, late=st.floats(0, 0.45))
def test_heartbeats_keep_an_action_waiting_until_its_longest_wait_and_then_stop(
    timeout: int, late: float
) -> None:
    held = hold(HOOK, NOTICED, NOTICED, timeout)
    longest = NOTICED + min(timedelta(hours=48), 100 * timeout * SECOND)
    assert held.ends_at == longest
    beats = 0
    while held.next_at is not None:
        beats += 1
        sent_at = held.next_at + late * timeout * SECOND
        assert sent_at < held.alive_at + timeout * SECOND, "before the timeout"
        held = held.heartbeat_sent(sent_at)
    assert held.alive_at + timeout * SECOND >= longest, "the last heartbeat is valid until the end"
    assert beats <= 200


@given(timeout=TIMEOUTS, failures=st.integers(0, 3))
def test_a_heartbeat_that_fails_is_retried_before_the_timeout(timeout: int, failures: int) -> None:
    held = hold(HOOK, NOTICED, NOTICED, timeout)
    for _ in range(failures):
        assert held.next_at is not None
        held = held.heartbeat_failed("Throttling", held.next_at)
    assert held.next_at is not None
    assert held.next_at < NOTICED + timeout * SECOND
    assert held.heartbeat_sent(held.next_at).problem is None


def test_a_hook_without_a_successful_heartbeat_is_over_after_its_timeout() -> None:
    held = hold(HOOK, NOTICED, NOTICED, timeout=60)
    held = held.heartbeat_failed("AccessDenied", NOTICED + 61 * SECOND)
    assert held.next_at is None
    assert held.problem == HEARTBEAT_FAILED(
        hook=HOOK.name, group=HOOK.group, why="AccessDenied. The hook has timed out"
    )


def test_a_hook_with_an_unknown_timeout_is_over_after_the_longest_timeout() -> None:
    held = hold(HOOK, NOTICED, NOTICED)
    tries = []
    while held.next_at is not None:
        tries.append(held.next_at)
        held = held.heartbeat_failed("Throttling", held.next_at)
    assert held.problem == HEARTBEAT_FAILED(
        hook=HOOK.name, group=HOOK.group, why="Throttling. The hook has timed out"
    )
    assert tries[-1] >= NOTICED + 7200 * SECOND
    assert len(tries) < 60, "other instances of the group wait for the same API"


@given(timeout=TIMEOUTS, late=st.floats(0, 0.45))
def test_heartbeats_without_a_known_timeout_keep_an_action_waiting_as_long(
    timeout: int, late: float
) -> None:
    held = hold(HOOK, NOTICED, NOTICED)
    longest = NOTICED + min(timedelta(hours=48), 100 * timeout * SECOND)
    beats = 0
    while held.next_at is not None:
        beats += 1
        sent_at = held.next_at + 2 * late * (held.next_at - held.alive_at)
        if sent_at >= longest:
            return
        assert sent_at < held.alive_at + timeout * SECOND, "before the timeout"
        held = held.heartbeat_sent(sent_at)
    assert held.alive_at + timeout * SECOND >= longest, "the last heartbeat is valid until the end"
    assert beats < 1100, "a durable execution has at most 3,000 operations"


def test_the_end_of_the_longest_wait_is_a_deadline() -> None:
    in_an_hour = NOTICED + timedelta(hours=1)
    short = hold(HOOK, NOTICED, NOTICED, timeout=30)
    assert earliest_deadline(in_an_hour, [short]) == NOTICED + 2995 * SECOND
    assert earliest_deadline(None, [short]) == NOTICED + 2995 * SECOND
    assert (
        earliest_deadline(
            in_an_hour,
            [
                short.over(
                    HOOK_OVER(
                        hook=HOOK.name, group=HOOK.group, why="the group has no such hook any more"
                    )
                )
            ],
        )
        == in_an_hour
    )
    assert earliest_deadline(in_an_hour, [hold(HOOK, NOTICED, NOTICED)]) == in_an_hour
    assert earliest_deadline(in_an_hour, []) == in_an_hour


def held_for(record: Retirement, held: Sequence[HeldHook], now: datetime) -> tuple[HeldHook, ...]:
    return with_new_hooks(held, record.hooks, record.hooks_wait_since, now)


def test_a_hook_waits_since_its_notice_or_since_the_request_to_the_group() -> None:
    record = take(None, NoticeKind.TERMINATE_HOOK, "n-1", hook=HOOK).record
    later = NOTICED + timedelta(minutes=10)
    assert [h.since for h in held_for(record, (), later)] == [NOTICED]
    intent = ReplacementIntent(
        method=Method.TERMINATE_IN_GROUP,
        reason=SUCCESSOR_FOUND("The group launched it after the replacement was requested."),
        requested_at=later,
    )
    interrupted = take(None, NoticeKind.SPOT_INTERRUPTION, "n-1").record
    hooked = interrupted.model_copy(update={"replacement_intent": intent, "hooks": (HOOK,)})
    assert [h.since for h in held_for(hooked, (), later)] == [later]


def test_a_hook_that_is_announced_later_is_held_too() -> None:
    record = take(None, NoticeKind.TERMINATE_HOOK, "n-1", hook=HOOK).record
    held = held_for(record, (), NOTICED)
    sent = (held[0].heartbeat_sent(NOTICED + 15 * SECOND),)
    another = LifecycleHook("ng", "another")
    both = held_for(record.model_copy(update={"hooks": (HOOK, another)}), sent, NOTICED)
    assert both[0] == sent[0]
    assert both[1].hook == another
    assert next_heartbeat(both) == min(h.next_at for h in both if h.next_at)
    assert next_heartbeat([HeldHook(HOOK, _OLD, _OLD, None)]) is None


_OLD = datetime(2026, 11, 1, tzinfo=UTC)
