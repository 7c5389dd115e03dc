"""Retirements whose successors come from Leeway's pools."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from leeway.capacity_requests import CAPACITY_REQUEST, CapacityAnswer, CapacityRequest
from leeway.execution.attempt import Phase
from leeway.instances.facts import Owner, OwnerKind
from leeway.notices import NoticeKind
from leeway.policy.rules import SUCCESSOR_TIMEOUT, ClusterPolicy, Replacement
from leeway.ports.kubernetes_objects import Taint
from leeway.retirement.outcome import FAILED, RetirementResult
from leeway.retirement.retire_node import retire_node

from tests.fakes.cluster import STARTUP_TAINT
from tests.fakes.groups import SUCCESSOR
from tests.fakes.pools import LAUNCHED, LIMIT, OF_POOL, FakeBuyer, of_pool
from tests.fakes.retirement import (
    RetirementFakes,
    drained_at,
    next_attempt,
    retire,
    whole_seconds,
)
from tests.retirement.retirements import FACTS, NOTICED

INTERRUPTION, REBALANCE = NoticeKind.SPOT_INTERRUPTION, NoticeKind.REBALANCE
NEVER = 10**9
"""Seconds: the node does not join during the test."""


def the_request(fakes: RetirementFakes) -> CapacityRequest:
    [request] = fakes.capacity.values()
    return request


def no_buyer(fakes: RetirementFakes) -> RetirementFakes:
    """The same fakes, with a buyer that does not run when it is woken."""
    fakes.queue.on_wake = lambda _: None
    return fakes


# Interruptions


def test_an_interruption_requests_nodes_before_the_first_eviction() -> None:
    fakes = of_pool(INTERRUPTION)
    outcome = retire(fakes)
    assert fakes.actions.order_of("cordon", "buy", "evict") == ["cordon", "buy", "evict"]
    assert drained_at(fakes) == timedelta(0)
    request = the_request(fakes)
    offering = (request.instance_type, request.zone, request.capacity_type)
    assert (request.node, offering) == ("node-1", ("m5.large", "us-east-1a", "spot"))
    assert fakes.queue.wakes == [("prod", "node node-1 retires")]
    assert outcome.result is RetirementResult.DRAINED
    assert LAUNCHED in outcome.replacement_reason.message
    assert LAUNCHED in outcome.as_node_event("uid").message
    assert f"Replacement: request-capacity {SUCCESSOR}." in outcome.summary.message
    assert not outcome.needs_attention


def test_an_interruption_is_drained_as_early_without_the_queue() -> None:
    fakes = of_pool(INTERRUPTION)
    fakes.queue.down = True
    outcome = retire(fakes)
    assert (outcome.result, outcome.replacement) == ("drained", "request-capacity")
    assert drained_at(fakes) == timedelta(0)
    assert "cannot be woken" in fakes.reports.of("CapacityRequestFailed")
    assert "provision_nodes cannot be woken" in outcome.replacement_reason.message
    assert the_request(fakes).attempt == 1, "the next run of provision_nodes finds it"


def test_an_interruption_is_drained_as_early_and_as_fast_without_the_table() -> None:
    usual, fakes = of_pool(INTERRUPTION), of_pool(INTERRUPTION)
    retire(usual)
    fakes.fast.down = True
    outcome = retire(fakes)
    assert (outcome.result, outcome.replacement) == ("drained", FAILED)
    assert drained_at(fakes) == timedelta(0)
    assert abs(fakes.clock.time - usual.clock.time) < timedelta(seconds=1)
    assert "cannot be written" in fakes.reports.of("CapacityRequestFailed")
    assert outcome.needs_attention


def test_the_outcome_of_a_fast_drain_waits_for_an_answer_that_comes_seconds_later() -> None:
    fakes = of_pool(INTERRUPTION)
    buy, fakes.queue.on_wake = fakes.queue.on_wake, lambda _: None
    fakes.steps.at("check-answer-3")(lambda: buy("prod"))
    outcome = retire(fakes)
    assert drained_at(fakes) == timedelta(0)
    assert [one.instance for one in outcome.successors] == [SUCCESSOR]
    assert LAUNCHED in outcome.as_node_event("uid").message


def test_the_outcome_does_not_wait_long_for_an_answer() -> None:
    fakes = no_buyer(of_pool(INTERRUPTION))
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.DRAINED
    assert "has not answered" in outcome.replacement_reason.message
    assert outcome.ended_at - NOTICED < timedelta(seconds=40)


def test_a_request_that_failed_is_repeated_before_the_next_pass() -> None:
    fakes = of_pool(INTERRUPTION, blocks=True)
    fakes.fast.down = True

    def recovers(step: str) -> None:
        fakes.fast.down = fakes.fast.down and step != "retry-replacement-2"

    fakes.steps.before_step = recovers
    outcome = retire(fakes)
    assert outcome.replacement == "request-capacity"
    assert [one.instance for one in outcome.successors] == [SUCCESSOR]


def test_without_a_queue_the_request_is_written() -> None:
    fakes = no_buyer(of_pool(INTERRUPTION))
    ports = replace(fakes.ports, provision_nodes=None)
    outcome = retire_node(replace(fakes.attempt(), ports=ports))
    assert outcome is not None
    assert (outcome.replacement, fakes.queue.wakes) == ("request-capacity", [])
    assert the_request(fakes).node == "node-1"


def test_an_interruption_requests_nodes_although_the_cordon_is_refused() -> None:
    fakes = of_pool(INTERRUPTION, cordons_refused=3)
    retire(fakes)
    assert the_request(fakes).node == "node-1"
    assert whole_seconds(fakes.actions.first("buy") - NOTICED) == timedelta(0)


def test_an_interrupted_instance_that_has_not_joined_is_promised_to_no_pod_any_more() -> None:
    fakes = no_buyer(of_pool(INTERRUPTION, joins_in=NEVER))
    outcome = retire(fakes)
    assert (outcome.result, outcome.replacement) == (RetirementResult.NO_NODE, "nothing")
    assert "no pod needs another place" in outcome.replacement_reason.message
    request = the_request(fakes)
    assert (request.instance, request.node) == (FACTS.instance, "")
    assert request.requested_at - NOTICED < timedelta(seconds=1)
    assert fakes.queue.wakes == [("prod", f"instance {FACTS.instance} without a node retires")]
    assert not fakes.record.is_open


def test_an_interrupted_instance_that_joins_in_time_is_drained() -> None:
    fakes = of_pool(INTERRUPTION, joins_in=40)
    outcome = retire(fakes)
    assert (outcome.result, outcome.replacement) == (RetirementResult.DRAINED, "nothing")
    assert the_request(fakes).node == ""


def test_a_table_that_fails_does_not_stop_the_search_for_a_late_node() -> None:
    fakes = of_pool(INTERRUPTION, joins_in=40)
    fakes.fast.down = True
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.DRAINED
    assert "cannot be written" in fakes.reports.of("CapacityRequestFailed")


def test_a_rebalanced_instance_that_has_not_joined_keeps_its_promise() -> None:
    fakes = no_buyer(of_pool(REBALANCE, joins_in=NEVER))
    retire(fakes)
    assert not fakes.capacity


# Voluntary retirements


def test_a_rebalanced_node_is_drained_when_its_successor_is_ready_and_then_terminated() -> None:
    fakes = of_pool(starts_in=60)
    outcome = retire(fakes)
    assert drained_at(fakes) >= timedelta(seconds=60)
    assert fakes.actions.order_of("buy", "evict") == ["buy", "evict"]
    assert (outcome.result, outcome.terminated) == (RetirementResult.DRAINED, True)
    assert [one.instance for one in outcome.successors] == [SUCCESSOR]
    assert f"Successor {SUCCESSOR} is ready for pods." in outcome.replacement_reason.message
    assert outcome.replacement_reason.message.count(LAUNCHED) == 1
    assert fakes.actions.ended == ["terminated"]
    assert not fakes.record.is_open
    assert not the_request(fakes).is_open(fakes.clock.time)


@pytest.mark.parametrize("kind", [NoticeKind.IMPAIRED_STATUS, NoticeKind.SCHEDULED_CHANGE])
def test_every_voluntary_retirement_terminates_the_instance(kind: NoticeKind) -> None:
    fakes = of_pool(kind)
    assert retire(fakes).terminated
    waited = drained_at(fakes) > timedelta(0)
    assert waited is (kind is NoticeKind.SCHEDULED_CHANGE), "failed checks do not wait"


def test_a_drain_waits_for_a_late_answer() -> None:
    fakes = no_buyer(of_pool(starts_in=0))
    buyer = FakeBuyer(fakes)
    fakes.steps.at("check-successor-7")(lambda: buyer.run("prod"))
    outcome = retire(fakes)
    assert drained_at(fakes) == timedelta(seconds=70)
    assert [one.instance for one in outcome.successors] == [SUCCESSOR]


@pytest.mark.parametrize("taints", [(STARTUP_TAINT,), ()], ids=["tainted", "without its devices"])
def test_a_drain_waits_until_its_successor_is_initialized(taints: tuple[Taint, ...]) -> None:
    fakes = of_pool(starts_in=60, settles_in=120, startup_taints=taints)
    outcome = retire(fakes)
    assert drained_at(fakes) >= timedelta(seconds=180)
    assert f"Successor {SUCCESSOR} is ready for pods." in outcome.replacement_reason.message


def test_a_drain_begins_after_the_timeout_if_its_successor_is_never_initialized() -> None:
    fakes = of_pool(starts_in=60, settles_in=NEVER)
    outcome = retire(fakes)
    assert drained_at(fakes) == SUCCESSOR_TIMEOUT
    assert "No successor was ready for pods" in outcome.replacement_reason.message


def test_a_node_of_a_group_takes_pods_when_its_startup_taints_are_gone() -> None:
    """Pods of a pool may have their place there, and nobody labels it as initialized."""
    fakes = of_pool(starts_in=60, settles_in=120, settled_labels={})
    fakes.instances.launched_by = FACTS.owner
    retire(fakes)
    assert timedelta(seconds=180) <= drained_at(fakes) < SUCCESSOR_TIMEOUT


def test_a_drain_begins_after_the_timeout_if_no_answer_comes() -> None:
    fakes = no_buyer(of_pool())
    outcome = retire(fakes)
    assert drained_at(fakes) == SUCCESSOR_TIMEOUT
    assert (outcome.result, outcome.terminated) == (RetirementResult.DRAINED, True)
    told = outcome.replacement_reason.message
    assert "No successor was ready for pods within 10 minutes" in told
    assert "provision_nodes has not answered" in told
    assert outcome.successors == ()


def test_an_unreadable_answer_is_waited_for_no_longer_than_the_timeout() -> None:
    fakes = no_buyer(of_pool())

    def fails(step: str) -> None:
        fakes.fast.down = step.startswith("check-successor") or fakes.fast.down

    fakes.steps.before_step = fails
    outcome = retire(fakes)
    assert drained_at(fakes) == SUCCESSOR_TIMEOUT
    assert outcome.result is RetirementResult.DRAINED
    assert outcome.terminated
    assert outcome.replacement_reason.message.count("cannot be read or ended") == 1


def test_a_drain_waits_for_a_better_answer_if_some_pods_get_no_node() -> None:
    fakes = of_pool(buyer={"refuses": (LIMIT,)}, starts_in=0)
    fakes.steps.at("check-successor-12")(lambda: FakeBuyer(fakes).run("prod"))
    retire(fakes)
    assert drained_at(fakes) == timedelta(seconds=120)


def test_the_outcome_says_why_some_pods_get_no_replacement() -> None:
    fakes = of_pool(buyer={"launches": False, "existing": 3, "refuses": (LIMIT, LIMIT)})
    outcome = retire(fakes)
    assert drained_at(fakes) == SUCCESSOR_TIMEOUT
    told = outcome.replacement_reason.message
    assert "No replacement for some pods, because: Pool spot-general is at its limit of 10" in told
    assert told.count("is at its limit") == 1
    assert "Pods that have a place on existing nodes: 3." in told


def test_a_drain_begins_at_once_if_the_pods_fit_on_existing_nodes() -> None:
    fakes = of_pool(buyer={"launches": False, "existing": 2})
    outcome = retire(fakes)
    assert drained_at(fakes) == timedelta(seconds=10)
    assert outcome.replacement_reason.message.count("place on existing nodes: 2.") == 1
    assert (outcome.successors, outcome.terminated) == ((), True)


def test_a_successor_that_vanishes_is_not_waited_for_beyond_the_timeout() -> None:
    fakes = of_pool(starts_in=None)
    assert retire(fakes).result is RetirementResult.DRAINED
    assert drained_at(fakes) == SUCCESSOR_TIMEOUT


def test_an_answer_without_the_vanished_instance_replaces_an_earlier_one() -> None:
    fakes = of_pool(starts_in=None)

    @fakes.steps.at("check-successor-20")
    def answers_again() -> None:
        request = the_request(fakes)
        fakes.table.put(
            CAPACITY_REQUEST,
            request.answered(CapacityAnswer(answered_at=fakes.clock.time, existing=1)),
        )

    retire(fakes)
    assert drained_at(fakes) == timedelta(seconds=200)


def test_a_policy_without_replacement_buys_nothing_and_still_terminates() -> None:
    fakes = of_pool()
    fakes.amend(replacement=Replacement.NONE)
    outcome = retire(fakes)
    assert (outcome.replacement, outcome.terminated) == ("nothing", True)
    assert not fakes.capacity
    assert not fakes.record.is_open


def test_an_instance_that_never_joins_is_left_to_its_admission() -> None:
    fakes = of_pool(joins_in=NEVER)
    unknown = OF_POOL.model_copy(update={"joined": False})
    fakes.amend(facts=unknown)
    outcome = retire(fakes)
    assert (outcome.result, outcome.replacement) == (RetirementResult.NO_NODE, "nothing")
    assert fakes.actions.ended == []
    assert not fakes.record.is_open


# Terminations


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"from_fleet": False}, "it has no tag aws:ec2:fleet-id"),
        ({"joined": False}, "no tag aws:eks:cluster-name with the value prod"),
        ({"cluster": "other"}, "no tag aws:eks:cluster-name with the value prod"),
        ({"owner": FACTS.owner}, "its owner is now auto-scaling-group ng"),
        ({"owner": Owner(OwnerKind.NONE)}, "its owner is now none"),
        (None, "there is no such instance"),
    ],
)
def test_tags_that_anybody_can_write_do_not_suffice_for_a_termination(
    changes: dict[str, Any] | None, why: str
) -> None:
    fakes = of_pool()
    fakes.instances.described = None if changes is None else OF_POOL.model_copy(update=changes)
    outcome = retire(fakes)
    assert fakes.actions.ended == []
    assert not outcome.terminated
    assert outcome.left_running is not None
    assert "EC2 does not confirm" in outcome.left_running.message
    assert why in outcome.left_running.message
    assert outcome.needs_attention
    assert fakes.record.needs_termination, "reconcile has it tried again"


def test_a_node_that_a_budget_blocks_stays_until_it_is_drained() -> None:
    fakes = of_pool(blocks=True)
    outcome = retire(fakes)
    assert (outcome.result, outcome.terminated) == (RetirementResult.INCOMPLETE, False)
    assert "left running, because its node is not drained" in outcome.summary.message
    assert fakes.record.needs_termination
    first = the_request(fakes)
    assert not first.is_open(fakes.clock.time)
    _notify_again(fakes)
    fakes.cluster.blocks = False
    assert next_attempt(fakes).terminated
    second = the_request(fakes)
    assert (second.attempt, second.requested_at > first.ends_at) == (2, True)
    assert fakes.actions.order_of("buy") == ["buy"]
    assert not fakes.record.is_open


def _notify_again(fakes: RetirementFakes) -> None:
    fakes.clock.sleep(600)
    after = (fakes.clock.time - NOTICED).total_seconds()
    fakes.receive(REBALANCE, "again", after=after)
    fakes.amend(facts=OF_POOL)


def test_an_attempt_without_effect_does_not_forget_the_termination() -> None:
    fakes = of_pool(blocks=True)
    retire(fakes)
    _notify_again(fakes)
    fakes.policies.policy = ClusterPolicy(dry_run=True)
    assert next_attempt(fakes).result is RetirementResult.DRY_RUN
    assert fakes.record.needs_termination


def test_a_restarted_instance_whose_drain_a_budget_blocked_stays() -> None:
    fakes = of_pool(blocks=True)
    retire(fakes)
    assert fakes.record.needs_termination
    fakes.supersede(phase=Phase.UNDOING)
    assert next_attempt(fakes).result is RetirementResult.UNDONE
    assert not fakes.record.is_open


def test_an_interruption_takes_over_and_nothing_is_bought_twice() -> None:
    fakes = of_pool(starts_in=None)
    fakes.steps.at("check-successor-3")(lambda: _interrupt(fakes))
    assert fakes.run_attempt(1) is None
    assert fakes.record.phase is Phase.NOTICED
    outcome = next_attempt(fakes)
    assert outcome.result is RetirementResult.DRAINED
    assert drained_at(fakes) == timedelta(seconds=30)
    assert fakes.actions.order_of("buy") == ["buy"]
    assert (the_request(fakes).attempt, outcome.terminated) == (2, False)
    assert [one.instance for one in outcome.successors] == [SUCCESSOR]


def test_a_newer_attempt_keeps_the_answer_to_an_open_request() -> None:
    fakes = of_pool(starts_in=None)
    fakes.steps.at("check-successor-3")(lambda: _interrupt(fakes))
    assert fakes.run_attempt(1) is None
    fakes.queue.down = True
    assert [one.instance for one in next_attempt(fakes).successors] == [SUCCESSOR]


def _interrupt(fakes: RetirementFakes) -> None:
    fakes.receive(INTERRUPTION, after=30)
    fakes.amend(facts=OF_POOL)


def test_an_undone_retirement_ends_its_request_and_terminates_nothing() -> None:
    fakes = no_buyer(of_pool(blocks=True))
    fakes.steps.at("check-successor-3")(lambda: fakes.supersede(phase=Phase.UNDOING))
    assert fakes.run_attempt(1) is None
    outcome = next_attempt(fakes)
    assert outcome.result is RetirementResult.UNDONE
    assert not the_request(fakes).is_open(fakes.clock.time)
    assert fakes.actions.ended == []
    assert not fakes.record.is_open


@pytest.mark.parametrize("kind", [INTERRUPTION, REBALANCE])
def test_a_request_stays_open_for_a_minute_to_an_hour(kind: NoticeKind) -> None:
    fakes = no_buyer(of_pool(kind, blocks=True))
    late = {"deadline": NOTICED - timedelta(minutes=1)}
    if kind is REBALANCE:
        late = {"deadline": NOTICED + timedelta(days=5)}
    fakes.amend(**late)
    seen: list[timedelta] = []

    def look(step: str) -> None:
        seen.extend(whole_seconds(one.ends_at - NOTICED) for one in fakes.capacity.values())

    fakes.steps.before_step = look
    retire(fakes)
    expected = timedelta(minutes=1) if kind is INTERRUPTION else timedelta(hours=1)
    assert seen[0] == expected
