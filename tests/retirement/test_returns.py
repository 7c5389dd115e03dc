"""Capacity that is given back: confirmed right after the cordon, or the node is uncordoned."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway.capacity_requests import PriceLimit
from leeway.disruption.reasons import POOL_IS_AWAKE
from leeway.instances.facts import Owner, OwnerKind
from leeway.notices import NoticeKind
from leeway.policy.rules import (
    SUCCESSOR_TIMEOUT,
    Action,
    ChurnCap,
    ClusterPolicy,
    OnBlocked,
    Replacement,
    Ruling,
)
from leeway.ports.kubernetes_objects import (
    DO_NOT_CONSOLIDATE,
    DO_NOT_DISRUPT,
    Controller,
    Node,
    Pod,
)
from leeway.retirement.attempts import apply_return, undo_return
from leeway.retirement.cordon import why_kept
from leeway.retirement.disruption_budget import (
    INVOLUNTARY_BEFORE,
    LEDGER,
    DisruptionLedger,
    read_ledger,
)
from leeway.retirement.outcome import Outcome, RetirementResult
from leeway.retirement.record import RETIREMENT, ReturnTerms
from leeway.switched import SWITCH, Buyer, Switch, switch_of

from tests.fakes.pools import LIMIT, OF_POOL, FakeBuyer, of_pool
from tests.fakes.retirement import POD, RetirementFakes, next_attempt, rebalanced, retire
from tests.retirement.retirements import NOTICED, take

RETURN = NoticeKind.CAPACITY_RETURN
FOREVER = datetime.max.replace(tzinfo=UTC)
WEB = replace(POD, controller=Controller("ReplicaSet", "web"))
DAEMON = replace(POD, name="cni", controller=Controller("DaemonSet", "cni"))
FINISHED = replace(POD, name="job", phase="Succeeded")
EMPTY = ReturnTerms(cause="Empty", pods=0)
UNDERUSED = ReturnTerms(cause="Underutilized", pods=1)
EXPIRED = ReturnTerms(cause="Expired")
FORCED = ReturnTerms(cause="Expired", forced=True)
PROTECTED = {DO_NOT_DISRUPT: "true"}


def returned(terms: ReturnTerms, *pods: Pod, **changes: Any) -> RetirementFakes:
    """The retirement of a node of Leeway's own that is given back; it has these pods by now."""
    fakes = of_pool(RETURN, pods=list(pods), blocks=False, **changes)
    when = Replacement.NONE if terms.pods == 0 else Replacement.BEFORE
    fields = {"terms": terms, "replacement": when}
    fakes.amend(**fields)
    return fakes


def kept(fakes: RetirementFakes) -> Outcome:
    """Retire, and see that the node is uncordoned and nothing else happened to it."""
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.DECLINED
    done = fakes.actions.order_of("cordon", "evict", "delete", "buy")
    assert set(done) <= {"cordon"}
    assert not fakes.cluster.marked
    assert fakes.actions.ended == []
    assert not fakes.record.is_open
    assert not outcome.terminated
    return outcome


def test_an_empty_node_is_terminated() -> None:
    fakes = returned(EMPTY, DAEMON, FINISHED)
    outcome = retire(fakes)
    assert (outcome.result, outcome.terminated) == (RetirementResult.DRAINED, True)
    assert not fakes.capacity, "it needs no successor"
    assert fakes.record.is_terminated
    assert fakes.queue.wakes == [("prod", "the return of node-1 has ended")]


def test_a_pod_that_came_between_the_decision_and_the_cordon_keeps_the_node() -> None:
    assert "has 1 pod now" in kept(returned(EMPTY, WEB)).reason.message
    more = replace(WEB, name="web-2")
    assert "has 2 pods now" in kept(returned(UNDERUSED, WEB, more)).reason.message


def test_a_pod_that_still_terminates_keeps_an_empty_node() -> None:
    ending = replace(WEB, deletion=NOTICED.replace(hour=23))
    assert "has 1 pod now" in kept(returned(EMPTY, ending)).reason.message


def test_a_budget_that_blocks_now_keeps_the_node() -> None:
    fakes = returned(UNDERUSED, WEB)
    fakes.cluster.blocks = True
    assert "refuses to evict pod" in kept(fakes).reason.message


