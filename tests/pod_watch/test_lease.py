"""The lease: one run watches, a crash is noticed, and a handover has no gap."""

from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway.clock import Clock
from leeway.pod_watch.follower import FIRST, LONGEST, pause_after
from leeway.pod_watch.watch_pods import (
    HANDOVER,
    LASTS,
    LEASE,
    Lease,
    LeaseKeeper,
    Renewal,
    decide_renewal,
    decide_start,
)
from leeway.table import Item, Key, RecordChanged

from tests.fakes.clock import FakeClock
from tests.pod_watch.watching import LeaseTable
from tests.retirement.retirements import NOTICED as NOW

WATCH = timedelta(minutes=14)
SECOND = timedelta(seconds=1)


def lease(age: float = 0.0, left: timedelta = WATCH, watching: bool = True) -> Lease:
    return Lease(
        holder="other",
        renewed_at=NOW - timedelta(seconds=age),
        ends_at=NOW + left,
        watching=watching,
    )


@pytest.mark.parametrize(
    ("stored", "takes", "why"),
    [
        (None, True, "no run has watched"),
        (lease(), False, "run other watches them until"),
        (lease(age=44), False, "run other watches them until"),
        (lease(age=46), True, "renewed the lease last at"),
        # A holder whose clock was ahead and that died must not keep others from watching.
        (lease(age=-3600), True, "renewed the lease last at"),
        (lease(left=HANDOVER + SECOND), False, "run other watches them until"),
        (lease(left=HANDOVER), True, "run other watches them until"),
    ],
)
def test_a_new_run_watches_unless_another_one_does(
    stored: Lease | None, takes: bool, why: str
) -> None:
    decision = decide_start(stored, "me", NOW)
    assert decision.takes is takes
    assert why in decision.reason.message
    assert decision.reason.code == ("PodsWatched" if takes else "PodsNotWatched")


@pytest.mark.parametrize(
    ("stored", "renewal"),
    [
        (None, Renewal.RENEW),
        (lease().model_copy(update={"holder": "me"}), Renewal.RENEW),
        (lease(watching=False), Renewal.WAIT),
        (lease(watching=True), Renewal.END),
        (lease(age=60, watching=True), Renewal.RENEW),  # the successor has died
    ],
)
def test_a_run_ends_early_only_for_a_living_successor_that_watches(
    stored: Lease | None, renewal: Renewal
) -> None:
    assert decide_renewal(stored, "me", NOW) is renewal


def keeper(table: LeaseTable, clock: Clock, holder: str) -> LeaseKeeper:
    return LeaseKeeper(table, clock, holder, WATCH)


def test_of_two_runs_that_start_together_one_takes_the_lease() -> None:
    table, clock = Together(), FakeClock()
    first, second = keeper(table, clock, "first"), keeper(table, clock, "second")
    table.before_write = lambda: second.take().takes
    assert first.take().takes is False
    assert table.stored
    assert table.stored.holder == "second"


class Together(LeaseTable):
    """Runs something else before the first write."""

    before_write: object = None

    def _write(self, key: Key, item: Item | None, replaces: int | None) -> None:
        meanwhile, self.before_write = self.before_write, None
        if callable(meanwhile):
            meanwhile()
        super()._write(key, item, replaces)


def test_a_run_whose_write_had_no_answer_knows_its_own_lease() -> None:
    table, clock = Lossy(), FakeClock()
    assert keeper(table, clock, "me").take().takes


class Lossy(LeaseTable):
    """Stores the first write, and refuses it: boto3 repeats a write whose answer was lost."""

    lost = False

    def _write(self, key: Key, item: Item | None, replaces: int | None) -> None:
        super()._write(key, item, replaces)
        if not self.lost:
            self.lost = True
            raise RecordChanged("lost")


def test_a_handover_lets_the_old_run_end_only_when_the_new_one_watches() -> None:
    table, clock = LeaseTable(), FakeClock()
    old, new = keeper(table, clock, "old"), keeper(table, clock, "new")
    assert old.take().takes
    assert old.renew(watching=True) is Renewal.RENEW
    clock.sleep((WATCH - HANDOVER).total_seconds())
    old.renew(watching=True)
    assert "run old watches them until" in new.take().reason.message
    for _ in range(3):
        assert old.renew(watching=True) is Renewal.WAIT
        assert table.stored
        assert table.stored.holder == "new"
    assert new.renew(watching=True) is Renewal.RENEW
    assert old.renew(watching=True) is Renewal.END


def test_a_stolen_lease_returns_to_its_run_if_the_thief_dies() -> None:
    table, clock = LeaseTable(), FakeClock()
    mine = keeper(table, clock, "me")
    mine.take()
    assert table.stored
    table.put(LEASE, lease(watching=False).model_copy(update={"version": 2}))
    assert mine.renew(watching=True) is Renewal.WAIT
    clock.sleep(60)
    assert mine.renew(watching=True) is Renewal.RENEW
    assert table.stored.holder == "me"


STEPS = st.lists(
    st.tuples(st.integers(0, 3), st.booleans(), st.integers(-7, 7)), min_size=15, max_size=40
)


@given(STEPS)
def test_after_crashes_some_run_watches_within_two_minutes(
    steps: list[tuple[int, bool, int]],
) -> None:
    """Each minute one run starts unless it is throttled; running ones renew four times a minute
    or crash. `skew` is the error of a run's clock in seconds: AWS's answers correct the clocks, so
    a second is much."""
    table, clock = LeaseTable(), FakeClock()
    running: dict[str, tuple[LeaseKeeper, int]] = {}
    unwatched = 0
    for minute, (throttled, crashes, skew) in enumerate(steps):
        if crashes and running:
            running.pop(next(iter(running)))
        if throttled != 0:
            new = keeper(table, Skewed(clock, skew), str(minute))
            if new.take().takes:
                running[str(minute)] = (new, minute)
        for _ in range(4):
            clock.sleep(15)
            for name, (one, since) in list(running.items()):
                over = minute - since >= WATCH.total_seconds() / 60
                if over or one.renew(watching=True) is Renewal.END:
                    running.pop(name)
        started = throttled != 0
        unwatched = 0 if running or not started else unwatched + 1
        assert unwatched <= 1
        assert len(running) <= 2


@dataclass
class Skewed:
    """A clock that is wrong by some seconds."""

    right: FakeClock
    skew: float

    def now(self) -> datetime:
        return self.right.now() + timedelta(seconds=self.skew)

    def sleep(self, seconds: float) -> None:
        self.right.sleep(seconds)


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_pauses_are_never_shorter_than_half_a_second_nor_longer_than_half_a_minute(
    failures: int, fraction: float
) -> None:
    assert FIRST / 2 <= pause_after(failures, fraction) <= LONGEST
    assert pause_after(failures + 1, fraction) >= pause_after(failures, fraction)
    assert pause_after(0, fraction) == 0


def test_a_dead_holder_is_noticed_after_three_missed_renewals() -> None:
    assert timedelta(seconds=3 * 15) == LASTS
