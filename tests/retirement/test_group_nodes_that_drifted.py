"""A node of a group whose template has changed: its successor comes first, or the node stays."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from leeway.execution.attempt import Phase
from leeway.notices import NoticeKind
from leeway.policy.rules import ChurnCap, ClusterPolicy, OnBlocked, Replacement
from leeway.ports.aws import CloudRefused, CloudUnavailable
from leeway.ports.kubernetes import ClusterUnavailable
from leeway.ports.kubernetes_objects import Controller
from leeway.retirement.attempts import return_again
from leeway.retirement.outcome import Outcome, RetirementResult
from leeway.retirement.record import ReturnTerms

from tests.fakes.failing import failing
from tests.fakes.groups import SUCCESSOR
from tests.fakes.retirement import (
    DAEMONSET,
    HOOKED,
    POD,
    RetirementFakes,
    next_attempt,
    retire,
    retirement_fakes,
)
from tests.retirement.retirements import NOTICED

WEB = replace(POD, controller=Controller("ReplicaSet", "web"))
DAEMON = replace(POD, controller=DAEMONSET)
DRIFTED = ReturnTerms(cause="Drifted", optional=True)
FORCED = ReturnTerms(cause="Drifted", optional=True, forced=True)
FOREVER = NOTICED + timedelta(days=365)


def drifted(terms: ReturnTerms = DRIFTED, **changes: Any) -> RetirementFakes:
    """The retirement of a node whose group launches other nodes now."""
    usual = {"pods": [WEB], "blocks": False, "hooks": ()}
    fakes = retirement_fakes(NoticeKind.CAPACITY_RETURN, **usual | changes)
    fields = {
        "terms": terms,
        "replacement": Replacement.BEFORE,
        "deadline": NOTICED + timedelta(minutes=15),
        "on_blocked": OnBlocked.DELETE if terms.forced else OnBlocked.WAIT,
    }
    fakes.amend(**fields)
    return fakes


def kept(fakes: RetirementFakes) -> Outcome:
    """Retire, and see that the node is in service and uncordoned, and the group as large as
    before."""
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.DECLINED
    assert not fakes.cluster.marked
    assert (fakes.groups.state, fakes.groups.desired) == ("InService", 3)
    assert fakes.actions.order_of("evict", "delete", "detach", "terminate") == []
    assert (fakes.record.phase, fakes.record.is_open) == (Phase.FINISHED, False)
    assert fakes.record.reason == outcome.reason, "reconcile reads it there"
    return outcome


def test_its_successor_is_ready_before_the_first_pod_is_evicted() -> None:
    fakes = drifted()
    outcome = retire(fakes)
    order = fakes.actions.order_of("launch", "evict", "terminate and decrement")
    assert order == ["launch", "evict", "terminate and decrement"]
    assert (outcome.result, fakes.groups.desired) == (RetirementResult.DRAINED, 3)
    assert [one.instance for one in outcome.successors] == [SUCCESSOR]
    assert not fakes.queue.wakes, "no pool waits for it"
    assert not fakes.capacity


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"maximum": 3}, "would exceed the maximum of group ng, which is 3"),
        ({"overrides": {"launch_unsupported": "has a warm pool"}}, "has a warm pool"),
        ({"overrides": {"suspended": frozenset({"Launch"})}}, "its Launch process is suspended"),
        ({"overrides": {"suspended": frozenset({"Terminate"})}}, "its Terminate process"),
        ({"overrides": {"refreshing": True}}, "instance refresh of group ng"),
        ({"overrides": {"lifecycle_state": "Standby"}}, "lifecycle state Standby"),
    ],
)
def test_without_a_successor_first_the_node_stays(changes: dict[str, Any], why: str) -> None:
    fakes = drifted(**changes)
    assert why in kept(fakes).reason.message
    assert fakes.actions.order_of("cordon", "launch") == [], "this is known before the cordon"


def test_an_instance_that_has_left_its_group_stays() -> None:
    fakes = drifted(state=None)
    assert "in no Auto Scaling group any more" in retire(fakes).reason.message
    assert fakes.actions.order_of("cordon", "evict", "terminate") == []


@pytest.mark.parametrize(
    "changes",
    [
        {"launch_error": "ValidationError: the template does not exist"},
        {"full": {"us-east-1a", "us-east-1f"}},
    ],
)
def test_a_group_that_cannot_launch_keeps_the_node(changes: dict[str, Any]) -> None:
    """A rebalance recommendation would detach the node, or use the pools of Leeway."""
    fakes = drifted(**changes)
    fakes.policies.policy = ClusterPolicy(groups_may_use_pools=True)
    outcome = kept(fakes)
    assert outcome.reason.code == "NodeKept"
    assert not fakes.capacity


def test_a_template_whose_nodes_never_join_costs_no_pod_and_no_capacity() -> None:
    fakes = drifted(starts_in=10_000)
    outcome = kept(fakes)
    assert outcome.reason.code == "SuccessorNotReady"
    ended = fakes.actions.order_of("launch", "end successor", "end successor and decrement")
    assert ended == ["launch", "end successor and decrement"]


def test_a_successor_with_a_startup_taint_that_stays_is_ended_without_pods_only() -> None:
    """Its condition Ready says nothing about its pods."""
    fakes = drifted(starts_in=60, settles_in=10_000, successor_pods=[DAEMON])
    assert kept(fakes).reason.code == "SuccessorNotReady"
    assert fakes.actions.order_of("end successor and decrement") != []
    fakes = drifted(starts_in=60, settles_in=10_000, successor_pods=[DAEMON, WEB])
    assert [one.code for one in retire(fakes).refused] == ["SuccessorKept"]


def test_a_successor_that_leaves_its_group_keeps_the_node() -> None:
    fakes = drifted(successor_dies=True, starts_in=10_000)
    outcome = retire(fakes)
    assert (outcome.result, outcome.reason.code) == (
        RetirementResult.DECLINED,
        "SuccessorNotReady",
    )
    assert fakes.actions.order_of("evict") == []


def test_a_group_that_refuses_to_end_the_successor_is_repeated_without_a_drain() -> None:
    fakes = drifted(starts_in=10_000)
    failing(fakes.groups, "terminate_in_group", CloudRefused("ScalingActivityInProgress"))
    outcome = retire(fakes)
    assert [one.code for one in outcome.refused] == ["GroupTerminationRefused"]
    assert (fakes.record.phase, fakes.record.is_open) == (Phase.UNDONE, True)
    assert not fakes.cluster.marked


def test_a_group_that_refuses_to_end_what_it_launched_instead_is_asked_again() -> None:
    fakes = drifted(starts_in=10_000, successor_dies=True, replaces=True)
    error, once = CloudRefused("AccessDenied"), iter([True])
    failing(fakes.groups, "terminate_in_group", error, lambda: next(once, False))
    assert [one.code for one in retire(fakes).refused] == ["GroupTerminationRefused"]
    fakes.undo(NoticeKind.STATE_CHANGE, state="running", after=2 * 3600)
    assert not next_attempt(fakes).refused
    assert fakes.actions.order_of("end replacement and decrement") != []
    assert (fakes.groups.desired, fakes.record.is_open) == (3, False)


def test_a_budget_that_blocks_now_keeps_the_node_before_a_successor_is_launched() -> None:
    fakes = drifted(blocks=True)
    assert "refuses to evict pod" in kept(fakes).reason.message
    assert fakes.actions.order_of("launch") == []


def test_protected_pods_and_the_budget_of_the_cluster_keep_the_node() -> None:
    fakes = drifted(pods=[replace(WEB, protected_until=FOREVER)])
    assert kept(fakes).reason.code == "NodeProtected"
    fakes = drifted()
    fakes.policies.policy = ClusterPolicy(churn=ChurnCap(percent=0, at_least=0))
    assert kept(fakes).reason.code == "DisruptionBudgetExhausted"


def test_force_deletes_pods_that_a_budget_blocks_at_their_latest_moment() -> None:
    fakes = drifted(FORCED, blocks=True)
    outcome = retire(fakes)
    assert (outcome.result, fakes.groups.desired) == (RetirementResult.DRAINED, 3)
    began = fakes.record.drain_began_at
    assert began is not None
    waited = fakes.actions.first("delete") - began
    assert timedelta(minutes=14) < waited < timedelta(minutes=15)


def test_a_budget_that_begins_to_block_keeps_the_successor_with_its_pods() -> None:
    fakes = drifted(pods=[WEB, replace(WEB, name="web-2", uid="u-2")])

    def blocks(step: str) -> None:
        fakes.cluster.blocks = fakes.record.drain_began_at is not None

    fakes.steps.before_step = blocks
    outcome = retire(fakes)
    assert outcome.result is RetirementResult.INCOMPLETE
    assert fakes.actions.order_of("end successor", "end successor and decrement") == []
    assert fakes.record.must_restore_capacity, "the drain goes on with this successor"


def unreadable(fakes: RetirementFakes, since: int, until: int) -> RetirementFakes:
    """Have the API server not answer what is asked about nodes by name, between these minutes."""
    began, ends = (NOTICED + timedelta(minutes=one) for one in (since, until))
    down = ClusterUnavailable("connection refused")
    failing(fakes.cluster, "node", down, lambda: began <= fakes.clock.time < ends)
    return fakes


def test_a_successor_that_becomes_ready_while_it_cannot_be_read_is_waited_for() -> None:
    fakes = unreadable(drifted(starts_in=300), since=4, until=14)
    outcome = retire(fakes)
    assert (outcome.result, fakes.groups.desired) == (RetirementResult.DRAINED, 3)
    order = fakes.actions.order_of("launch", "evict", "terminate and decrement", "release")
    assert order == ["launch", "evict", "terminate and decrement"]


def test_a_successor_that_cannot_be_read_stays_for_the_next_attempt() -> None:
    fakes = unreadable(drifted(starts_in=60), since=0, until=30)
    outcome = retire(fakes)
    assert (outcome.result, outcome.reason.code) == (
        RetirementResult.INCOMPLETE,
        "SuccessorNotRead",
    )
    assert fakes.actions.order_of("evict", "release", "end successor and decrement") == []
    assert (fakes.record.must_restore_capacity, fakes.groups.desired) == (True, 4)
    fakes.clock.sleep(3600)
    fakes.record = return_again(fakes.record, DRIFTED, fakes.clock.time).record
    assert next_attempt(fakes).result is RetirementResult.DRAINED
    assert (fakes.groups.desired, fakes.record.is_open) == (3, False)


@pytest.mark.parametrize("hooks", [(), HOOKED])
def test_a_successor_that_is_ready_after_the_last_check_is_not_killed(
    hooks: tuple[str, ...],
) -> None:
    fakes = drifted(starts_in=10_000, hooks=hooks)

    @fakes.steps.at("call-off")
    def starts() -> None:
        fakes.cluster.starts_in = 0

    outcome = retire(fakes)
    assert [one.code for one in outcome.refused] == ([] if hooks else ["SuccessorKept"])
    assert fakes.actions.order_of("end successor and decrement") == (
        ["end successor and decrement"] if hooks else []
    )
    assert not fakes.record.is_open


def test_a_lost_answer_about_the_successor_ends_no_other_instance() -> None:
    fakes = drifted(starts_in=10_000, replaces=True)
    end, lost = fakes.groups.terminate_in_group, iter([True])

    def ends(instance: str, decrement: bool = False) -> None:
        end(instance, decrement)
        if next(lost, False):
            raise CloudUnavailable("ReadTimeoutError")

    fakes.groups.terminate_in_group = ends  # type: ignore[method-assign]
    assert kept(fakes).reason.code == "SuccessorNotReady"
    assert fakes.groups.replaces
