"""One more instance for each retirement that asks, in whatever order they act, die and return."""

from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from leeway.records.surges import HELD_FOR, Step, SurgeLedger

from tests.records.retirements import NOTICED


class Group:
    """A group with its ledger, and retirements that read, set and write one call at a time."""

    def __init__(self, desired: int, maximum: int) -> None:
        self.desired, self.maximum = desired, maximum
        self.ledger = SurgeLedger(group="ng")

    def write(self, ledger: SurgeLedger) -> bool:
        if ledger.version != self.ledger.version + 1:
            return False
        self.ledger = ledger
        return True

    def act(self, instance: str, now: datetime, calls: int, lower: bool = False) -> Step | None:
        """Work on a raise until it is done, must wait, or dies after so many calls; None: died."""
        while calls > 0:
            decide = self.ledger.next_lowering if lower else self.ledger.next_for
            todo = decide(instance, self.desired, self.maximum, now)
            if todo.ledger is None:
                return todo.step
            if todo.desired is not None:
                self.desired = todo.desired
                calls -= 1
                if calls == 0:
                    return None
            self.write(todo.ledger)
            if todo.step is Step.DONE:
                return todo.step
            calls -= 1
        return None


def test_a_group_is_raised_once_for_an_instance_however_often_it_asks() -> None:
    group = Group(3, 9)
    assert [group.act("i-a", NOTICED, 99) for _ in range(3)] == [Step.DONE] * 3
    assert group.desired == 4


def test_who_died_after_raising_raises_no_second_time() -> None:
    group = Group(3, 9)
    assert group.act("i-a", NOTICED, 2) is None, "it took the ledger, set the number, and died"
    assert group.desired == 4
    assert group.act("i-a", NOTICED, 99) is Step.DONE
    assert group.desired == 4


def test_who_finds_a_raise_half_done_does_that_one_first() -> None:
    group = Group(3, 9)
    assert group.act("i-a", NOTICED, 1) is None, "it took the ledger and died"
    assert group.act("i-b", NOTICED + timedelta(seconds=1), 99) is Step.WAIT
    assert group.act("i-b", NOTICED + HELD_FOR, 99) is Step.DONE
    assert group.desired == 5
    assert group.act("i-a", NOTICED + HELD_FOR, 99) is Step.DONE
    assert group.desired == 5


def test_a_group_that_is_full_is_not_raised_and_holds_up_nobody() -> None:
    group = Group(3, 3)
    assert group.act("i-a", NOTICED, 99) is Step.FULL
    assert group.ledger.version == 0
    group.maximum = 4
    assert group.act("i-a", NOTICED, 1) is None
    group.maximum = 3
    assert group.act("i-b", NOTICED + HELD_FOR, 99) is Step.FULL
    assert group.desired == 3


def test_a_group_is_lowered_once_for_whom_it_was_raised_and_for_nobody_else() -> None:
    group = Group(3, 9)
    assert group.act("i-a", NOTICED, 99) is Step.DONE
    assert group.act("i-b", NOTICED, 99, lower=True) is Step.DONE
    assert group.desired == 4
    for _ in range(2):
        assert group.act("i-a", NOTICED, 99, lower=True) is Step.DONE
        assert group.desired == 3


def test_who_died_after_lowering_lowers_no_second_time() -> None:
    group = Group(3, 9)
    group.act("i-a", NOTICED, 99)
    assert group.act("i-a", NOTICED, 2, lower=True) is None, "it took the ledger, set, and died"
    assert group.desired == 3
    assert group.act("i-b", NOTICED + HELD_FOR, 99) is Step.DONE
    assert group.act("i-a", NOTICED + HELD_FOR, 99, lower=True) is Step.DONE
    assert group.desired == 4


def test_a_raise_that_died_before_it_was_made_has_nothing_to_take_back() -> None:
    group = Group(3, 9)
    assert group.act("i-a", NOTICED, 1) is None
    assert group.act("i-a", NOTICED, 99, lower=True) is Step.DONE
    assert group.desired == 3
    assert group.act("i-b", NOTICED, 99) is Step.DONE, "nor does it hold up anybody"


def test_who_finds_that_somebody_else_lowered_the_group_leaves_it_so() -> None:
    group = Group(3, 9)
    group.act("i-a", NOTICED, 99)
    group.act("i-b", NOTICED, 99)
    group.desired -= 1
    assert group.act("i-a", NOTICED, 99, lower=True) is Step.DONE
    assert group.desired == 4
    assert group.act("i-b", NOTICED, 99, lower=True) is Step.DONE
    assert group.desired == 3
    group.act("i-c", NOTICED, 99)
    group.desired += 5
    assert group.act("i-c", NOTICED, 99, lower=True) is Step.DONE
    assert group.desired == 8, "who made it larger meant that"