@pytest.mark.parametrize("terms", [UNDERUSED, EXPIRED])
def test_an_annotation_keeps_the_node(terms: ReturnTerms) -> None:
    protected = replace(WEB, protected_until=FOREVER)
    assert kept(returned(terms, protected)).reason.code == "NodeProtected"


def test_pods_that_cannot_be_read_keep_the_node() -> None:
    fakes = returned(UNDERUSED, WEB)
    fakes.cluster.lists = False
    assert retire(fakes).result is RetirementResult.DECLINED
    assert fakes.actions.ended == []


@pytest.mark.parametrize(
    ("minutes", "result"), [(2, RetirementResult.DRAINED), (30, RetirementResult.DECLINED)]
)
def test_a_return_waits_a_little_for_an_api_server_that_does_not_answer(
    minutes: int, result: RetirementResult
) -> None:
    fakes = returned(UNDERUSED, WEB)
    fakes.cluster.uncounted_for = 60 * minutes
    assert retire(fakes).result is result
    assert fakes.clock.time - NOTICED < timedelta(minutes=5)


def test_an_expired_node_goes_after_its_successor_is_ready() -> None:
    fakes = returned(EXPIRED, WEB)
    outcome = retire(fakes)
    assert fakes.actions.order_of("buy", "evict") == ["buy", "evict"]
    assert (outcome.result, outcome.terminated) == (RetirementResult.DRAINED, True)
    (request,) = fakes.capacity.values()
    assert request.keeps_offering


def test_a_bounded_drain_keeps_a_protected_pod_until_its_latest_moment() -> None:
    """As Karpenter: terminationGracePeriod less the pod's own grace period."""
    fakes = returned(FORCED, replace(WEB, protected_until=FOREVER))
    deadline = {"deadline": NOTICED + timedelta(minutes=30), "on_blocked": OnBlocked.DELETE}
    fakes.amend(**deadline)
    outcome = retire(fakes)
    assert (outcome.result, outcome.terminated) == (RetirementResult.DRAINED, True)
    began = fakes.record.drain_began_at
    assert began is not None
    waited = fakes.actions.first("evict") - began
    assert timedelta(minutes=29) < waited < timedelta(minutes=30)
    assert timedelta(minutes=30, seconds=-30) - waited < timedelta(seconds=5)


def test_a_forceful_expiration_without_a_bound_waits_for_a_protected_pod() -> None:
    until = NOTICED + timedelta(hours=3)
    fakes = returned(FORCED, replace(WEB, protected_until=until), annotations=PROTECTED)
    outcome = retire(fakes)
    assert (outcome.result, outcome.terminated) == (RetirementResult.DRAINED, True)
    assert until <= fakes.actions.first("evict") < until + timedelta(minutes=11)
    assert outcome.pods[0].attempts == 1


def test_a_forceful_expiration_begins_although_a_budget_blocks() -> None:
    fakes = returned(FORCED, WEB)
    fakes.cluster.blocks = True

    def allows(step: str) -> None:
        fakes.cluster.blocks = fakes.clock.time < NOTICED + timedelta(hours=2)

    fakes.steps.before_step = allows
    assert retire(fakes).terminated
    assert "delete" not in fakes.actions.order_of("delete")


def test_a_return_that_may_not_begin_is_declined_and_waits_for_nothing() -> None:
    fakes = returned(EMPTY)
    fakes.policies.policy = ClusterPolicy(paused=True)
    assert kept(fakes).reason.code == "ClusterPaused"
    fakes = returned(UNDERUSED, WEB)
    fakes.policies.policy = ClusterPolicy(churn=ChurnCap(percent=0, at_least=0))
    assert kept(fakes).reason.code == "DisruptionBudgetExhausted"


def switched_to(fakes: RetirementFakes, buyer: Buyer) -> None:
    old = switch_of(fakes.table, "prod")
    version = old.version + 1 if old is not None else 1
    fakes.table.put(SWITCH, Switch("prod", version, buyer, NOTICED))


