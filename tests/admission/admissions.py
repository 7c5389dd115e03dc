"""The arrival records that tests begin with."""

from datetime import timedelta
from typing import Any

from leeway.admission.record import Admission, Request, take
from leeway.execution.attempt import Phase, RecordChange
from leeway.notices import LifecycleHook

from tests.retirement.retirements import FACTS, NOTICED

LAUNCH_HOOK = LifecycleHook("ng", "leeway-admit")
IN_15_MINUTES = NOTICED + timedelta(minutes=15)


def ask(stored: Admission | None, id: str, after: int = 0, **more: Any) -> RecordChange[Admission]:  # noqa: A002
    at = NOTICED + timedelta(seconds=after)
    given: dict[str, Any] = {"hook": LAUNCH_HOOK} | more
    return take(stored, Request(id, at, IN_15_MINUTES, "the launch hook waits", **given), FACTS)


def arriving(phase: Phase = Phase.RUNNING) -> Admission:
    return ask(None, "n-1").record.model_copy(update={"phase": phase})
