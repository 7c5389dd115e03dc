"""A retirement that could as well wait: its turn, its successor, and who takes over meanwhile."""

from datetime import timedelta

import pytest
from leeway.execution.attempt import OVERDUE, Phase
from leeway.instances.owners import Owner, OwnerKind
from leeway.notices import NoticeKind
from leeway.policy.rules import Action, ChurnCap, ClusterPolicy
from leeway.ports.aws import HookResult
from leeway.ports.kubernetes import ClusterUnavailable
from leeway.ports.kubernetes_objects import Pod
from leeway.retire_node.outcome import RetirementResult
from leeway.retirement.attempts import undo
from leeway.retirement.disruption_budget import DisruptionLedger
from leeway.retirement.record import latest_end
from leeway.retirement.replacement_intent import ReplacementIntent, ZoneChoice

from tests.retire_node.retiring import (
    HOOKED,
    POD,
    SUCCESSOR,
    Surrounding,
    next_attempt,
    rebalanced,
    retire,
    surrounding,
)
from tests.retirement.retirements import NOTICED, notice, take

NONE_MAY = ChurnCap(percent=0, at_least=0)


def test_a_rebalance_evicts_nothing_before_the_successor_is_ready() -> None:
    world = rebalanced()
    outcome = retire(world)
    assert (outcome.result, outcome.replacement) == (RetirementResult.DRAINED, "launch-successor")
    assert world.order_of("launch", "terminate and decrement", "evict") == [
        "launch",
        "evict",
        "terminate and decrement",
    ]
    assert world.desired == 3, "one successor, and nothing more"
    evicted = next(at for what, at in world.done if what == "evict")
    assert evicted - NOTICED >= timedelta(seconds=60)
    assert f"successor {SUCCESSOR} is Ready" in outcome.replacement_reason
    [successor] = outcome.successors
    assert (successor.instance, successor.instance_type) == (SUCCESSOR, "m5.large")
    assert (successor.zone, successor.why) == (
        "us-east-1a",
        "the instance's own zone, which keeps its group's balance",
    )
    assert str(successor) in outcome.replacement_reason


def test_in_a_group_without_a_hook_it_stays_in_service_until_it_is_drained() -> None:
    world = rebalanced(hooks=())
    outcome = retire(world)
    assert world.order_of("launch", "detach", "evict", "terminate and decrement") == [
        "launch",
        "evict",
        "terminate and decrement",
    ]
    assert outcome.replacement == "launch-successor"
    assert world.desired == 3


def test_a_successor_that_does_not_come_is_waited_for_ten_minutes() -> None:
    world = rebalanced(starts_in=None)
    outcome = retire(world)
    assert outcome.result is RetirementResult.DRAINED
    evicted = next(at for what, at in world.done if what == "evict")
    assert timedelta(minutes=10) <= evicted - NOTICED < timedelta(minutes=11)
    assert "no successor was Ready in 10 minutes" in outcome.replacement_reason
    assert outcome.deadline is not None
    assert outcome.deadline - evicted > timedelta(minutes=29), "counted from then"


def test_a_group_that_is_full_replaces_as_in_an_interruption() -> None:
    world = rebalanced(maximum=3)
    outcome = retire(world)
    assert world.order_of("terminate", "evict") == ["terminate", "evict"]
    assert "at its maximum" in outcome.replacement_reason


def test_a_group_that_fills_up_between_the_look_and_the_launch_is_asked_otherwise() -> None:
    world = rebalanced(facts_={"maximum": 4}, maximum=3, tells_of_hooks=True)
    outcome = retire(world)
    assert "above the maximum" in outcome.replacement_reason
    assert outcome.replacement == "terminate-in-group"
    assert world.order_of("launch", "terminate", "evict") == ["terminate", "evict"]


def test_an_interruption_takes_over_at_once_with_one_successor_in_all() -> None:
    world = rebalanced()
    takes_over_at = "successor-2"

    def interrupt(step: str) -> None:
        if step == takes_over_at and world.record.attempt == 1:
            told = take(world.record, NoticeKind.SPOT_INTERRUPTION, "n-2", after=40)
            world.record = told.record

    world.before_step = interrupt
    assert world.run_attempt(1) is None, "the first attempt says nothing and does nothing"
    assert world.order_of("evict", "terminate and decrement") == []
    world.launched_at = world.now_ if world.launched_at is None else world.launched_at
    outcome = world.run_attempt(2)
    assert outcome is not None
    assert outcome.kind is NoticeKind.SPOT_INTERRUPTION
    assert world.order_of("launch", "terminate", "terminate and decrement") == [
        "launch",
        "terminate and decrement",
    ]
    assert world.desired == 3
    assert world.order_of("evict") == ["evict"]


