"""retirement.hooks_of_record"""

from collections.abc import Sequence
from datetime import datetime

from leeway.lifecycle_hooks.held_hooks import HeldHook, joined
from leeway.notices import NoticeKind
from leeway.retirement.record import Retirement
from leeway.retirement.replacement_intent import Method


def held_for(record: Retirement, held: Sequence[HeldHook], now: datetime) -> tuple[HeldHook, ...]:
    """Return what is held for a retirement: with what its record learned of since."""
    return joined(held, record.hooks, _waits_since(record), now)


def _waits_since(record: Retirement) -> datetime | None:
    """Return when the record's hook began to wait, where the record tells. What an earlier
    attempt asked of the group may have been refused: it does not date a hook that came since."""
    if record.kind is NoticeKind.TERMINATE_HOOK:
        return record.noticed_at
    asked = record.replacement_intent
    if asked is None or asked.method is not Method.TERMINATE_IN_GROUP:
        return None
    return asked.asked_at if asked.asked_at >= record.noticed_at else None
