"""Spreads, affinities and anti-affinities by any label of nodes, as in Karpenter's topologies."""

from collections import Counter
from dataclasses import replace

import pytest
from leeway.selection.labels import ARCH, CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, ZONE, ZONE_ID
from leeway.selection.offers.catalog import Catalog, Offering
from leeway.selection.packing.plan import TOPOLOGY_UNSATISFIABLE, Plan
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import ExistingNode, NodePool, Pod, PodSpec, Spread, Weighted
from leeway.selection.requirements import Requirement, Requirements
from leeway.selection.resources import Resources

from bench.plan_checker import violations
from tests.selection.workloads import GIB, catalog, instance_type, pods, spec, term

TEAM = "example.com/team"
ON_AMD64 = (Requirements.from_labels({ARCH: "amd64"}),)
ON_ARM64 = (Requirements.from_labels({ARCH: "arm64"}),)


def pool(operator: str = "In", *values: str, name: str = "plain") -> NodePool:
    return NodePool(name, Requirements([Requirement.of(TEAM, operator, values)]))


OF_TEAMS = pool("In", "x", "y", "z")


def node(*running: PodSpec, room: int = 0, **labels: str) -> ExistingNode:
    """A node with this free CPU in millicores, of a team if it is named."""
    held = sum(each.requests.of("cpu") for each in running)
    size = Resources({"cpu": held + room, "memory": 8 * GIB, "pods": 20})
    names = {"team": TEAM, "zone": ZONE, "arch": ARCH}
    own = {names[name]: value for name, value in labels.items()}
    return ExistingNode(
        f"node-{'-'.join(own.values())}", own, size, size, (), running, pool="plain"
    )


def planned(
    waiting: list[Pod], *pools: NodePool, nodes: tuple[ExistingNode, ...] = ()
) -> tuple[Plan, list[dict[str, str]]]:
    """A plan that keeps every constraint, and the labels of the new nodes of each pod."""
    plan = pack(waiting, Supply(pools, catalog()), nodes)
    assert violations(plan, waiting, pools, nodes) == []
    return plan, [launch.cheapest.labels for launch in plan.launches for _ in launch.pods]


def values_of(found: list[dict[str, str]], label: str) -> Counter[str]:
    return Counter(each[label] for each in found)


WEB = {"app": "web"}


@pytest.mark.parametrize(
    ("label", "values"), [(TEAM, 3), (ARCH, 2), (CAPACITY_TYPE, 2), (INSTANCE_TYPE, 4)]
)
def test_anti_affinity_by_a_label_gives_each_pod_a_value_of_its_own(
    label: str, values: int
) -> None:
    web = spec(labels=WEB, pod_anti_affinity=(term(label, **WEB),))
    plan, found = planned(pods("web", values + 1, web), OF_TEAMS)
    assert sorted(values_of(found, label).values()) == [1] * values
    (miss,) = plan.unschedulable
    assert f"every value of {label}" in miss.reason.message


@pytest.mark.parametrize("label", [TEAM, ARCH, CAPACITY_TYPE, INSTANCE_TYPE])
def test_affinity_by_a_label_keeps_pods_on_nodes_with_one_value(label: str) -> None:
    apart = (Spread(term(HOSTNAME, **WEB), 1),)
    web = spec(labels=WEB, pod_affinity=(term(label, **WEB),), spreads=apart)
    plan, found = planned(pods("web", 4, web), OF_TEAMS)
    assert len(plan.launches) == 4
    assert len(values_of(found, label)) == 1


def test_a_pod_follows_a_pod_with_a_fixed_value() -> None:
    """Source: Karpenter's topology suite, "should respect pod affinity (arch)"."""
    apart = (Spread(term(HOSTNAME, **WEB), 1),)
    leader = spec(2000, labels=WEB, spreads=apart, terms=ON_ARM64)
    follower = spec(1000, labels=WEB, spreads=apart, pod_affinity=(term(ARCH, **WEB),))
    plan, found = planned([*pods("leader", 1, leader), *pods("follower", 1, follower)], OF_TEAMS)
    assert len(plan.launches) == 2
    assert values_of(found, ARCH) == {"arm64": 2}


