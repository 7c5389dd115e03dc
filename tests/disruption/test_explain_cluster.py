"""What a cluster could save: the next step, those that follow, what protects the rest."""

from dataclasses import replace
from datetime import timedelta

import pytest
from leeway.disruption import reasons
from leeway.disruption.decide import decide_returns
from leeway.disruption.explain import (
    MOST_ROUNDS,
    ClusterExplanation,
    ForeignNode,
    GroupSize,
    explain_cluster,
    explain_node,
    follow,
)
from leeway.disruption.rules import Budget, Cause, ReturnRules
from leeway.disruption.snapshot import Snapshot
from leeway.instances.facts import Owner, OwnerKind

from tests.disruption.snapshots import NOW, own_node, snapshot, with_pods
from tests.disruption.test_decide_properties import running
from tests.selection.workloads import spec

GROUP = Owner(OwnerKind.AUTO_SCALING_GROUP, "web")
SIZES = {"web": GroupSize(minimum=2, desired=3)}


def explained(
    given: Snapshot, *foreign: ForeignNode, sizes: dict[str, GroupSize] | None = None
) -> ClusterExplanation:
    others = (*given.others, *(one.one.node for one in foreign))
    given = replace(given, others=others)
    return explain_cluster(given, decide_returns(given), foreign, sizes)


def steps(found: ClusterExplanation) -> list[tuple[str, ...]]:
    return [step.returned.nodes for step in found.course.steps]


def test_the_next_step_is_the_one_that_saves_most() -> None:
    found = explained(snapshot(own_node("small", kind="small"), own_node("large", kind="large")))
    assert found.next is not None
    assert found.next.returned.nodes == ("large",)
    assert found.next.allowed
    assert found.own.per_hour == pytest.approx(0.45)
    assert (found.end.nodes, found.end.per_hour) == (0, 0)
    assert found.bound == 0


def test_a_replacement_follows_the_removal_of_empty_nodes() -> None:
    found = explained(snapshot(own_node("empty"), own_node("large", spec(1500), kind="large")))
    assert steps(found) == [("empty",), ("large",)]
    assert [step.allowed for step in found.course.steps] == [True, False]
    (new,) = found.course.steps[1].launches
    assert new.pods == ("default/large-0",)
    assert found.end.nodes == 1
    assert found.end.per_hour == pytest.approx(0.05)
    assert found.bound == pytest.approx(0.05 * 0.75, abs=0.013)
    assert found.course.complete


def test_a_drifted_node_saves_what_its_replacement_costs_less() -> None:
    why = "It runs another AMI."
    drifted = replace(own_node("old", spec(1500), kind="large"), drift=(why,))
    found = explained(snapshot(drifted))
    assert found.next is not None
    assert found.next.returned.saving == 0
    assert found.next.saving == pytest.approx(0.35)


def test_replacements_that_there_is_no_time_to_simulate_are_steps_without_launches() -> None:
    why = "It runs another AMI."
    own = [replace(own_node(f"n{n}", spec(1500), kind="small"), drift=(why,)) for n in range(4)]
    rules = ReturnRules(after=None, budgets=())
    given, times = snapshot(*own, rules=rules), iter([True, True])
    course = follow(given, decide_returns(given), lambda: next(times, False))
    assert [bool(step.launches) for step in course.steps] == [True, True, False, False]
    assert [step.allowed for step in course.steps] == [True] * 4
    assert [step.saving for step in course.steps] == [0] * 4
    assert not course.complete


def test_a_step_that_a_budget_delays_is_shown_at_its_time() -> None:
    rules = ReturnRules(after=timedelta(hours=1), budgets=())
    soon = own_node("soon", quiet=timedelta(minutes=30))
    never = own_node("never", quiet=timedelta(minutes=-600))
    found = explained(snapshot(soon, never, rules=rules))
    assert found.next is not None
    assert (found.next.at, found.next.allowed) == (NOW + timedelta(minutes=30), False)
    assert steps(found) == [("soon",)]
    (protected,) = found.protected
    assert (protected.example.code, protected.nodes) == (reasons.NODE_NOT_QUIET.name, ("never",))


def test_the_budget_of_the_cluster_only_delays_steps() -> None:
    old = [own_node(f"n{n}", spec(1500)) for n in range(4)]
    rules = ReturnRules(after=None, expires=timedelta(days=1), budgets=())
    found = explained(snapshot(*old, rules=rules, most=1))
    assert sum(step.allowed for step in found.course.steps) == 1
    assert len(found.course.steps) == 4
    blocked = explained(snapshot(*old, rules=rules, most=0))
    assert blocked.next is not None
    assert not blocked.next.allowed


def test_the_budget_of_a_pool_holds_for_each_step() -> None:
    rules = ReturnRules(budgets=(Budget("1"),))
    found = explained(snapshot(*(own_node(f"n{n}") for n in range(3)), rules=rules))
    assert [step.allowed for step in found.course.steps] == [True, False, False]


