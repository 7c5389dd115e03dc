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

from tests.fakes.groups import SUCCESSOR
from tests.fakes.retirement import (
    HOOKED,
    POD,
    RetirementFakes,
    next_attempt,
    rebalanced,
    retire,
    retirement_fakes,
)
from tests.retirement.retirements import NOTICED, notice, take

NONE_MAY = ChurnCap(percent=0, at_least=0)


def test_a_rebalance_evicts_nothing_before_the_successor_is_ready() -> None:
    fakes = rebalanced()
    outcome = retire(fakes)
    assert (outcome.result, outcome.replacement) == (RetirementResult.DRAINED, "launch-successor")
    assert fakes.actions.order_of("launch", "terminate and decrement", "evict") == [
        "launch",
        "evict",
        "terminate and decrement",
    ]
    assert fakes.groups.desired == 3, "one successor, and nothing more"
    evicted = next(at for what, at in fakes.actions.done if what == "evict")
    assert evicted - NOTICED >= timedelta(seconds=60)
    assert f"successor {SUCCESSOR} is Ready" in outcome.replacement_reason.message
    [successor] = outcome.successors
    assert (successor.instance, successor.instance_type) == (SUCCESSOR, "m5.large")
    assert (successor.zone, successor.why) == (
        "us-east-1a",
        "the instance's own zone, which keeps its group's balance",
    )
    assert str(successor) in outcome.replacement_reason.message


def test_in_a_group_without_a_hook_it_stays_in_service_until_it_is_drained() -> None:
    fakes = rebalanced(hooks=())
    outcome = retire(fakes)
    assert fakes.actions.order_of("launch", "detach", "evict", "terminate and decrement") == [
        "launch",
        "evict",
        "terminate and decrement",
    ]
    assert outcome.replacement == "launch-successor"
    assert fakes.groups.desired == 3


def test_a_successor_that_does_not_come_is_waited_for_ten_minutes() -> None:
    fakes = rebalanced(starts_in=None)
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.DRAINED
    evicted = next(at for what, at in fakes.actions.done if what == "evict")
    assert timedelta(minutes=10) <= evicted - NOTICED < timedelta(minutes=11)
    assert "no successor was Ready in 10 minutes" in outcome.replacement_reason.message
    assert outcome.deadline is not None
    assert outcome.deadline - evicted > timedelta(minutes=29), "counted from then"


def test_a_group_that_is_full_replaces_as_in_an_interruption() -> None:
    fakes = rebalanced(maximum=3)
    outcome = retire(fakes)
    assert fakes.actions.order_of("terminate", "evict") == ["terminate", "evict"]
    assert "at its maximum" in outcome.replacement_reason.message


def test_a_group_that_fills_up_between_the_look_and_the_launch_is_asked_otherwise() -> None:
    fakes = rebalanced(overrides={"maximum": 4}, maximum=3, notifies_hooks=True)
    outcome = retire(fakes)
    assert "above the maximum" in outcome.replacement_reason.message
    assert outcome.replacement == "terminate-in-group"
    assert fakes.actions.order_of("launch", "terminate", "evict") == ["terminate", "evict"]


def test_an_interruption_takes_over_at_once_with_one_successor_in_all() -> None:
    fakes = rebalanced()
    takes_over_at = "successor-2"

    def interrupt(step: str) -> None:
        if step == takes_over_at and fakes.record.attempt == 1:
            told = take(fakes.record, NoticeKind.SPOT_INTERRUPTION, "n-2", after=40)
            fakes.record = told.record

    fakes.steps.before_step = interrupt
    assert fakes.run_attempt(1) is None, "the first attempt says nothing and does nothing"
    assert fakes.actions.order_of("evict", "terminate and decrement") == []
    fakes.groups.launched_at = (
        fakes.clock.time if fakes.groups.launched_at is None else fakes.groups.launched_at
    )
    outcome = fakes.run_attempt(2)
    assert outcome is not None
    assert outcome.kind is NoticeKind.SPOT_INTERRUPTION
    assert fakes.actions.order_of("launch", "terminate", "terminate and decrement") == [
        "launch",
        "terminate and decrement",
    ]
    assert fakes.groups.desired == 3
    assert fakes.actions.order_of("evict") == ["evict"]


def test_an_interruption_ends_no_instance_before_its_pods_whose_group_has_lost_its_hook() -> None:
    fakes = rebalanced()

    def interrupt(step: str) -> None:
        if step == "successor-2" and fakes.record.attempt == 1:
            told = take(fakes.record, NoticeKind.SPOT_INTERRUPTION, "n-2", after=40)
            fakes.record, fakes.groups.hooks = told.record, ()

    fakes.steps.before_step = interrupt
    assert fakes.run_attempt(1) is None
    outcome = fakes.run_attempt(2)
    assert outcome is not None
    assert fakes.actions.order_of("launch", "evict", "terminate and decrement") == [
        "launch",
        "evict",
        "terminate and decrement",
    ]
    assert (fakes.groups.desired, fakes.record.must_restore_capacity) == (3, False)


