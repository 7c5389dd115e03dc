"""The arrival record: one admission for all that asks for it, another when it comes in again."""

from datetime import timedelta

from leeway.admission.record import Admission
from leeway.execution.attempt import Phase
from leeway.notices import LifecycleHook

from tests.admission.admissions import LAUNCH_HOOK, arriving, ask
from tests.retirement.retirements import NOTICED


def test_the_first_notice_starts_the_first_attempt() -> None:
    change = ask(None, "n-1")
    assert (change.write, change.start) == (True, True)
    assert (change.record.attempt, change.record.version) == (1, 1)
    assert change.record.hooks == (LAUNCH_HOOK,)


def test_the_same_notice_again_changes_nothing_but_makes_a_lost_start_good() -> None:
    again = ask(arriving(), "n-1")
    assert (again.write, again.start) == (False, False)
    lost = ask(arriving(Phase.NOTICED), "n-1")
    assert (lost.write, lost.start, lost.record.attempt) == (False, True, 1)


def test_another_hook_of_the_same_launch_joins_the_admission() -> None:
    another = LifecycleHook("ng", "another")
    change = ask(arriving(), "n-2", hook=another)
    assert (change.write, change.start) == (True, False)
    assert (change.record.attempt, change.record.version) == (1, 2)
    assert change.record.hooks == (LAUNCH_HOOK, another)


def test_a_second_notice_of_the_same_hook_changes_nothing() -> None:
    change = ask(arriving(), "n-2", after=60)
    assert (change.write, change.start) == (False, False)


def test_an_instance_that_comes_in_again_is_admitted_again() -> None:
    change = ask(arriving(Phase.FINISHED), "n-2", after=3600)
    assert (change.write, change.start) == (True, True)
    assert (change.record.attempt, change.record.version) == (2, 2)
    assert change.record.notices == ("n-1", "n-2")
    assert change.record.noticed_at == NOTICED + timedelta(hours=1)


def test_a_late_notice_of_an_admission_that_has_ended_starts_no_other() -> None:
    change = ask(arriving(Phase.FINISHED), "n-2")
    assert (change.write, change.start) == (False, False)


def test_a_record_is_read_as_it_was_written_by_this_version() -> None:
    asked = ask(None, "n-1", labels={"a": "b"}, startup_taints=("example.com/agent",)).record
    assert Admission.model_validate_json(asked.model_dump_json()) == asked


def test_an_instance_that_comes_out_of_the_warm_pool_is_admitted_again_and_for_good() -> None:
    into = ask(None, "n-1", into_pool=True).record
    assert into.into_pool
    assert ask(into, "n-1", into_pool=True).record == into
    out = ask(into.model_copy(update={"phase": Phase.RUNNING}), "n-2", after=60)
    assert (out.start, out.record.attempt, out.record.into_pool) == (True, 2, False)
    assert out.record.hooks == into.hooks
