"""Failed status checks: found once for each failure, and undone when they pass again."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from leeway.execution.attempt import Phase
from leeway.instances.facts import ObservedImpairment, Owner, OwnerKind
from leeway.notices import Notice, NoticeKind
from leeway.policy.rules import DEFAULTS, Action, ClusterPolicy, Policy, StatusCheck
from leeway.reconciliation.lost_events import check_impairment, check_recovery
from leeway.retirement.attempts import undo
from leeway.retirement.reasons import SUCCESSOR_FOUND
from leeway.retirement.record import Method, ReplacementIntent, Retirement

from tests.reconciliation.account import OURS, Account, observed, run
from tests.reconciliation.lost_notices import I, context, notice_of
from tests.retirement.retirements import NOTICED, at, take

DEFAULT = DEFAULTS[NoticeKind.IMPAIRED_STATUS]
TOLERATED = timedelta(minutes=2)


def failing(*checks: str, since: datetime = NOTICED, instance: str = I) -> ObservedImpairment:
    return ObservedImpairment(instance, dict.fromkeys(checks or ("system",), since))


def check(
    record: Retirement | None,
    after: timedelta = TOLERATED,
    one: ObservedImpairment | None = None,
    policy: Policy = DEFAULT,
    dry_run: bool = False,
) -> Any:
    return check_impairment(one or failing(), record, policy, context(NOTICED + after, dry_run))


def impaired(phase: Phase = Phase.NOTICED, **more: Any) -> Retirement:
    """A retirement for checks that fail since NOTICED."""
    record = take(None, NoticeKind.IMPAIRED_STATUS, "n-1").record
    return at(record, phase).model_copy(update=more)


def test_the_default_policy_is_that_of_karpenter() -> None:
    assert DEFAULT.action is Action.RETIRE
    assert DEFAULT.tolerates == timedelta(seconds=120)
    assert DEFAULT.checks == {StatusCheck.INSTANCE, StatusCheck.SYSTEM}


def test_checks_that_fail_for_two_minutes_are_found() -> None:
    assert check(None, TOLERATED - timedelta(seconds=1)) is None
    finding = check(None)
    notice = notice_of(finding)
    assert (notice.kind, notice.instances) == (NoticeKind.IMPAIRED_STATUS, (I,))
    assert notice.time == NOTICED + TOLERATED
    assert finding.reason.code == "StateDiffers"
    assert "(system)" in finding.reason.message
    assert notice_of(check(None)).id == notice.id


def test_a_check_that_the_policy_does_not_name_is_ignored() -> None:
    volumes = failing("attached-ebs")
    assert check(None, one=volumes) is None
    every = replace(DEFAULT, checks=frozenset(StatusCheck))
    assert notice_of(check(None, one=volumes, policy=every)).kind is NoticeKind.IMPAIRED_STATUS
    tolerant = replace(DEFAULT, tolerates=timedelta(hours=1))
    assert check(None, policy=tolerant) is None


@pytest.mark.parametrize("phase", [Phase.NOTICED, Phase.RUNNING, Phase.FINISHED])
def test_one_failure_is_found_once(phase: Phase) -> None:
    more: dict[str, Any] = {"drain_began_at": NOTICED} if phase is Phase.FINISHED else {}
    record = impaired(phase, answer=None, **more)
    answered = (
        record if phase is not Phase.FINISHED else record.model_copy(update={"answer": "CONTINUE"})
    )
    assert check(answered, timedelta(hours=5)) is None


def test_checks_that_fail_again_are_found_again() -> None:
    record = impaired(Phase.FINISHED, answer="CONTINUE")
    later = failing(since=NOTICED + timedelta(hours=1))
    assert notice_of(check(record, timedelta(hours=2), later)).instances == (I,)
    undone = impaired(Phase.UNDONE)
    assert notice_of(check(undone, timedelta(hours=2), later)).instances == (I,)


def test_a_failure_is_found_again_an_hour_after_a_retirement_without_effect() -> None:
    declined = impaired(Phase.FINISHED, ended_at=NOTICED, answer=None)
    assert declined.had_no_effect
    assert check(declined, timedelta(minutes=59)) is None
    assert notice_of(check(declined, timedelta(minutes=61))).instances == (I,)
    assert check(declined, timedelta(minutes=61), dry_run=True) is None


def test_a_rebalance_that_waits_for_the_disruption_budget_does_not_serve_a_failure() -> None:
    waits = take(None, NoticeKind.REBALANCE, "n-1").record
    assert notice_of(check(waits)).instances == (I,)
    drains = at(waits, Phase.RUNNING).model_copy(update={"drain_began_at": NOTICED})
    assert check(drains) is None
    assert check(take(None, NoticeKind.SPOT_INTERRUPTION, "n-1").record) is None


def test_a_waiting_retirement_is_undone_when_the_checks_pass_again() -> None:
    waits, now = impaired(), NOTICED + timedelta(minutes=1)
    assert check_recovery(waits, [failing()], DEFAULT, context(now)) is None
    notice = notice_of(check_recovery(waits, [], DEFAULT, context(now)))
    assert notice.over == {I}
    change = undo(waits, notice)
    assert change is not None
    assert change.record.phase is Phase.UNDOING
    assert "status checks of the instance pass again" in change.reason.message


def test_a_retirement_that_has_begun_is_not_undone_when_the_checks_pass_again() -> None:
    now = NOTICED + timedelta(minutes=1)
    assert check_recovery(impaired(Phase.RUNNING), [], DEFAULT, context(now)) is None
    notice = notice_of(check_recovery(impaired(), [], DEFAULT, context(now)))
    assert undo(impaired(Phase.RUNNING), notice) is None
    asked = ReplacementIntent(
        method=Method.DETACH,
        reason=SUCCESSOR_FOUND("The group launched it after the replacement was requested."),
        requested_at=NOTICED,
    )
    assert undo(impaired(replacement_intent=asked), notice) is None


SINCE = datetime(2026, 11, 20, 9, 0, tzinfo=UTC)


def broken(**more: Any) -> Account:
    return Account(
        [observed()], impairments_=[failing(since=SINCE, instance=OURS.instance)], **more
    )


def test_reconcile_finds_an_instance_whose_checks_fail() -> None:
    account = broken()
    (found,) = run(account).findings
    assert (found.instance, account.received[0].kind) == (OURS.instance, NoticeKind.IMPAIRED_STATUS)


def test_reconcile_ignores_a_failure_by_policy_or_owner() -> None:
    ignore = {**DEFAULTS, NoticeKind.IMPAIRED_STATUS: replace(DEFAULT, action=Action.IGNORE)}
    assert run(broken(policy=ClusterPolicy(notices=ignore))).findings == []
    managed = OURS.model_copy(update={"owner": Owner(OwnerKind.MANAGED_NODE_GROUP, "general")})
    account = Account(
        [observed(managed)], impairments_=[failing(since=SINCE, instance=OURS.instance)]
    )
    assert run(account).findings == []
    stopped = broken()
    stopped.instances_ = [observed(state="stopped")]
    assert NoticeKind.IMPAIRED_STATUS not in {one.kind for one in run_and_list(stopped)}


def run_and_list(account: Account) -> list[Notice]:
    run(account)
    return account.received


def test_nothing_is_undone_if_status_checks_cannot_be_read() -> None:
    waits = impaired().model_copy(update={"facts": OURS})
    blind = Account([observed()], records=[waits], fails={"impairments"})
    (problem,) = run(blind).problems
    assert problem.code == "ReconcileIncomplete"
    assert "status checks" in problem.message
    assert blind.received == []
    sees = Account([observed()], records=[waits])
    assert [one.over for one in run_and_list(sees)] == [{OURS.instance}]
