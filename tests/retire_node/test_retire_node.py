"""A retirement whose surroundings refuse: it is paced, it ends, and it says why."""

import json
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from leeway.drain.executor import LAST_LOOK, LONGEST_LOOK_AWAY
from leeway.drain.progress import Drain, PodProgress, Stage
from leeway.notices import NoticeKind
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.ports.kubernetes_objects import Pod
from leeway.replacement.request import ReplacementResult
from leeway.retire_node.outcome import ROOM, RetirementResult
from leeway.retire_node.step_results import RetirementProgress
from leeway.retirement.cordon_result import CordonResult
from leeway.retirement.record import Retirement
from leeway.retirement.replacement_intent import ReplacementIntent

from tests.retire_node.retiring import retire, surrounding
from tests.retirement.retirements import HOOK, NOTICED

POD = Pod("shop", "web-1", "u-1", "Running", 30, None)


def test_all_is_well_in_a_world_that_refuses_nothing() -> None:
    calm = surrounding()
    outcome = retire(calm)
    assert (outcome.result, outcome.replacement) == (RetirementResult.DRAINED, "detach")
    assert calm.ended == ["terminated"]
    assert not outcome.troubled


def test_the_record_tells_whether_anything_was_left_on_the_node() -> None:
    empty = surrounding(pods=[POD], blocks=False)
    retire(empty)
    assert empty.record.left_empty_node
    record = empty.record.model_copy(update={"node_is_empty": False})
    blocked = surrounding(NoticeKind.REBALANCE, pods=[POD], hooks=("leeway-drain",))
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
    refusing = surrounding(NoticeKind.REBALANCE, detaches=False, facts_=by_itself)
    outcome = retire(refusing)
    assert outcome.replacement == "failed"
    assert "AccessDenied" in outcome.replacement_reason
    assert outcome.troubled
    assert refusing.operations < 500, "a durable execution has room for 3,000"
    assert refusing.asked < 250, "in 10 minutes without a successor, and 30 of draining"
    assert refusing.ended == []


def test_a_pod_that_only_finalizers_keep_keeps_no_instance_running() -> None:
    ended = replace(POD, deletion=NOTICED, kept_by=("backups.example.com/upload",))
    world = surrounding(pods=[ended])
    outcome = retire(world)
    assert (outcome.result, world.ended) == (RetirementResult.DRAINED, ["terminated"])
    assert (
        "; shop/web-1 has ended, but finalizers keep it: backups.example.com/upload"
        in outcome.sentence
    )


def test_a_cordon_that_fails_is_tried_again_until_it_succeeds() -> None:
    refusing = surrounding(cordons_refused=5, pods=[POD], blocks=False)
    outcome = retire(refusing)
    assert outcome.result is RetirementResult.DRAINED
    assert refusing.order_of("cordon", "evict") == ["cordon", "evict"]


def test_a_cordon_that_never_succeeds_is_said_in_the_outcome_and_no_warning_beside_it() -> None:
    refusing = surrounding(cordons_refused=10_000, pods=[POD], blocks=False)
    outcome = retire(refusing)
    assert outcome.result is RetirementResult.INCOMPLETE
    assert "cannot patch resource" in outcome.reason
    assert outcome.troubled
    assert refusing.operations < 500


@pytest.mark.parametrize("kind", [NoticeKind.SPOT_INTERRUPTION, NoticeKind.TERMINATE_HOOK])
def test_pods_that_may_not_be_listed_end_the_retirement_at_its_deadline_with_the_reason(
    kind: NoticeKind,
) -> None:
    blind = surrounding(kind, lists=False)
    outcome = retire(blind)
    assert outcome.result is RetirementResult.INCOMPLETE
    assert "cannot list resource" in outcome.reason
    assert outcome.deadline is not None
    assert outcome.ended_at is not None
    assert timedelta(0) <= outcome.ended_at - outcome.deadline < timedelta(seconds=15)
    assert blind.operations < 2500
    assert any("cannot list resource" in line for line in blind.told)


def test_a_hook_that_may_not_be_answered_is_said_and_holds_up_nothing_else() -> None:
    refusing = surrounding(NoticeKind.TERMINATE_HOOK, refusals=3)
    outcome = retire(refusing)
    assert outcome.result is RetirementResult.DRAINED
    assert any("CompleteLifecycleAction" in said for said in outcome.refused)
    assert outcome.troubled
    assert refusing.told[-1] == "LeewayRetired"
    assert refusing.ended == [HOOK.name], "it is answered when the rights are there"


def test_an_answer_that_stays_refused_is_tried_until_the_hook_has_run_out_by_itself() -> None:
    refusing = surrounding(NoticeKind.TERMINATE_HOOK, refusals=1_000, timeout=7200)
    retire(refusing)
    assert refusing.now_ - NOTICED > timedelta(seconds=7200)
    assert refusing.operations < 300


