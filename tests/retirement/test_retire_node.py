"""Retirements whose ports fail or refuse: retries have pauses, and the outcome says why."""

import json
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest
from leeway.notices import NoticeKind
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.ports.kubernetes_objects import Pod
from leeway.retirement.cordon import CordonResult
from leeway.retirement.finish import RetirementProgress
from leeway.retirement.outcome import EVENT_LIMIT, RetirementResult
from leeway.retirement.plan import LONGEST_TERMINATION_PAUSE, NO_PAUSE_BEFORE_DEADLINE
from leeway.retirement.progress import Drain, PodProgress, Stage
from leeway.retirement.reasons import POD_EVICTED, REPLACEMENT_DECIDED
from leeway.retirement.record import ReplacementIntent
from leeway.retirement.replace import ReplacementResult
from leeway.table import Key

from tests.fakes.failing import failing
from tests.fakes.retirement import retire, retirement_fakes
from tests.retirement.retirements import HOOK, NOTICED

POD = Pod("shop", "web-1", "u-1", "Running", 30, None)


def test_a_retirement_without_failures_needs_no_attention() -> None:
    fakes = retirement_fakes()
    outcome = retire(fakes)
    assert (outcome.result, outcome.replacement) == (RetirementResult.DRAINED, "detach")
    assert fakes.actions.ended == ["terminated"]
    assert not outcome.needs_attention


def test_the_record_says_whether_the_node_is_empty() -> None:
    empty = retirement_fakes(pods=[POD], blocks=False)
    retire(empty)
    assert empty.record.left_empty_node
    record = empty.record.model_copy(update={"node_is_empty": False})
    blocked = retirement_fakes(NoticeKind.REBALANCE, pods=[POD], hooks=("leeway-drain",))
    retire(blocked)
    assert not blocked.record.left_empty_node
    gone = PodProgress("shop/db-0", "u-2", "db", Stage.GONE, POD_EVICTED(), attached=("shop/data",))
    cordoned = CordonResult(True, empty.record, "node", "uid")
    replacement = ReplacementResult(
        True,
        empty.record,
        REPLACEMENT_DECIDED("An earlier attempt requested the successor from group ng."),
    )
    for pod, is_empty in ((gone, False), (replace(gone, attached=()), True)):
        drain = Drain(listed=True, pods={"u-2": pod})
        progress = RetirementProgress(cordoned, replacement, drain)
        assert progress.drained
        assert progress.leaves_empty_node(record) is is_empty
    not_found = RetirementProgress(replace(cordoned, node=""), replacement)
    assert not_found.drained
    assert not not_found.leaves_empty_node(record), "the node may have joined later"


def test_a_refused_replacement_is_retried_with_pauses_and_reported() -> None:
    unsupported = {"launch_unsupported": "has a warm pool"}
    refusing = retirement_fakes(NoticeKind.REBALANCE, detaches=False, overrides=unsupported)
    outcome = retire(refusing)
    assert outcome.replacement == "failed"
    assert "AccessDenied" in outcome.replacement_reason.message
    assert outcome.needs_attention
    assert refusing.steps.operations < 500, "a durable execution has at most 3,000 operations"
    assert refusing.groups.detach_requests < 250, (
        "in 10 minutes without a successor, and 30 of the drain"
    )
    assert refusing.actions.ended == []


def test_an_instance_is_terminated_although_finalizers_keep_a_pod() -> None:
    ended = replace(POD, deletion=NOTICED, kept_by=("backups.example.com/upload",))
    fakes = retirement_fakes(pods=[ended])
    outcome = retire(fakes)
    assert (outcome.result, fakes.actions.ended) == (RetirementResult.DRAINED, ["terminated"])
    assert "its finalizers keep the object: backups.example.com/upload (pod shop/web-1)" in (
        outcome.summary.message
    )


def test_a_failed_cordon_is_retried_until_it_succeeds() -> None:
    refusing = retirement_fakes(cordons_refused=5, pods=[POD], blocks=False)
    outcome = retire(refusing)
    assert outcome.result is RetirementResult.DRAINED
    assert refusing.actions.order_of("cordon", "evict") == ["cordon", "evict"]


