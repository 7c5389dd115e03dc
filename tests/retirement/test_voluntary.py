"""Voluntary retirements: the disruption budget, the successor, and superseded attempts."""

from datetime import timedelta

import pytest
from leeway.execution.attempt import OVERDUE, Phase
from leeway.instances.facts import Owner, OwnerKind
from leeway.notices import NoticeKind
from leeway.policy.rules import Action, ChurnCap, ClusterPolicy
from leeway.ports.aws import HookResult
from leeway.ports.kubernetes import ClusterUnavailable
from leeway.ports.kubernetes_objects import Pod
from leeway.retirement.disruption_budget import LEDGER, DisruptionLedger
from leeway.retirement.outcome import RetirementResult
from leeway.retirement.reasons import SUCCESSOR_FOUND
from leeway.retirement.record import latest_end

from tests.fakes.failing import failing
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
from tests.retirement.retirements import NOTICED, REQUESTED, take

NO_DISRUPTION = ChurnCap(percent=0, at_least=0)
NEVER = 10**7
"""Seconds: not during the test."""


def test_a_rebalance_evicts_nothing_before_the_successor_is_ready() -> None:
    fakes = rebalanced()
    outcome = retire(fakes)
    assert (outcome.result, outcome.replacement) == (RetirementResult.DRAINED, "launch-successor")
    assert fakes.actions.order_of("launch", "terminate and decrement", "evict") == [
        "launch",
        "evict",
        "terminate and decrement",
    ]
    assert fakes.groups.desired == 3, "one successor, and no other instance"
    evicted = next(at for what, at in fakes.actions.done if what == "evict")
    assert evicted - NOTICED >= timedelta(seconds=60)
    assert f"Successor {SUCCESSOR} is ready for pods" in outcome.replacement_reason.message
    [successor] = outcome.successors
    assert (successor.instance, successor.instance_type) == (SUCCESSOR, "m5.large")
    assert (successor.zone, successor.why) == (
        "us-east-1a",
        SUCCESSOR_FOUND("This is the instance's own zone, which keeps the balance of the group."),
    )
    assert f"Successor {SUCCESSOR} is of type m5.large in zone us-east-1a." in (
        outcome.replacement_reason.message
    )


def test_a_retirement_waits_ten_minutes_for_a_successor_that_is_not_ready() -> None:
    fakes = rebalanced(starts_in=None)
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.DRAINED
    evicted = next(at for what, at in fakes.actions.done if what == "evict")
    assert timedelta(minutes=10) <= evicted - NOTICED < timedelta(minutes=11)
    assert "No successor was ready for pods within 10 minutes" in outcome.replacement_reason.message
    assert outcome.deadline is not None
    assert outcome.deadline - evicted > timedelta(minutes=29), (
        "the deadline counts from the start of the drain"
    )


def test_a_group_that_reaches_its_maximum_before_the_launch_replaces_another_way() -> None:
    fakes = rebalanced(overrides={"maximum": 4}, maximum=3, notifies_hooks=True)
    outcome = retire(fakes)
    assert "above the maximum" in outcome.replacement_reason.message
    assert outcome.replacement == "terminate-in-group"
    assert fakes.actions.order_of("launch", "terminate", "evict") == ["terminate", "evict"]


def test_an_interruption_supersedes_a_rebalance_and_keeps_its_successor() -> None:
    fakes = rebalanced()
    superseded_at = "check-successor-2"
    fakes.steps.at(superseded_at)(lambda: fakes.receive(NoticeKind.SPOT_INTERRUPTION, after=40))
    assert fakes.run_attempt(1) is None, "the first attempt reports nothing"
    assert fakes.actions.order_of("evict", "terminate and decrement") == []
    fakes.groups.launched_at = (
        fakes.clock.time if fakes.groups.launched_at is None else fakes.groups.launched_at
    )
    outcome = next_attempt(fakes)
    assert outcome.kind is NoticeKind.SPOT_INTERRUPTION
    assert fakes.actions.order_of("launch", "terminate", "terminate and decrement") == [
        "launch",
        "terminate and decrement",
    ]
    assert fakes.groups.desired == 3
    assert fakes.actions.order_of("evict") == ["evict"]


def test_an_interruption_drains_before_the_termination_if_the_hook_is_gone() -> None:
    fakes = rebalanced()

    @fakes.steps.at("check-successor-2")
    def interrupt() -> None:
        fakes.receive(NoticeKind.SPOT_INTERRUPTION, after=40)
        fakes.groups.hooks = ()

    assert fakes.run_attempt(1) is None
    next_attempt(fakes)
    assert fakes.actions.order_of("launch", "evict", "terminate and decrement") == [
        "launch",
        "evict",
        "terminate and decrement",
    ]
    assert (fakes.groups.desired, fakes.record.must_restore_capacity) == (3, False)


