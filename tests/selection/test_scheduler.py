"""Packing places at least as many pods as kube-scheduler does in any order."""

from leeway.selection.labels import ARCH, HOSTNAME, ZONE
from leeway.selection.packing.plan import Plan
from leeway.selection.packing.planning import Effort, pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import ExistingNode, NodePool, Pod, PodSpec, Spread, Weighted
from leeway.selection.requirements import Requirement, Requirements
from leeway.selection.resources import Resources

from bench.plan_checker import violations
from tests.selection.workloads import GIB, catalog, pods, spec, term

PLAIN = NodePool("plain")
WEB = {"app": "web"}


def node(name: str, *running: PodSpec, zone: str = "a", **labels: str) -> ExistingNode:
    size = Resources({"cpu": 4000, "memory": 8 * GIB, "pods": 20})
    known = {ZONE: zone, ARCH: "amd64", **labels}
    return ExistingNode(name, known, size, size, pods=running, pool="plain")


def planned(
    waiting: list[Pod], *nodes: ExistingNode, pools: tuple[NodePool, ...] = (PLAIN,)
) -> Plan:
    plan = pack(waiting, Supply(pools, catalog()), nodes)
    assert violations(plan, waiting, pools, nodes) == []
    return plan


def on_existing(plan: Plan) -> int:
    return sum(len(placement.pods) for placement in plan.existing)


def zones_of(plan: Plan) -> dict[str, int]:
    found: dict[str, int] = {}
    for launch in plan.launches:
        zone = launch.cheapest.offering.zone
        found[zone] = found.get(zone, 0) + len(launch.pods)
    return found


def in_zones(*zones: str) -> tuple[Requirements, ...]:
    return (Requirements([Requirement.of(ZONE, "In", zones)]),)


def test_constrained_pods_take_existing_nodes_before_unconstrained_ones_fill_them() -> None:
    plain = pods("plain", 3, spec(1000))
    apart = pods("apart", 2, spec(500, labels=WEB, pod_anti_affinity=(term(HOSTNAME, **WEB),)))
    plan = planned([*plain, *apart], node("busy", spec(1000)), node("idle"))
    assert plan.launches == ()
    assert on_existing(plan) == 5


def test_a_spread_by_hostname_compares_existing_nodes_with_each_other() -> None:
    web = spec(500, labels=WEB, spreads=(Spread(term(HOSTNAME, **WEB), 1),))
    plan = planned(pods("web", 8, web), node("one"), node("two"))
    assert {placement.node: len(placement.pods) for placement in plan.existing} == {
        "one": 4,
        "two": 4,
    }


def test_a_spread_by_zone_compares_the_zones_of_existing_nodes() -> None:
    web = spec(500, labels=WEB, spreads=(Spread(term(ZONE, **WEB), 1),))
    plan = planned(pods("web", 8, web), node("one", zone="a"), node("two", zone="b"))
    assert on_existing(plan) == 8


def test_a_preference_does_not_launch_a_node_if_an_existing_one_has_room() -> None:
    elsewhere = Weighted(100, Requirements.from_labels({ZONE: "c"}))
    plan = planned(pods("web", 2, spec(500, preferred_terms=(elsewhere,))), node("one"))
    assert plan.launches == ()


def test_preferred_anti_affinity_does_not_launch_a_node_if_an_existing_one_has_room() -> None:
    apart = (Weighted(100, term(HOSTNAME, **WEB)),)
    web = pods("web", 3, spec(500, labels=WEB, preferred_pod_anti_affinity=apart))
    alike = pods("alike", 1, spec(500, labels=WEB))
    assert planned([*web, *alike], node("one")).launches == ()
    plan = planned(web[:2], node("one"), node("two"))
    assert {placement.node for placement in plan.existing} == {"one", "two"}


def test_required_anti_affinity_keeps_later_pods_off_the_node_of_a_pod_that_prefers() -> None:
    prefers = (Weighted(100, term(HOSTNAME, app="other")),)
    apart = spec(
        500,
        labels=WEB,
        pod_anti_affinity=(term(HOSTNAME, **WEB),),
        preferred_pod_anti_affinity=prefers,
    )
    alike = pods("alike", 1, spec(100, labels=WEB))
    assert on_existing(planned([*pods("apart", 2, apart), *alike], node("one"))) == 1


def test_a_higher_priority_comes_before_a_constrained_pod() -> None:
    high = pods("high", 1, spec(4000, priority=10))
    low = pods("low", 1, spec(500, labels=WEB, pod_anti_affinity=(term(HOSTNAME, **WEB),)))
    plan = planned([*low, *high], node("one"), pools=())
    assert [placement.pods for placement in plan.existing] == [("default/high-0",)]


def test_pods_that_must_share_a_node_share_an_existing_node() -> None:
    together = spec(
        labels=WEB,
        pod_affinity=(term(HOSTNAME, **WEB),),
        terms=(Requirements([Requirement.of("x", "In", ["1"])]),),
    )
    plan = planned(pods("web", 2, together), node("one", x="1"))
    assert on_existing(plan) == 2


def test_a_pod_with_a_required_zone_is_placed_before_other_pods_with_its_label() -> None:
    pinned = spec(labels=WEB, terms=in_zones("b"), spreads=(Spread(term(ZONE, **WEB), 1),))
    waiting = [*pods("pinned", 1, pinned), *pods("free", 3, spec(labels=WEB))]
    assert planned(waiting).unschedulable == ()


def test_spreads_with_different_node_affinity_share_their_counts() -> None:
    # Karpenter's "should limit spread options by required node affinity", in one batch.
    spread = (Spread(term(ZONE, **WEB), 1),)
    waiting = [
        *pods("first", 6, spec(1500, labels=WEB, spreads=spread, terms=in_zones("a", "b"))),
        *pods("second", 1, spec(1500, labels=WEB, spreads=spread, terms=in_zones("b", "c"))),
        *pods("third", 5, spec(1500, labels=WEB, spreads=spread)),
    ]
    plan = planned(waiting)
    assert plan.unschedulable == ()
    assert zones_of(plan) == {"a": 4, "b": 4, "c": 4}


def test_anti_affinity_limits_only_the_node_of_its_pod() -> None:
    alone = spec(pod_anti_affinity=(term(HOSTNAME, **WEB),))
    waiting = [*pods("alone", 1, alone), *pods("web", 2, spec(1500, labels=WEB))]
    one_order = Effort(orders=1)
    plan = pack(waiting, Supply([PLAIN], catalog()), [node("one"), node("two")], one_order)
    assert on_existing(plan) == 3