def test_a_cordon_that_never_succeeds_is_reported_in_the_outcome() -> None:
    refusing = retirement_fakes(cordons_refused=10_000, pods=[POD], blocks=False)
    outcome = retire(refusing)
    assert outcome.result is RetirementResult.INCOMPLETE
    assert "cannot patch resource" in outcome.reason.message
    assert outcome.needs_attention
    assert refusing.steps.operations < 500


@pytest.mark.parametrize("kind", [NoticeKind.SPOT_INTERRUPTION, NoticeKind.TERMINATE_HOOK])
def test_a_retirement_without_a_list_of_its_pods_ends_at_its_deadline(
    kind: NoticeKind,
) -> None:
    blind = retirement_fakes(kind, lists=False)
    outcome = retire(blind)
    assert outcome.result is RetirementResult.INCOMPLETE
    assert "cannot list resource" in outcome.reason.message
    assert outcome.deadline is not None
    assert outcome.ended_at is not None
    assert timedelta(0) <= outcome.ended_at - outcome.deadline < timedelta(seconds=15)
    assert blind.steps.operations < 2500
    assert any("cannot list resource" in one.message for one in blind.reports.reasons)


def test_a_refused_hook_answer_is_reported_and_retried_at_the_end() -> None:
    refusing = retirement_fakes(NoticeKind.TERMINATE_HOOK, answers_refused=3)
    outcome = retire(refusing)
    assert outcome.result is RetirementResult.DRAINED
    (refused,) = outcome.refused
    assert refused.code == "HookAnswerRefused"
    assert "CompleteLifecycleAction" in refused.message
    assert outcome.needs_attention
    assert refusing.reports.codes[-1] == "NodeDrained"
    assert refusing.actions.ended == [HOOK.name], "it is answered when the role has the right"


def test_a_refused_hook_answer_is_retried_until_the_hook_times_out() -> None:
    refusing = retirement_fakes(NoticeKind.TERMINATE_HOOK, answers_refused=1_000, timeout=7200)
    retire(refusing)
    assert refusing.clock.time - NOTICED > timedelta(seconds=7200)
    assert refusing.steps.operations < 300


def test_a_refused_hook_answer_is_not_given_to_the_hooks_next_action() -> None:
    """An instance of a warm pool may wait for the same hook a second time."""
    refusing = retirement_fakes(NoticeKind.TERMINATE_HOOK, answers_refused=1_000, timeout=300)
    outcome = retire(refusing)
    assert outcome.refused
    assert timedelta(seconds=300) < refusing.clock.time - NOTICED < timedelta(seconds=400)


@pytest.mark.parametrize("kind", [NoticeKind.TERMINATE_HOOK, NoticeKind.SPOT_INTERRUPTION])
def test_a_hook_with_a_notification_target_gets_neither_answer_nor_heartbeat(
    kind: NoticeKind,
) -> None:
    fakes = retirement_fakes(kind, pods=[POD], blocks=False, ends_in=60, with_target=(HOOK.name,))
    fakes.amend(hooks=(HOOK,))
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.DRAINED
    assert fakes.groups.heartbeats == []
    assert fakes.groups.answers == 0


def test_a_hook_whose_settings_cannot_be_read_is_answered() -> None:
    """Its notice came by EventBridge, and nothing shows that it notifies another target."""
    blind = retirement_fakes(NoticeKind.TERMINATE_HOOK)
    refused = CloudRefused("AccessDenied: autoscaling:DescribeLifecycleHooks")
    failing(blind.groups, "rules", refused)
    failing(blind.groups, "hook_settings", refused)
    retire(blind)
    assert blind.actions.ended == [HOOK.name]


@pytest.mark.parametrize("timeout", [30, 1728])
def test_heartbeats_keep_the_hook_open_while_a_budget_blocks_the_drain_for_48_hours(
    timeout: int,
) -> None:
    blocked = retirement_fakes(NoticeKind.TERMINATE_HOOK, timeout=timeout, pods=[POD])
    in_48_hours = NOTICED + timedelta(hours=48)
    blocked.amend(deadline=in_48_hours)
    outcome = retire(blocked)
    assert outcome.ended_at is not None
    waited = outcome.ended_at - NOTICED
    longest = min(timedelta(hours=48), 100 * timedelta(seconds=timeout))
    assert longest - timedelta(minutes=1) < waited < longest, "and the pod is deleted in time"
    assert outcome.deleted == 1
    assert outcome.result is RetirementResult.DRAINED
    assert blocked.actions.ended == [HOOK.name], "the hook was still open"
    assert blocked.steps.operations < 2500, "a durable execution has at most 3,000 operations"
    beats = [b - a for a, b in pairwise([NOTICED, *blocked.groups.heartbeats])]
    assert max(beats) < timedelta(seconds=timeout)
    assert len(beats) < 210, "no more than the hook's timeout requires"