STEPS = [
    "cordon",
    "request-replacement",
    "check-successor-1",
    "begin-drain",
    "drain-1",
    "finish",
]


@pytest.mark.parametrize("step", STEPS)
def test_an_attempt_that_is_superseded_before_a_step_does_nothing_in_it(step: str) -> None:
    fakes = rebalanced(pods=[POD])

    @fakes.steps.at(step)
    def supersede() -> None:
        fakes.receive(NoticeKind.SPOT_INTERRUPTION, after=90)
        fakes.actions.done.clear()

    assert fakes.run_attempt(1) is None
    assert fakes.actions.done == []
    assert fakes.record.phase is Phase.NOTICED, "the record of the newer attempt is not changed"


def test_an_attempt_that_is_superseded_during_a_pass_evicts_no_more_pods() -> None:
    fakes = retirement_fakes(pods=[POD], blocks=True)
    rounds = 0

    real = fakes.cluster.pods_on

    def pods_on(node: str, selector: str = "") -> list[Pod]:
        nonlocal rounds
        rounds += 1
        if rounds == 3:
            fakes.supersede()
            assert "evict" in [what for what, _ in fakes.actions.done]
            fakes.actions.done.clear()
        return real(node)

    fakes.cluster.pods_on = pods_on  # type: ignore[method-assign]
    assert fakes.run_attempt(1) is None
    assert fakes.actions.done == []
    assert rounds <= 4, "the pass ends"


def test_a_node_of_a_paused_cluster_is_not_changed_until_the_cluster_is_resumed() -> None:
    fakes = rebalanced(policy=ClusterPolicy(paused=True))

    @fakes.steps.at("request-disruption-5")
    def resume() -> None:
        assert fakes.actions.done == [], "the node is not cordoned"
        fakes.policies.policy = ClusterPolicy()

    assert retire(fakes).result is RetirementResult.DRAINED
    assert fakes.reports.codes[0] == "ClusterPaused"
    assert "Cluster prod is paused" in fakes.reports.reasons[0].message


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"policy": ClusterPolicy(paused=True)}, "Cluster prod is paused"),
        ({"policy": ClusterPolicy(churn=NO_DISRUPTION)}, "0 of 20 nodes"),
        ({"uncounted_for": NEVER}, "ClusterUnavailable: connection refused"),
    ],
)
def test_a_retirement_that_may_not_begin_is_declined_after_a_day(
    changes: dict[str, object], why: str
) -> None:
    fakes = rebalanced(**changes)
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.DECLINED
    assert outcome.summary.code == "RetirementDeclined"
    assert "was not allowed to begin within 24 hours" in outcome.summary.message
    assert why in outcome.summary.message
    assert fakes.actions.done == []
    assert fakes.steps.operations < 1000
    assert fakes.clock.time - NOTICED < timedelta(hours=25)


def marked_before(**changes: object) -> RetirementFakes:
    """A rebalance whose earlier attempt cordoned the node and did nothing more."""
    fakes = rebalanced(marked=True, **changes)
    fakes.amend(attempt=2)
    return fakes


def test_marks_of_a_crashed_cordon_are_removed_if_the_repeated_step_has_to_wait() -> None:
    fakes = rebalanced(marked=True, policy=ClusterPolicy(paused=True))
    outcome = retire(fakes)
    assert (outcome.result, outcome.node) == (RetirementResult.DECLINED, "")
    assert fakes.actions.order_of("release", "cordon") == ["release"]
    untouched = rebalanced(policy=ClusterPolicy(paused=True))
    retire(untouched)
    assert untouched.actions.done == []


def test_a_declined_retirement_removes_the_marks_of_an_earlier_attempt() -> None:
    fakes = marked_before(policy=ClusterPolicy(paused=True))
    outcome = next_attempt(fakes)
    assert (outcome.result, outcome.node) == (RetirementResult.DECLINED, "node-1")
    assert {what for what, _ in fakes.actions.done} == {"release"}
    assert fakes.reports.codes[-1] == "RetirementDeclined"


def test_a_node_is_uncordoned_while_its_retirement_waits_for_the_budget_again() -> None:
    fakes = marked_before(policy=ClusterPolicy(paused=True))
    fakes.steps.at("request-disruption-2")(fakes.policies.resume)
    assert next_attempt(fakes).result is RetirementResult.DRAINED
    assert fakes.actions.order_of("release", "cordon", "evict") == [
        "release",
        "release",
        "cordon",
        "cordon",
        "evict",
    ]