def test_nothing_is_given_back_in_a_cluster_that_is_switched_to_karpenter() -> None:
    """`leeway switch` hands the nodes over, and a node that Leeway ends meanwhile is lost twice."""
    fakes = returned(EMPTY)
    switched_to(fakes, Buyer.KARPENTER)
    assert kept(fakes).reason.code == "SwitchedToKarpenter"
    fakes = returned(EMPTY)
    switched_to(fakes, Buyer.LEEWAY)
    assert retire(fakes).terminated


def test_a_scheduled_change_waits_for_a_switch_and_an_interruption_does_not() -> None:
    fakes = of_pool(NoticeKind.SCHEDULED_CHANGE, pods=[], blocks=False)
    switched_to(fakes, Buyer.KARPENTER)

    @fakes.steps.at("request-disruption-5")
    def switch_back() -> None:
        assert fakes.actions.done == [], "the node is not cordoned"
        switched_to(fakes, Buyer.LEEWAY)

    assert retire(fakes).terminated
    assert fakes.reports.codes[0] == "SwitchedToKarpenter"
    fakes = of_pool(NoticeKind.SPOT_INTERRUPTION, pods=[], blocks=False)
    switched_to(fakes, Buyer.KARPENTER)
    assert retire(fakes).result is RetirementResult.DRAINED


KARPENTERS = OF_POOL.model_copy(update={"owner": Owner(OwnerKind.KARPENTER, "spot-general")})


@pytest.mark.parametrize("taken_over", ["request-disruption-5", "request-disruption-24"])
def test_a_scheduled_change_of_a_node_that_a_switch_took_over_drains_nothing(
    taken_over: str,
) -> None:
    """The change is in an hour and some minutes: Leeway waits until an hour before it."""
    fakes = of_pool(NoticeKind.SCHEDULED_CHANGE, pods=[POD], blocks=False)
    deadline = NOTICED + INVOLUNTARY_BEFORE + timedelta(minutes=22, seconds=30)
    fakes.amend(deadline=deadline)
    switched_to(fakes, Buyer.KARPENTER)

    @fakes.steps.at(taken_over)
    def take_over() -> None:
        fakes.instances.described = KARPENTERS

    outcome = retire(fakes)
    assert (outcome.result, outcome.terminated) == (RetirementResult.DECLINED, False)
    assert "is of karpenter spot-general now" in outcome.reason.message
    assert fakes.actions.done == []
    assert len(fakes.cluster.pods) == 1
    began = fakes.clock.time - deadline + INVOLUNTARY_BEFORE
    assert (began > timedelta(0)) is (taken_over == "request-disruption-24")


def test_a_scheduled_change_of_leeways_node_is_drained_in_the_last_hour_of_a_switch() -> None:
    fakes = of_pool(NoticeKind.SCHEDULED_CHANGE, pods=[POD], blocks=False)
    switched_to(fakes, Buyer.KARPENTER)
    assert retire(fakes).result is RetirementResult.DRAINED
    assert fakes.clock.time >= NOTICED.replace(hour=12)


def test_a_node_of_a_group_does_not_wait_for_a_switch() -> None:
    fakes = rebalanced()
    switched_to(fakes, Buyer.KARPENTER)
    assert retire(fakes).result is RetirementResult.DRAINED


def test_an_empty_node_does_not_count_against_the_budget_of_the_cluster() -> None:
    fakes = returned(EMPTY)
    fakes.policies.policy = ClusterPolicy(churn=ChurnCap(percent=0, at_least=0))
    assert retire(fakes).terminated
    assert not read_ledger(fakes.table, "prod").begun


def test_the_budget_counts_a_return_that_moves_pods() -> None:
    fakes = returned(UNDERUSED, WEB)
    retire(fakes)
    ledger = read_ledger(fakes.table, "prod")
    assert ledger.left(10, ChurnCap(), fakes.clock.now()) == 0
    assert DisruptionLedger(cluster="prod").left(30, ChurnCap(), NOTICED) == 3


def test_a_declined_return_ends_its_request_for_nodes() -> None:
    fakes = returned(UNDERUSED, WEB, replace(WEB, name="web-2"))
    before = returned(EXPIRED, WEB)
    retire(before)
    (request,) = before.capacity.values()
    later = request.model_copy(
        update={"version": 1, "ends_at": NOTICED + timedelta(days=365), "attempt": 1}
    )
    fakes.capacity[later.instance] = later
    kept(fakes)
    (request,) = fakes.capacity.values()
    assert not request.is_open(fakes.clock.now())


