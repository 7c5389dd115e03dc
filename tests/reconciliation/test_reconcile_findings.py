"""Findings of a run of reconcile, and the work that it does about them."""

import threading
from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from leeway.execution.attempt import OVERDUE, Phase
from leeway.instances.facts import (
    ObservedChange,
    ObservedHook,
    ObservedInstance,
    ObservedInterruption,
    Owner,
    OwnerKind,
)
from leeway.interruption.receive_notice import NoticeOutcome, NoticeResult
from leeway.notices import InterruptionAction, LifecycleHook, NoticeKind
from leeway.policy.rules import (
    DEFAULTS,
    Action,
    ClusterPolicy,
    OnBlocked,
    Replacement,
    Ruling,
)
from leeway.ports.aws import HookResult, Waiting
from leeway.reconciliation.find_lost_events import INSTANCE_CONCURRENCY
from leeway.retirement.attempts import apply_return
from leeway.retirement.reasons import NODE_KEPT
from leeway.retirement.record import Retirement, ReturnTerms, latest_end

from tests.fakes.cluster_leftovers import LeftoversInMemory
from tests.reconciliation.account import (
    OURS,
    Account,
    facts,
    observed,
    run,
)
from tests.reconciliation.lost_notices import left_running
from tests.retirement.retirements import FACTS, HOOK, NOTICED, at, interrupted, take


def test_lost_events_of_hooks_interruptions_and_detached_instances_are_received() -> None:
    waiting, marked = facts(2), facts(3)
    detached = DETACHED
    silent = Account(
        [observed(waiting), observed(marked), observed(detached)],
        records=[LEFT_RUNNING],
        interruptions_=[
            ObservedInterruption(marked.instance, InterruptionAction.TERMINATE, NOTICED)
        ],
        hooks=[ObservedHook(waiting.instance, HOOK, launching=False)],
    )
    report = run(silent)
    assert {n.instances[0]: n.kind for n in silent.received} == {
        waiting.instance: NoticeKind.TERMINATE_HOOK,
        marked.instance: NoticeKind.SPOT_INTERRUPTION,
        detached.instance: NoticeKind.REBALANCE,
    }
    assert Action.RETIRE in silent.begun, "the detached instance is retired under any policy"
    assert len(report.findings) == 3
    assert all(found.done.startswith("Leeway handled the") for found in report.findings)


def test_an_event_of_a_hook_that_comes_while_reconcile_reads_is_not_lost() -> None:
    class Coming(Account):
        def of_groups(self, groups: Collection[str]) -> Waiting:
            (record,) = self.records
            assert isinstance(record, Retirement)
            self.records[:] = [take(record, NoticeKind.TERMINATE_HOOK, "n-2", hook=HOOK).record]
            return super().of_groups(groups)

    account = Coming(
        [observed(FACTS)],
        records=[interrupted()],
        hooks=[ObservedHook(FACTS.instance, HOOK, launching=False)],
    )
    assert not run(account).findings
    assert account.received == []


def test_a_return_of_capacity_that_died_begins_again_and_is_no_notice() -> None:
    ours = facts(5)
    ruling = Ruling(
        Action.RETIRE,
        NOTICED + timedelta(minutes=20),
        Replacement.BEFORE,
        OnBlocked.WAIT,
        NODE_KEPT("It drifted."),
    )
    terms = ReturnTerms(cause="Drifted", optional=True)
    record = apply_return(None, ours, ruling, terms, NOTICED).record
    late = latest_end(record) + OVERDUE
    account = Account([observed(ours)], records=[record], now_=late)
    (found,) = run(account).findings
    assert found.done == "Leeway started attempt 2 on the terms of the return."
    assert (account.received, account.started) == ([], [(ours.instance, "prod", 2)])


def managed(*hooks: LifecycleHook, launching: bool = False) -> Account:
    """An instance of a managed node group that waits for hooks of the Auto Scaling group."""
    theirs = facts(1, owner=Owner(OwnerKind.MANAGED_NODE_GROUP, "general"))
    waiting = [ObservedHook(theirs.instance, hook, launching) for hook in hooks]
    return Account([observed(theirs, group="eks-general-5f1c")], hooks=waiting)