def test_more_rounds_than_are_simulated_are_incomplete() -> None:
    rules = ReturnRules(budgets=(Budget("1"),))
    nodes = [own_node(f"n{n}") for n in range(MOST_ROUNDS + 2)]
    found = explained(snapshot(*nodes, rules=rules))
    assert not found.course.complete
    assert len(found.course.steps) == MOST_ROUNDS


def test_what_protects_the_rest_is_grouped_by_reason_with_its_cost() -> None:
    held = [replace(own_node(name, kind="large"), protected=True) for name in ("a", "b")]
    one = own_node("c", spec(100))
    blocked = with_pods(one, [replace(one.pods[0], blocked_by=("web",))])
    found = explained(snapshot(*held, blocked))
    assert found.next is None
    assert [(each.example.code, each.nodes) for each in found.protected] == [
        (reasons.NODE_IS_PROTECTED.name, ("a", "b")),
        (reasons.POD_IS_BLOCKED.name, ("c",)),
    ]
    assert found.protected[0].cost.per_hour == pytest.approx(0.8)


def test_nodes_without_a_price_are_counted_and_not_added() -> None:
    found = explained(snapshot(replace(own_node("here", spec(100)), price=None)))
    assert (found.own.nodes, found.own.per_hour, found.own.without_price) == (1, 0, 1)


def test_a_cluster_without_pools_has_no_bound() -> None:
    found = explained(snapshot(own_node("here"), pools=()))
    assert found.bound is None


def test_a_group_with_spare_nodes_could_be_smaller() -> None:
    nodes = [own_node(f"web-{n}", *([spec(2000)] if n == 0 else [])) for n in range(3)]
    foreign = [ForeignNode(replace(one, pool=""), GROUP) for one in nodes]
    found = explained(snapshot(), *foreign, sizes=SIZES)
    (group,) = found.groups
    assert (group.group, set(group.nodes)) == ("web", {"web-1", "web-2"})
    assert group.saving == pytest.approx(0.22)
    assert group.lower_minimum == 1
    assert found.foreign[OwnerKind.AUTO_SCALING_GROUP].per_hour == pytest.approx(0.33)
    assert found.course.steps == ()


def test_a_group_whose_nodes_take_the_pods_of_leeways_nodes_keeps_them() -> None:
    ours, theirs = own_node("ours", spec(1000)), own_node("theirs", spec(2500))
    found = explained(snapshot(ours), ForeignNode(replace(theirs, pool=""), GROUP))
    assert steps(found) == [("ours",)]
    assert found.groups == ()


def test_protected_pods_and_waiting_pods_keep_nodes_of_groups() -> None:
    one = own_node("theirs", spec(100))
    held = with_pods(one, [replace(one.pods[0], blocked_by=("web",))])
    roomy = own_node("ours", spec(3000))
    found = explained(snapshot(roomy), ForeignNode(held, GROUP))
    assert found.groups == ()


def test_nodes_of_other_owners_are_not_named_as_groups() -> None:
    owner = Owner(OwnerKind.KARPENTER, "default")
    found = explained(snapshot(), ForeignNode(own_node("theirs"), owner))
    assert found.groups == ()
    assert found.foreign[OwnerKind.KARPENTER].nodes == 1


def test_a_group_whose_size_allows_it_needs_no_lower_minimum() -> None:
    nodes = [ForeignNode(own_node(f"w-{n}"), GROUP) for n in range(1)]
    found = explained(snapshot(), *nodes, sizes={"web": GroupSize(minimum=0, desired=2)})
    assert found.groups[0].lower_minimum is None
    assert explained(snapshot(), *nodes).groups[0].lower_minimum is None


@pytest.mark.parametrize("seed", range(20))
def test_the_steps_lose_no_pod_and_end_no_cheaper_than_the_bound(seed: int) -> None:
    given = snapshot(*running(seed))
    found = explain_cluster(given, decide_returns(given))
    names = sorted(m.pod.name for one in given.own for m in one.pods)
    assert sorted(m.pod.name for one in found.course.end.own for m in one.pods) == names
    saved = sum(step.saving for step in found.course.steps)
    assert found.end.per_hour == pytest.approx(found.own.per_hour - saved)
    assert found.bound is not None
    assert found.bound <= found.end.per_hour + 1e-9


def test_the_nodes_of_a_deleted_pool_wait_for_their_drain() -> None:
    given = snapshot(own_node("here"), rules=ReturnRules(after=None, deleted_at=NOW))
    decided = decide_returns(given)
    assert decided.kept["here"].code == "DeletedPoolHasNodes"
    assert decided.kept["here"].message.startswith("Pool plain was deleted at 2026-11-20 12:00 UTC")
    (step,) = explain_cluster(given, decided).course.steps
    assert (step.at, step.returned.cause) == (NOW + timedelta(minutes=15), Cause.POOL_DELETED)
    node = explain_node("here", given, decided)
    assert [one.until for one in node.blockers] == [NOW + timedelta(minutes=15)]