def test_an_interruption_ends_no_instance_before_its_pods_whose_group_has_lost_its_hook() -> None:
    world = rebalanced()

    def interrupt(step: str) -> None:
        if step == "successor-2" and world.record.attempt == 1:
            told = take(world.record, NoticeKind.SPOT_INTERRUPTION, "n-2", after=40)
            world.record, world.hooks = told.record, ()

    world.before_step = interrupt
    assert world.run_attempt(1) is None
    outcome = world.run_attempt(2)
    assert outcome is not None
    assert world.order_of("launch", "evict", "terminate and decrement") == [
        "launch",
        "evict",
        "terminate and decrement",
    ]
    assert (world.desired, world.record.must_restore_capacity) == (3, False)


STEPS = ["cordon", "replace", "successor-1", "begin", "drain-1", "finish"]


@pytest.mark.parametrize("step", STEPS)
def test_a_attempt_that_is_superseded_before_a_step_does_nothing_in_it(step: str) -> None:
    world = rebalanced(pods=[POD])

    def supersede(name: str) -> None:
        if name == step and world.record.attempt == 1:
            told = take(world.record, NoticeKind.SPOT_INTERRUPTION, "n-2", after=90)
            world.record = told.record
            world.done.clear()

    world.before_step = supersede
    assert world.run_attempt(1) is None
    assert world.done == []
    assert world.record.phase is Phase.NOTICED, "nor is the newer one's record touched"


def test_a_superseded_attempt_evicts_nothing_more_in_the_midst_of_a_pass() -> None:
    world = surrounding(pods=[POD], blocks=True)
    rounds = 0

    real = world.pods_on

    def pods_on(node: str, selector: str = "") -> list[Pod]:
        nonlocal rounds
        rounds += 1
        if rounds == 3:
            world.record = world.record.model_copy(
                update={"attempt": 2, "version": world.record.version + 1}
            )
            assert "evict" in [what for what, _ in world.done]
            world.done.clear()
        return real(node)

    world.pods_on = pods_on  # type: ignore[method-assign]
    assert world.run_attempt(1) is None
    assert world.done == []
    assert rounds <= 4, "nor is it gone on with"


def test_a_paused_cluster_keeps_its_node_until_it_is_resumed() -> None:
    world = rebalanced(policy=ClusterPolicy(paused=True))

    def resume(step: str) -> None:
        if step == "turn-5":
            assert world.done == [], "not even cordoned"
            world.policy = ClusterPolicy()

    world.before_step = resume
    assert retire(world).result is RetirementResult.DRAINED
    assert world.told[0] == "waits: cluster prod is paused"


def test_a_cluster_that_stays_paused_declines_after_a_day_in_few_operations() -> None:
    world = rebalanced(policy=ClusterPolicy(paused=True))
    outcome = retire(world)
    assert outcome.result is RetirementResult.DECLINED
    assert outcome.sentence == (
        "rebalance: i-0b662ef9931388ba0 declined: its turn has not come in 24 hours: "
        "cluster prod is paused"
    )
    assert world.done == []
    assert world.operations < 1000


def test_a_churn_cap_of_nothing_declines_after_a_day_too() -> None:
    world = rebalanced(policy=ClusterPolicy(churn=NONE_MAY))
    outcome = retire(world)
    assert outcome.result is RetirementResult.DECLINED
    assert "its turn has not come in 24 hours: 0 of 20 nodes went" in outcome.reason
    assert world.now_ - NOTICED < timedelta(hours=25)


def test_a_cluster_that_cannot_be_asked_for_a_turn_declines_after_a_day_too() -> None:
    world = rebalanced()

    def ready_nodes() -> int:
        raise ClusterUnavailable("connection refused")

    world.ready_nodes = ready_nodes  # type: ignore[method-assign]
    outcome = retire(world)
    assert outcome.result is RetirementResult.DECLINED
    assert "in 24 hours: ClusterUnavailable: connection refused" in outcome.reason
    assert world.operations < 1000


def marked_before(**changes: object) -> Surrounding:
    """A rebalance whose attempt before this one cordoned the node, and came no further."""
    world = rebalanced(marked=True, **changes)
    world.record = world.record.model_copy(update={"attempt": 2})
    return world


def test_a_function_that_died_after_its_cordon_keeps_no_marks_if_its_step_then_has_to_wait() -> (
    None
):
    world = rebalanced(marked=True, policy=ClusterPolicy(paused=True))
    outcome = retire(world)
    assert (outcome.result, outcome.node) == (RetirementResult.DECLINED, "")
    assert world.order_of("release", "cordon") == ["release"]
    untouched = rebalanced(policy=ClusterPolicy(paused=True))
    retire(untouched)
    assert untouched.done == []