def test_a_retirement_that_is_left_to_the_group_uncordons_the_node_until_the_group_acts() -> None:
    waits = marked_before(overrides={"capacity_rebalance": True})
    outcome = waits.run_attempt(2)
    assert outcome is not None
    assert outcome.result is RetirementResult.DECLINED
    assert waits.actions.order_of("release") == ["release", "release"]
    goes = marked_before(state="Terminating:Wait")
    outcome = goes.run_attempt(2)
    assert outcome is not None
    assert outcome.result is RetirementResult.DECLINED
    assert goes.actions.done == [], "the notice of the hook continues from there"


def test_a_decline_repeats_until_the_marks_are_removed() -> None:
    fakes = marked_before(policy=ClusterPolicy(paused=True))
    failing(fakes.cluster, "release", ClusterUnavailable("connection refused"))
    with pytest.raises(ClusterUnavailable):
        fakes.run_attempt(2)
    assert fakes.record.phase is Phase.NOTICED, "the step is repeated"


def test_an_attempt_with_a_requested_successor_does_not_request_the_budget_again() -> None:
    fakes = marked_before(overrides={"refreshing": True}, policy=ClusterPolicy(churn=NO_DISRUPTION))
    fakes.amend(replacement_intent=REQUESTED)
    outcome = next_attempt(fakes)
    assert (outcome.result, outcome.replacement) == (RetirementResult.DRAINED, "launch-successor")
    assert not fakes.table.records(LEDGER, by="cluster")


def test_an_interruption_in_a_paused_cluster_is_drained() -> None:
    fakes = retirement_fakes(policy=ClusterPolicy(paused=True), pods=[POD], blocks=False)
    assert retire(fakes).result is RetirementResult.DRAINED


def test_a_retirement_over_the_budget_waits_and_reports_it() -> None:
    fakes = rebalanced(ready=10)
    earlier, _ = DisruptionLedger(cluster="prod").request("i-0earlier", 10, ChurnCap(), NOTICED)
    assert earlier is not None
    fakes.table.put(LEDGER, earlier)
    assert retire(fakes).result is RetirementResult.DRAINED
    assert fakes.reports.codes[0] == "DisruptionBudgetExhausted"
    assert "1 of 10 nodes" in fakes.reports.reasons[0].message
    cordoned = next(at for what, at in fakes.actions.done if what == "cordon")
    assert timedelta(minutes=10) <= cordoned - NOTICED < timedelta(minutes=12)


def test_a_retirement_that_waits_long_is_never_overdue() -> None:
    fakes = rebalanced(policy=ClusterPolicy(paused=True), starts_in=None)
    seen = set()

    def check(step: str) -> None:
        if fakes.clock.time - NOTICED > timedelta(hours=3):
            fakes.policies.policy = ClusterPolicy()
        seen.add(step.rstrip("-0123456789"))
        assert fakes.clock.time < latest_end(fakes.record) + OVERDUE

    fakes.steps.before_step = check
    assert retire(fakes).result is RetirementResult.DRAINED
    assert {"request-disruption", "check-successor", "begin-drain", "drain", "finish"} <= seen


def test_a_retirement_waits_for_a_pod_with_the_do_not_disrupt_annotation() -> None:
    until = NOTICED + timedelta(hours=2)
    busy = Pod("shop", "job-1", "u-2", "Running", 30, None, protected_until=until)
    fakes = rebalanced(pods=[busy])
    assert retire(fakes).result is RetirementResult.DRAINED
    assert "pod shop/job-1 has the annotation karpenter.sh/do-not-disrupt" in (
        fakes.reports.reasons[0].message
    )
    cordoned = next(at for what, at in fakes.actions.done if what == "cordon")
    assert until <= cordoned < until + timedelta(minutes=6)


def test_a_retirement_waits_for_a_node_with_the_do_not_disrupt_annotation() -> None:
    fakes = rebalanced(annotations={"karpenter.sh/do-not-disrupt": "true"})
    assert retire(fakes).result is RetirementResult.DECLINED
    assert "node node-1 has the annotation karpenter.sh/do-not-disrupt" in (
        fakes.reports.reasons[0].message
    )


def test_a_group_with_capacity_rebalancing_replaces_the_instance_until_its_hook_notifies() -> None:
    fakes = rebalanced(overrides={"capacity_rebalance": True})
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.DECLINED
    assert "Capacity Rebalancing" in outcome.reason.message
    assert "terminate hook starts the drain" in outcome.reason.message
    assert fakes.actions.done == []


