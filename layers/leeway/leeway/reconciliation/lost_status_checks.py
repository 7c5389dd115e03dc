"""Finds instances whose EC2 status checks fail, for which AWS sends no event, or pass again."""

from collections.abc import Collection
from datetime import datetime

from leeway.execution.attempt import Phase
from leeway.instances.observed import ObservedImpairment
from leeway.notices import NoticeKind
from leeway.policy.rules import VOLUNTARY, Policy
from leeway.reconciliation.findings import (
    EVENT_DELAY,
    CheckContext,
    LostEvent,
    attempt_of,
    is_undone,
    waits_for_retry,
)
from leeway.reconciliation.reasons import STATUS_CHECKS_FAIL, STATUS_CHECKS_RECOVERED
from leeway.retirement.record import Retirement


def check_impairment(
    impairment: ObservedImpairment,
    retirement: Retirement | None,
    policy: Policy,
    context: CheckContext,
) -> LostEvent | None:
    """Check an instance whose status checks fail, once for each time that they begin to fail."""
    since = impairment.failing_since(policy.checks)
    if since is None or context.now < since + policy.tolerates:
        return None
    if retirement is not None and _serves_impairment(retirement, since, context):
        return None
    instance = impairment.instance
    about = f"impaired-{instance}-{int(since.timestamp())}-{attempt_of(retirement)}"
    failed = sorted(impairment.since.keys() & policy.checks)
    event = context.origin.impaired_status(about, context.now, instance, failed)
    reason = STATUS_CHECKS_FAIL(
        instance=instance, checks=", ".join(failed), since=f"{since:%Y-%m-%d %H:%M:%S}"
    )
    return LostEvent(instance, event, reason)


def _serves_impairment(retirement: Retirement, since: datetime, context: CheckContext) -> bool:
    if is_undone(retirement):
        return False
    if retirement.phase is Phase.FINISHED:
        if retirement.had_no_effect and not context.dry_run:
            return waits_for_retry(retirement, context.now)
        return retirement.noticed_at >= since
    if retirement.kind in VOLUNTARY - {NoticeKind.IMPAIRED_STATUS}:
        return retirement.drain_began_at is not None or retirement.replacement_intent is not None
    return True


def check_recovery(
    retirement: Retirement,
    impairments: Collection[ObservedImpairment],
    policy: Policy,
    context: CheckContext,
) -> LostEvent | None:
    """Check a retirement that waits for the disruption budget because status checks failed: they
    may pass again. `impairments` are all instances with a failed check."""
    instance = retirement.instance
    waits = retirement.kind is NoticeKind.IMPAIRED_STATUS and retirement.phase is Phase.NOTICED
    fails = any(
        one.instance == instance and one.failing_since(policy.checks) is not None
        for one in impairments
    )
    if not waits or fails or context.now < retirement.noticed_at + EVENT_DELAY:
        return None
    about = f"recovered-{instance}-{retirement.attempt}"
    event = context.origin.impaired_status(about, context.now, instance, (), over=True)
    return LostEvent(instance, event, STATUS_CHECKS_RECOVERED(instance=instance))
