"""The admission records that tests begin with."""

from datetime import timedelta
from typing import Any

from leeway.admission.record import Admission, AdmissionRequest, Launch, apply_request
from leeway.execution.attempt import Phase, RecordChange
from leeway.notices import LifecycleHook
from leeway.reasons import Reason

from tests.retirement.retirements import FACTS, NOTICED

HOOK_WAITS = Reason("LaunchHookWaits", "The launch hook waits.")
LAUNCH_HOOK = LifecycleHook("ng", "leeway-admit")
LAUNCH = Launch(intent="intent-1", pool="web", at=NOTICED)
IN_15_MINUTES = NOTICED + timedelta(minutes=15)


def request(
    stored: Admission | None,
    id: str,  # noqa: A002
    after: int = 0,
    **more: Any,
) -> RecordChange[Admission]:
    """Apply a request that comes `after` seconds to a record."""
    at = NOTICED + timedelta(seconds=after)
    given: dict[str, Any] = {"hook": LAUNCH_HOOK} | more
    wanted = AdmissionRequest(id, at, IN_15_MINUTES, HOOK_WAITS, **given)
    return apply_request(stored, wanted, FACTS)


def admission(phase: Phase = Phase.RUNNING) -> Admission:
    """An admission in its first attempt."""
    return request(None, "n-1").record.model_copy(update={"phase": phase})
