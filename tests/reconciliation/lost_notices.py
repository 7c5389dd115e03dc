"""Records and notices for the tests of lost events."""

from datetime import datetime, timedelta
from typing import Any

from leeway.admission.record import Admission
from leeway.execution.attempt import Phase
from leeway.notices import LifecycleHook, Notice, NoticeKind
from leeway.notices.parse import EventOrigin, parse_notice
from leeway.ports.aws import HookResult
from leeway.reconciliation.lost_events import CheckContext, LostEvent
from leeway.retirement.reasons import SUCCESSOR_FOUND
from leeway.retirement.record import Method, ReplacementIntent, Retirement

from tests.admission.admission_records import admission
from tests.retirement.retirements import FACTS, HOOK, NOTICED, at, interrupted, take

ORIGIN = EventOrigin("123456789012", "us-east-1")
MINUTE = timedelta(minutes=1)
I = FACTS.instance  # noqa: E741


def context(now: datetime, dry_run: bool = False) -> CheckContext:
    """The context of a check at this time."""
    return CheckContext(ORIGIN, now, dry_run)


def terminating(phase: Phase = Phase.RUNNING, hook: LifecycleHook = HOOK) -> Retirement:
    record = take(None, NoticeKind.TERMINATE_HOOK, "n-1", hook=hook).record
    ended_at = NOTICED if phase is Phase.FINISHED else None
    return at(record, phase).model_copy(update={"ended_at": ended_at})


def admitted(answer: HookResult = HookResult.CONTINUE, **changes: Any) -> Admission:
    """An admission that has ended."""
    ended = {"answer": answer, "ended_at": NOTICED}
    return admission(Phase.FINISHED).model_copy(update=ended | changes)


def notice_of(finding: Any) -> Notice:
    """The notice of a lost event."""
    assert isinstance(finding, LostEvent)
    return parse_notice(finding.event)


def without_effect(record: Retirement) -> Retirement:
    """A retirement that ended without effect, as under a dry run."""
    return record.model_copy(update={"phase": Phase.FINISHED, "answer": None})


def left_running(failures: int = 0, **changes: Any) -> Retirement:
    """A retirement that detached its instance, and ended without terminating it."""
    intent = ReplacementIntent(
        method=Method.DETACH,
        reason=SUCCESSOR_FOUND("The group launched it after the replacement was requested."),
        requested_at=NOTICED,
        group="ng",
        to_terminate=True,
        failures=failures,
    )
    ended = interrupted(Phase.FINISHED).model_copy(
        update={"replacement_intent": intent, "ended_at": NOTICED - MINUTE}
    )
    return ended.model_copy(update=changes)


def kind_of(kind: NoticeKind, phase: Phase = Phase.RUNNING, **more: Any) -> Retirement:
    """A retirement for a kind of notice, in a phase."""
    return at(take(None, kind, "n-1").record, phase).model_copy(update=more)
