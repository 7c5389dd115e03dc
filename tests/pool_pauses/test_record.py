"""When a pool is paused: three of its instances in a row never joined."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from leeway.pool_pauses import (
    MOST_FAILURES,
    FailedInstance,
    PoolRecord,
    after_admission,
    after_failure,
    after_join,
    after_not_ready,
    resumed,
)
from leeway.reasons import Reason

START = datetime(2026, 11, 20, 9, 45, tzinfo=UTC)


def at(minute: int) -> datetime:
    return START + timedelta(minutes=minute)


def fail(stored: PoolRecord | None, instance: int, launch: int) -> PoolRecord | None:
    failure = FailedInstance(instance=f"i-{instance}", launched_at=at(launch))
    return after_failure(stored, "prod", "web", failure, at(launch + 15)) or stored


def join(stored: PoolRecord | None, launch: int) -> PoolRecord | None:
    return after_join(stored, "prod", "web", at(launch)) or stored


def is_paused(record: PoolRecord | None) -> bool:
    return record is not None and record.paused is not None


def test_the_third_failure_in_a_row_pauses() -> None:
    record = fail(fail(None, 1, 0), 2, 20)
    assert not is_paused(record)
    record = fail(record, 3, 40)
    assert record is not None
    assert record.paused is not None
    assert record.paused.code == "NodesNeverJoined"
    assert "i-1, i-2, i-3" in record.paused.message
    assert (record.paused_at, record.paused_by) == (at(55), "i-3")


def test_three_failures_of_one_launch_pause() -> None:
    assert is_paused(fail(fail(fail(None, 1, 0), 2, 0), 3, 0))


def test_failures_beside_a_join_of_the_same_launch_do_not_count() -> None:
    record = join(None, 0)
    for instance in range(9):
        record = fail(record, instance, 0)
    assert not is_paused(record)


def test_a_later_join_resets_the_row() -> None:
    record = join(fail(fail(None, 1, 0), 2, 20), 30)
    record = fail(fail(record, 3, 40), 4, 41)
    assert not is_paused(record)
    assert is_paused(fail(record, 5, 42))


def test_an_earlier_join_does_not_reset_the_row() -> None:
    record = join(fail(fail(None, 1, 10), 2, 10), 5)
    assert is_paused(fail(record, 3, 10))


def test_a_failure_that_is_reported_again_counts_once() -> None:
    record = fail(fail(None, 1, 0), 2, 0)
    assert not is_paused(fail(fail(record, 2, 0), 1, 0))


def test_a_paused_pool_is_not_written_again() -> None:
    record = fail(fail(fail(None, 1, 0), 2, 0), 3, 0)
    assert fail(record, 4, 0) is record


def test_a_join_does_not_end_a_pause() -> None:
    record = fail(fail(fail(None, 1, 0), 2, 0), 3, 0)
    assert is_paused(join(record, 60))


def test_instances_that_were_launched_before_a_resume_do_not_pause_again() -> None:
    record = fail(fail(fail(None, 1, 0), 2, 0), 3, 0)
    assert record is not None
    record = resumed(record, at(20))
    assert not is_paused(record)
    for instance in range(4, 9):
        record = fail(record, instance, 10) or record
    assert not is_paused(record)
    assert is_paused(fail(fail(fail(record, 10, 21), 11, 21), 12, 21))


WHY = Reason("DeviceNotAllocatable", "The device plugin does not run.")


def unready(stored: PoolRecord | None, instance: int, launch: int) -> PoolRecord | None:
    failure = FailedInstance(instance=f"i-{instance}", launched_at=at(launch))
    return after_not_ready(stored, "prod", "web", failure, WHY, at(launch + 15)) or stored


def admit(stored: PoolRecord | None, launch: int) -> PoolRecord | None:
    return after_admission(stored, "prod", "web", at(launch)) or stored


def test_the_third_node_in_a_row_that_was_never_ready_pauses_although_all_joined() -> None:
    record = unready(join(unready(join(None, 0), 1, 0), 16), 2, 16)
    assert not is_paused(record)
    record = unready(join(record, 32), 3, 32)
    assert record is not None
    assert record.paused is not None
    assert record.paused.code == "NodesNeverReady"
    assert "i-1, i-2, i-3" in record.paused.message
    assert WHY.message in record.paused.message
    assert (record.paused_at, record.paused_by) == (at(47), "i-3")


def test_a_node_that_is_admitted_resets_the_row_of_nodes_that_were_never_ready() -> None:
    record = admit(unready(unready(None, 1, 0), 2, 16), 16)
    assert not is_paused(unready(unready(record, 3, 32), 4, 32))
    assert not is_paused(unready(unready(unready(record, 5, 16), 6, 16), 7, 16))
    assert is_paused(unready(unready(unready(record, 3, 32), 4, 32), 5, 33))


def test_a_node_that_was_never_ready_counts_once_and_resume_forgets_it() -> None:
    record = unready(unready(None, 1, 0), 2, 16)
    assert not is_paused(unready(record, 2, 16))
    record = unready(record, 3, 32)
    assert unready(record, 4, 32) is record
    assert record is not None
    record = resumed(record, at(50))
    assert not is_paused(unready(record, 4, 32))
    assert record.unready == ()


events = st.lists(
    st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, 12)), min_size=1, max_size=40
)


@given(events)
def test_a_pool_is_paused_exactly_after_three_later_failures(
    history: list[tuple[bool, int, int]],
) -> None:
    record: PoolRecord | None = None
    joined, failed = -1, dict[int, int]()
    expected = False
    version = 0
    for is_join, instance, launch in history:
        if is_join:
            record = join(record, launch)
            joined = max(joined, launch)
        else:
            record = fail(record, instance, launch)
            if launch > joined:
                failed.setdefault(instance, launch)
        failed = {one: when for one, when in failed.items() if when > joined}
        expected = expected or len(failed) >= MOST_FAILURES
        assert is_paused(record) == expected
        if record is not None:
            assert record.version in {version, version + 1}
            version = record.version
