"""A retirement whose surroundings refuse: it is paced, it ends, and it says why."""

import json
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from leeway.drain.pauses import LONGEST_TERMINATION_PAUSE, NO_PAUSE_BEFORE_DEADLINE
from leeway.drain.progress import Drain, PodProgress, Stage
from leeway.notices import NoticeKind
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.ports.kubernetes_objects import Pod
from leeway.replacement.request import ReplacementResult
from leeway.retire_node.outcome import EVENT_LIMIT, RetirementResult
from leeway.retire_node.step_results import RetirementProgress
from leeway.retirement.cordon_result import CordonResult
from leeway.retirement.record import Retirement
from leeway.retirement.replacement_intent import ReplacementIntent

from tests.fakes.retirement import retire, retirement_fakes
from tests.retirement.retirements import HOOK, NOTICED

POD = Pod("shop", "web-1", "u-1", "Running", 30, None)


def test_all_is_well_in_a_world_that_refuses_nothing() -> None:
    calm = retirement_fakes()
    outcome = retire(calm)
    assert (outcome.result, outcome.replacement) == (RetirementResult.DRAINED, "detach")
    assert calm.actions.ended == ["terminated"]
    assert not outcome.needs_attention


def test_the_record_tells_whether_anything_was_left_on_the_node() -> None:
    empty = retirement_fakes(pods=[POD], blocks=False)
    retire(empty)
    assert empty.record.left_empty_node
    record = empty.record.model_copy(update={"node_is_empty": False})
    blocked = retirement_fakes(NoticeKind.REBALANCE, pods=[POD], hooks=("leeway-drain",))
    retire(blocked)
    assert not blocked.record.left_empty_node
    gone = PodProgress("shop/db-0", "u-2", "db", Stage.GONE, "evicted", attached=("shop/data",))
    located = CordonResult(True, empty.record, "node", "uid")
    replaced = ReplacementResult(True, empty.record)
    for pod, nothing in ((gone, False), (replace(gone, attached=()), True)):
        standing = RetirementProgress(located, replaced, Drain(listed=True, pods={"u-2": pod}))
        assert standing.drained
        assert standing.left_nothing(record) is nothing
    unseen = RetirementProgress(replace(located, node=""), replaced)
    assert unseen.drained
    assert not unseen.left_nothing(record), "a node that was not found may have been late"


def test_a_replacement_that_is_refused_is_tried_at_a_pace_and_then_said() -> None:
    by_itself = {"launch_unsupported": "has a warm pool"}
    refusing = retirement_fakes(NoticeKind.REBALANCE, detaches=False, overrides=by_itself)
    outcome = retire(refusing)
    assert outcome.replacement == "failed"
    assert "AccessDenied" in outcome.replacement_reason.message
    assert outcome.needs_attention
    assert refusing.steps.operations < 500, "a durable execution has room for 3,000"
    assert refusing.groups.detach_requests < 250, (
        "in 10 minutes without a successor, and 30 of draining"
    )
    assert refusing.actions.ended == []


def test_a_pod_that_only_finalizers_keep_keeps_no_instance_running() -> None:
    ended = replace(POD, deletion=NOTICED, kept_by=("backups.example.com/upload",))
    fakes = retirement_fakes(pods=[ended])
    outcome = retire(fakes)
    assert (outcome.result, fakes.actions.ended) == (RetirementResult.DRAINED, ["terminated"])
    assert (
        "; shop/web-1 has ended, but finalizers keep it: backups.example.com/upload"
        in outcome.summary.message
    )


def test_a_cordon_that_fails_is_tried_again_until_it_succeeds() -> None:
    refusing = retirement_fakes(cordons_refused=5, pods=[POD], blocks=False)
    outcome = retire(refusing)
    assert outcome.result is RetirementResult.DRAINED
    assert refusing.actions.order_of("cordon", "evict") == ["cordon", "evict"]


def test_a_cordon_that_never_succeeds_is_said_in_the_outcome_and_no_warning_beside_it() -> None:
    refusing = retirement_fakes(cordons_refused=10_000, pods=[POD], blocks=False)
    outcome = retire(refusing)
    assert outcome.result is RetirementResult.INCOMPLETE
    assert "cannot patch resource" in outcome.reason.message
    assert outcome.needs_attention
    assert refusing.steps.operations < 500


