"""A reconciliation: what is found is made good, the index kept, and nothing done on a bad read."""

import threading
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from leeway.execution.attempt import Phase
from leeway.instances.observed import (
    ObservedChange,
    ObservedHook,
    ObservedInstance,
    ObservedInterruption,
)
from leeway.instances.owners import Owner, OwnerKind
from leeway.interruption.receive_notice import NoticeOutcome
from leeway.interruption.receive_notice import NoticeResult as Became
from leeway.notices import InterruptionAction, LifecycleHook, NoticeKind
from leeway.policy.rules import DEFAULTS, Action, ClusterPolicy
from leeway.ports.aws import CloudUnavailable, HookResult
from leeway.ports.kubernetes_objects import Node
from leeway.reconciliation.clean_up import CleanUpResult
from leeway.reconciliation.find_lost_events import HANDS
from leeway.reconciliation.reconcile import Round, parse_round
from leeway.retirement.record import Retirement
from leeway.retirement.replacement_intent import Method, ReplacementIntent

from tests.reconciliation.reconciling import OURS, OneCluster, World, facts, gone, node, run, seen
from tests.retirement.retirements import HOOK, NOTICED, at, take


def test_a_quiet_minute_finds_nothing_and_writes_nothing() -> None:
    quiet = World([seen()], index={OURS.instance: OURS})
    report = run(quiet)
    assert (report.found, report.cleaned, report.problems) == ([], [], [])
    assert (quiet.written, quiet.removed, quiet.received) == ([], [], [])


def test_the_index_gets_what_differs_and_loses_what_is_gone() -> None:
    other, gone = facts(2), facts(3)
    detached = OURS.model_copy(update={"owner": Owner(OwnerKind.NONE)})
    changed = World([seen(), seen(other)], index={one.instance: one for one in (detached, gone)})
    report = run(changed)
    assert changed.index == {OURS.instance: OURS, other.instance: other}
    assert (report.written, report.removed) == (2, 1)


def test_an_instance_that_is_gone_keeps_in_the_index_the_names_that_ec2_tells_no_more() -> None:
    nameless = OURS.model_copy(update={"private_dns_name": ""})
    ended = World([seen(nameless, "terminated")], index={OURS.instance: OURS})
    assert run(ended).written == 0
    assert ended.index == {OURS.instance: OURS}
    young = World([seen(nameless, "terminated")])
    assert run(young).written == 1


def test_hooks_interruptions_and_detached_instances_that_nobody_told_of_are_received() -> None:
    waiting, marked = facts(2), facts(3)
    detached = DETACHED
    silent = World(
        [seen(waiting), seen(marked), seen(detached)],
        records=[left_running()],
        marked=[ObservedInterruption(marked.instance, InterruptionAction.TERMINATE, NOTICED)],
        hooks=[ObservedHook(waiting.instance, HOOK, launching=False)],
    )
    report = run(silent)
    assert {n.instances[0]: n.kind for n in silent.received} == {
        waiting.instance: NoticeKind.TERMINATE_HOOK,
        marked.instance: NoticeKind.SPOT_INTERRUPTION,
        detached.instance: NoticeKind.REBALANCE,
    }
    assert len(report.found) == 3
    assert all("first notice" in found.done for found in report.found)


def managed(*hooks: LifecycleHook, launching: bool = False) -> World:
    """An instance of a managed node group, in whose Auto Scaling group it waits for hooks."""
    theirs = facts(1, owner=Owner(OwnerKind.MANAGED_NODE_GROUP, "general"))
    waiting = [ObservedHook(theirs.instance, hook, launching) for hook in hooks]
    return World([seen(theirs, group="eks-general-5f1c")], hooks=waiting)


TAKEN = ClusterPolicy(retires_for=frozenset({OwnerKind.MANAGED_NODE_GROUP}))
THEIRS = LifecycleHook("eks-general-5f1c", "drain")


@pytest.mark.parametrize("launching", [True, False])
def test_hooks_of_managed_node_groups_are_found_where_the_policy_takes_these(
    launching: bool,
) -> None:
    world = managed(THEIRS, launching=launching)
    run(world)
    assert world.received == []
    world.policy = TAKEN
    run(world)
    (notice,) = world.received
    assert notice.hook == THEIRS
    assert notice.kind is (NoticeKind.LAUNCH_HOOK if launching else NoticeKind.TERMINATE_HOOK)