def test_a_pod_avoids_the_value_of_a_pod_that_it_excludes() -> None:
    """Source: Karpenter's topology suite, "should not violate pod anti-affinity (arch)"."""
    fixed = spec(2000, labels=WEB, terms=ON_ARM64)
    other = spec(1000, labels=WEB, pod_anti_affinity=(term(ARCH, **WEB),))
    _, found = planned([*pods("fixed", 1, fixed), *pods("other", 1, other)], OF_TEAMS)
    assert values_of(found, ARCH) == {"arm64": 1, "amd64": 1}


def test_pods_follow_running_pods_onto_new_nodes_with_their_value() -> None:
    web = spec(labels=WEB, pod_affinity=(term(TEAM, **WEB),))
    _, found = planned(pods("web", 3, web), OF_TEAMS, nodes=(node(spec(labels=WEB), team="y"),))
    assert values_of(found, TEAM) == {"y": 3}


def test_a_pool_with_any_value_takes_that_of_running_pods() -> None:
    web = spec(labels=WEB, pod_affinity=(term(TEAM, **WEB),))
    around = (node(spec(labels=WEB), team="q"),)
    _, found = planned(pods("web", 3, web), pool("Exists"), nodes=around)
    assert values_of(found, TEAM) == {"q": 3}


def test_running_pods_exclude_pods_from_their_value() -> None:
    loner = spec(labels={"app": "db"}, pod_anti_affinity=(term(TEAM, **WEB),))
    around = (node(loner, team="x", room=2000), node(loner, team="y"))
    _, found = planned(pods("web", 3, spec(labels=WEB)), OF_TEAMS, nodes=around)
    assert values_of(found, TEAM) == {"z": 3}


def test_a_pod_that_is_excluded_from_all_values_goes_to_a_node_without_the_label() -> None:
    loner = spec(labels={"app": "db"}, pod_anti_affinity=(term(TEAM, **WEB),))
    around = tuple(node(loner, team=team, room=2000) for team in "xyz")
    plan, found = planned(
        pods("web", 2, spec(labels=WEB)), OF_TEAMS, NodePool("other"), nodes=around
    )
    assert plan.unschedulable == ()
    assert [TEAM in each for each in found] == [False, False]


def test_values_of_several_pools_are_compared_together() -> None:
    """Source: Karpenter's topology suite, "should balance pods across NodePool requirements"."""
    spot = NodePool(
        "spot",
        Requirements(
            [
                Requirement.of(CAPACITY_TYPE, "In", ["spot"]),
                Requirement.of(TEAM, "In", ["2", "3", "4", "5"]),
            ]
        ),
    )
    lasting = NodePool("lasting", Requirements.from_labels({CAPACITY_TYPE: "on-demand", TEAM: "1"}))
    web = spec(labels=WEB, spreads=(Spread(term(TEAM, **WEB), 1),))
    _, found = planned(pods("web", 20, web), spot, lasting)
    assert values_of(found, TEAM) == dict.fromkeys("12345", 4)
    assert values_of(found, CAPACITY_TYPE) == {"spot": 16, "on-demand": 4}


def test_several_labels_are_chosen_together() -> None:
    both = (Spread(term(TEAM, **WEB), 1), Spread(term(CAPACITY_TYPE, **WEB), 1))
    near = (term(ARCH, **WEB),)
    web = spec(1500, labels=WEB, spreads=both, pod_affinity=near)
    _, found = planned(pods("web", 6, web), OF_TEAMS)
    assert values_of(found, TEAM) == {"x": 2, "y": 2, "z": 2}
    assert values_of(found, CAPACITY_TYPE) == {"spot": 3, "on-demand": 3}
    assert len(values_of(found, ARCH)) == 1