COVERS_MANAGED = ClusterPolicy(retires_for=frozenset({OwnerKind.MANAGED_NODE_GROUP}))
DRAIN_HOOK = LifecycleHook("eks-general-5f1c", "drain")


@pytest.mark.parametrize("launching", [True, False])
def test_hooks_of_managed_node_groups_are_found_if_the_policy_covers_these_groups(
    launching: bool,
) -> None:
    account = managed(DRAIN_HOOK, launching=launching)
    run(account)
    assert account.received == []
    account.policy = COVERS_MANAGED
    run(account)
    (notice,) = account.received
    assert notice.hook == DRAIN_HOOK
    assert notice.kind is (NoticeKind.LAUNCH_HOOK if launching else NoticeKind.TERMINATE_HOOK)


def test_a_hook_of_eks_leads_to_a_drain_and_is_not_answered() -> None:
    own = LifecycleHook("eks-general-5f1c", "Terminate-LC-Hook")
    account = managed(own)
    account.policy = COVERS_MANAGED
    run(account)
    assert [notice.kind for notice in account.received] == [NoticeKind.TERMINATE_HOOK]
    record = take(None, NoticeKind.TERMINATE_HOOK, "n-1").record
    for phase in (Phase.RUNNING, Phase.FINISHED):
        here = {"facts": account.instances_[0].facts, "phase": phase}
        account.records = [at(record, phase).model_copy(update=here)]
        assert run(account).findings == []
    declined = take(None, NoticeKind.REBALANCE, "n-1").record
    account.records = [declined.model_copy(update=here)]
    assert len(run(account).findings) == 1
    coming = managed(LifecycleHook("eks-general-5f1c", "Launch-LC-Hook"), launching=True)
    coming.policy = COVERS_MANAGED
    assert run(coming).findings == []


def ignoring(*kinds: NoticeKind) -> ClusterPolicy:
    ignored = {kind: replace(DEFAULTS[kind], action=Action.IGNORE) for kind in kinds}
    return ClusterPolicy(notices={**DEFAULTS, **ignored})


def test_events_that_the_policy_ignores_are_not_found() -> None:
    waiting = ObservedHook(OURS.instance, HOOK, launching=False)
    marked = ObservedInterruption(OURS.instance, InterruptionAction.TERMINATE, NOTICED)
    account = Account([observed()], hooks=[waiting], interruptions_=[marked])
    account.policy = ignoring(NoticeKind.TERMINATE_HOOK, NoticeKind.SPOT_INTERRUPTION)
    assert run(account).findings == []
    dry_run = Account([observed()], hooks=[replace(waiting, launching=True)])
    dry_run.policy = ClusterPolicy(dry_run=True)
    assert run(dry_run).findings == []


def test_lost_warnings_of_a_storm_are_received_concurrently() -> None:
    together = threading.Barrier(INSTANCE_CONCURRENCY, timeout=60)

    class Concurrent(Account):
        def receive(self, event: Any, begun: Action | None = None) -> NoticeOutcome:
            together.wait()
            return super().receive(event, begun)

    storm = [facts(number) for number in range(4 * INSTANCE_CONCURRENCY)]
    marks = [ObservedInterruption(f.instance, InterruptionAction.TERMINATE, NOTICED) for f in storm]
    account = Concurrent([observed(one) for one in storm], interruptions_=marks)
    report = run(account)
    assert [found.instance for found in report.findings] == [one.instance for one in storm]
    assert report.problems == []


def test_an_event_that_arrived_in_the_meantime_is_not_a_finding() -> None:
    marked = ObservedInterruption(OURS.instance, InterruptionAction.TERMINATE, NOTICED)
    account = Account([observed()], interruptions_=[marked], result=NoticeResult.KNOWN)
    assert run(account).findings == []
    assert len(account.received) == 1