@pytest.mark.parametrize("hooks", [(), HOOKED])
def test_a_retirement_waits_until_the_instance_is_in_service(hooks: tuple[str, ...]) -> None:
    fakes = rebalanced(state="Pending:Wait", hooks=hooks)

    @fakes.steps.at("request-disruption-5")
    def enter_service() -> None:
        assert fakes.actions.done == [], "the node is not cordoned"
        fakes.groups.state = "InService"

    outcome = retire(fakes)
    assert (outcome.result, outcome.replacement) == (RetirementResult.DRAINED, "launch-successor")
    assert fakes.actions.order_of("launch", "evict", "terminate and decrement") == [
        "launch",
        "evict",
        "terminate and decrement",
    ]
    assert fakes.groups.desired == 3
    assert fakes.reports.codes[0] == "InstanceEntersService"
    assert "in lifecycle state Pending:Wait" in fakes.reports.reasons[0].message


def test_a_node_is_uncordoned_while_its_retirement_waits_for_its_instance() -> None:
    fakes = marked_before(state="Pending:Wait")

    @fakes.steps.at("request-disruption-2")
    def enter_service() -> None:
        assert fakes.actions.order_of("release") == ["release", "release"]
        fakes.groups.state = "InService"

    assert next_attempt(fakes).result is RetirementResult.DRAINED


@pytest.mark.parametrize("kind", [NoticeKind.REBALANCE, NoticeKind.SPOT_INTERRUPTION])
def test_a_dry_run_reports_all_decisions_and_changes_nothing(kind: NoticeKind) -> None:
    fakes = retirement_fakes(kind, pods=[POD], hooks=HOOKED, policy=ClusterPolicy(dry_run=True))
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.DRY_RUN
    assert (fakes.actions.done, fakes.actions.ended) == ([], [])
    assert outcome.replacement in {"launch-successor", "terminate-in-group"}
    assert [pod.pod for pod in outcome.pods] == ["shop/web-1"]
    assert outcome.summary.code == "RetirementDryRun"
    assert "pods that would be evicted: 1 of 1." in outcome.summary.message
    assert fakes.reports.codes == ["RetirementDryRun"], "there is no Kubernetes Event"
    assert fakes.record.answer is None, "no hook is answered after a dry run"


def test_a_policy_with_action_cordon_cordons_answers_the_hook_and_reports() -> None:
    fakes = retirement_fakes(NoticeKind.TERMINATE_HOOK, pods=[POD])
    fakes.amend(action=Action.CORDON)
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.CORDONED
    assert [what for what, _ in fakes.actions.done] == ["cordon"]
    assert fakes.actions.ended == ["leeway-drain"]
    assert fakes.reports.codes[-1] == "NodeCordoned"
    assert fakes.record.answer is HookResult.CONTINUE, "the record has the answer"


def test_a_withdrawn_notice_undoes_a_retirement_that_has_not_begun() -> None:
    fakes = retirement_fakes(NoticeKind.SCHEDULED_CHANGE)
    news = {"after": 60, "event": fakes.record.event}
    fakes.undo(NoticeKind.SCHEDULED_CHANGE, **news)
    outcome = next_attempt(fakes)
    assert outcome.result is RetirementResult.UNDONE
    assert fakes.actions.order_of("release", "cordon") == ["release", "release"]
    assert fakes.record.phase is Phase.UNDONE
    again = take(fakes.record, NoticeKind.SPOT_INTERRUPTION, "n-3", after=120)
    assert (again.start, again.record.attempt) == (True, 3)


def test_a_karpenter_node_that_leeway_retires_is_drained_and_not_terminated() -> None:
    fakes = retirement_fakes(pods=[POD], blocks=False, state=None)
    owner = Owner(OwnerKind.KARPENTER, "general")
    facts = fakes.record.facts.model_copy(update={"owner": owner})
    fakes.amend(facts=facts)
    outcome = retire(fakes)
    assert (outcome.result, outcome.replacement) == (RetirementResult.DRAINED, "left-to-owner")
    assert fakes.actions.ended == []


def test_a_group_with_capacity_rebalancing_and_a_foreign_hook_is_not_waited_for() -> None:
    rules = {"capacity_rebalance": True, "foreign_terminate_hooks": ("cmdb",)}
    fakes = rebalanced(hooks=(), overrides=rules)
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.DRAINED, (
        "no notice would come when the group terminates it"
    )
    assert outcome.replacement == "left-to-owner"


def test_the_row_of_a_retirement_says_what_it_waits_for() -> None:
    fakes = rebalanced(uncounted_for=180)
    retire(fakes)
    problems = [one.problem for one in fakes.fast.states]
    assert problems[0] is not None
    assert problems[0].code == "DisruptionNotDecided"
    assert "connection refused" in problems[0].message
    assert problems[-1] is None
