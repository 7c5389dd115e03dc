"""The admission record: which requests begin an attempt, and which the current attempt serves."""

from datetime import timedelta

from leeway.admission.record import Admission
from leeway.execution.attempt import Phase
from leeway.notices import LifecycleHook

from tests.admission.admission_records import LAUNCH_HOOK, admission, request
from tests.retirement.retirements import NOTICED


def test_the_first_request_starts_the_first_attempt() -> None:
    change = request(None, "n-1")
    assert (change.write, change.start) == (True, True)
    assert (change.record.attempt, change.record.version) == (1, 1)
    assert change.record.hooks == (LAUNCH_HOOK,)


def test_a_repeated_request_changes_nothing_and_repeats_a_start_that_may_be_lost() -> None:
    again = request(admission(), "n-1")
    assert (again.write, again.start) == (False, False)
    lost = request(admission(Phase.NOTICED), "n-1")
    assert (lost.write, lost.start, lost.record.attempt) == (False, True, 1)


def test_another_hook_of_the_same_launch_is_added_to_the_admission() -> None:
    another = LifecycleHook("ng", "another")
    change = request(admission(), "n-2", hook=another)
    assert (change.write, change.start) == (True, False)
    assert (change.record.attempt, change.record.version) == (1, 2)
    assert change.record.hooks == (LAUNCH_HOOK, another)


def test_a_second_notice_of_the_same_hook_changes_nothing() -> None:
    change = request(admission(), "n-2", after=60)
    assert (change.write, change.start) == (False, False)


def test_an_instance_that_is_launched_again_is_admitted_again() -> None:
    change = request(admission(Phase.FINISHED), "n-2", after=3600)
    assert (change.write, change.start) == (True, True)
    assert (change.record.attempt, change.record.version) == (2, 2)
    assert change.record.notices == ("n-1", "n-2")
    assert change.record.noticed_at == NOTICED + timedelta(hours=1)


def test_a_request_after_an_admission_that_should_have_ended_starts_the_next_attempt() -> None:
    change = request(admission(), "n-2", after=24 * 3600)
    assert (change.start, change.record.attempt) == (True, 2)
    assert change.reason.code == "AdmissionExecutionDied"


def test_a_late_notice_of_a_finished_admission_starts_no_attempt() -> None:
    change = request(admission(Phase.FINISHED), "n-2")
    assert (change.write, change.start) == (False, False)


def test_a_record_is_read_as_it_was_written() -> None:
    written = request(None, "n-1", labels={"a": "b"}, startup_taints=("example.com/agent",)).record
    assert Admission.model_validate_json(written.model_dump_json()) == written


def test_an_instance_that_leaves_the_warm_pool_is_admitted_again_and_needs_a_node() -> None:
    into = request(None, "n-1", into_pool=True).record
    assert into.into_pool
    assert request(into, "n-1", into_pool=True).record == into
    out = request(into.model_copy(update={"phase": Phase.RUNNING}), "n-2", after=60)
    assert (out.start, out.record.attempt, out.record.into_pool) == (True, 2, False)
    assert out.record.hooks == into.hooks