def test_ekss_own_hook_tells_that_its_node_is_to_be_drained_and_is_never_answered() -> None:
    own = LifecycleHook("eks-general-5f1c", "Terminate-LC-Hook")
    world = managed(own)
    world.policy = TAKEN
    run(world)
    assert [notice.kind for notice in world.received] == [NoticeKind.TERMINATE_HOOK]
    record = take(None, NoticeKind.TERMINATE_HOOK, "n-1").record
    for phase in (Phase.RUNNING, Phase.FINISHED):
        here = {"facts": world.instances_[0].facts, "phase": phase}
        world.records = [at(record, phase).model_copy(update=here)]
        assert run(world).found == []
    declined = take(None, NoticeKind.REBALANCE, "n-1").record
    world.records = [declined.model_copy(update=here)]
    assert len(run(world).found) == 1
    coming = managed(LifecycleHook("eks-general-5f1c", "Launch-LC-Hook"), launching=True)
    coming.policy = TAKEN
    assert run(coming).found == []


def unheeded(*kinds: NoticeKind) -> ClusterPolicy:
    ignored = {kind: replace(DEFAULTS[kind], action=Action.IGNORE) for kind in kinds}
    return ClusterPolicy(notices={**DEFAULTS, **ignored})


def test_what_the_policy_ignores_is_not_found_once_a_minute() -> None:
    waiting = ObservedHook(OURS.instance, HOOK, launching=False)
    marked = ObservedInterruption(OURS.instance, InterruptionAction.TERMINATE, NOTICED)
    world = World([seen()], hooks=[waiting], marked=[marked])
    world.policy = unheeded(NoticeKind.TERMINATE_HOOK, NoticeKind.SPOT_INTERRUPTION)
    assert run(world).found == []
    rehearsed = World([seen()], hooks=[replace(waiting, launching=True)])
    rehearsed.policy = ClusterPolicy(dry_run=True)
    assert run(rehearsed).found == []


def test_a_storm_whose_warnings_got_lost_is_received_by_many_hands_at_once() -> None:
    together = threading.Barrier(HANDS, timeout=20)

    class Patient(World):
        def receive(self, event: Any, begun: Action | None = None) -> NoticeOutcome:
            together.wait()
            return super().receive(event, begun)

    storm = [facts(number) for number in range(4 * HANDS)]
    marks = [ObservedInterruption(f.instance, InterruptionAction.TERMINATE, NOTICED) for f in storm]
    world = Patient([seen(one) for one in storm], marked=marks)
    report = run(world)
    assert [found.instance for found in report.found] == [one.instance for one in storm]
    assert report.problems == []


def test_what_somebody_said_after_all_was_not_lost() -> None:
    marked = ObservedInterruption(OURS.instance, InterruptionAction.TERMINATE, NOTICED)
    world = World([seen()], marked=[marked], result=Became.KNOWN)
    assert run(world).found == []
    assert len(world.received) == 1


@pytest.mark.parametrize("state", ["stopping", "stopped", "shutting-down"])
def test_an_instance_that_stops_or_ends_unheard_is_seen_to(state: str) -> None:
    world = World([seen(state=state)])
    run(world)
    assert [(n.kind, n.state) for n in world.received] == [(NoticeKind.STATE_CHANGE, state)]
    world.policy = unheeded(NoticeKind.STATE_CHANGE)
    assert run(world).found == []


def stopped_before(**changes: Any) -> World:
    """An instance that was stopped, and runs again, on a node that is marked as retiring."""
    record = take(None, NoticeKind.STATE_CHANGE, "n-1", state="stopped").record
    ended = record.model_copy(update={"facts": OURS, "phase": Phase.FINISHED})
    again = ObservedInstance(OURS, "running", NOTICED + timedelta(seconds=60), "ng")
    cluster = OneCluster(marked=[OURS.private_dns_name])
    world = World([again], records=[ended], index={OURS.instance: OURS}, clusters={"prod": cluster})
    world.under_way = False
    return replace(world, **changes)


def test_an_instance_that_was_stopped_and_runs_again_unheard_has_its_node_freed() -> None:
    world = stopped_before()
    report = run(world)
    assert [(n.kind, n.state) for n in world.received] == [(NoticeKind.STATE_CHANGE, "running")]
    assert "runs again" in report.found[0].reason


