"""A pool's own label with several values: a node has one of them, and pods are placed by it."""

from hypothesis import given, settings
from hypothesis import strategies as st
from leeway.selection.packing.plan import Plan
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import MAX_VARIANTS, Supply, variants
from leeway.selection.pods import NodePool, Pod, PodSpec
from leeway.selection.requirements import Requirement, Requirements

from bench.plan_checker import violations
from tests.selection.workloads import catalog, pods, spec

TEAM = "example.com/team"


def teams(operator: str, *values: str) -> Requirements:
    return Requirements([Requirement.of(TEAM, operator, values)])


def of_team(name: str) -> PodSpec:
    return spec(terms=(Requirements.from_labels({TEAM: name}),))


def plan_for(waiting: list[Pod], pool: NodePool) -> Plan:
    return pack(waiting, Supply([pool], catalog()))


def test_pods_of_two_teams_share_no_node_and_others_join_either() -> None:
    waiting = [*pods("a", 3, of_team("a")), *pods("b", 3, of_team("b")), *pods("any", 2, spec())]
    plan = plan_for(waiting, NodePool("shared", teams("In", "a", "b")))
    assert plan.unschedulable == ()
    assert len(plan.launches) == 2
    assert {launch.cheapest.pool.labels[TEAM] for launch in plan.launches} == {"a", "b"}
    assert {launch.pool for launch in plan.launches} == {"shared"}
    assert violations(plan, waiting, [NodePool("shared")]) == []


def test_a_label_that_only_has_to_exist_has_whatever_value_a_pod_asks_for() -> None:
    waiting = [*pods("a", 1, of_team("a")), *pods("b", 1, of_team("b"))]
    plan = plan_for(waiting, NodePool("shared", teams("Exists")))
    assert len(plan.launches) == 2
    assert plan.unschedulable == ()


def test_a_value_that_a_pool_excludes_is_had_by_no_variant_and_told_once() -> None:
    pool = NodePool("shared", teams("In", "a", "b"))
    plan = plan_for([*pods("a", 1, of_team("a")), *pods("c", 1, of_team("c"))], pool)
    (miss,) = plan.unschedulable
    assert f"{TEAM} In [c] conflicts with {TEAM} In [a, b] of the pool" in miss.reason.message


def test_limits_are_those_of_all_variants_together() -> None:
    pool = NodePool("shared", teams("In", "a", "b"), limits={"nodes": 1})
    plan = plan_for([*pods("a", 1, of_team("a")), *pods("b", 1, of_team("b"))], pool)
    assert (len(plan.launches), len(plan.unschedulable)) == (1, 1)


def test_pools_are_as_they_were_where_no_pod_tells_their_values_apart() -> None:
    pool = NodePool("shared", teams("In", "a", "b"))
    supply = Supply([pool], catalog())
    assert supply.with_variants_for([spec()]) is supply
    assert variants([pool], [of_team("z")]) == (pool,)


def test_a_pool_with_too_many_variants_stays_one() -> None:
    names = [f"t{number}" for number in range(MAX_VARIANTS + 1)]
    pool = NodePool("shared", teams("In", *names))
    assert variants([pool], map(of_team, names)) == (pool,)


VALUES = st.sampled_from("abcd")
ASKED = st.builds(teams, st.sampled_from(["In", "NotIn"]), VALUES, VALUES) | st.sampled_from(
    [teams("Exists"), teams("DoesNotExist")]
)


@settings(max_examples=60, deadline=None)
@given(ASKED, st.lists(ASKED, min_size=1, max_size=4))
def test_variants_part_what_a_pool_admits_and_lose_nothing(
    whole: Requirements, asked: list[Requirements]
) -> None:
    pool = NodePool("shared", whole)
    parts = variants([pool], [spec(terms=(each,)) for each in asked])
    for value in (*"abcd", "elsewhere"):
        admitting = [part for part in parts if part.requirements[TEAM].has(value)]
        assert len(admitting) == whole[TEAM].has(value)