def test_whoever_is_declined_keeps_no_marks_of_a_attempt_before() -> None:
    world = marked_before(policy=ClusterPolicy(paused=True))
    outcome = world.run_attempt(2)
    assert outcome is not None
    assert (outcome.result, outcome.node) == (RetirementResult.DECLINED, "node-1")
    assert {what for what, _ in world.done} == {"release"}
    assert world.told[-1] == "LeewayReleased"


def test_who_waits_for_its_turn_again_is_uncordoned_meanwhile() -> None:
    world = marked_before(policy=ClusterPolicy(paused=True))

    def resume(step: str) -> None:
        if step == "turn-2":
            world.policy = ClusterPolicy()

    world.before_step = resume
    assert next_attempt(world).result is RetirementResult.DRAINED
    assert world.order_of("release", "cordon", "evict") == [
        "release",
        "release",
        "cordon",
        "cordon",
        "evict",
    ]


def test_whoever_is_declined_since_its_group_replaces_it_is_uncordoned_until_it_does() -> None:
    waits = marked_before(facts_={"capacity_rebalance": True})
    outcome = waits.run_attempt(2)
    assert outcome is not None
    assert outcome.result is RetirementResult.DECLINED
    assert waits.order_of("release") == ["release", "release"]
    goes = marked_before(state="Terminating:Wait")
    outcome = goes.run_attempt(2)
    assert outcome is not None
    assert outcome.result is RetirementResult.DECLINED
    assert goes.done == [], "its hook's notice goes on from where it is"


def test_marks_that_cannot_be_taken_off_are_no_end() -> None:
    world = marked_before(policy=ClusterPolicy(paused=True))

    def release(node: str, attempt: int | None = None) -> bool:
        raise ClusterUnavailable("connection refused")

    world.release = release  # type: ignore[method-assign]
    with pytest.raises(ClusterUnavailable):
        world.run_attempt(2)
    assert world.record.phase is Phase.NOTICED, "the step is tried again"


def test_who_asked_for_its_successor_before_its_function_died_takes_no_second_turn() -> None:
    world = marked_before(facts_={"refreshing": True}, policy=ClusterPolicy(churn=NONE_MAY))
    asked = ReplacementIntent(
        method="launch-successor",
        reason="",
        asked_at=NOTICED,
        group="ng",
        zones=(ZoneChoice("us-east-1a", "its own"),),
    )
    world.record = world.record.model_copy(update={"replacement_intent": asked})
    outcome = world.run_attempt(2)
    assert outcome is not None
    assert (outcome.result, outcome.replacement) == (RetirementResult.DRAINED, "launch-successor")
    assert world.ledgers.churns == {}


def test_an_interruption_of_a_paused_cluster_is_drained_all_the_same() -> None:
    world = surrounding(policy=ClusterPolicy(paused=True), pods=[POD], blocks=False)
    assert retire(world).result is RetirementResult.DRAINED


def test_who_exceeds_the_churn_cap_waits_and_says_so() -> None:
    world = rebalanced(ready=10)
    earlier, _ = DisruptionLedger(cluster="prod").request("i-0earlier", 10, ChurnCap(), NOTICED)
    assert earlier is not None
    world.ledgers.churns["prod"] = earlier
    assert retire(world).result is RetirementResult.DRAINED
    assert world.told[0].startswith("waits: 1 of 10 nodes went in the last 10 minutes")
    cordoned = next(at for what, at in world.done if what == "cordon")
    assert timedelta(minutes=10) <= cordoned - NOTICED < timedelta(minutes=12)


def test_nobody_takes_it_for_dead_while_it_waits_long_for_its_turn_and_then_its_successor() -> None:
    world = rebalanced(policy=ClusterPolicy(paused=True), starts_in=None)
    seen = set()

    def look(step: str) -> None:
        if world.now_ - NOTICED > timedelta(hours=3):
            world.policy = ClusterPolicy()
        seen.add(step.split("-")[0])
        assert world.now_ < latest_end(world.record) + OVERDUE

    world.before_step = look
    assert retire(world).result is RetirementResult.DRAINED
    assert {"turn", "successor", "begin", "drain", "finish"} <= seen