def test_only_a_node_that_is_marked_as_retiring_is_asked_about() -> None:
    world = stopped_before(fails={"known"}, clusters={"prod": OneCluster()})
    assert run(world).problems == []
    assert world.received == []


def test_a_rebooted_node_that_nothing_succeeds_is_freed_and_not_while_changes_are_unread() -> None:
    starts_at = NOTICED + timedelta(minutes=1)
    told_of = {"event": "arn:aws:health:us-east-1::event/1", "effective_at": starts_at}
    record = take(None, NoticeKind.SCHEDULED_CHANGE, "n-1", **told_of).record
    drained = at(record.model_copy(update={"facts": OURS}), Phase.FINISHED)
    rebooted = ObservedChange(
        OURS.instance, "instance-event-0abc", "system-reboot", starts_at, True
    )
    never_stopped = ObservedInstance(OURS, "running", NOTICED - timedelta(days=9))
    for fails in (set(), {"changes"}):
        world = stopped_before(records=[drained], changes_=[rebooted], fails=fails)
        world.instances_ = [never_stopped]
        run(world)
        assert [n.over for n in world.received] == ([] if fails else [{OURS.instance}])


def scheduled(**changes: Any) -> World:
    """A change that EC2 has scheduled, an hour before it, as nobody has said."""
    starts_at = NOTICED + timedelta(hours=1)
    change = ObservedChange(OURS.instance, "instance-event-0abc", "instance-retirement", starts_at)
    other = replace(change, instance="i-0ffffffffffffffff")
    return replace(World([seen()], changes_=[change, other]), **changes)


def test_a_scheduled_change_that_nobody_told_of_is_found_from_its_lead_on() -> None:
    world = scheduled()
    run(world)
    (notice,) = world.received
    assert (notice.kind, notice.instances) == (NoticeKind.SCHEDULED_CHANGE, (OURS.instance,))
    assert notice.effective_at == NOTICED + timedelta(hours=1)
    early = scheduled(now_=NOTICED - timedelta(hours=4))
    assert run(early).found == []
    assert run(scheduled(policy=unheeded(NoticeKind.SCHEDULED_CHANGE))).found == []


def waiting_since(event: str) -> World:
    """A retirement that waits for its turn since EC2 announced a change."""
    at = NOTICED + timedelta(hours=1)
    told = take(None, NoticeKind.SCHEDULED_CHANGE, "n-1", event=event, effective_at=at)
    record = told.record.model_copy(update={"facts": OURS})
    return scheduled(records=[record], now_=NOTICED + timedelta(minutes=30))


def test_a_scheduled_change_that_is_called_off_unheard_is_undone() -> None:
    world = waiting_since("instance-event-0abc")
    assert run(world).found == [], "it is still to come"
    world.changes_.clear()
    run(world)
    (notice,) = world.received
    assert (notice.over, notice.event) == ({OURS.instance}, "instance-event-0abc")


def test_nothing_is_called_off_because_it_could_not_be_read_or_health_said_it() -> None:
    blind = waiting_since("instance-event-0abc")
    blind.fails = {"changes"}
    assert [p.split(":")[0] for p in run(blind).problems] == ["scheduled events"]
    told = waiting_since("arn:aws:health:us-east-1::event/EC2/RETIREMENT/1")
    told.changes_.clear()
    run(told)
    assert blind.received == told.received == []


def test_a_spot_request_of_an_instance_that_runs_no_more_is_history() -> None:
    marked = ObservedInterruption(OURS.instance, InterruptionAction.TERMINATE, NOTICED)
    assert len(run(World([seen()], marked=[marked])).found) == 1
    for state in ("shutting-down", "terminated"):
        record = take(None, NoticeKind.STATE_CHANGE, "n-1", state=state).record
        told = record.model_copy(update={"facts": OURS, "phase": Phase.RUNNING})
        assert run(World([seen(state=state)], marked=[marked], records=[told])).found == []


DETACHED = facts(4, owner=Owner(OwnerKind.NONE))


def left_running(**changes: Any) -> Retirement:
    """A retirement that detached its instance, and ended without terminating it."""
    intent = ReplacementIntent(
        method=Method.DETACH, reason="no hook", asked_at=NOTICED, group="ng", detached=True
    )
    ended = {
        "facts": DETACHED,
        "phase": Phase.FINISHED,
        "ended_at": NOTICED,
        "replacement_intent": intent,
    }
    return take(None, NoticeKind.REBALANCE, "n-1").record.model_copy(update=ended | changes)