STEPS = ["cordon", "replace", "successor-1", "begin", "drain-1", "finish"]


@pytest.mark.parametrize("step", STEPS)
def test_a_attempt_that_is_superseded_before_a_step_does_nothing_in_it(step: str) -> None:
    fakes = rebalanced(pods=[POD])

    def supersede(name: str) -> None:
        if name == step and fakes.record.attempt == 1:
            told = take(fakes.record, NoticeKind.SPOT_INTERRUPTION, "n-2", after=90)
            fakes.record = told.record
            fakes.actions.done.clear()

    fakes.steps.before_step = supersede
    assert fakes.run_attempt(1) is None
    assert fakes.actions.done == []
    assert fakes.record.phase is Phase.NOTICED, "nor is the newer one's record touched"


def test_a_superseded_attempt_evicts_nothing_more_in_the_midst_of_a_pass() -> None:
    fakes = retirement_fakes(pods=[POD], blocks=True)
    rounds = 0

    real = fakes.cluster.pods_on

    def pods_on(node: str, selector: str = "") -> list[Pod]:
        nonlocal rounds
        rounds += 1
        if rounds == 3:
            fakes.record = fakes.record.model_copy(
                update={"attempt": 2, "version": fakes.record.version + 1}
            )
            assert "evict" in [what for what, _ in fakes.actions.done]
            fakes.actions.done.clear()
        return real(node)

    fakes.cluster.pods_on = pods_on  # type: ignore[method-assign]
    assert fakes.run_attempt(1) is None
    assert fakes.actions.done == []
    assert rounds <= 4, "nor is it gone on with"


def test_a_paused_cluster_keeps_its_node_until_it_is_resumed() -> None:
    fakes = rebalanced(policy=ClusterPolicy(paused=True))

    def resume(step: str) -> None:
        if step == "turn-5":
            assert fakes.actions.done == [], "not even cordoned"
            fakes.policies.policy = ClusterPolicy()

    fakes.steps.before_step = resume
    assert retire(fakes).result is RetirementResult.DRAINED
    assert fakes.reports.codes[0] == "waits: cluster prod is paused"


def test_a_cluster_that_stays_paused_declines_after_a_day_in_few_operations() -> None:
    fakes = rebalanced(policy=ClusterPolicy(paused=True))
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.DECLINED
    assert outcome.summary.message == (
        "rebalance: i-0b662ef9931388ba0 declined: its turn has not come in 24 hours: "
        "cluster prod is paused"
    )
    assert fakes.actions.done == []
    assert fakes.steps.operations < 1000


def test_a_churn_cap_of_nothing_declines_after_a_day_too() -> None:
    fakes = rebalanced(policy=ClusterPolicy(churn=NONE_MAY))
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.DECLINED
    assert "its turn has not come in 24 hours: 0 of 20 nodes went" in outcome.reason.message
    assert fakes.clock.time - NOTICED < timedelta(hours=25)


def test_a_cluster_that_cannot_be_asked_for_a_turn_declines_after_a_day_too() -> None:
    fakes = rebalanced()

    def ready_nodes() -> int:
        raise ClusterUnavailable("connection refused")

    fakes.cluster.ready_nodes = ready_nodes  # type: ignore[method-assign]
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.DECLINED
    assert "in 24 hours: ClusterUnavailable: connection refused" in outcome.reason.message
    assert fakes.steps.operations < 1000


def marked_before(**changes: object) -> RetirementFakes:
    """A rebalance whose attempt before this one cordoned the node, and came no further."""
    fakes = rebalanced(marked=True, **changes)
    fakes.record = fakes.record.model_copy(update={"attempt": 2})
    return fakes


def test_a_function_that_died_after_its_cordon_keeps_no_marks_if_its_step_then_has_to_wait() -> (
    None
):
    fakes = rebalanced(marked=True, policy=ClusterPolicy(paused=True))
    outcome = retire(fakes)
    assert (outcome.result, outcome.node) == (RetirementResult.DECLINED, "")
    assert fakes.actions.order_of("release", "cordon") == ["release"]
    untouched = rebalanced(policy=ClusterPolicy(paused=True))
    retire(untouched)
    assert untouched.actions.done == []