@pytest.mark.parametrize("state", ["stopping", "stopped", "shutting-down"])
def test_a_lost_event_of_an_instance_that_stops_or_ends_is_found(state: str) -> None:
    account = Account([observed(state=state)])
    run(account)
    assert [(n.kind, n.state) for n in account.received] == [(NoticeKind.STATE_CHANGE, state)]
    account.policy = ignoring(NoticeKind.STATE_CHANGE)
    assert run(account).findings == []


def stopped_before(**changes: Any) -> Account:
    """An instance that was stopped and runs again; its node is marked as retiring."""
    record = take(None, NoticeKind.STATE_CHANGE, "n-1", state="stopped").record
    ended = record.model_copy(update={"facts": OURS, "phase": Phase.FINISHED})
    again = ObservedInstance(OURS, "running", NOTICED + timedelta(seconds=60), "ng")
    cluster = LeftoversInMemory(marked=[OURS.private_dns_name])
    account = Account(
        [again], records=[ended], index={OURS.instance: OURS}, clusters={"prod": cluster}
    )
    account.records_open = False
    return replace(account, **changes)


def test_a_node_is_released_if_the_event_of_its_restart_was_lost() -> None:
    account = stopped_before()
    report = run(account)
    assert [(n.kind, n.state) for n in account.received] == [(NoticeKind.STATE_CHANGE, "running")]
    assert report.findings[0].reason.code == "EventLost"


def test_records_are_read_only_for_nodes_that_are_marked_as_retiring() -> None:
    account = stopped_before(fails={"known"}, clusters={"prod": LeftoversInMemory()})
    assert run(account).problems == []
    assert account.received == []


def test_a_rebooted_node_without_a_replacement_is_released_if_changes_can_be_read() -> None:
    starts_at = NOTICED + timedelta(minutes=1)
    announced = {"event": "arn:aws:health:us-east-1::event/1", "effective_at": starts_at}
    record = take(None, NoticeKind.SCHEDULED_CHANGE, "n-1", **announced).record
    drained = at(record.model_copy(update={"facts": OURS}), Phase.FINISHED)
    rebooted = ObservedChange(
        OURS.instance, "instance-event-0abc", "system-reboot", starts_at, True
    )
    never_stopped = ObservedInstance(OURS, "running", NOTICED - timedelta(days=9))
    for fails in (set(), {"changes"}):
        account = stopped_before(records=[drained], changes_=[rebooted], fails=fails)
        account.instances_ = [never_stopped]
        run(account)
        assert [n.over for n in account.received] == ([] if fails else [{OURS.instance}])


def scheduled(**changes: Any) -> Account:
    """A change that EC2 has scheduled an hour ahead, without an event."""
    starts_at = NOTICED + timedelta(hours=1)
    change = ObservedChange(OURS.instance, "instance-event-0abc", "instance-retirement", starts_at)
    other = replace(change, instance="i-0ffffffffffffffff")
    return replace(Account([observed()], changes_=[change, other]), **changes)


def test_a_lost_event_of_a_scheduled_change_is_found_from_its_lead_on() -> None:
    account = scheduled()
    run(account)
    (notice,) = account.received
    assert (notice.kind, notice.instances) == (NoticeKind.SCHEDULED_CHANGE, (OURS.instance,))
    assert notice.effective_at == NOTICED + timedelta(hours=1)
    early = scheduled(now_=NOTICED - timedelta(hours=4))
    assert run(early).findings == []
    assert run(scheduled(policy=ignoring(NoticeKind.SCHEDULED_CHANGE))).findings == []


def waiting_since(event: str) -> Account:
    """A retirement that waits for the disruption budget because of a scheduled change."""
    at = NOTICED + timedelta(hours=1)
    noticed = take(None, NoticeKind.SCHEDULED_CHANGE, "n-1", event=event, effective_at=at)
    record = noticed.record.model_copy(update={"facts": OURS})
    return scheduled(records=[record], now_=NOTICED + timedelta(minutes=30))


