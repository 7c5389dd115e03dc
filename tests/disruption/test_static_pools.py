"""Nodes of static pools: surplus ones go, drifted ones are replaced in their place, no others."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway.disruption import reasons
from leeway.disruption.decide import decide_returns
from leeway.disruption.explain import follow
from leeway.disruption.rules import Budget, Cause, ReturnRules
from leeway.disruption.snapshot import MovablePod, OwnNode, ReturnDecision, Snapshot
from leeway.policy.rules import Replacement
from leeway.selection.offers.catalog import Catalog
from leeway.selection.pods import ExistingNode, Pod
from leeway.selection.resources import Resources

from tests.disruption.clusters import Cluster
from tests.disruption.returning import Returning
from tests.disruption.snapshots import NOW, ON_DEMAND, own_node, snapshot, with_pods
from tests.launch.conftest import catalog
from tests.launch.pools import pods
from tests.selection.workloads import spec

__all__ = ["catalog"]

DAY = timedelta(days=1)
DRIFT = ("It runs another AMI.",)


def pool_of(replicas: int, *own: OwnNode, limit: int | None = None, **rules: object) -> Snapshot:
    """A cluster whose pool is static."""
    pool = replace(ON_DEMAND, replicas=replicas, limits={"nodes": limit} if limit else None)
    of_pool = ReturnRules(**{"budgets": (), "replicas": replicas, **rules})  # type: ignore[arg-type]
    return snapshot(*own, rules=of_pool, pools=(pool,))


def going(decision: ReturnDecision) -> list[tuple[str, Cause]]:
    return [(name, one.cause) for one in decision.returns for name in one.nodes]


def test_no_node_of_a_static_pool_is_empty_or_consolidated() -> None:
    own = [own_node("empty"), own_node("one", spec(100)), own_node("two", spec(100))]
    found = decide_returns(pool_of(3, *own))
    assert not found.returns
    assert {reason.code for reason in found.kept.values()} == {reasons.POOL_IS_STATIC.name}
    assert found.due_at is None


def test_pods_of_other_pools_move_to_nodes_of_static_pools() -> None:
    static = own_node("static")
    other = own_node("other", spec(100))
    other = replace(other, pool="other", node=replace(other.node, pool="other"))
    made = pool_of(1, static, other)
    rules = {**made.rules, "other": ReturnRules(budgets=())}
    found = decide_returns(replace(made, rules=rules))
    assert going(found) == [("other", Cause.UNDERUTILIZED)]


def test_a_pool_with_fewer_replicas_gives_empty_nodes_back_first() -> None:
    own = [own_node("one", spec(100)), own_node("empty"), own_node("two", spec(100), spec(100))]
    found = decide_returns(pool_of(2, *own))
    assert going(found) == [("empty", Cause.SCALED_DOWN)]
    assert not found.returns[0].replaced
    found = decide_returns(pool_of(1, *own))
    assert going(found) == [("empty", Cause.SCALED_DOWN), ("one", Cause.SCALED_DOWN)]
    assert found.returns[1].replaced


def test_no_budget_of_the_pool_holds_back_a_smaller_number() -> None:
    own = [own_node(f"n-{number}") for number in range(4)]
    found = decide_returns(pool_of(1, *own, budgets=(Budget("0"),)))
    assert len(found.returns) == 3


def test_the_budget_of_the_cluster_bounds_how_many_nodes_with_pods_go_at_once() -> None:
    own = [own_node(f"n-{number}", spec(100)) for number in range(4)]
    found = decide_returns(replace(pool_of(1, *own, own_node("empty")), most=1))
    assert (len(found.returns), len(found.waiting)) == (2, 2)


def test_a_protected_node_stays_and_another_one_goes() -> None:
    kept = replace(own_node("kept"), protected=True)
    found = decide_returns(pool_of(1, kept, own_node("busy", spec(100))))
    assert going(found) == [("busy", Cause.SCALED_DOWN)]
    found = decide_returns(pool_of(0, kept))
    assert not found.returns
    assert found.kept["kept"].code == reasons.NODE_IS_PROTECTED.name


def test_a_pod_that_may_not_be_disrupted_goes_last_if_the_drain_is_bounded() -> None:
    pod = MovablePod(Pod("default/kept", spec(100)), protected_until=NOW + DAY)
    kept = with_pods(own_node("kept", spec(100)), [pod])
    own = (kept, own_node("busy", spec(100), spec(100)))
    bounded = timedelta(hours=1)
    assert going(decide_returns(pool_of(1, *own, drain_within=bounded))) == [
        ("busy", Cause.SCALED_DOWN)
    ]
    assert len(going(decide_returns(pool_of(0, *own, drain_within=bounded)))) == 2
    assert going(decide_returns(pool_of(0, *own))) == [("busy", Cause.SCALED_DOWN)]


def test_nodes_with_pods_go_by_the_cost_of_their_disruption() -> None:
    dear = with_pods(
        own_node("dear", spec(100)),
        [MovablePod(Pod("default/dear", spec(100)), deletion_cost=2**30)],
    )
    own = [dear, own_node("two", spec(100), spec(100)), own_node("one", spec(100))]
    gone = [going(decide_returns(pool_of(replicas, *own))) for replicas in (2, 1)]
    assert gone == [
        [("one", Cause.SCALED_DOWN)],
        [("one", Cause.SCALED_DOWN), ("two", Cause.SCALED_DOWN)],
    ]
    expires = [replace(own[1], created_at=NOW - 29 * DAY), *own[::2]]
    assert going(decide_returns(pool_of(2, *expires, expires=30 * DAY))) == [
        ("two", Cause.SCALED_DOWN)
    ]


def test_a_node_that_only_tags_name_a_node_of_the_pool_lets_no_other_go() -> None:
    tagged = own_node("tagged")
    tagged = replace(tagged, node=replace(tagged.node, pool="another"))
    assert not decide_returns(pool_of(1, tagged, own_node("one", spec(100)))).returns


def test_the_same_nodes_are_surplus_in_the_next_run() -> None:
    own = [own_node(f"n-{number}", spec(100)) for number in range(6)]
    made = pool_of(2, *own)
    later = replace(made, now=NOW + timedelta(seconds=20), own=tuple(reversed(own)))
    assert going(decide_returns(made)) == going(decide_returns(later))


def test_a_drifted_node_is_replaced_in_its_place_even_if_it_is_empty() -> None:
    own = [replace(own_node("old"), drift=DRIFT), own_node("new", spec(100))]
    (found,) = decide_returns(pool_of(2, *own)).returns
    assert (found.nodes, found.cause, found.in_place) == (("old",), Cause.DRIFTED, True)


@pytest.mark.parametrize(("limit", "replaced"), [(2, 0), (3, 1), (4, 2), (None, 2)])
def test_as_many_drifted_nodes_are_replaced_as_the_limit_has_room_for(
    limit: int | None, replaced: int
) -> None:
    own = [replace(own_node(f"n-{number}"), drift=DRIFT) for number in range(2)]
    found = decide_returns(pool_of(2, *own, limit=limit))
    assert len(found.returns) == replaced
    left = {reason.code for reason in found.kept.values()}
    assert left == ({reasons.NO_ROOM_TO_REPLACE.name} if replaced < 2 else set())


def test_room_that_an_instance_on_its_way_or_a_missing_one_needs_is_taken() -> None:
    old = replace(own_node("old"), drift=DRIFT)
    goes = replace(own_node("goes"), going=True)
    assert not decide_returns(pool_of(2, old, goes, limit=3)).returns
    coming = ExistingNode("i-coming", {}, Resources({"cpu": 1}), pool="plain")
    made = pool_of(2, old, goes, limit=4)
    assert len(decide_returns(replace(made, others=(coming,))).returns) == 1


def test_drifted_nodes_wait_until_the_surplus_has_gone() -> None:
    own = [replace(own_node(f"n-{number}", spec(100)), drift=DRIFT) for number in range(3)]
    found = decide_returns(pool_of(2, *own))
    assert going(found) == [("n-0", Cause.SCALED_DOWN)]
    assert found.kept["n-1"].code == reasons.STATIC_POOL_SHRINKS.name


def test_what_keeps_a_node_is_said_also_when_another_one_goes() -> None:
    own = [own_node("busy", spec(100)), own_node("empty")]
    found = decide_returns(pool_of(1, *own))
    assert going(found) == [("empty", Cause.SCALED_DOWN)]
    assert found.kept["busy"].code == reasons.POOL_IS_STATIC.name


def test_drifted_nodes_keep_to_the_budget_of_the_pool() -> None:
    own = [replace(own_node(f"n-{number}"), drift=DRIFT) for number in range(10)]
    assert len(decide_returns(pool_of(10, *own, budgets=(Budget("2"),))).returns) == 2


def test_an_expired_node_goes_without_room_and_is_replaced_first_with_room() -> None:
    old = own_node("old", age=30 * DAY)
    for limit, in_place in ((1, False), (2, True)):
        (found,) = decide_returns(pool_of(1, old, limit=limit, expires=30 * DAY)).returns
        assert (found.cause, found.in_place) == (Cause.EXPIRED, in_place)


def test_forceful_expiry_replaces_protected_nodes_as_far_as_there_is_room() -> None:
    own = [
        replace(own_node(f"n-{number}", spec(100), age=30 * DAY), protected=True)
        for number in (1, 2)
    ]
    rules = {"expires": 30 * DAY, "budgets": (Budget("0"),)}
    assert not decide_returns(pool_of(2, *own, limit=3, **rules)).returns
    for limit, in_place in ((2, [False, False]), (3, [True, False]), (None, [True, True])):
        found = decide_returns(pool_of(2, *own, limit=limit, forceful=True, **rules)).returns
        assert [one.cause for one in found] == [Cause.EXPIRED] * 2
        assert [one.in_place for one in found] == in_place


def test_expired_nodes_are_replaced_in_place_beside_a_surplus_one_that_is_not() -> None:
    own = [own_node(f"n-{number}", age=30 * DAY) for number in range(3)]
    rules = {"expires": 30 * DAY, "forceful": True}
    found = decide_returns(pool_of(2, *own, limit=5, **rules))
    assert sorted(name for one in found.returns for name in one.nodes) == ["n-0", "n-1", "n-2"]
    assert sum(not one.in_place for one in found.returns) == 1


def test_the_pool_has_its_number_of_nodes_in_every_step_that_explain_shows() -> None:
    own = [replace(own_node(f"n-{number}", spec(100)), drift=DRIFT) for number in range(3)]
    made = pool_of(3, *own, budgets=(Budget("1"),))
    course = follow(made, decide_returns(made))
    assert len(course.end.own) == 3
    assert not any(one.drift for one in course.end.own)


def test_a_drifted_node_waits_for_the_one_in_its_place_also_without_pods(catalog: Catalog) -> None:
    drifted = {"taints": [{"key": "new", "effect": "NoSchedule"}]}
    cluster = Cluster(catalog, template=drifted, replicas=1)
    cluster.add("old")
    returning = Returning(cluster)
    returning.record_launches()
    returning.runs(2)
    record = returning.retirements["i-old"]
    assert record.returns is not None
    assert (record.returns.cause, record.returns.in_place) == ("Drifted", True)
    assert record.replacement is Replacement.BEFORE
    assert returning.requests["i-old"].in_place


def test_a_node_that_is_one_too_many_goes_only_as_empty_as_it_was(catalog: Catalog) -> None:
    cluster = Cluster(catalog, replicas=1)
    cluster.add("busy", *pods(1))
    cluster.add("empty")
    returning = Returning(cluster)
    returning.record_launches()
    (begun,) = returning.runs(2)
    assert "(ScaledDown)" in begun.begun[0].message
    record = returning.retirements["i-empty"]
    assert record.returns is not None
    assert (record.returns.pods, record.returns.optional) == (0, False)
    assert record.replacement is Replacement.NONE
    assert "i-empty" not in returning.requests
    assert returning.started() == ["i-empty"]


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.booleans()), max_size=6),
    st.integers(0, 6),
)
def test_a_static_pool_never_has_fewer_nodes_than_its_replicas_and_ends_at_them(
    nodes: list[tuple[bool, int, bool]], replicas: int
) -> None:
    own = [
        replace(own_node(f"n-{number}", *[spec(100)] * pods), going=goes, drift=DRIFT * drifted)
        for number, (goes, pods, drifted) in enumerate(nodes)
    ]
    stand = sum(not goes for goes, _, _ in nodes)
    found = decide_returns(pool_of(replicas, *own))
    gone = [one for one in found.returns if not one.in_place]
    assert stand - len(gone) == min(stand, replicas)
    assert all(one.cause in {Cause.SCALED_DOWN, Cause.DRIFTED} for one in found.returns)