def test_who_asks_again_for_days_is_remembered_for_days() -> None:
    group, now = Group(3, 9), NOTICED
    for _ in range(30):
        assert group.act("i-a", now, 99) is Step.DONE
        now += timedelta(days=1)
    group.act("i-b", now, 99)
    assert group.act("i-a", now, 99) is Step.DONE
    assert group.desired == 5


def test_all_that_wait_at_the_same_time_count_successors_from_the_same_members() -> None:
    first = SurgeLedger(group="ng").counting_from("i-a", ("i-a", "i-b"), NOTICED)
    assert first.counted == ("i-a", "i-b")
    now = ("i-a", "i-b", "i-new")
    soon = first.counting_from("i-b", now, NOTICED + timedelta(minutes=9))
    assert soon.counted == ("i-a", "i-b"), "the newcomer may be either's successor"
    assert soon.newcomers("i-b", (), now) == ("i-new",)
    found = soon.succeeded("i-a", "i-new", NOTICED + timedelta(minutes=9))
    assert found.newcomers("i-b", (), now) == (), "now it is one's"
    later = found.counting_from("i-c", (*now, "i-c"), NOTICED + timedelta(minutes=30))
    assert later.counted == (*now, "i-c"), "nobody waits any more"
    assert (first.version, soon.version, found.version, later.version) == (1, 2, 3, 4)


def test_who_is_interrupted_while_it_waits_holds_up_no_count() -> None:
    group = Group(3, 9)
    group.write(group.ledger.counting_from("i-a", ("i-a", "i-b"), NOTICED))
    group.act("i-a", NOTICED, 99)
    assert group.act("i-a", NOTICED, 99, lower=True) is Step.DONE
    later = group.ledger.counting_from("i-b", ("i-b", "i-new"), NOTICED + timedelta(minutes=1))
    assert later.counted == ("i-b", "i-new")
    assert later.waiting.keys() == {"i-b"}


def test_a_ledger_that_an_earlier_version_wrote_is_read() -> None:
    stored = """{"group":"ng","version":7,"holder":"","lowering":false,"before":3,"until":null,
    "base":3,"raised":{"i-a":"2026-11-20T09:45:00Z"},"counted":["i-a","i-b"],
    "counted_at":"2026-11-20T09:45:00Z"}"""
    ledger = SurgeLedger.model_validate_json(stored)
    assert ledger.next_for("i-a", 4, 9, NOTICED).step is Step.DONE, "it is raised for it already"
    assert ledger.newcomers("i-a", ["i-a", "i-b"], ["i-a", "i-b", "i-new"]) == ("i-new",)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4), st.integers(0, 40)), max_size=40),
    st.integers(0, 8),
)
def test_however_they_interleave_every_one_that_is_done_has_one_more(
    acts: list[tuple[int, int, int]], room: int
) -> None:
    group = Group(10, 10 + room)
    now, done = NOTICED, set()
    for who, calls, seconds in acts:
        now += timedelta(seconds=seconds)
        if group.act(f"i-{who}", now, calls) is Step.DONE:
            done.add(who)
        assert group.desired <= group.maximum
        assert len(done) <= group.desired - 10 <= len({w for w, _, _ in acts})
    for who in range(5):
        now += HELD_FOR
        if group.act(f"i-{who}", now, 99) is Step.DONE:
            done.add(who)
    assert group.desired - 10 == len(done) == min(room, 5)


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.booleans(), st.integers(1, 4), st.integers(0, 40)),
        max_size=50,
    ),
    st.integers(0, 8),
)
def test_however_raises_and_lowerings_interleave_and_die_the_group_ends_as_it_was(
    acts: list[tuple[int, bool, int, int]], room: int
) -> None:
    group = Group(10, 10 + room)
    now = NOTICED
    for who, lower, calls, seconds in acts:
        now += timedelta(seconds=seconds)
        group.act(f"i-{who}", now, calls, lower)
        assert 10 <= group.desired <= group.maximum
    for who in range(5):
        now += HELD_FOR
        assert group.act(f"i-{who}", now, 99, lower=True) is Step.DONE
    assert group.desired == 10
    assert not group.ledger.raised