def test_the_ids_of_zones_are_a_topology() -> None:
    ids = {"a": "use1-az4", "b": "use1-az6", "c": "use1-az1"}
    offerings = tuple(Offering(zone, "on-demand", 0.05, zone_id=ids[zone]) for zone in ids)
    small = replace(instance_type("small", 2000, 4096, 0.05), offerings=offerings)
    types = Catalog.of("test", [small])
    web = spec(labels=WEB, pod_anti_affinity=(term(ZONE_ID, **WEB),))
    plan = pack(pods("web", 4, web), Supply([NodePool("plain")], types))
    assert {launch.cheapest.offering.zone_id for launch in plan.launches} == {*ids.values()}
    assert len(plan.unschedulable) == 1


def test_preferred_terms_by_a_label_hold_while_they_can() -> None:
    hoped = (Weighted(50, term(TEAM, **WEB)),)
    web = spec(labels=WEB, preferred_pod_anti_affinity=hoped)
    plan, found = planned(pods("web", 5, web), OF_TEAMS)
    assert plan.unschedulable == ()
    assert set(values_of(found, TEAM)) >= {"x", "y", "z"}


@pytest.mark.parametrize(
    "web",
    [
        spec(labels=WEB, pod_affinity=(term("rack", **WEB),)),
        spec(labels=WEB, pod_anti_affinity=(term("rack", **WEB),)),
        spec(labels=WEB, spreads=(Spread(term("rack", **WEB), 1),)),
    ],
)
def test_a_label_that_no_node_has_gets_one_reason(web: PodSpec) -> None:
    plan, _ = planned(pods("web", 2, web), OF_TEAMS)
    (reason,) = {each.reason for each in plan.unschedulable}
    assert reason.code == TOPOLOGY_UNSATISFIABLE.name
    assert "rack" in reason.message
    assert "no node for the pod has this label" in reason.message


def test_an_existing_node_without_the_label_takes_pods_apart_but_none_together() -> None:
    around = (node(room=4000, zone="a"),)
    apart = spec(labels=WEB, pod_anti_affinity=(term("rack", **WEB),))
    near = spec(labels=WEB, pod_affinity=(term("rack", **WEB),))
    plan, _ = planned([*pods("apart", 2, apart), *pods("near", 1, near)], nodes=around)
    (placement,) = plan.existing
    assert placement.pods == ("default/apart-0", "default/apart-1")


def test_a_pod_that_is_too_large_is_told_so_rather_than_by_its_terms() -> None:
    web = spec(900_000, labels=WEB, pod_affinity=(term(TEAM, **WEB),))
    (miss,) = planned(pods("web", 1, web), OF_TEAMS)[0].unschedulable
    assert miss.reason.code == "RequestTooLarge"


def test_a_pod_without_its_leader_gets_no_node() -> None:
    """The limit of the pool leaves no room for the pod that the others follow."""
    leader = spec(1500, labels={"app": "db"}, terms=ON_AMD64, priority=-1)
    follower = spec(labels=WEB, pod_affinity=(term(TEAM, app="db"),), terms=ON_AMD64)
    few = replace(OF_TEAMS, limits={"nodes": 0})
    plan, _ = planned([*pods("leader", 1, leader), *pods("follower", 2, follower)], few)
    assert len(plan.unschedulable) == 3


def test_many_values_are_chosen_quickly_enough_to_be_used() -> None:
    types = Catalog.of(
        "test", tuple(instance_type(f"type-{i}", 4000, 8192, 0.1 + i / 1000) for i in range(300))
    )
    web = spec(1500, labels=WEB, spreads=(Spread(term(INSTANCE_TYPE, **WEB), 1),))
    plan = pack(pods("web", 100, web), Supply([NodePool("plain")], types))
    assert len({launch.cheapest.type.name for launch in plan.launches}) == 100
