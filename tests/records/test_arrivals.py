"""The arrival record: one admission for all that asks for it, another when it comes in again."""

from datetime import timedelta
from typing import Any

from leeway.notices import LifecycleHook
from leeway.records.arrival import Arrival, Request, take
from leeway.records.retirement import Change, Phase

from tests.records.test_generations import FACTS, NOTICED

HOOK = LifecycleHook("ng", "leeway-admit")
IN_15_MINUTES = NOTICED + timedelta(minutes=15)


def ask(stored: Arrival | None, id: str, after: int = 0, **more: Any) -> Change[Arrival]:  # noqa: A002
    at = NOTICED + timedelta(seconds=after)
    given: dict[str, Any] = {"hook": HOOK} | more
    return take(stored, Request(id, at, IN_15_MINUTES, "the launch hook waits", **given), FACTS)


def running(phase: Phase = Phase.RUNNING) -> Arrival:
    return ask(None, "n-1").record.model_copy(update={"phase": phase})


def test_the_first_notice_starts_the_first_generation() -> None:
    change = ask(None, "n-1")
    assert (change.write, change.start) == (True, True)
    assert (change.record.generation, change.record.version) == (1, 1)
    assert change.record.hooks == (HOOK,)


def test_the_same_notice_again_changes_nothing_but_makes_a_lost_start_good() -> None:
    again = ask(running(), "n-1")
    assert (again.write, again.start) == (False, False)
    lost = ask(running(Phase.NOTICED), "n-1")
    assert (lost.write, lost.start, lost.record.generation) == (False, True, 1)


def test_another_hook_of_the_same_launch_joins_the_admission() -> None:
    another = LifecycleHook("ng", "another")
    change = ask(running(), "n-2", hook=another)
    assert (change.write, change.start) == (True, False)
    assert (change.record.generation, change.record.version) == (1, 2)
    assert change.record.hooks == (HOOK, another)


def test_a_second_notice_of_the_same_hook_changes_nothing() -> None:
    change = ask(running(), "n-2", after=60)
    assert (change.write, change.start) == (False, False)


def test_an_instance_that_comes_in_again_is_admitted_again() -> None:
    change = ask(running(Phase.FINISHED), "n-2", after=3600)
    assert (change.write, change.start) == (True, True)
    assert (change.record.generation, change.record.version) == (2, 2)
    assert change.record.notices == ("n-1", "n-2")
    assert change.record.noticed_at == NOTICED + timedelta(hours=1)


def test_a_late_notice_of_an_admission_that_has_ended_starts_no_other() -> None:
    change = ask(running(Phase.FINISHED), "n-2")
    assert (change.write, change.start) == (False, False)


def test_a_record_is_read_as_it_was_written_by_this_version() -> None:
    asked = ask(None, "n-1", labels={"a": "b"}, startup_taints=("example.com/agent",)).record
    assert Arrival.model_validate_json(asked.model_dump_json()) == asked