def test_whatever_tags_an_instance_outside_any_group_has_it_is_not_ended() -> None:
    """Who may tag instances can say that any is one of the cluster, and was detached."""
    tagged = World([seen(DETACHED)])
    assert run(tagged).found == []
    assert tagged.received == []
    of_others = left_running(replacement_intent=None)
    retired = World([seen(DETACHED)], records=[of_others])
    retired.under_way = False
    assert run(retired).found == []


def test_a_detached_instance_that_still_runs_is_retired_again() -> None:
    left = World([seen(DETACHED)], records=[left_running()])
    (found,) = run(left).found
    assert "it was detached from its group" in found.reason
    assert [notice.kind for notice in left.received] == [NoticeKind.REBALANCE]
    assert left.begun == [Action.RETIRE]


def test_a_detached_instance_is_asked_about_by_its_id_whatever_its_tags_are_by_now() -> None:
    renamed = World([], records=[left_running()], fresh={DETACHED.instance: "running"})
    run(renamed)
    assert [notice.kind for notice in renamed.received] == [NoticeKind.REBALANCE]
    assert renamed.asked == [[DETACHED.instance]]


def test_a_detached_instance_that_ended_since_it_was_listed_is_not_drained_again() -> None:
    listed = World([seen(DETACHED)], records=[left_running()])
    listed.fresh[DETACHED.instance] = "shutting-down"
    run(listed)
    assert [notice.state for notice in listed.received] == ["shutting-down"]


def test_a_detached_instance_that_is_in_a_group_again_is_left_to_it() -> None:
    kept = World([seen(DETACHED, group="others")], records=[left_running()])
    assert run(kept).found == []


def test_a_dry_run_does_not_rehearse_the_end_of_a_detached_instance_once_a_minute() -> None:
    left = World([seen(DETACHED)], records=[left_running()], policy=ClusterPolicy(dry_run=True))
    run(left)
    assert left.received == []


def test_the_next_run_finds_the_same_and_says_it_with_the_same_ids() -> None:
    silent = World([seen()], hooks=[ObservedHook(OURS.instance, HOOK, launching=False)])
    run(silent)
    run(silent)
    first, second = silent.received
    assert first.id == second.id


def test_a_hook_that_was_only_rehearsed_is_worked_on_once_dry_run_is_off() -> None:
    record = take(None, NoticeKind.TERMINATE_HOOK, "n-1", hook=HOOK).record
    rehearsed = record.model_copy(update={"facts": OURS, "phase": Phase.FINISHED})
    waiting = World([seen()], hooks=[ObservedHook(OURS.instance, HOOK, launching=False)])
    waiting.records = [rehearsed]
    waiting.policy = ClusterPolicy(dry_run=True)
    run(waiting)
    assert waiting.received == []
    waiting.policy = ClusterPolicy()
    run(waiting)
    assert [n.hook for n in waiting.received] == [HOOK]
    assert waiting.answers == []


def test_a_hook_whose_retirement_has_ended_is_answered() -> None:
    record = take(None, NoticeKind.TERMINATE_HOOK, "n-1", hook=HOOK).record
    ended = at(record.model_copy(update={"facts": OURS, "ended_at": NOTICED}), Phase.FINISHED)
    waiting = World([seen()], hooks=[ObservedHook(OURS.instance, HOOK, launching=False)])
    waiting.records = [ended]
    waiting.under_way = False
    report = run(waiting)
    assert waiting.answers == [(OURS.instance, HOOK.name, HookResult.CONTINUE)]
    waiting.over = True
    assert [found.done for found in run(waiting).found] == [f"{HOOK.name} waits no more"]
    assert report.problems == []


def test_a_hook_that_waits_days_after_its_answer_is_worked_on_anew() -> None:
    record = take(None, NoticeKind.TERMINATE_HOOK, "n-1", hook=HOOK).record
    ended = at(record.model_copy(update={"facts": OURS, "ended_at": NOTICED}), Phase.FINISHED)
    waiting = World([seen()], hooks=[ObservedHook(OURS.instance, HOOK, launching=False)])
    waiting.records, waiting.under_way = [ended], False
    waiting.now_ = NOTICED + timedelta(days=3)
    run(waiting)
    assert waiting.answers == []
    assert [notice.hook for notice in waiting.received] == [HOOK]


