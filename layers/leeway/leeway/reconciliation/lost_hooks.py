"""Finds lifecycle hooks that wait for an event or for an answer that was lost."""

from datetime import datetime, timedelta

from leeway.admission.record import Admission
from leeway.instances.observed import ObservedHook
from leeway.notices.synthetic import Event
from leeway.policy.rules import VOLUNTARY
from leeway.reasons import Reason
from leeway.reconciliation.findings import (
    CheckContext,
    LostAnswer,
    LostEvent,
    attempt_of,
    is_effective,
)
from leeway.reconciliation.reasons import HOOK_ANSWER_LOST, HOOK_EVENT_LOST, HOOK_WORK_NOT_DONE
from leeway.retirement.record import OVER, Retirement


def check_hook(
    hook: ObservedHook,
    retirement: Retirement | None,
    admission: Admission | None,
    context: CheckContext,
) -> LostEvent | LostAnswer | None:
    """Check an instance that waits for a hook. If its retirement ended without effect, it is
    retired again, except under a dry run."""
    record = admission if hook.launching else retirement
    event = _event(hook, record.attempt if record else 0, context)
    if record is None or hook.hook not in record.hooks:
        return LostEvent(hook.instance, event, _reason_of_event(hook))
    if record.phase not in OVER:
        return None
    if record.answer is not None:
        if _waits_for_another_action(hook, retirement, admission, context.now):
            return LostEvent(hook.instance, event, _reason_of_event(hook))
        reason = HOOK_ANSWER_LOST(instance=hook.instance, hook=hook.hook.name)
        return LostAnswer(hook.instance, hook.hook, record.answer, reason)
    if isinstance(record, Admission) or context.dry_run:
        return None
    reason = HOOK_WORK_NOT_DONE(instance=hook.instance, hook=hook.hook.name)
    return LostEvent(hook.instance, event, reason)


def check_eks_hook(
    hook: ObservedHook, retirement: Retirement | None, context: CheckContext
) -> LostEvent | None:
    """Check an instance that waits for a hook that EKS answers: only whether it is drained."""
    if hook.launching:
        return None
    if retirement is not None and _serves_termination(retirement, context):
        return None
    event = _event(hook, attempt_of(retirement), context)
    return LostEvent(hook.instance, event, _reason_of_event(hook))


def _event(hook: ObservedHook, attempt: int, context: CheckContext) -> Event:
    about = f"hook-{hook.instance}-{hook.hook.group}/{hook.hook.name}-{attempt}"
    return context.origin.lifecycle_action(
        about, context.now, hook.instance, hook.hook, launching=hook.launching
    )


def _reason_of_event(hook: ObservedHook) -> Reason:
    return HOOK_EVENT_LOST(instance=hook.instance, hook=hook.hook.name)


def _waits_for_another_action(
    hook: ObservedHook, retirement: Retirement | None, admission: Admission | None, now: datetime
) -> bool:
    """Whether the hook waits for another lifecycle action than the one that was answered.

    An action without an answer ends at the timeout of its hook. An instance that was launched or
    retired after the answer may have come back from the warm pool of its group.
    """
    record, other = (admission, retirement) if hook.launching else (retirement, admission)
    if record is None or record.ended_at is None:
        return True
    if isinstance(record, Admission) and record.into_pool:
        return True  # the answer let the instance enter the pool, and now it leaves the pool
    if now >= record.ended_at + timedelta(seconds=hook.timeout):
        return True
    return other is not None and other.noticed_at > record.ended_at


def _serves_termination(retirement: Retirement, context: CheckContext) -> bool:
    if not is_effective(retirement, context):
        return False
    return retirement.kind not in VOLUNTARY or retirement.replacement_intent is not None