def test_heartbeats_keep_a_hook_open_whose_timeout_cannot_be_read() -> None:
    fakes = retirement_fakes(NoticeKind.TERMINATE_HOOK, timeout=1728, pods=[POD])
    fakes.amend(deadline=NOTICED + timedelta(hours=48))

    def fails_for(call: str, time: timedelta) -> None:
        error = CloudUnavailable("Throttling: Rate exceeded")
        failing(fakes.groups, call, error, lambda: fakes.clock.time < NOTICED + time)

    fails_for("heartbeat", timedelta(minutes=20))
    fails_for("rules", timedelta(hours=47))
    outcome = retire(fakes)
    assert outcome.deleted == 1
    deleted = next(at for what, at in fakes.actions.done if what == "delete")
    assert deleted - NOTICED > timedelta(hours=47, minutes=58)
    assert fakes.actions.ended == [HOOK.name], "the hook was still open"
    assert fakes.steps.operations < 2500, "a durable execution has at most 3,000 operations"


def test_a_failed_request_of_an_earlier_attempt_does_not_date_a_later_hook() -> None:
    fakes = retirement_fakes(NoticeKind.TERMINATE_HOOK, pods=[POD], timeout=30)
    hours_ago = NOTICED - timedelta(hours=5)
    intent = ReplacementIntent(
        method="terminate-in-group",
        reason=REPLACEMENT_DECIDED("An earlier attempt requested the successor from group ng."),
        requested_at=hours_ago,
    )
    fakes.amend(replacement_intent=intent)
    outcome = retire(fakes)
    assert outcome.deleted == 1
    deleted = next(at for what, at in fakes.actions.done if what == "delete")
    assert deleted - NOTICED > timedelta(minutes=45), "as long as the hook stays open"
    assert fakes.actions.ended == [HOOK.name]


def test_an_interruption_of_some_seconds_sends_no_heartbeat() -> None:
    quick = retirement_fakes(NoticeKind.SPOT_INTERRUPTION)
    retire(quick)
    assert quick.groups.heartbeats == []


def test_a_refused_leeway_event_does_not_prevent_the_other_reports() -> None:
    silent = retirement_fakes(refuses=True)
    retire(silent)
    assert silent.reports.codes == ["NodeDrained", "NodeDrained", "RetirementNotReported"]


def test_the_progress_of_a_blocked_drain_is_written_every_pass() -> None:
    blocked = retirement_fakes(pods=[POD])
    assert retire(blocked).result is RetirementResult.DRAINED
    assert 1 < len(blocked.fast.states) < 15, "in 115 seconds, with passes of ten"
    assert all(a.pods != b.pods for a, b in pairwise(blocked.fast.states)), (
        "every write has a change"
    )
    assert [pod.stage for pod in blocked.fast.states[0].pods] == [Stage.BLOCKED]
    assert [pod.stage for pod in blocked.fast.states[-1].pods] == [Stage.GONE]


def test_an_event_of_a_thousand_pods_lists_the_pods_that_failed_first() -> None:
    outcome = retire(retirement_fakes(pods=[POD], blocks=False))
    (went,) = outcome.pods
    assert json.loads(outcome.to_json())["pods_left_out"] == 0
    many = [replace(went, uid=f"u-{number}", pod=f"shop/web-{number}") for number in range(1000)]
    many[-1] = replace(many[-1], stage=Stage.FAILED)
    event = replace(outcome, pods=tuple(many)).to_json()
    assert len(event.encode()) <= EVENT_LIMIT
    detail = json.loads(event)
    assert detail["pods"][0]["pod"] == "shop/web-999"
    assert len(detail["pods"]) + detail["pods_left_out"] == 1000
    assert len(detail["pods"]) > 200
    assert detail["message"].startswith("Node node-1 is drained after notice spot-interruption;")


