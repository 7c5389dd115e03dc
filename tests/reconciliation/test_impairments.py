"""Status checks that fail: once for each time that they begin to, and undone where they pass."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from leeway.execution.attempt import OVERDUE, Phase
from leeway.instances.observed import ObservedImpairment
from leeway.instances.owners import Owner, OwnerKind
from leeway.notices import Notice, NoticeKind
from leeway.notices.parse import parse_notice
from leeway.notices.synthetic import EventOrigin
from leeway.policy.rules import DEFAULTS, Action, ClusterPolicy, Policy, StatusCheck
from leeway.reconciliation.lost_events import (
    Lost,
    about_impairment,
    about_recovery,
    about_retirement,
)
from leeway.retirement.attempts import undo
from leeway.retirement.record import Retirement, latest_end
from leeway.retirement.replacement_intent import Method, ReplacementIntent

from tests.reconciliation.reconciling import OURS, World, run, seen
from tests.retirement.retirements import FACTS, NOTICED, at, take

PLACE = EventOrigin("123456789012", "us-east-1")
I = FACTS.instance  # noqa: E741
DEFAULT = DEFAULTS[NoticeKind.IMPAIRED_STATUS]
TOLERATED = timedelta(minutes=2)


def failing(*checks: str, since: datetime = NOTICED, instance: str = I) -> ObservedImpairment:
    return ObservedImpairment(instance, dict.fromkeys(checks or ("system",), since))


def about(
    record: Retirement | None,
    after: timedelta = TOLERATED,
    one: ObservedImpairment | None = None,
    policy: Policy = DEFAULT,
    dry_run: bool = False,
) -> Any:
    return about_impairment(one or failing(), record, policy, PLACE, NOTICED + after, dry_run)


def told(omission: Any) -> Notice:
    assert isinstance(omission, Lost)
    return parse_notice(omission.event)


def impaired(phase: Phase = Phase.NOTICED, **more: Any) -> Retirement:
    """A retirement for checks that fail since NOTICED."""
    record = take(None, NoticeKind.IMPAIRED_STATUS, "n-1").record
    return at(record, phase).model_copy(update=more)


def test_karpenters_defaults_hold() -> None:
    assert DEFAULT.action is Action.RETIRE
    assert DEFAULT.tolerates == timedelta(seconds=120)
    assert DEFAULT.checks == {StatusCheck.INSTANCE, StatusCheck.SYSTEM}


def test_checks_that_fail_for_two_minutes_are_a_notice_of_now() -> None:
    assert about(None, TOLERATED - timedelta(seconds=1)) is None
    omission = about(None)
    notice = told(omission)
    assert (notice.kind, notice.instances) == (NoticeKind.IMPAIRED_STATUS, (I,))
    assert notice.time == NOTICED + TOLERATED
    assert "system status checks fail since" in omission.reason
    assert told(about(None)).id == notice.id


def test_a_check_that_the_policy_does_not_name_is_none_of_its_business() -> None:
    volumes = failing("attached-ebs")
    assert about(None, one=volumes) is None
    every = replace(DEFAULT, checks=frozenset(StatusCheck))
    assert told(about(None, one=volumes, policy=every)).kind is NoticeKind.IMPAIRED_STATUS
    patient = replace(DEFAULT, tolerates=timedelta(hours=1))
    assert about(None, policy=patient) is None


@pytest.mark.parametrize("phase", [Phase.NOTICED, Phase.RUNNING, Phase.FINISHED])
def test_one_impairment_is_told_of_once(phase: Phase) -> None:
    more: dict[str, Any] = {"begun_at": NOTICED} if phase is Phase.FINISHED else {}
    record = impaired(phase, answer=None, **more)
    answered = (
        record if phase is not Phase.FINISHED else record.model_copy(update={"answer": "CONTINUE"})
    )
    assert about(answered, timedelta(hours=5)) is None


def test_checks_that_fail_anew_are_told_of_anew() -> None:
    record = impaired(Phase.FINISHED, answer="CONTINUE")
    later = failing(since=NOTICED + timedelta(hours=1))
    assert told(about(record, timedelta(hours=2), later)).instances == (I,)
    undone = impaired(Phase.UNDONE)
    assert told(about(undone, timedelta(hours=2), later)).instances == (I,)


def test_what_came_to_nothing_is_told_of_again_after_an_hour() -> None:
    declined = impaired(Phase.FINISHED, ended_at=NOTICED, answer=None)
    assert declined.had_no_effect
    assert about(declined, timedelta(minutes=59)) is None
    assert told(about(declined, timedelta(minutes=61))).instances == (I,)
    assert about(declined, timedelta(minutes=61), dry_run=True) is None


def test_a_recommendation_that_waits_for_its_turn_does_not_stand_for_it() -> None:
    waits = take(None, NoticeKind.REBALANCE, "n-1").record
    assert told(about(waits)).instances == (I,)
    drains = at(waits, Phase.RUNNING).model_copy(update={"begun_at": NOTICED})
    assert about(drains) is None
    assert about(take(None, NoticeKind.SPOT_INTERRUPTION, "n-1").record) is None


def test_a_retirement_that_waits_is_undone_when_the_checks_pass_again() -> None:
    waits, now = impaired(), NOTICED + timedelta(minutes=1)
    assert about_recovery(waits, [failing()], DEFAULT, PLACE, now) is None
    notice = told(about_recovery(waits, [], DEFAULT, PLACE, now))
    assert notice.over == {I}
    change = undo(waits, notice)
    assert change is not None
    assert change.record.phase is Phase.UNDOING
    assert change.reason == "the status checks pass again"


def test_what_has_begun_is_not_undone_when_the_checks_pass_again() -> None:
    now = NOTICED + timedelta(minutes=1)
    assert about_recovery(impaired(Phase.RUNNING), [], DEFAULT, PLACE, now) is None
    notice = told(about_recovery(impaired(), [], DEFAULT, PLACE, now))
    assert undo(impaired(Phase.RUNNING), notice) is None
    asked = ReplacementIntent(method=Method.DETACH, reason="", asked_at=NOTICED)
    assert undo(impaired(replacement_intent=asked), notice) is None


def test_a_dead_retirement_for_it_goes_on_as_one() -> None:
    record = impaired(Phase.RUNNING)
    late = latest_end(record) + OVERDUE
    notice = told(about_retirement(record, "running", PLACE, late))
    assert (notice.kind, notice.over) == (NoticeKind.IMPAIRED_STATUS, frozenset())


SINCE = datetime(2026, 11, 20, 9, 0, tzinfo=UTC)


def broken(**more: Any) -> World:
    return World([seen()], impaired=[failing(since=SINCE, instance=OURS.instance)], **more)


def test_reconcile_finds_an_instance_whose_checks_fail() -> None:
    world = broken()
    (found,) = run(world).found
    assert (found.instance, world.received[0].kind) == (OURS.instance, NoticeKind.IMPAIRED_STATUS)


def test_reconcile_leaves_it_alone_where_the_policy_or_the_owner_says_so() -> None:
    ignore = {**DEFAULTS, NoticeKind.IMPAIRED_STATUS: replace(DEFAULT, action=Action.IGNORE)}
    assert run(broken(policy=ClusterPolicy(notices=ignore))).found == []
    managed = OURS.model_copy(update={"owner": Owner(OwnerKind.MANAGED_NODE_GROUP, "general")})
    world = World([seen(managed)], impaired=[failing(since=SINCE, instance=OURS.instance)])
    assert run(world).found == []
    stopped = broken()
    stopped.instances_ = [seen(state="stopped")]
    assert NoticeKind.IMPAIRED_STATUS not in {one.kind for one in run_and_list(stopped)}


def run_and_list(world: World) -> list[Notice]:
    run(world)
    return world.received


def test_nothing_is_undone_while_status_checks_cannot_be_read() -> None:
    waits = impaired().model_copy(update={"facts": OURS})
    blind = World([seen()], records=[waits], fails={"impairments"})
    assert [p.split(":")[0] for p in run(blind).problems] == ["status checks"]
    assert blind.received == []
    sees = World([seen()], records=[waits])
    assert [one.over for one in run_and_list(sees)] == [{OURS.instance}]
