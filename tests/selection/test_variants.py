"""A pool's own label with several values: a node has one of them, and pods are placed by it."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leeway.selection.packing.plan import Plan
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.packing.variants import MAX_OFFERINGS, MAX_VARIANTS, variants
from leeway.selection.pods import NodePool, Pod, PodSpec, Taint, Toleration, Weighted
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


TOLERANT = (Toleration("gpu", "Exists"),)
EVERY = [f"t{number:03}" for number in range(MAX_VARIANTS + 20)]


def teams_of(plan: Plan, waiting: list[Pod]) -> dict[str, str]:
    """The label on the node of each pod that gets a new node."""
    assert violations(plan, waiting, [NodePool("shared")]) == []
    return {
        pod: launch.cheapest.labels.get(TEAM, "") for launch in plan.launches for pod in launch.pods
    }


def test_with_more_teams_than_variants_each_node_has_one_team_and_the_others_wait() -> None:
    waiting = [pod for name in EVERY for pod in pods(name, 1, of_team(name))]
    plan = plan_for(waiting, NodePool("shared", teams("Exists")))
    placed = teams_of(plan, waiting)
    assert placed == {f"default/{name}-0": name for name in EVERY[:MAX_VARIANTS]}
    reasons = {miss.reason for miss in plan.unschedulable}
    assert len(plan.unschedulable) == len(EVERY) - MAX_VARIANTS
    (reason,) = reasons
    assert reason.code == "NoNodePoolMatches"
    assert f"Node pool shared allows several values of {TEAM}" in reason.message
    assert f"at most {MAX_VARIANTS} variants" in reason.message


def test_pods_of_a_higher_priority_and_of_each_namespace_have_variants_first() -> None:
    waiting = [
        *(pod for name in EVERY for pod in pods(name, 1, of_team(name))),
        *pods("other", 1, replace(of_team("other"), namespace="other")),
        *pods("urgent", 1, replace(of_team("urgent"), priority=1)),
    ]
    placed = teams_of(plan_for(waiting, NodePool("shared", teams("Exists"))), waiting)
    assert len(placed) == MAX_VARIANTS
    assert placed["default/other-0"] == "other"
    assert placed["default/urgent-0"] == "urgent"


def test_values_that_a_pod_prefers_or_that_no_node_fits_take_no_variant_from_others() -> None:
    prefers = spec(preferred_terms=(Weighted(1, teams("In", *EVERY)),))
    waiting = [
        *pods("too-large", 1, spec(10**9, terms=(teams("In", *EVERY),))),
        *(
            pod
            for name in EVERY
            for pod in pods(f"large-{name}", 1, spec(10**9, terms=(teams("In", name),)))
        ),
        *pods("prefers", 1, prefers),
        *pods("a", 1, of_team("a")),
        *pods("b", 1, of_team("b")),
    ]
    plan = plan_for(waiting, NodePool("shared", teams("Exists")))
    placed = teams_of(plan, waiting)
    assert (placed["default/a-0"], placed["default/b-0"]) == ("a", "b")
    assert placed["default/prefers-0"] in EVERY
    assert {miss.reason.code for miss in plan.unschedulable} == {"RequestTooLarge"}


def test_a_pod_that_accepts_more_values_than_there_are_variants_gets_one_of_them() -> None:
    waiting = pods("any", 1, spec(terms=(teams("In", *EVERY),)))
    placed = teams_of(plan_for(waiting, NodePool("shared", teams("Exists"))), waiting)
    assert placed["default/any-0"] in EVERY


def test_variants_of_all_pools_together_have_a_maximum_and_each_pod_has_one() -> None:
    names = EVERY[: MAX_VARIANTS // 2]
    pools = [NodePool(f"p{number}", teams("Exists")) for number in range(10)]
    found = variants(pools, map(of_team, names))
    assert len(found) == len(pools) + MAX_VARIANTS
    assert {pool.labels.get(TEAM) for pool in found} >= set(names)


def test_a_pool_with_many_offerings_has_fewer_variants() -> None:
    pools = [NodePool("all", teams("Exists")), NodePool("few", teams("Exists"))]
    counts = [MAX_OFFERINGS // 3, MAX_OFFERINGS // 20]
    found = variants(pools, map(of_team, EVERY[:5]), offerings=counts)
    assert [pool.labels.get(TEAM) for pool in found if pool.name == "all"] == [*EVERY[:3], None]
    assert {pool.labels.get(TEAM) for pool in found if pool.name == "few"} == {None}


@pytest.mark.parametrize(
    ("whole", "asked", "values"),
    [
        (teams("In", "a", "b"), teams("Exists"), {"a", "b"}),
        (teams("Exists"), teams("Exists"), {"shared"}),
        (teams("In", "24", "48"), teams("Gt", "16"), {"24", "48"}),
        (teams("In", "8", "48"), teams("Gt", "16"), {"48"}),
        (teams("Exists"), teams("Gt", "16"), {"17"}),
        (teams("Exists"), teams("Lt", "16"), {"15"}),
        (teams("Gt", "16"), teams("Lte", "17"), {"17"}),
        (teams("In", "a", "b"), teams("Exists").intersection(teams("NotIn", "a")), {"b"}),
        (
            teams("Exists"),
            teams("Exists").intersection(teams("NotIn", "shared", "0", "2")),
            {"1"},
        ),
    ],
)
def test_a_pod_that_needs_a_label_gets_a_node_with_a_value_that_it_admits(
    whole: Requirements, asked: Requirements, values: set[str]
) -> None:
    waiting = pods("a", 1, spec(terms=(asked,)))
    placed = teams_of(plan_for(waiting, NodePool("shared", whole)), waiting)
    assert placed["default/a-0"] in values


def test_a_pod_that_needs_any_value_shares_the_node_of_a_team() -> None:
    waiting = [*pods("any", 1, spec(terms=(teams("Exists"),))), *pods("a", 1, of_team("a"))]
    placed = teams_of(plan_for(waiting, NodePool("shared", teams("Exists"))), waiting)
    assert set(placed.values()) == {"a"}


def test_a_bound_that_no_label_value_can_meet_gets_no_node() -> None:
    waiting = pods("a", 1, spec(terms=(teams("Lt", "0"),)))
    plan = plan_for(waiting, NodePool("shared", teams("Exists")))
    assert (len(plan.launches), len(plan.unschedulable)) == (0, 1)


def test_a_pod_that_prefers_a_label_gets_a_node_with_it() -> None:
    waiting = pods("a", 1, spec(preferred_terms=(Weighted(1, teams("Exists")),)))
    placed = teams_of(plan_for(waiting, NodePool("shared", teams("In", "a", "b"))), waiting)
    assert placed["default/a-0"] in {"a", "b"}


def test_the_pool_with_the_larger_weight_has_the_label_too() -> None:
    pools = [
        NodePool("light", teams("Exists")),
        NodePool("heavy", teams("Exists"), weight=1),
        NodePool("tainted", teams("Exists"), weight=2, taints=(Taint("gpu"),)),
    ]
    asked = spec(terms=(teams("Exists"),))
    plan = pack(pods("a", 1, asked), Supply(pools, catalog()))
    assert [launch.pool for launch in plan.launches] == ["heavy"]
    tolerant = pack(pods("a", 1, replace(asked, tolerations=TOLERANT)), Supply(pools, catalog()))
    assert [launch.pool for launch in tolerant.launches] == ["tainted"]


def test_a_soft_taint_keeps_no_variant_from_a_pod() -> None:
    soft = (Taint("busy", effect="PreferNoSchedule"),)
    plan = plan_for(pods("a", 1, of_team("a")), NodePool("shared", teams("Exists"), taints=soft))
    assert [launch.cheapest.labels[TEAM] for launch in plan.launches] == ["a"]


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