def test_an_answer_that_stays_refused_is_not_given_to_the_hooks_next_action() -> None:
    """With the answer's rights, the next action of an instance in a warm pool may come."""
    refusing = surrounding(NoticeKind.TERMINATE_HOOK, refusals=1_000, timeout=300)
    outcome = retire(refusing)
    assert outcome.refused
    assert timedelta(seconds=300) < refusing.now_ - NOTICED < timedelta(seconds=400)


@pytest.mark.parametrize("kind", [NoticeKind.TERMINATE_HOOK, NoticeKind.SPOT_INTERRUPTION])
def test_a_hook_that_notifies_a_target_of_its_own_is_neither_answered_nor_prolonged(
    kind: NoticeKind,
) -> None:
    theirs = surrounding(kind, pods=[POD], blocks=False, lingers=60, with_target=(HOOK.name,))
    theirs.record = theirs.record.model_copy(update={"hooks": (HOOK,)})
    outcome = retire(theirs)
    assert outcome.result is RetirementResult.DRAINED
    assert theirs.beaten == []
    assert theirs.answers == 0


def test_a_hook_whose_settings_may_not_be_read_is_answered() -> None:
    """EventBridge told of it, and nothing says that it is somebody else's."""
    blind = surrounding(NoticeKind.TERMINATE_HOOK)

    def refused(*_: object) -> Any:
        raise CloudRefused("AccessDenied: autoscaling:DescribeLifecycleHooks")

    blind.rules = refused  # type: ignore[assignment,method-assign]
    blind.hook_settings = refused  # type: ignore[assignment,method-assign]
    retire(blind)
    assert blind.ended == [HOOK.name]


@pytest.mark.parametrize("timeout", [30, 45, 300, 1728, 3600, 7200])
def test_a_drain_that_a_budget_blocks_for_48_hours_keeps_its_hook_waiting(timeout: int) -> None:
    blocked = surrounding(NoticeKind.TERMINATE_HOOK, timeout=timeout, pods=[POD])
    in_48_hours = NOTICED + timedelta(hours=48)
    blocked.record = blocked.record.model_copy(update={"deadline": in_48_hours})
    outcome = retire(blocked)
    assert outcome.ended_at is not None
    waited = outcome.ended_at - NOTICED
    longest = min(timedelta(hours=48), 100 * timedelta(seconds=timeout))
    assert longest - timedelta(minutes=1) < waited < longest, "and the pod went just in time"
    assert outcome.deleted == 1
    assert outcome.result is RetirementResult.DRAINED
    assert blocked.ended == [HOOK.name], "the hook was still there to be answered"
    assert blocked.operations < 2500, "a durable execution has room for 3,000"
    beats = [b - a for a, b in pairwise([NOTICED, *blocked.beaten])]
    assert max(beats) < timedelta(seconds=timeout)
    assert len(beats) < 210, "no more than the hook's own timeout asks for"


def test_what_a_group_was_asked_for_in_vain_long_ago_does_not_date_the_hook_of_its_own_end() -> (
    None
):
    world = surrounding(NoticeKind.TERMINATE_HOOK, pods=[POD], timeout=30)
    hours_ago = NOTICED - timedelta(hours=5)
    asked = ReplacementIntent(method="terminate-in-group", reason="", asked_at=hours_ago)
    world.record = world.record.model_copy(update={"replacement_intent": asked})
    outcome = retire(world)
    assert outcome.deleted == 1
    deleted = next(at for what, at in world.done if what == "delete")
    assert deleted - NOTICED > timedelta(minutes=45), "as long as the hook can be kept"
    assert world.ended == [HOOK.name]


def test_an_interruption_that_is_over_in_seconds_sends_no_heartbeat() -> None:
    quick = surrounding(NoticeKind.SPOT_INTERRUPTION)
    retire(quick)
    assert quick.beaten == []


def test_an_event_that_may_not_be_put_takes_neither_log_line_nor_kubernetes_event_with_it() -> None:
    silent = surrounding(announces=False)
    retire(silent)
    assert [line.split(":")[0] for line in silent.told] == [
        "spot-interruption",
        "LeewayRetired",
        "no Leeway event",
    ]


def test_those_who_watch_see_every_pass_and_a_table_that_is_full_holds_up_nothing() -> None:
    blocked = surrounding(pods=[POD])
    assert retire(blocked).result is RetirementResult.DRAINED
    assert 1 < len(blocked.shown) < 15, "of 115 seconds, in passes of ten"
    assert all(a.pods != b.pods for a, b in pairwise(blocked.shown)), "what is shown is news"
    assert [pod.stage for pod in blocked.shown[0].pods] == [Stage.BLOCKED]
    assert [pod.stage for pod in blocked.shown[-1].pods] == [Stage.GONE]