def test_whoever_is_declined_keeps_no_marks_of_a_attempt_before() -> None:
    fakes = marked_before(policy=ClusterPolicy(paused=True))
    outcome = fakes.run_attempt(2)
    assert outcome is not None
    assert (outcome.result, outcome.node) == (RetirementResult.DECLINED, "node-1")
    assert {what for what, _ in fakes.actions.done} == {"release"}
    assert fakes.reports.codes[-1] == "LeewayReleased"


def test_who_waits_for_its_turn_again_is_uncordoned_meanwhile() -> None:
    fakes = marked_before(policy=ClusterPolicy(paused=True))

    def resume(step: str) -> None:
        if step == "turn-2":
            fakes.policies.policy = ClusterPolicy()

    fakes.steps.before_step = resume
    assert next_attempt(fakes).result is RetirementResult.DRAINED
    assert fakes.actions.order_of("release", "cordon", "evict") == [
        "release",
        "release",
        "cordon",
        "cordon",
        "evict",
    ]


def test_whoever_is_declined_since_its_group_replaces_it_is_uncordoned_until_it_does() -> None:
    waits = marked_before(overrides={"capacity_rebalance": True})
    outcome = waits.run_attempt(2)
    assert outcome is not None
    assert outcome.result is RetirementResult.DECLINED
    assert waits.actions.order_of("release") == ["release", "release"]
    goes = marked_before(state="Terminating:Wait")
    outcome = goes.run_attempt(2)
    assert outcome is not None
    assert outcome.result is RetirementResult.DECLINED
    assert goes.actions.done == [], "its hook's notice goes on from where it is"


def test_marks_that_cannot_be_taken_off_are_no_end() -> None:
    fakes = marked_before(policy=ClusterPolicy(paused=True))

    def release(node: str, attempt: int | None = None) -> bool:
        raise ClusterUnavailable("connection refused")

    fakes.cluster.release = release  # type: ignore[method-assign]
    with pytest.raises(ClusterUnavailable):
        fakes.run_attempt(2)
    assert fakes.record.phase is Phase.NOTICED, "the step is tried again"


def test_who_asked_for_its_successor_before_its_function_died_takes_no_second_turn() -> None:
    fakes = marked_before(overrides={"refreshing": True}, policy=ClusterPolicy(churn=NONE_MAY))
    asked = ReplacementIntent(
        method="launch-successor",
        reason=SUCCESSOR_REQUESTED(group="ng"),
        asked_at=NOTICED,
        group="ng",
        zones=(ZoneChoice("us-east-1a", SAME_ZONE()),),
    )
    fakes.record = fakes.record.model_copy(update={"replacement_intent": asked})
    outcome = fakes.run_attempt(2)
    assert outcome is not None
    assert (outcome.result, outcome.replacement) == (RetirementResult.DRAINED, "launch-successor")
    assert fakes.ledgers.ledgers == {}


def test_an_interruption_of_a_paused_cluster_is_drained_all_the_same() -> None:
    fakes = retirement_fakes(policy=ClusterPolicy(paused=True), pods=[POD], blocks=False)
    assert retire(fakes).result is RetirementResult.DRAINED


def test_who_exceeds_the_churn_cap_waits_and_says_so() -> None:
    fakes = rebalanced(ready=10)
    earlier, _ = DisruptionLedger(cluster="prod").request("i-0earlier", 10, ChurnCap(), NOTICED)
    assert earlier is not None
    fakes.ledgers.ledgers["prod"] = earlier
    assert retire(fakes).result is RetirementResult.DRAINED
    assert fakes.reports.codes[0].startswith("waits: 1 of 10 nodes went in the last 10 minutes")
    cordoned = next(at for what, at in fakes.actions.done if what == "cordon")
    assert timedelta(minutes=10) <= cordoned - NOTICED < timedelta(minutes=12)


def test_nobody_takes_it_for_dead_while_it_waits_long_for_its_turn_and_then_its_successor() -> None:
    fakes = rebalanced(policy=ClusterPolicy(paused=True), starts_in=None)
    seen = set()

    def look(step: str) -> None:
        if fakes.clock.time - NOTICED > timedelta(hours=3):
            fakes.policies.policy = ClusterPolicy()
        seen.add(step.split("-")[0])
        assert fakes.clock.time < latest_end(fakes.record) + OVERDUE

    fakes.steps.before_step = look
    assert retire(fakes).result is RetirementResult.DRAINED
    assert {"turn", "successor", "begin", "drain", "finish"} <= seen