def test_a_retirement_is_undone_if_the_event_of_a_cancellation_was_lost() -> None:
    account = waiting_since("instance-event-0abc")
    assert run(account).findings == [], "EC2 still lists the change"
    account.changes_.clear()
    run(account)
    (notice,) = account.received
    assert (notice.over, notice.event) == ({OURS.instance}, "instance-event-0abc")


def test_no_change_is_cancelled_by_a_failed_read_or_if_only_aws_health_announced_it() -> None:
    blind = waiting_since("instance-event-0abc")
    blind.fails = {"changes"}
    (problem,) = run(blind).problems
    assert problem.code == "ReconcileIncomplete"
    assert "scheduled events" in problem.message
    by_health = waiting_since("arn:aws:health:us-east-1::event/EC2/RETIREMENT/1")
    by_health.changes_.clear()
    run(by_health)
    assert blind.received == by_health.received == []


def test_an_interruption_of_an_instance_that_does_not_run_is_ignored() -> None:
    marked = ObservedInterruption(OURS.instance, InterruptionAction.TERMINATE, NOTICED)
    assert len(run(Account([observed()], interruptions_=[marked])).findings) == 1
    for state in ("shutting-down", "terminated"):
        record = take(None, NoticeKind.STATE_CHANGE, "n-1", state=state).record
        noticed = record.model_copy(update={"facts": OURS, "phase": Phase.RUNNING})
        assert (
            run(
                Account([observed(state=state)], interruptions_=[marked], records=[noticed])
            ).findings
            == []
        )


DETACHED = facts(4, owner=Owner(OwnerKind.NONE))
LEFT_RUNNING = left_running(facts=DETACHED)


def test_tags_of_an_instance_outside_any_group_do_not_end_it() -> None:
    """A user with the right to create tags can tag any instance as one of the cluster."""
    tagged = Account([observed(DETACHED)])
    assert run(tagged).findings == []
    assert tagged.received == []
    other = left_running(facts=DETACHED, replacement_intent=None)
    retired = Account([observed(DETACHED)], records=[other])
    retired.records_open = False
    assert run(retired).findings == []


def test_the_state_of_a_detached_instance_is_read_by_its_id() -> None:
    renamed = Account([], records=[LEFT_RUNNING], fresh={DETACHED.instance: "running"})
    run(renamed)
    assert [notice.kind for notice in renamed.received] == [NoticeKind.REBALANCE]
    assert renamed.state_reads == [[DETACHED.instance]]


def test_a_detached_instance_that_has_ended_since_the_list_is_not_drained_again() -> None:
    listed = Account([observed(DETACHED)], records=[LEFT_RUNNING])
    listed.fresh[DETACHED.instance] = "shutting-down"
    run(listed)
    assert [notice.state for notice in listed.received] == ["shutting-down"]


def test_a_detached_instance_that_is_in_a_group_again_is_kept() -> None:
    kept = Account([observed(DETACHED, group="others")], records=[LEFT_RUNNING])
    assert run(kept).findings == []


def test_a_dry_run_does_not_retire_a_detached_instance_again() -> None:
    left = Account(
        [observed(DETACHED)],
        records=[LEFT_RUNNING],
        policy=ClusterPolicy(dry_run=True),
    )
    run(left)
    assert left.received == []


def test_a_lost_answer_to_a_hook_is_repeated() -> None:
    record = take(None, NoticeKind.TERMINATE_HOOK, "n-1", hook=HOOK).record
    ended = at(record.model_copy(update={"facts": OURS, "ended_at": NOTICED}), Phase.FINISHED)
    waiting = Account([observed()], hooks=[ObservedHook(OURS.instance, HOOK, launching=False)])
    waiting.records = [ended]
    waiting.records_open = False
    report = run(waiting)
    assert waiting.answers == [(OURS.instance, HOOK.name, HookResult.CONTINUE)]
    waiting.hook_over = True
    assert ["does not wait" in found.done for found in run(waiting).findings] == [True]
    assert report.problems == []