def test_an_event_of_a_thousand_pods_has_room_for_those_that_did_not_go_as_planned() -> None:
    outcome = retire(surrounding(pods=[POD], blocks=False))
    (went,) = outcome.pods
    assert json.loads(outcome.to_json())["pods_left_out"] == 0
    many = [replace(went, uid=f"u-{number}", pod=f"shop/web-{number}") for number in range(1000)]
    many[-1] = replace(many[-1], stage=Stage.FAILED)
    said = replace(outcome, pods=tuple(many)).to_json()
    assert len(said.encode()) <= ROOM
    told = json.loads(said)
    assert told["pods"][0]["pod"] == "shop/web-999"
    assert len(told["pods"]) + told["pods_left_out"] == 1000
    assert len(told["pods"]) > 200


def test_pods_whose_volumes_stayed_attached_are_said_in_the_sentence() -> None:
    outcome = retire(surrounding())
    assert "volumes" not in outcome.sentence
    unclean = replace(outcome, still_attached=("shop/db-0",))
    assert "0 pods evicted, 1 gone with volumes still attached" in unclean.sentence


def test_nothing_but_the_record_is_read_of_the_table_before_the_cordon_and_once() -> None:
    world = surrounding(pods=[POD], blocks=False)
    reads: list[str] = []
    read = world.retirement

    def counting(instance: str) -> Retirement:
        reads.append(",".join(world.order_of("cordon")))
        return read(instance)

    world.retirement = counting  # type: ignore[method-assign]
    retire(world)
    assert reads == [""], "once before it; the drain goes by what has just been written"


def test_a_retirement_that_nothing_holds_up_takes_five_operations() -> None:
    world = surrounding(pods=[POD], blocks=False)
    retire(world)
    assert world.operations == 5, "cordon, replace, drain, finish, report"


def test_a_drain_that_is_over_before_anybody_could_look_is_not_shown_but_told() -> None:
    world = surrounding(pods=[POD], blocks=False)
    outcome = retire(world)
    assert world.shown == []
    assert [pod.stage for pod in outcome.pods] == [Stage.GONE]


def test_a_drain_that_takes_its_time_is_shown_to_its_end() -> None:
    world = surrounding(pods=[replace(POD, grace=45)], blocks=False, lingers=40)
    retire(world)
    assert [[p.stage for p in state.pods] for state in world.shown][-1] == [Stage.GONE]


def test_an_event_bus_that_does_not_answer_delays_no_log_line_and_no_kubernetes_event() -> None:
    world = surrounding()

    def fails(detail_type: str, detail: str) -> None:
        raise CloudUnavailable("EventBridge")

    world.publish = fails  # type: ignore[method-assign]
    with pytest.raises(CloudUnavailable):
        world.run_attempt()
    assert [line.split(":")[0] for line in world.told] == ["spot-interruption", "LeewayRetired"]


def test_a_drain_whose_pods_only_need_time_is_left_alone_between_looks() -> None:
    world = surrounding(pods=[replace(POD, grace=45)], blocks=False, lingers=40)
    outcome = retire(world)
    assert outcome.result is RetirementResult.DRAINED
    (pod,) = outcome.pods
    assert pod.gone_at is not None
    assert pod.asked_at is not None
    took = pod.gone_at - pod.asked_at
    assert timedelta(seconds=40) <= took <= timedelta(seconds=40) + LONGEST_LOOK_AWAY
    assert world.waited > timedelta(seconds=30), "in which no function runs"
    assert world.operations < 20


def test_pods_that_end_within_seconds_are_followed() -> None:
    world = surrounding(pods=[POD], blocks=False, lingers=2)
    outcome = retire(world)
    assert outcome.result is RetirementResult.DRAINED
    assert world.waited == timedelta(0)


def test_a_drain_is_not_left_alone_near_its_deadline_nor_while_a_pod_is_blocked() -> None:
    late = surrounding(pods=[replace(POD, grace=600)], blocks=False, lingers=600)
    deadline = late.record.deadline
    assert deadline is not None
    outcome = retire(late)
    assert outcome.result is RetirementResult.INCOMPLETE
    at_the_end = [at for at in late.looked if deadline - LAST_LOOK < at <= deadline]
    assert max(b - a for a, b in pairwise(at_the_end)) <= timedelta(seconds=1.1)
    blocked = surrounding(pods=[POD], blocks=True)
    retire(blocked)
    assert blocked.waited == timedelta(0)


def test_a_replacement_that_is_refused_is_tried_while_pods_need_time() -> None:
    world = surrounding(pods=[POD], blocks=False, lingers=60, detaches=False)
    retire(world)
    assert world.waited == timedelta(0)
