"""Which node goes first, which nodes take its pods, and what keeps a node: as in Karpenter."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway.disruption import reasons
from leeway.disruption.consolidation import prospect
from leeway.disruption.decide import decide_returns
from leeway.disruption.rules import Budget, Cause, ReturnRules
from leeway.disruption.snapshot import MovablePod, OwnNode
from leeway.policy.rules import Worth
from leeway.selection.labels import CAPACITY_TYPE
from leeway.selection.pods import NodePool, Pod
from leeway.selection.requirements import Requirement, Requirements

from tests.disruption.snapshots import NOW, ON_DEMAND, own_node, snapshot, with_pods
from tests.selection.workloads import spec

MINUTE = timedelta(minutes=1)


def pod(deletion_cost: int = 0, priority: int = 0) -> MovablePod:
    return MovablePod(Pod("default/a", spec(1000, priority=priority)), deletion_cost=deletion_cost)


def costing(one: OwnNode, deletion_cost: int = 0, priority: int = 0) -> OwnNode:
    """The node, whose pods have this deletion cost and priority."""
    pods = [
        MovablePod(
            Pod(each.pod.name, replace(each.pod.spec, priority=priority)),
            deletion_cost=deletion_cost,
        )
        for each in one.pods
    ]
    return with_pods(one, pods)


@pytest.mark.parametrize(
    ("one", "cost"),
    [
        (pod(), 1),
        (pod(deletion_cost=2**27), 2),
        (pod(deletion_cost=-(2**27)), 0),
        (pod(deletion_cost=-(2**31)), 0),
        (pod(deletion_cost=2**31 - 1), 10),
        (pod(priority=2**25), 2),
        (pod(priority=2_000_001_000), 10),
        (pod(deletion_cost=2**27, priority=-(2**25)), 1),
    ],
)
def test_an_eviction_costs_as_in_karpenter(one: MovablePod, cost: float) -> None:
    assert one.eviction_cost == cost


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2 * 10**9 + 1000))
def test_whatever_tenants_write_a_node_costs_at_least_itself(cost: int, priority: int) -> None:
    one = costing(own_node("one", spec(), spec()), cost, priority)
    assert 1 <= one.disruption_cost <= 21


@pytest.mark.parametrize("field", ["deletion_cost", "priority"])
def test_of_two_equal_nodes_the_one_whose_pods_are_dear_stays(field: str) -> None:
    first, second = own_node("a", spec(1000)), own_node("b", spec(1000))
    assert decide_returns(snapshot(first, second)).returns[0].nodes == ("a",)
    dear = costing(first, **{field: 2**27})
    assert decide_returns(snapshot(dear, second)).returns[0].nodes == ("b",)
    cheap = costing(second, **{field: -(2**27)})
    assert decide_returns(snapshot(first, cheap)).returns[0].nodes == ("b",)


def test_a_much_dearer_node_goes_first_whatever_its_pods_cost() -> None:
    small, large = own_node("small", spec(), kind="small"), own_node("large", spec(), kind="large")
    ordered = sorted([small, costing(large, priority=2**25)], key=prospect)
    assert [one.name for one in ordered] == ["large", "small"]


def test_empty_drifted_nodes_go_before_those_with_pods_and_need_no_replacement() -> None:
    drift = ("It runs another AMI.",)
    old = replace(own_node("old", spec(3000), age=timedelta(days=9)), drift=drift)
    empty = replace(own_node("empty", quiet=MINUTE), drift=drift)
    rules = ReturnRules(after=timedelta(hours=1), budgets=(Budget("1"),))
    found = decide_returns(snapshot(old, empty, rules=rules))
    assert [(one.nodes, one.cause, one.replaced) for one in found.returns] == [
        (("empty",), Cause.DRIFTED, False)
    ]
    assert found.kept["old"].code == reasons.DISRUPTION_BUDGET_USED.name


# Where pods of consolidated nodes go.


def two(quiet: timedelta = timedelta(hours=2)) -> tuple[OwnNode, OwnNode]:
    """A node whose pods fit on the other one, which is quiet for so long."""
    small = own_node("a", spec(1000), kind="small", quiet=timedelta(hours=2))
    return small, own_node("b", spec(1500), spec(1000), quiet=quiet)


def test_a_node_inside_its_consolidate_after_takes_no_pods_of_consolidated_nodes() -> None:
    rules = ReturnRules(after=timedelta(hours=1), budgets=())
    assert decide_returns(snapshot(*two(), rules=rules)).returns[0].nodes == ("a",)
    found = decide_returns(snapshot(*two(quiet=59 * MINUTE), rules=rules))
    assert not found.returns
    assert "inside their consolidateAfter, take none: 1." in found.kept["a"].message


def test_pods_that_wait_and_pods_of_nodes_that_go_may_come_to_it() -> None:
    rules = ReturnRules(after=timedelta(hours=1), budgets=())
    young = own_node("young", quiet=MINUTE)
    waiting = Pod("default/waits", spec(3500))
    other = own_node("other", spec(3500), quiet=MINUTE)
    empty = own_node("empty", quiet=timedelta(hours=2))
    found = decide_returns(snapshot(young, other, empty, rules=rules, waiting=(waiting,)))
    names = {name for one in found.returns for name in one.nodes}
    # The pod has its place on one of two nodes, so that the other one may go if it is quiet.
    assert names <= {"empty"}
    kept = snapshot(replace(other, going=True), young, rules=rules)
    assert decide_returns(kept).kept["young"].code in {
        reasons.NODE_NOT_QUIET.name,
        reasons.NODE_IS_EXPECTED.name,
    }


def test_a_pod_that_waits_keeps_its_place_on_a_node_that_is_full_for_others() -> None:
    """Packing places it before the pods of consolidated nodes, and does not place it twice."""
    rules = ReturnRules(after=timedelta(hours=1), budgets=())
    young = own_node("young", spec(2000), quiet=MINUTE)
    waiting = (Pod("default/waits", spec(1900)),)
    quiet = [own_node(name, spec(1900), quiet=timedelta(hours=2)) for name in ("a", "b")]
    found = decide_returns(snapshot(young, *quiet, rules=rules, waiting=waiting))
    (one,) = found.returns
    assert (one.replaced, len(one.nodes)) == (False, 1)
    assert one.nodes[0] in {"a", "b"}


def test_a_node_that_is_not_initialized_takes_no_pods_of_consolidated_nodes() -> None:
    worth = Worth(share=0.9)
    starts = replace(own_node("starts"), ready=False)
    a = own_node("a", spec(1000))
    assert not decide_returns(
        snapshot(a, starts, starting=frozenset({"starts"}), worth=worth)
    ).returns
    foreign = own_node("foreign").node
    open_ = snapshot(a, others=(foreign,), worth=worth)
    assert decide_returns(open_).returns[0].nodes == ("a",)
    coming = snapshot(a, others=(foreign,), starting=frozenset({"foreign"}), worth=worth)
    assert not decide_returns(coming).returns


# Several pools.


def test_one_node_replaces_nodes_of_several_pools() -> None:
    rules = ReturnRules(budgets=(Budget("1"),))
    other = replace(ON_DEMAND, name="other")
    own = (
        replace(own_node("plain-0", spec(1500, 3000), kind="small"), price=0.09),
        replace(own_node("other-0", spec(1500, 3000), kind="small"), pool="other", price=0.09),
    )
    found = decide_returns(
        replace(snapshot(*own, pools=(ON_DEMAND, other)), rules={"plain": rules, "other": rules})
    )
    (one,) = found.returns
    assert (sorted(one.nodes), one.replaced) == (["other-0", "plain-0"], True)
    assert one.saving == pytest.approx(0.18 - 0.08)


def test_nodes_of_a_team_with_several_pools_are_found_among_those_of_others() -> None:
    """However many nodes of others promise more than them."""
    rules = ReturnRules(budgets=())
    own, pools = list[OwnNode](), list[NodePool]()
    for number, team in enumerate(["a", "b", "c", "joint", "joint"]):
        labels = Requirements.from_labels({"team": team})
        name = f"{team}-{number}"
        pools.append(
            replace(ON_DEMAND, name=name, requirements=ON_DEMAND.requirements.intersection(labels))
        )
        kind, size = ("small", 1500) if team == "joint" else ("large", 15_000)
        made = own_node(name, spec(size, 3000, terms=(labels,)), kind=kind)
        node = replace(made.node, labels={**made.node.labels, "team": team})
        price = 0.09 if team == "joint" else 0.4
        own.append(replace(made, node=node, pool=name, price=price))
    found = decide_returns(
        replace(snapshot(*own, pools=tuple(pools)), rules={one.name: rules for one in pools})
    )
    assert [sorted(one.nodes) for one in found.returns] == [["joint-3", "joint-4"]]


def test_each_pool_has_its_own_budget_in_a_step_over_several_pools() -> None:
    plain, none = ReturnRules(budgets=()), ReturnRules(budgets=(Budget("0"),))
    other = replace(ON_DEMAND, name="other")
    own = (
        replace(own_node("plain-0", spec(1500, 3000), kind="small"), price=0.09),
        replace(own_node("other-0", spec(1500, 3000), kind="small"), pool="other", price=0.09),
    )
    given_back = snapshot(*own, pools=(ON_DEMAND, other))
    found = decide_returns(replace(given_back, rules={"plain": plain, "other": none}))
    assert "other-0" not in {name for one in found.returns for name in one.nodes}


def test_nodes_of_pools_that_share_no_offering_are_not_replaced_together() -> None:
    spot, no_spot = (
        Requirements([Requirement.of(CAPACITY_TYPE, operator, ["spot"])])
        for operator in ("In", "NotIn")
    )
    closed = NodePool("other", spot)
    rules = ReturnRules(budgets=())
    on_spot = spec(1500, 3000, terms=(spot,))
    dear = own_node("other-0", on_spot, kind="small", capacity_type="spot")
    own = (
        replace(own_node("plain-0", spec(1500, 3000, terms=(no_spot,)), kind="small"), price=0.2),
        replace(dear, pool="other", price=0.2),
    )
    given_back = replace(
        snapshot(*own, pools=(ON_DEMAND, closed)), rules={"plain": rules, "other": rules}
    )
    assert all(len(one.nodes) == 1 for one in decide_returns(given_back).returns)


# What keeps a node.


def test_pods_that_stay_with_their_node_keep_it_if_they_forbid_its_disruption() -> None:
    daemon = MovablePod(Pod("kube-system/agent", spec()), protected_until=NOW + MINUTE)
    kept = decide_returns(snapshot(replace(own_node("here"), staying=(daemon,)))).kept["here"]
    assert kept.code == reasons.POD_IS_PROTECTED.name
    assert "kube-system/agent" in kept.message
    blocked = replace(daemon, protected_until=None, blocked_by=("agents",))
    kept = decide_returns(snapshot(replace(own_node("here"), staying=(blocked,)))).kept["here"]
    assert kept.code == reasons.POD_IS_BLOCKED.name
    ended = replace(daemon, protected_until=NOW)
    assert decide_returns(snapshot(replace(own_node("here"), staying=(ended,)))).returns


def test_do_not_consolidate_keeps_a_node_from_consolidation_only() -> None:
    own = [replace(one, consolidated=False) for one in two()]
    found = decide_returns(snapshot(*own))
    assert not found.returns
    assert {why.code for why in found.kept.values()} == {reasons.NODE_IS_PROTECTED.name}
    assert "do-not-consolidate" in found.kept["a"].message
    drifted = replace(own[0], drift=("It runs another AMI.",))
    assert decide_returns(snapshot(drifted)).returns[0].cause is Cause.DRIFTED
    empty = replace(own_node("empty"), consolidated=False)
    assert not decide_returns(snapshot(empty)).returns
    ttl = ReturnRules(only_empty=True, budgets=())
    assert decide_returns(snapshot(empty, rules=ttl)).returns[0].cause is Cause.EMPTY