def test_the_summary_counts_pods_whose_volumes_stayed_attached() -> None:
    outcome = retire(retirement_fakes())
    assert "volumes" not in outcome.summary.message
    attached = replace(outcome, still_attached=("shop/db-0",)).summary.message
    assert "Pods whose volumes were still attached at the end: 1." in attached


def test_the_record_is_read_once_before_the_cordon() -> None:
    fakes = retirement_fakes(pods=[POD], blocks=False)
    reads: list[str] = []

    def counting(operation: str, key: Key) -> None:
        if operation == "get" and key[1] == "RETIREMENT":
            reads.append(",".join(fakes.actions.order_of("cordon")))

    fakes.table.before = counting
    retire(fakes)
    assert reads == [""], "the drain uses the record that was just written"


def test_a_retirement_without_waits_has_five_operations() -> None:
    fakes = retirement_fakes(pods=[POD], blocks=False)
    retire(fakes)
    assert fakes.steps.names == ["cordon", "request-replacement", "drain-1", "finish", "report"]


def test_the_progress_of_a_short_drain_is_not_written() -> None:
    fakes = retirement_fakes(pods=[POD], blocks=False)
    outcome = retire(fakes)
    assert fakes.fast.states == []
    assert [pod.stage for pod in outcome.pods] == [Stage.GONE]


def test_the_progress_of_a_long_drain_is_written_to_its_end() -> None:
    fakes = retirement_fakes(pods=[replace(POD, grace=45)], blocks=False, ends_in=40)
    retire(fakes)
    assert [[p.stage for p in state.pods] for state in fakes.fast.states][-1] == [Stage.GONE]


def test_an_event_bus_that_is_unavailable_does_not_delay_the_other_reports() -> None:
    fakes = retirement_fakes()
    failing(fakes.events, "publish", CloudUnavailable("EventBridge"))
    with pytest.raises(CloudUnavailable):
        fakes.run_attempt()
    assert fakes.reports.codes == ["NodeDrained", "NodeDrained"]


def test_a_drain_is_suspended_while_its_pods_terminate() -> None:
    fakes = retirement_fakes(pods=[replace(POD, grace=45)], blocks=False, ends_in=40)
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.DRAINED
    (pod,) = outcome.pods
    assert pod.gone_at is not None
    assert pod.requested_at is not None
    took = pod.gone_at - pod.requested_at
    assert timedelta(seconds=40) <= took <= timedelta(seconds=40) + LONGEST_TERMINATION_PAUSE
    assert fakes.steps.waited > timedelta(seconds=30), "no function runs meanwhile"
    assert fakes.steps.operations < 20


def test_a_drain_whose_pods_end_within_seconds_is_not_suspended() -> None:
    fakes = retirement_fakes(pods=[POD], blocks=False, ends_in=2)
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.DRAINED
    assert fakes.steps.waited == timedelta(0)


def test_a_drain_is_not_suspended_near_its_deadline_or_while_a_pod_is_blocked() -> None:
    late = retirement_fakes(pods=[replace(POD, grace=600)], blocks=False, ends_in=600)
    deadline = late.record.deadline
    assert deadline is not None
    outcome = retire(late)
    assert outcome.result is RetirementResult.INCOMPLETE
    at_the_end = [
        at for at in late.cluster.listed_at if deadline - NO_PAUSE_BEFORE_DEADLINE < at <= deadline
    ]
    assert max(b - a for a, b in pairwise(at_the_end)) <= timedelta(seconds=1.1)
    blocked = retirement_fakes(pods=[POD], blocks=True)
    retire(blocked)
    assert blocked.steps.waited == timedelta(0)


def test_a_drain_is_not_suspended_while_the_replacement_is_retried() -> None:
    fakes = retirement_fakes(pods=[POD], blocks=False, ends_in=60, detaches=False)
    retire(fakes)
    assert fakes.steps.waited == timedelta(0)


def test_the_row_of_a_retirement_says_that_its_node_cannot_be_cordoned() -> None:
    refusing = retirement_fakes(cordons_refused=5, pods=[POD], blocks=False)
    retire(refusing)
    problems = [one.problem for one in refusing.fast.states]
    assert problems[0] is not None
    assert problems[0].code == "NodeNotCordoned"
    assert "cannot patch resource" in problems[0].message
    assert problems[-1] is None, "it is taken back when the node is cordoned"
