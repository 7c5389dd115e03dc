"""Admissions of launched nodes whose execution dies at any point."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from leeway.admission.outcome import AdmissionOutcome
from leeway.admission.record import (
    Admission,
    AdmissionResult,
    apply_request,
    repeated_launch_request,
)
from leeway.execution.attempt import AttemptId, Phase
from leeway.instances.facts import ObservedInstance
from leeway.table import Item, Key

from tests.admission.admission_records import LAUNCH
from tests.admission.admission_run import ATTEMPT, MINUTE, Dependencies, admit, use_case
from tests.admission.launched import RUNS, launched, with_failures
from tests.fakes.crashes import Crash, Crashed
from tests.fakes.table import TableInMemory
from tests.retirement.retirements import FACTS


class Dies(Dependencies):
    """Dies once, at a port call or a step. The durable engine returns the stored results of the
    steps that have ended."""

    crash: Crash
    results: dict[str, Any]
    count = False

    def run[T](self, name: str, kind: type[T], work: Callable[[], T]) -> T:
        if name in self.results:
            return self.results[name]  # type: ignore[no-any-return]
        self.count = self.count or name.startswith("end")
        result = super().run(name, kind, work)
        self._call("step", lambda: self.results.update({name: result}))
        return result

    def wait(self, name: str, seconds: int) -> None:
        if name not in self.results:
            super().wait(name, seconds)
            self.results[name] = None

    def _call[T](self, name: str, work: Callable[[], T]) -> T:
        return self.crash.call(work) if self.count else work()

    def terminate(self, instance: str) -> None:
        self._call("terminate", lambda: Dependencies.terminate(self, instance))

    def observe(self, instance: str) -> ObservedInstance | None:
        return self._call("observe", lambda: Dependencies.observe(self, instance))

    def publish(self, detail_type: str, detail: str) -> None:
        self._call("publish", lambda: Dependencies.publish(self, detail_type, detail))


class DyingTable(TableInMemory):
    """The table of `Dies`. Reads of admissions do not count."""

    def __init__(self, deps: Dies) -> None:
        super().__init__()
        self._deps = deps
        self.items = deps.table.items

    def _get(self, key: Key, consistent: bool) -> Item | None:
        read = partial(super()._get, key, consistent)
        return self._deps._call("get", read) if key[0].startswith("POOLS#") else read()

    def _write(self, key: Key, item: Item | None, replaces: int | None) -> None:
        self._deps._call("put", partial(super()._write, key, item, replaces))


def dying(number: int, moment: str) -> Dies:
    deps = Dies(launched(), observed=RUNS)
    deps.pools.update(with_failures().pools)
    deps.results, deps.crash = {}, Crash(number, moment)
    deps.table = DyingTable(deps)
    return deps


def run_to_the_end(deps: Dies) -> AdmissionOutcome:
    try:
        return admit(deps)
    except Crashed:
        return admit(deps)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_execution_that_is_killed_at_any_step_terminates_and_pauses_once(moment: str) -> None:
    unharmed = dying(0, moment)
    run_to_the_end(unharmed)
    assert unharmed.crash.calls > 10
    for number in range(1, unharmed.crash.calls + 1):
        deps = dying(number, moment)
        outcome = run_to_the_end(deps)
        where = f"killed {moment} call {number}"
        assert outcome.result is AdmissionResult.TERMINATED, where
        assert {*deps.terminated} == {FACTS.instance}, where
        assert "Leeway Pool Paused" in deps.reports, where
        stored = deps.pools[LAUNCH.pool]
        assert len(stored.failures) == 3, where
        assert deps.record.phase is Phase.FINISHED, where


def test_an_execution_that_dies_for_ever_is_continued_by_the_next_attempt() -> None:
    unharmed = dying(0, "after")
    run_to_the_end(unharmed)
    for number in range(1, unharmed.crash.calls + 1):
        deps = dying(number, "after")
        try:
            admit(deps)
        except Crashed:
            if deps.record.phase is Phase.FINISHED:
                assert deps.terminated, "a closed record has no running instance"
                continue
        else:
            continue
        now = deps.now_ + 11 * MINUTE
        wanted = repeated_launch_request(deps.record, now)
        deps.record = request_again(deps.record, wanted)
        deps.results, deps.now_, deps.count = {}, now, True
        if deps.terminated:
            deps.observed = replace(RUNS, state="shutting-down")
        outcome = use_case(deps).admit(AttemptId(ATTEMPT.instance, ATTEMPT.cluster, 2), deps)
        assert outcome is not None
        assert deps.terminated == [FACTS.instance], f"killed after call {number}"
        stored = deps.pools[LAUNCH.pool]
        assert len(stored.failures) == 3


def request_again(record: Admission, wanted: Any) -> Admission:
    change = apply_request(record, wanted, record.facts)
    assert change.start
    assert change.record.attempt == record.attempt + 1
    assert change.record.launch == record.launch
    return change.record