def test_a_start_that_was_lost_is_made_again_under_the_same_name() -> None:
    record = take(None, NoticeKind.SPOT_INTERRUPTION, "n-1").record
    lost = World([seen()], records=[record.model_copy(update={"facts": OURS})])
    run(lost)
    assert lost.started == [(OURS.instance, "prod", 1)]
    assert lost.received == []


def test_instances_of_owners_that_retire_their_own_are_left_alone() -> None:
    managed = facts(1, owner=Owner(OwnerKind.KARPENTER, "default"))
    mark = ObservedInterruption(managed.instance, InterruptionAction.TERMINATE, NOTICED)
    theirs = World([seen(managed)], marked=[mark])
    run(theirs)
    assert theirs.received == []
    theirs.policy = ClusterPolicy(retires_for=frozenset({OwnerKind.KARPENTER}))
    run(theirs)
    assert len(theirs.received) == 1


def test_a_cluster_that_is_down_stops_neither_the_others_nor_its_own_notices() -> None:
    here, there = facts(1, "blue"), facts(2, "green")
    clusters = {"blue": OneCluster(down=True), "green": OneCluster()}
    clusters["green"].nodes[there.private_dns_name] = node(there)
    both = World(
        [seen(here), seen(there, "terminated")],
        marked=[ObservedInterruption(here.instance, InterruptionAction.TERMINATE, NOTICED)],
        fresh={there.instance: "terminated"},
        index={there.instance: there, "i-0dead": facts(7, "blue")},
        clusters=clusters,
    )
    blue, green = both.reconciliation().run(Round())
    assert [found.instance for found in blue.found] == [here.instance]
    assert "connection refused" in blue.problems[0]
    assert green.problems == []
    assert [one.result for one in green.cleaned] == [CleanUpResult.CLEANED]
    assert "i-0dead" in both.index, "nobody knows whether its Node is gone"
    assert both.index[here.instance] == here


def fleet(down: int, answering: int) -> tuple[World, threading.Event]:
    """Clusters of which the first do not answer until all others have been cleaned up after."""
    cleaned, over = threading.Semaphore(0), threading.Event()

    def wait() -> None:
        for _ in range(answering):
            assert cleaned.acquire(timeout=20), "the others wait behind one that does not answer"
            cleaned.release()
        over.set()

    class Answering(OneCluster):
        def delete_node(self, node: Node) -> bool:
            cleaned.release()
            return super().delete_node(node)

    world = World(clusters={f"a{n:02}": OneCluster(waits_for=wait) for n in range(down)})
    for number in range(answering):
        left = facts(number, f"b{number:02}")
        world.clusters[left.cluster] = Answering({left.private_dns_name: node(left)})
        world.instances_.append(seen(left, "terminated"))
        world.fresh[left.instance] = "terminated"
    return world, over


@pytest.mark.parametrize(("down", "answering"), [(5, 15), (19, 1)])
def test_clusters_that_do_not_answer_keep_no_other_waiting(down: int, answering: int) -> None:
    world, over = fleet(down, answering)
    reports = world.reconciliation().run(Round())
    assert over.is_set()
    silent, others = reports[:down], reports[down:]
    assert (len(silent), len(others)) == (down, answering)
    assert all("read timed out" in report.problems[0] for report in silent)
    assert all(one.cleaned[0].result is CleanUpResult.CLEANED for one in others)
    assert not any(one.problems for one in others)


def test_a_run_does_not_go_on_cleaning_up_for_longer_than_until_the_next() -> None:
    slow = World()

    class Slow(OneCluster):
        def delete_node(self, node: Node) -> bool:
            slow.sleep(10)
            return super().delete_node(node)

    cluster = slow.clusters["prod"] = Slow()
    for number in range(6 * HANDS):
        left = facts(number)
        slow.instances_.append(seen(left, "terminated"))
        slow.index[left.instance] = left
        cluster.nodes[left.private_dns_name] = node(left)
    cleaned = len(run(slow).cleaned)
    assert 4 <= cleaned <= 4 + HANDS
    assert len(cluster.nodes) == 6 * HANDS - cleaned
    slow.instances_.clear()
    cleaned += len(run(slow).cleaned)
    assert len(slow.index) == 6 * HANDS - cleaned, "what was not cleaned up is not forgotten"
    while slow.index:
        assert run(slow).cleaned
    assert cluster.nodes == {}