@pytest.mark.parametrize("kind", [NoticeKind.SPOT_INTERRUPTION, NoticeKind.TERMINATE_HOOK])
def test_pods_that_may_not_be_listed_end_the_retirement_at_its_deadline_with_the_reason(
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
    assert any("cannot list resource" in line for line in blind.reports.codes)


def test_a_hook_that_may_not_be_answered_is_said_and_holds_up_nothing_else() -> None:
    refusing = retirement_fakes(NoticeKind.TERMINATE_HOOK, answers_refused=3)
    outcome = retire(refusing)
    assert outcome.result is RetirementResult.DRAINED
    assert any("CompleteLifecycleAction" in said for said in outcome.refused)
    assert outcome.needs_attention
    assert refusing.reports.codes[-1] == "LeewayRetired"
    assert refusing.actions.ended == [HOOK.name], "it is answered when the rights are there"


def test_an_answer_that_stays_refused_is_tried_until_the_hook_has_run_out_by_itself() -> None:
    refusing = retirement_fakes(NoticeKind.TERMINATE_HOOK, answers_refused=1_000, timeout=7200)
    retire(refusing)
    assert refusing.clock.time - NOTICED > timedelta(seconds=7200)
    assert refusing.steps.operations < 300


def test_an_answer_that_stays_refused_is_not_given_to_the_hooks_next_action() -> None:
    """With the answer's rights, the next action of an instance in a warm pool may come."""
    refusing = retirement_fakes(NoticeKind.TERMINATE_HOOK, answers_refused=1_000, timeout=300)
    outcome = retire(refusing)
    assert outcome.refused
    assert timedelta(seconds=300) < refusing.clock.time - NOTICED < timedelta(seconds=400)


@pytest.mark.parametrize("kind", [NoticeKind.TERMINATE_HOOK, NoticeKind.SPOT_INTERRUPTION])
def test_a_hook_that_notifies_a_target_of_its_own_is_neither_answered_nor_prolonged(
    kind: NoticeKind,
) -> None:
    theirs = retirement_fakes(kind, pods=[POD], blocks=False, ends_in=60, with_target=(HOOK.name,))
    theirs.record = theirs.record.model_copy(update={"hooks": (HOOK,)})
    outcome = retire(theirs)
    assert outcome.result is RetirementResult.DRAINED
    assert theirs.groups.heartbeats == []
    assert theirs.groups.answers == 0


def test_a_hook_whose_settings_may_not_be_read_is_answered() -> None:
    """EventBridge told of it, and nothing says that it is somebody else's."""
    blind = retirement_fakes(NoticeKind.TERMINATE_HOOK)

    def refused(*_: object) -> Any:
        raise CloudRefused("AccessDenied: autoscaling:DescribeLifecycleHooks")

    blind.groups.rules = refused  # type: ignore[assignment,method-assign]
    blind.groups.hook_settings = refused  # type: ignore[assignment,method-assign]
    retire(blind)
    assert blind.actions.ended == [HOOK.name]


@pytest.mark.parametrize("timeout", [30, 45, 300, 1728, 3600, 7200])
def test_a_drain_that_a_budget_blocks_for_48_hours_keeps_its_hook_waiting(timeout: int) -> None:
    blocked = retirement_fakes(NoticeKind.TERMINATE_HOOK, timeout=timeout, pods=[POD])
    in_48_hours = NOTICED + timedelta(hours=48)
    blocked.record = blocked.record.model_copy(update={"deadline": in_48_hours})
    outcome = retire(blocked)
    assert outcome.ended_at is not None
    waited = outcome.ended_at - NOTICED
    longest = min(timedelta(hours=48), 100 * timedelta(seconds=timeout))
    assert longest - timedelta(minutes=1) < waited < longest, "and the pod went just in time"
    assert outcome.deleted == 1
    assert outcome.result is RetirementResult.DRAINED
    assert blocked.actions.ended == [HOOK.name], "the hook was still there to be answered"
    assert blocked.steps.operations < 2500, "a durable execution has room for 3,000"
    beats = [b - a for a, b in pairwise([NOTICED, *blocked.groups.heartbeats])]
    assert max(beats) < timedelta(seconds=timeout)
    assert len(beats) < 210, "no more than the hook's own timeout asks for"


def test_what_a_group_was_asked_for_in_vain_long_ago_does_not_date_the_hook_of_its_own_end() -> (
    None
):
    fakes = retirement_fakes(NoticeKind.TERMINATE_HOOK, pods=[POD], timeout=30)
    hours_ago = NOTICED - timedelta(hours=5)
    asked = ReplacementIntent(
        method="terminate-in-group", reason=SUCCESSOR_REQUESTED(group="ng"), asked_at=hours_ago
    )
    fakes.record = fakes.record.model_copy(update={"replacement_intent": asked})
    outcome = retire(fakes)
    assert outcome.deleted == 1
    deleted = next(at for what, at in fakes.actions.done if what == "delete")
    assert deleted - NOTICED > timedelta(minutes=45), "as long as the hook can be kept"
    assert fakes.actions.ended == [HOOK.name]


def test_an_interruption_that_is_over_in_seconds_sends_no_heartbeat() -> None:
    quick = retirement_fakes(NoticeKind.SPOT_INTERRUPTION)
    retire(quick)
    assert quick.groups.heartbeats == []


def test_an_event_that_may_not_be_put_takes_neither_log_line_nor_kubernetes_event_with_it() -> None:
    silent = retirement_fakes(refuses=True)
    retire(silent)
    assert [line.split(":")[0] for line in silent.reports.codes] == [
        "spot-interruption",
        "LeewayRetired",
        "no Leeway event",
    ]


def test_those_who_watch_see_every_pass_and_a_table_that_is_full_holds_up_nothing() -> None:
    blocked = retirement_fakes(pods=[POD])
    assert retire(blocked).result is RetirementResult.DRAINED
    assert 1 < len(blocked.drains.written) < 15, "of 115 seconds, in passes of ten"
    assert all(a.pods != b.pods for a, b in pairwise(blocked.drains.written)), (
        "what is shown is news"
    )
    assert [pod.stage for pod in blocked.drains.written[0].pods] == [Stage.BLOCKED]
    assert [pod.stage for pod in blocked.drains.written[-1].pods] == [Stage.GONE]


def test_an_event_of_a_thousand_pods_has_room_for_those_that_did_not_go_as_planned() -> None:
    outcome = retire(retirement_fakes(pods=[POD], blocks=False))
    (went,) = outcome.pods
    assert json.loads(outcome.to_json())["pods_left_out"] == 0
    many = [replace(went, uid=f"u-{number}", pod=f"shop/web-{number}") for number in range(1000)]
    many[-1] = replace(many[-1], stage=Stage.FAILED)
    said = replace(outcome, pods=tuple(many)).to_json()
    assert len(said.encode()) <= EVENT_LIMIT
    told = json.loads(said)
    assert told["pods"][0]["pod"] == "shop/web-999"
    assert len(told["pods"]) + told["pods_left_out"] == 1000
    assert len(told["pods"]) > 200


def test_pods_whose_volumes_stayed_attached_are_said_in_the_sentence() -> None:
    outcome = retire(retirement_fakes())
    assert "volumes" not in outcome.summary.message
    with_attached_volumes = replace(outcome, still_attached=("shop/db-0",))
    assert (
        "0 pods evicted, 1 gone with volumes still attached"
        in with_attached_volumes.summary.message
    )


def test_nothing_but_the_record_is_read_of_the_table_before_the_cordon_and_once() -> None:
    fakes = retirement_fakes(pods=[POD], blocks=False)
    reads: list[str] = []
    read = fakes.records.retirement

    def counting(instance: str) -> Retirement:
        reads.append(",".join(fakes.actions.order_of("cordon")))
        return read(instance)

    fakes.records.retirement = counting  # type: ignore[method-assign]
    retire(fakes)
    assert reads == [""], "once before it; the drain goes by what has just been written"


def test_a_retirement_that_nothing_holds_up_takes_five_operations() -> None:
    fakes = retirement_fakes(pods=[POD], blocks=False)
    retire(fakes)
    assert fakes.steps.operations == 5, "cordon, replace, drain, finish, report"


def test_a_drain_that_is_over_before_anybody_could_look_is_not_shown_but_told() -> None:
    fakes = retirement_fakes(pods=[POD], blocks=False)
    outcome = retire(fakes)
    assert fakes.drains.written == []
    assert [pod.stage for pod in outcome.pods] == [Stage.GONE]


def test_a_drain_that_takes_its_time_is_shown_to_its_end() -> None:
    fakes = retirement_fakes(pods=[replace(POD, grace=45)], blocks=False, ends_in=40)
    retire(fakes)
    assert [[p.stage for p in state.pods] for state in fakes.drains.written][-1] == [Stage.GONE]


def test_an_event_bus_that_does_not_answer_delays_no_log_line_and_no_kubernetes_event() -> None:
    fakes = retirement_fakes()

    def fails(detail_type: str, detail: str) -> None:
        raise CloudUnavailable("EventBridge")

    fakes.events.publish = fails  # type: ignore[method-assign]
    with pytest.raises(CloudUnavailable):
        fakes.run_attempt()
    assert [line.split(":")[0] for line in fakes.reports.codes] == [
        "spot-interruption",
        "LeewayRetired",
    ]


def test_a_drain_whose_pods_only_need_time_is_left_alone_between_looks() -> None:
    fakes = retirement_fakes(pods=[replace(POD, grace=45)], blocks=False, ends_in=40)
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.DRAINED
    (pod,) = outcome.pods
    assert pod.gone_at is not None
    assert pod.requested_at is not None
    took = pod.gone_at - pod.requested_at
    assert timedelta(seconds=40) <= took <= timedelta(seconds=40) + LONGEST_TERMINATION_PAUSE
    assert fakes.steps.waited > timedelta(seconds=30), "in which no function runs"
    assert fakes.steps.operations < 20


def test_pods_that_end_within_seconds_are_followed() -> None:
    fakes = retirement_fakes(pods=[POD], blocks=False, ends_in=2)
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.DRAINED
    assert fakes.steps.waited == timedelta(0)


def test_a_drain_is_not_left_alone_near_its_deadline_nor_while_a_pod_is_blocked() -> None:
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


def test_a_replacement_that_is_refused_is_tried_while_pods_need_time() -> None:
    fakes = retirement_fakes(pods=[POD], blocks=False, ends_in=60, detaches=False)
    retire(fakes)
    assert fakes.steps.waited == timedelta(0)