def test_an_interruption_takes_over_a_return() -> None:
    fakes = returned(UNDERUSED, WEB)
    change = take(fakes.record, NoticeKind.SPOT_INTERRUPTION, "n-2")
    assert (change.start, change.record.attempt) == (True, 2)
    assert change.record.returns is None
    fakes.record = change.record
    assert fakes.run_attempt(1) is None
    outcome = next_attempt(fakes)
    assert (outcome.kind, outcome.result) == ("spot-interruption", "drained")


@given(
    count=st.integers(0, 5),
    allowed=st.integers(0, 5) | st.none(),
    forced=st.booleans(),
    optional=st.booleans(),
    protected=st.booleans(),
)
def test_a_node_goes_only_with_the_pods_that_were_decided_about(
    count: int, allowed: int | None, forced: bool, optional: bool, protected: bool
) -> None:
    node = Node("n", "u", "aws:///z/i-1", True, True, {}, {DO_NOT_DISRUPT: "true"})
    free = replace(node, annotations={})
    terms = ReturnTerms(cause="Drifted", pods=allowed, forced=forced, optional=optional)
    why = why_kept(node if protected else free, [WEB] * count, terms, NOTICED)
    too_many = allowed is not None and count > allowed
    assert (why is not None) == (too_many or (protected and (optional or not forced)))


@pytest.mark.parametrize(("cause", "kept"), [("Underutilized", True), ("Drifted", False)])
def test_do_not_consolidate_keeps_a_cordoned_node_from_consolidation(
    cause: str, kept: bool
) -> None:
    node = Node("n", "u", "aws:///z/i-1", True, True, {}, {DO_NOT_CONSOLIDATE: "true"})
    terms = ReturnTerms(cause=cause, pods=1, optional=True)
    assert (why_kept(node, [WEB], terms, NOTICED) is not None) is kept


CHEAPER = ReturnTerms(cause="Underutilized", pods=1, optional=True)
DRIFTED = ReturnTerms(cause="Drifted", optional=True)


def called_off(fakes: RetirementFakes) -> Outcome:
    """Retire, and see that the node is uncordoned, runs on, and may be decided about again."""
    outcome = retire(fakes)
    assert (outcome.result, outcome.terminated) == (RetirementResult.DECLINED, False)
    assert "cordon" in fakes.actions.order_of("cordon")
    assert not fakes.cluster.marked
    assert fakes.actions.ended == []
    record = fakes.record
    assert (record.is_open, record.had_no_effect) == (False, True)
    assert record.replacement_intent is None
    assert all(not one.is_open(fakes.clock.now()) for one in fakes.capacity.values())
    return outcome


@pytest.mark.parametrize("terms", [CHEAPER, DRIFTED])
@pytest.mark.parametrize("why", ["not launched", "not answered", "never Ready", "no devices"])
def test_a_return_without_a_ready_successor_is_called_off(terms: ReturnTerms, why: str) -> None:
    fakes = returned(terms, WEB)
    match why:
        case "not launched":
            fakes.queue.on_wake = FakeBuyer(fakes, launches=False, refuses=(LIMIT,)).run
        case "not answered":
            fakes.queue.on_wake = lambda _: None
        case "no devices":
            fakes.cluster.settles_in, fakes.cluster.startup_taints = 10**6, ()
        case _:
            fakes.cluster.starts_in = None
    outcome = called_off(fakes)
    assert "No replacement was ready for all of its pods" in outcome.reason.message
    assert "uncordoned and kept" in outcome.as_node_event("uid").message
    assert "evict" not in fakes.actions.order_of("evict")
    assert outcome.ended_at - NOTICED >= SUCCESSOR_TIMEOUT


@pytest.mark.parametrize("terms", [EXPIRED, FORCED])
def test_an_expired_node_goes_after_the_time_for_its_successor(terms: ReturnTerms) -> None:
    fakes = returned(terms, WEB)
    fakes.cluster.starts_in = None
    outcome = retire(fakes)
    assert (outcome.result, outcome.terminated) == (RetirementResult.DRAINED, True)


