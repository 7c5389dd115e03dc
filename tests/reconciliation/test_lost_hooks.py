"""Lifecycle hooks whose event or answer was lost."""

from datetime import timedelta
from typing import Any

import pytest
from leeway.admission.record import Admission
from leeway.execution.attempt import Phase
from leeway.instances.facts import (
    ObservedHook,
)
from leeway.notices import LifecycleHook, NoticeKind
from leeway.ports.aws import HookResult
from leeway.reconciliation.lost_events import (
    EVENT_DELAY,
    HOOK_ANSWER_LOST,
    LostAnswer,
    check_eks_hook,
    check_hook,
)
from leeway.retirement.record import Retirement

from tests.admission.admission_records import LAUNCH_HOOK, admission, request
from tests.reconciliation.lost_notices import (
    MINUTE,
    I,
    admitted,
    context,
    notice_of,
    terminating,
    without_effect,
)
from tests.retirement.retirements import HOOK, NOTICED, take


def check_hook_of(
    record: Retirement | Admission | None,
    hook: LifecycleHook = HOOK,
    dry_run: bool = False,
    after: timedelta = EVENT_DELAY,
    other: Retirement | Admission | None = None,
) -> Any:
    waiting = ObservedHook(I, hook, hook == LAUNCH_HOOK, timeout=300)
    records = (record, other)
    retirement = next((one for one in records if isinstance(one, Retirement)), None)
    arrival = next((one for one in records if isinstance(one, Admission)), None)
    return check_hook(waiting, retirement, arrival, context(NOTICED + after, dry_run))


def test_a_lost_event_of_a_hook_is_found() -> None:
    notice = notice_of(check_hook_of(None))
    assert (notice.kind, notice.hook, notice.instances) == (NoticeKind.TERMINATE_HOOK, HOOK, (I,))
    notice = notice_of(check_hook_of(None, LAUNCH_HOOK))
    assert (notice.kind, notice.hook) == (NoticeKind.LAUNCH_HOOK, LAUNCH_HOOK)


def test_a_repeated_finding_has_the_same_event_id_until_the_next_attempt() -> None:
    first = notice_of(check_hook_of(None)).id
    assert notice_of(check_hook_of(None)).id == first
    other = terminating(Phase.FINISHED, LifecycleHook("ng", "another"))
    assert notice_of(check_hook_of(other)).id != first


def test_a_hook_with_open_work_is_not_found() -> None:
    assert check_hook_of(terminating()) is None
    assert check_hook_of(admission(), LAUNCH_HOOK) is None


def test_a_lost_answer_is_found_after_the_end_of_the_work() -> None:
    finding = check_hook_of(terminating(Phase.FINISHED))
    reason = HOOK_ANSWER_LOST(instance=I, hook=HOOK.name)
    assert finding == LostAnswer(I, HOOK, HookResult.CONTINUE, reason)


def test_an_answer_of_the_last_seconds_is_not_lost() -> None:
    """The hook may have been read before its answer."""
    assert check_hook_of(terminating(Phase.FINISHED), after=timedelta(seconds=9)) is None
    assert check_hook_of(admitted(), LAUNCH_HOOK, after=timedelta(seconds=9)) is None


def test_a_hook_is_found_again_after_a_retirement_without_effect() -> None:
    ended = without_effect(terminating())
    assert check_hook_of(ended, dry_run=True) is None, "a dry run would repeat it once a minute"
    notice = notice_of(check_hook_of(ended))
    assert notice.hook == HOOK
    again = take(ended, notice.kind, notice.id, hook=notice.hook)
    assert (again.start, again.record.attempt) == (True, 2)


def test_a_hook_of_eks_is_found_again_after_a_retirement_without_effect() -> None:
    ended, waiting = without_effect(terminating()), ObservedHook(I, HOOK, launching=False)
    assert check_eks_hook(waiting, ended, context(NOTICED, dry_run=True)) is None
    assert notice_of(check_eks_hook(waiting, ended, context(NOTICED))).hook == HOOK
    assert check_eks_hook(waiting, terminating(Phase.FINISHED), context(NOTICED)) is None


def test_a_hook_is_found_after_an_undone_retirement() -> None:
    undone = terminating().model_copy(update={"phase": Phase.UNDONE})
    assert notice_of(check_hook_of(undone)).hook == HOOK


@pytest.mark.parametrize("answer", [HookResult.CONTINUE, HookResult.ABANDON])
def test_a_launch_hook_gets_the_answer_of_its_admission(answer: HookResult) -> None:
    assert check_hook_of(admitted(answer), LAUNCH_HOOK).result is answer


ENDED = [(terminating(Phase.FINISHED), HOOK), (admitted(), LAUNCH_HOOK)]


@pytest.mark.parametrize(("record", "hook"), ENDED)
def test_an_answer_is_repeated_until_the_timeout_of_the_hook_and_not_after(
    record: Retirement | Admission, hook: LifecycleHook
) -> None:
    timeout = timedelta(seconds=300)
    last = check_hook_of(record, hook, after=timeout - timedelta(seconds=1))
    assert isinstance(last, LostAnswer)
    for after in (timeout, timedelta(days=3)):
        notice = notice_of(check_hook_of(record, hook, after=after))
        assert notice.hook == hook


def test_an_instance_that_leaves_the_warm_pool_is_admitted_again() -> None:
    pooled = admitted(into_pool=True)
    notice = notice_of(check_hook_of(pooled, LAUNCH_HOOK, after=MINUTE))
    assert notice.kind is NoticeKind.LAUNCH_HOOK
    again = request(pooled, notice.id, after=60)
    assert (again.start, again.record.attempt, again.record.into_pool) == (True, 2, False)


def test_an_instance_that_was_launched_again_is_drained_again_before_its_hook_is_answered() -> None:
    """For example from a warm pool, within the timeout of the hook by which it entered the pool."""
    ended, back = terminating(Phase.FINISHED), admitted(noticed_at=NOTICED + MINUTE)
    assert isinstance(check_hook_of(ended, other=admitted()), LostAnswer)
    notice = notice_of(check_hook_of(ended, after=2 * MINUTE, other=back))
    again = take(ended, notice.kind, notice.id, hook=notice.hook, after=120)
    assert (again.start, again.record.attempt) == (True, 2)


def test_an_instance_that_was_retired_after_its_admission_is_admitted_again() -> None:
    left = terminating(Phase.FINISHED).model_copy(update={"noticed_at": NOTICED + MINUTE})
    notice = notice_of(check_hook_of(admitted(), LAUNCH_HOOK, after=2 * MINUTE, other=left))
    assert request(admitted(), notice.id, after=120).start


def test_an_admission_without_an_answer_is_not_answered_later() -> None:
    assert check_hook_of(admission(Phase.FINISHED), LAUNCH_HOOK) is None
