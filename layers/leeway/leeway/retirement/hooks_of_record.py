"""The lifecycle hooks that a retirement holds open."""

from collections.abc import Sequence
from datetime import datetime

from leeway.lifecycle_hooks.held_hooks import HeldHook, with_new_hooks
from leeway.notices import NoticeKind
from leeway.retirement.record import Retirement
from leeway.retirement.replacement_intent import Method


def held_for(record: Retirement, held: Sequence[HeldHook], now: datetime) -> tuple[HeldHook, ...]:
    """Return the hooks that a retirement holds open: those in `held` and the record's new ones."""
    return with_new_hooks(held, record.hooks, _waits_since(record), now)


def _waits_since(record: Retirement) -> datetime | None:
    """Return when the record's hook began to wait, None if the record does not say. A request that
    an earlier attempt made to the group may have failed, so its time is not used."""
    if record.kind is NoticeKind.TERMINATE_HOOK:
        return record.noticed_at
    intent = record.replacement_intent
    if intent is None or intent.method is not Method.TERMINATE_IN_GROUP:
        return None
    return intent.requested_at if intent.requested_at >= record.noticed_at else None
