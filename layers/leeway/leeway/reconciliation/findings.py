"""Findings of reconcile: a lost event, a lost answer or a lost start, each with its reason.

A check compares one observed fact with the records of its instance. It returns None if nothing is
lost, or if it is too early to know: events take some seconds.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from leeway.execution.attempt import Phase
from leeway.notices import LifecycleHook
from leeway.notices.synthetic import Event, EventOrigin
from leeway.policy.rules import Action
from leeway.ports.aws import HookResult
from leeway.reasons import Reason
from leeway.retirement.record import Retirement

EVENT_DELAY = timedelta(seconds=10)
"""How long an event may take. After that it counts as lost."""

RETRY_WITHOUT_EFFECT_AFTER = timedelta(hours=1)
"""How long after a retirement ended without effect (declined, dry run) its cause is found again:
what prevented it may be over."""


@dataclass(frozen=True, slots=True)
class LostEvent:
    """An event that EventBridge did not deliver.

    `begun` is the action that Leeway has begun. It is continued even if the policy has changed,
    since no other component continues it.
    """

    instance: str
    event: Event
    reason: Reason
    begun: Action | None = None


@dataclass(frozen=True, slots=True)
class LostAnswer:
    """A lifecycle hook that still waits although its work is finished."""

    instance: str
    hook: LifecycleHook
    result: HookResult
    reason: Reason


@dataclass(frozen=True, slots=True)
class LostStart:
    """A recorded attempt of a retirement, or of an admission, whose execution did nothing."""

    instance: str
    cluster: str
    attempt: int
    is_admission: bool
    reason: Reason


type Finding = LostEvent | LostAnswer | LostStart


@dataclass(frozen=True, slots=True)
class CheckContext:
    """The inputs of every check: where events come from, the time, and whether the cluster's policy
    is a dry run."""

    origin: EventOrigin
    now: datetime
    dry_run: bool = False


def is_undone(retirement: Retirement) -> bool:
    """Whether the retirement was undone, or is being undone."""
    return retirement.phase in {Phase.UNDOING, Phase.UNDONE}


def is_effective(retirement: Retirement, context: CheckContext) -> bool:
    """Whether the retirement has, or may still have, an effect on its instance. Under a dry run one
    without effect counts too: it would be repeated once a minute."""
    if is_undone(retirement):
        return False
    return context.dry_run or not retirement.had_no_effect


def waits_for_retry(retirement: Retirement, now: datetime) -> bool:
    """Whether a retirement without effect has ended too recently to be retried."""
    ended_at = retirement.ended_at
    return ended_at is not None and now < ended_at + RETRY_WITHOUT_EFFECT_AFTER


def attempt_of(retirement: Retirement | None) -> int:
    """Return the attempt, which is part of a lost event's id; 0 without a retirement."""
    return retirement.attempt if retirement else 0