def test_what_owners_that_retire_their_own_leave_is_theirs_to_clean_up() -> None:
    theirs = OURS.model_copy(update={"owner": Owner(OwnerKind.KARPENTER, "default")})
    world = gone(instances_=[seen(theirs, "terminated")], index={OURS.instance: theirs})
    assert run(world).cleaned == []
    assert world.clusters["prod"].vouched == []
    world.policy = ClusterPolicy(retires_for=frozenset({OwnerKind.KARPENTER}))
    assert [one.result for one in run(world).cleaned] == [CleanUpResult.CLEANED]


def test_a_cluster_that_fails_as_nobody_foresaw_stops_no_other_and_says_where() -> None:
    here, there = facts(1, "blue"), facts(2, "green")
    both = World(
        [seen(here), seen(there, "terminated")],
        fresh={there.instance: "terminated"},
        clusters={name: OneCluster() for name in ("blue", "green")},
        breaks={"policy of blue"},
    )
    both.clusters["green"].nodes[there.private_dns_name] = node(there)
    blue, green = both.reconciliation().run(Round())
    assert blue.problems[0].startswith("the cluster: KeyError: 'policy of blue' (reconciling.py:")
    assert (green.problems, green.cleaned[0].result) == ([], CleanUpResult.CLEANED)


def test_a_cluster_that_does_not_exist_is_a_problem_of_its_own() -> None:
    report = run(World(clusters={}), "missing")
    assert "No cluster found" in report.problems[0]


@pytest.mark.parametrize(
    "part", ["interruptions", "changes", "hooks", "records", "index", "update", "known"]
)
@pytest.mark.parametrize("how", ["fails", "breaks"])
def test_what_cannot_be_read_is_said_and_the_rest_goes_on(part: str, how: str) -> None:
    waiting = facts(2)
    left = gone(**{how: {part}})
    left.instances_.append(seen(waiting))
    left.hooks.append(ObservedHook(waiting.instance, HOOK, launching=False))
    report = run(left)
    assert len(report.problems) == 1
    assert {"fails": "RequestLimitExceeded", "breaks": "KeyError"}[how] in report.problems[0]
    if part != "index":
        assert [one.result for one in report.cleaned] == [CleanUpResult.CLEANED]


def test_a_record_that_nobody_understands_is_said_and_the_others_are_looked_at() -> None:
    record = take(None, NoticeKind.SPOT_INTERRUPTION, "n-1").record
    lost = World([seen()], records=[record.model_copy(update={"facts": OURS})])
    lost.unread = ("INSTANCE#i-0dead RETIREMENT: kind: Input should be 'rebalance'",)
    report = run(lost)
    assert report.problems == [f"records: {lost.unread[0]}"]
    assert lost.started == [(OURS.instance, "prod", 1)]


def test_instances_that_cannot_be_listed_stop_the_run_before_anything_is_done() -> None:
    blind = gone(fails={"instances"})
    with pytest.raises(CloudUnavailable):
        blind.reconciliation().run(Round())
    assert blind.index == {OURS.instance: OURS}
    assert blind.clusters["prod"].deleted == []


def test_a_dry_run_answers_no_hook_and_cleans_up_nothing() -> None:
    rehearsed = gone(policy=ClusterPolicy(dry_run=True))
    report = run(rehearsed)
    assert report.cleaned == []
    assert rehearsed.clusters["prod"].vouched == []


def test_what_starts_the_function_is_a_tick_or_an_instance_and_nothing_else() -> None:
    assert parse_round({}) == Round()
    assert parse_round({"instance": OURS.instance, "cluster": "prod"}).instance == OURS.instance
    with pytest.raises(ValueError, match="instance"):
        parse_round({"instance": "; rm -rf /"})


def test_volumes_are_waited_for_after_one_instance_and_not_by_a_tick_that_has_many_to_see_to() -> (
    None
):
    stuck = gone()
    stuck.clusters["prod"].stuck = True
    before = stuck.now_
    run(stuck)
    assert stuck.now_ == before
    stuck.reconciliation().run(Round(OURS.instance, "prod"))
    assert timedelta(seconds=20) < stuck.now_ - before < timedelta(seconds=30)