def test_a_pod_that_asks_not_to_be_disrupted_is_waited_for() -> None:
    until = NOTICED + timedelta(hours=2)
    busy = Pod("shop", "job-1", "u-2", "Running", 30, None, protected_until=until)
    world = rebalanced(pods=[busy])
    assert retire(world).result is RetirementResult.DRAINED
    assert world.told[0] == "waits: pod shop/job-1 has karpenter.sh/do-not-disrupt"
    cordoned = next(at for what, at in world.done if what == "cordon")
    assert until <= cordoned < until + timedelta(minutes=6)


def test_a_node_that_asks_not_to_be_disrupted_is_waited_for_too() -> None:
    world = rebalanced(annotations={"karpenter.sh/do-not-disrupt": "true"})
    assert retire(world).result is RetirementResult.DECLINED
    assert "node node-1 has karpenter.sh/do-not-disrupt" in world.told[0]


def test_a_group_that_rebalances_by_itself_is_left_to_it_until_its_hook_tells() -> None:
    world = rebalanced(facts_={"capacity_rebalance": True})
    outcome = retire(world)
    assert outcome.result is RetirementResult.DECLINED
    assert "Capacity Rebalancing" in outcome.reason
    assert "hook tells when" in outcome.reason
    assert world.done == []


@pytest.mark.parametrize("kind", [NoticeKind.REBALANCE, NoticeKind.SPOT_INTERRUPTION])
def test_a_dry_run_decides_and_reports_everything_and_acts_on_nothing(kind: NoticeKind) -> None:
    world = surrounding(kind, pods=[POD], hooks=HOOKED, policy=ClusterPolicy(dry_run=True))
    outcome = retire(world)
    assert outcome.result is RetirementResult.REHEARSED
    assert (world.done, world.ended) == ([], [])
    assert outcome.replacement in {"launch-successor", "terminate-in-group"}
    assert [pod.pod for pod in outcome.pods] == ["shop/web-1"]
    assert "would be retired, 1 of its 1 pods would go" in outcome.sentence
    assert "LeewayRetired" not in world.told
    assert world.record.answer is None, "no hook may be answered for it"


def test_a_policy_that_says_cordon_cordons_answers_the_hook_and_reports() -> None:
    world = surrounding(NoticeKind.TERMINATE_HOOK, pods=[POD])
    world.record = world.record.model_copy(update={"action": Action.CORDON})
    outcome = retire(world)
    assert outcome.result is RetirementResult.CORDONED
    assert [what for what, _ in world.done] == ["cordon"]
    assert world.ended == ["leeway-drain"]
    assert world.told[-1] == "LeewayCordoned"
    assert world.record.answer is HookResult.CONTINUE, "though that may not have arrived"


def test_what_is_called_off_before_it_began_is_undone_and_can_come_again() -> None:
    world = surrounding(NoticeKind.SCHEDULED_CHANGE)
    news = {"after": 60, "event": world.record.event}
    told = undo(world.record, notice(NoticeKind.SCHEDULED_CHANGE, "n-2", **news))
    assert told is not None
    world.record = told.record
    outcome = world.run_attempt(2)
    assert outcome is not None
    assert outcome.result is RetirementResult.UNDONE
    assert world.order_of("release", "cordon") == ["release", "release"]
    assert world.record.phase is Phase.UNDONE
    again = take(world.record, NoticeKind.SPOT_INTERRUPTION, "n-3", after=120)
    assert (again.start, again.record.attempt) == (True, 3)


def test_karpenters_node_that_the_policy_takes_is_drained_and_left_for_karpenter_to_end() -> None:
    world = surrounding(pods=[POD], blocks=False, state=None)
    owner = Owner(OwnerKind.KARPENTER, "general")
    facts = world.record.facts.model_copy(update={"owner": owner})
    world.record = world.record.model_copy(update={"facts": facts})
    outcome = retire(world)
    assert (outcome.result, outcome.replacement) == (RetirementResult.DRAINED, "left-to-owner")
    assert world.ended == []


def test_a_group_that_rebalances_by_itself_and_whose_hook_calls_others_is_not_waited_for() -> None:
    rules = {"capacity_rebalance": True, "foreign_terminate_hooks": ("cmdb",)}
    world = rebalanced(hooks=(), facts_=rules)
    outcome = retire(world)
    assert outcome.result is RetirementResult.DRAINED, "nobody would tell when its group ends it"
    assert outcome.replacement == "left-to-owner"


def test_a_drained_instance_is_ended_by_its_group_where_its_hooks_call_others() -> None:
    world = rebalanced(hooks=(), facts_={"foreign_terminate_hooks": ("cmdb",)})
    assert retire(world).result is RetirementResult.DRAINED
    assert world.order_of("launch", "evict", "terminate and decrement", "detach") == [
        "launch",
        "evict",
        "terminate and decrement",
    ]