def test_a_pod_that_asks_not_to_be_disrupted_is_waited_for() -> None:
    until = NOTICED + timedelta(hours=2)
    busy = Pod("shop", "job-1", "u-2", "Running", 30, None, protected_until=until)
    fakes = rebalanced(pods=[busy])
    assert retire(fakes).result is RetirementResult.DRAINED
    assert fakes.reports.codes[0] == "waits: pod shop/job-1 has karpenter.sh/do-not-disrupt"
    cordoned = next(at for what, at in fakes.actions.done if what == "cordon")
    assert until <= cordoned < until + timedelta(minutes=6)


def test_a_node_that_asks_not_to_be_disrupted_is_waited_for_too() -> None:
    fakes = rebalanced(annotations={"karpenter.sh/do-not-disrupt": "true"})
    assert retire(fakes).result is RetirementResult.DECLINED
    assert "node node-1 has karpenter.sh/do-not-disrupt" in fakes.reports.codes[0]


def test_a_group_that_rebalances_by_itself_is_left_to_it_until_its_hook_tells() -> None:
    fakes = rebalanced(overrides={"capacity_rebalance": True})
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.DECLINED
    assert "Capacity Rebalancing" in outcome.reason.message
    assert "hook tells when" in outcome.reason.message
    assert fakes.actions.done == []


@pytest.mark.parametrize("kind", [NoticeKind.REBALANCE, NoticeKind.SPOT_INTERRUPTION])
def test_a_dry_run_decides_and_reports_everything_and_acts_on_nothing(kind: NoticeKind) -> None:
    fakes = retirement_fakes(kind, pods=[POD], hooks=HOOKED, policy=ClusterPolicy(dry_run=True))
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.DRY_RUN
    assert (fakes.actions.done, fakes.actions.ended) == ([], [])
    assert outcome.replacement in {"launch-successor", "terminate-in-group"}
    assert [pod.pod for pod in outcome.pods] == ["shop/web-1"]
    assert "would be retired, 1 of its 1 pods would go" in outcome.summary.message
    assert "LeewayRetired" not in fakes.reports.codes
    assert fakes.record.answer is None, "no hook may be answered for it"


def test_a_policy_that_says_cordon_cordons_answers_the_hook_and_reports() -> None:
    fakes = retirement_fakes(NoticeKind.TERMINATE_HOOK, pods=[POD])
    fakes.record = fakes.record.model_copy(update={"action": Action.CORDON})
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.CORDONED
    assert [what for what, _ in fakes.actions.done] == ["cordon"]
    assert fakes.actions.ended == ["leeway-drain"]
    assert fakes.reports.codes[-1] == "LeewayCordoned"
    assert fakes.record.answer is HookResult.CONTINUE, "though that may not have arrived"


def test_what_is_called_off_before_it_began_is_undone_and_can_come_again() -> None:
    fakes = retirement_fakes(NoticeKind.SCHEDULED_CHANGE)
    news = {"after": 60, "event": fakes.record.event}
    told = undo(fakes.record, notice(NoticeKind.SCHEDULED_CHANGE, "n-2", **news))
    assert told is not None
    fakes.record = told.record
    outcome = fakes.run_attempt(2)
    assert outcome is not None
    assert outcome.result is RetirementResult.UNDONE
    assert fakes.actions.order_of("release", "cordon") == ["release", "release"]
    assert fakes.record.phase is Phase.UNDONE
    again = take(fakes.record, NoticeKind.SPOT_INTERRUPTION, "n-3", after=120)
    assert (again.start, again.record.attempt) == (True, 3)


def test_karpenters_node_that_the_policy_takes_is_drained_and_left_for_karpenter_to_end() -> None:
    fakes = retirement_fakes(pods=[POD], blocks=False, state=None)
    owner = Owner(OwnerKind.KARPENTER, "general")
    facts = fakes.record.facts.model_copy(update={"owner": owner})
    fakes.record = fakes.record.model_copy(update={"facts": facts})
    outcome = retire(fakes)
    assert (outcome.result, outcome.replacement) == (RetirementResult.DRAINED, "left-to-owner")
    assert fakes.actions.ended == []


def test_a_group_that_rebalances_by_itself_and_whose_hook_calls_others_is_not_waited_for() -> None:
    rules = {"capacity_rebalance": True, "foreign_terminate_hooks": ("cmdb",)}
    fakes = rebalanced(hooks=(), overrides=rules)
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.DRAINED, "nobody would tell when its group ends it"
    assert outcome.replacement == "left-to-owner"


def test_a_drained_instance_is_ended_by_its_group_where_its_hooks_call_others() -> None:
    fakes = rebalanced(hooks=(), overrides={"foreign_terminate_hooks": ("cmdb",)})
    assert retire(fakes).result is RetirementResult.DRAINED
    assert fakes.actions.order_of("launch", "evict", "terminate and decrement", "detach") == [
        "launch",
        "evict",
        "terminate and decrement",
    ]