def bounded(terms: ReturnTerms) -> RetirementFakes:
    """The return of a node of which a budget blocks the drain, once it has begun, until the end of
    its time."""
    fakes = returned(terms, WEB)
    deadline = {"deadline": NOTICED + timedelta(minutes=5), "on_blocked": OnBlocked.WAIT}
    fakes.amend(**deadline)

    def blocks(step: str) -> None:
        fakes.cluster.blocks = step.startswith("drain")

    fakes.steps.before_step = blocks
    return fakes


def test_a_bounded_drain_that_stays_incomplete_uncordons_a_node_that_may_stay() -> None:
    fakes = bounded(CHEAPER)
    outcome = called_off(fakes)
    assert "is not drained in the time" in outcome.reason.message
    assert "uncordoned and kept" in outcome.as_node_event("uid").message
    assert [pod.stage for pod in outcome.pods] == ["failed"]
    later = take(fakes.record, RETURN, "again", after=1_200).record
    assert (later.attempt, later.drain_began_at, later.replacement_intent) == (2, None, None)


def test_a_bounded_drain_of_an_expired_node_that_stays_incomplete_ends_its_instance() -> None:
    fakes = bounded(FORCED)
    outcome = retire(fakes)
    assert (outcome.result, outcome.terminated) == (RetirementResult.INCOMPLETE, True)
    assert not fakes.record.is_open


def test_an_expired_node_whose_pods_were_never_listed_is_not_ended() -> None:
    fakes = bounded(FORCED)

    def refuses(step: str) -> None:
        fakes.cluster.lists = not step.startswith("drain")

    fakes.steps.before_step = refuses
    assert not retire(fakes).terminated
    assert fakes.record.needs_termination


def test_an_interruption_during_a_return_that_is_called_off_keeps_the_node_cordoned() -> None:
    fakes = bounded(CHEAPER)

    def interrupted(step: str) -> None:
        fakes.cluster.blocks = step.startswith("drain")
        if step == "call-off":
            fakes.receive(NoticeKind.SPOT_INTERRUPTION, after=2_000)

    fakes.steps.before_step = interrupted
    assert fakes.run_attempt() is None
    assert fakes.cluster.marked


def test_a_request_of_a_return_has_its_price_limit() -> None:
    limit = PriceLimit(decision="node-1", below=0.1)
    fakes = returned(CHEAPER.model_copy(update={"price_limit": limit}), WEB)
    retire(fakes)
    (request,) = fakes.capacity.values()
    assert request.price_limit == limit


DELETED = ReturnTerms(cause="NodeDeleted")
NEVER = timedelta(days=300).total_seconds()


def without_node(**changes: Any) -> RetirementFakes:
    """The retirement of an instance whose Node was deleted."""
    fakes = returned(DELETED, **changes)
    facts = fakes.record.facts.model_copy(update={"joined": True, "from_fleet": True})
    fields = {"facts": facts, "replacement": Replacement.NONE}
    fakes.amend(**fields)
    fakes.cluster.joins_in = NEVER
    return fakes


def test_an_instance_without_a_node_ends_after_15_minutes() -> None:
    fakes = without_node()
    outcome = retire(fakes)
    assert (outcome.result, outcome.terminated) == (RetirementResult.NO_NODE, True)
    assert outcome.ended_at - NOTICED >= timedelta(minutes=15)
    assert outcome.ended_at - NOTICED < timedelta(minutes=17)
    assert fakes.actions.ended, "the instance ends"


def test_a_node_that_comes_back_keeps_its_instance() -> None:
    fakes = without_node()
    fakes.cluster.joins_in = timedelta(minutes=8).total_seconds()
    assert "has Node node-1 again" in kept(fakes).reason.message
    assert fakes.clock.now() - NOTICED < timedelta(minutes=10)


def test_instances_without_nodes_wait_for_the_disruption_budget() -> None:
    fakes = without_node()
    at = NOTICED + timedelta(minutes=12)
    begun = {"i-1": at, "i-2": at}
    ledger = DisruptionLedger(cluster="prod", version=1, begun=begun)
    fakes.table.put(LEDGER, ledger)
    outcome = retire(fakes)
    assert outcome.terminated
    assert outcome.ended_at >= at + timedelta(minutes=10)


def test_a_paused_cluster_ends_no_instance_without_a_node() -> None:
    fakes = without_node()
    fakes.policies.policy = ClusterPolicy(paused=True)
    outcome = retire(fakes)
    assert (outcome.result, outcome.terminated) == (RetirementResult.DECLINED, False)


def test_an_api_server_that_does_not_answer_ends_no_instance() -> None:
    fakes = without_node()
    fakes.cluster.down_for = timedelta(minutes=40).total_seconds()
    outcome = retire(fakes)
    assert outcome.terminated
    assert outcome.ended_at >= NOTICED + timedelta(minutes=40)


@pytest.mark.parametrize(("cause", "kept"), [("Hibernation", True), ("Drifted", False)])
def test_a_pod_without_a_controller_keeps_a_cordoned_node_of_a_pool_that_hibernates(
    cause: str, kept: bool
) -> None:
    node = Node("n", "u", "aws:///z/i-1", True, True, {}, {})
    bare = replace(WEB, controller=None)
    why = why_kept(node, [WEB, bare], ReturnTerms(cause=cause), NOTICED)
    assert (why is not None) is kept


def test_a_node_whose_pool_wakes_stays_although_its_drain_has_begun() -> None:
    """A PodDisruptionBudget lets go one of two pods at night, and blocks the other one."""
    other = replace(WEB, name="web-2", uid="u-2")
    fakes = returned(ReturnTerms(cause="Hibernation"), WEB, other)
    fakes.amend(replacement=Replacement.NONE)

    def wake(step: str) -> None:
        fakes.cluster.blocks = step.startswith("drain")  # after the dry run
        if step == "drain-3" and fakes.record.attempt == 1:
            reason = POOL_IS_AWAKE(pool="spot-general", instance="i-1")
            undoing = undo_return(fakes.record, reason, fakes.clock.time)
            assert undoing is not None
            fakes.table.put(RETIREMENT, undoing)

    fakes.steps.before_step = wake
    assert fakes.run_attempt(1) is None
    outcome = next_attempt(fakes)
    assert (outcome.result, outcome.terminated) == (RetirementResult.UNDONE, False)
    assert not fakes.cluster.marked
    assert fakes.actions.ended == []
    assert len(fakes.cluster.pods) == 2
    assert not fakes.record.is_open
    assert undo_return(fakes.record, outcome.reason, fakes.clock.time) is None


def test_a_drain_that_waits_at_night_ends_when_its_expired_node_has_to() -> None:
    fakes = returned(ReturnTerms(cause="Hibernation"), WEB)
    waits = {"replacement": Replacement.NONE, "deadline": None, "on_blocked": OnBlocked.WAIT}
    fakes.amend(**waits)

    def expire(step: str) -> None:
        fakes.cluster.blocks = fakes.cluster.blocks or step.startswith("drain")
        if step == "drain-4":
            now = fakes.clock.time
            ruling = Ruling(
                action=Action.RETIRE,
                deadline=now + timedelta(hours=1),
                replacement=Replacement.NONE,
                on_blocked=OnBlocked.DELETE,
                reason=fakes.record.reason,
            )
            change = apply_return(fakes.record, OF_POOL, ruling, FORCED, now)
            assert (change.write, change.start) == (True, True)
            fakes.table.put(RETIREMENT, change.record)

    fakes.steps.before_step = expire
    assert fakes.run_attempt(1) is None
    began, fakes.steps.before_step = fakes.clock.time, lambda _: None
    outcome = next_attempt(fakes)
    assert (outcome.result, outcome.terminated) == (RetirementResult.DRAINED, True)
    assert fakes.actions.order_of("delete") == ["delete"]
    assert timedelta(minutes=50) < fakes.actions.first("delete") - began < timedelta(minutes=61)


def test_only_a_return_whose_drain_has_not_ended_is_undone() -> None:
    fakes = returned(ReturnTerms(cause="Hibernation"), WEB)
    reason = POOL_IS_AWAKE(pool="spot-general", instance="i-1")
    rebalance = rebalanced().record
    assert undo_return(rebalance, reason, NOTICED) is None
    assert retire(fakes).terminated
    assert undo_return(fakes.record, reason, NOTICED) is None
