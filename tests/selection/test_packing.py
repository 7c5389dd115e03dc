"""Packing: the nodes of pods, and the reasons of unschedulable pods."""

from dataclasses import replace

import pytest
from leeway.reasons import ReasonCode
from leeway.selection.labels import ARCH, CAPACITY_TYPE, HOSTNAME, INITIALIZED, ZONE
from leeway.selection.packing.plan import (
    NO_NODE_POOL,
    NO_NODE_POOL_MATCHES,
    POOL_LIMIT_REACHED,
    REQUEST_TOO_LARGE,
    TOPOLOGY_UNSATISFIABLE,
    Plan,
)
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import (
    ExistingNode,
    HostPort,
    NodePool,
    Pod,
    PodSpec,
    Spread,
    Taint,
    Toleration,
    Weighted,
)
from leeway.selection.requirements import Requirement, Requirements
from leeway.selection.resources import Resources

from tests.selection.workloads import GIB, catalog, instance_type, pods, spec, term

PLAIN = NodePool("plain")
ON_DEMAND = NodePool("plain", Requirements([Requirement.of(CAPACITY_TYPE, "In", ["on-demand"])]))


def plan_for(
    waiting: list[Pod],
    *pools: NodePool,
    nodes: tuple[ExistingNode, ...] = (),
    daemons: tuple[PodSpec, ...] = (),
) -> Plan:
    return pack(waiting, Supply(pools or (PLAIN,), catalog(), daemons=daemons), nodes)


def node(name: str, zone: str = "a", *running: PodSpec, cpu: int = 4000) -> ExistingNode:
    size = Resources({"cpu": cpu, "memory": 8 * GIB, "pods": 20})
    return ExistingNode(name, {ZONE: zone, ARCH: "amd64"}, size, size, pods=running, pool="plain")


def types_of(plan: Plan) -> list[str]:
    return sorted(launch.cheapest.type.name for launch in plan.launches)


def zones_of(plan: Plan) -> list[str]:
    return sorted(launch.cheapest.offering.zone for launch in plan.launches)


def test_pods_are_packed_onto_the_cheapest_nodes() -> None:
    plan = plan_for(pods("web", 8, spec(450)))
    # Two small ones at 0.02 on Spot hold four each; a medium one would be 0.06.
    assert types_of(plan) == ["small", "small"]
    assert plan.price == pytest.approx(0.04)
    assert plan.price >= plan.bound


def test_ten_thousand_replicas_are_one_group() -> None:
    plan = plan_for(pods("web", 10_000, spec(100)))
    assert sum(len(launch.pods) for launch in plan.launches) == 10_000
    assert plan.price / plan.bound < 1.03


def test_existing_nodes_are_filled_before_new_nodes_are_launched() -> None:
    plan = plan_for(pods("web", 3, spec(1000)), nodes=(node("here", "a", spec(3000)), node("too")))
    assert plan.launches == ()
    assert {p.node: len(p.pods) for p in plan.existing} == {"here": 1, "too": 2}


def test_a_cordoned_or_tainted_node_gets_no_pods() -> None:
    tainted = ExistingNode(
        "here",
        {ZONE: "a"},
        Resources({"cpu": 4000, "memory": GIB, "pods": 9}),
        taints=(Taint("node.kubernetes.io/unschedulable"),),
    )
    plan = plan_for(pods("web", 1, spec()), nodes=(tainted,))
    assert plan.existing == ()
    assert len(plan.launches) == 1


def test_daemonset_pods_reduce_the_room_of_every_new_node() -> None:
    plan = plan_for(pods("web", 1, spec(1900)), daemons=(spec(200),))
    assert types_of(plan) == ["medium"]
    assert types_of(plan_for(pods("web", 1, spec(1900)))) == ["small"]


def test_daemons_that_do_not_tolerate_a_pools_taint_cost_nothing_there() -> None:
    tainted = NodePool("tainted", taints=(Taint("dedicated", "x"),))
    tolerant = spec(1900, tolerations=(Toleration("dedicated", "Exists"),))
    plan = plan_for(pods("web", 1, tolerant), tainted, daemons=(spec(200),))
    assert types_of(plan) == ["small"]


def test_daemons_run_on_nodes_whose_soft_taint_they_do_not_tolerate() -> None:
    soft = NodePool("soft", taints=(Taint("dedicated", "x", "PreferNoSchedule"),))
    assert types_of(plan_for(pods("web", 1, spec(1900)), soft, daemons=(spec(200),))) == ["medium"]


def test_a_pod_is_unschedulable_if_a_daemonset_uses_its_host_port() -> None:
    exporter = spec(ports=frozenset({HostPort(9100)}))
    plan = plan_for(pods("web", 1, exporter), daemons=(exporter,))
    assert plan.launches == ()
    assert plan.unschedulable[0].reason == NO_NODE_POOL_MATCHES(
        why="A DaemonSet uses the host port 9100 on every node of node pool plain"
    )
    on_arm = replace(exporter, terms=(Requirements.from_labels({ARCH: "arm64"}),))
    assert len(plan_for(pods("web", 1, exporter), daemons=(on_arm,)).launches) == 1


def test_pending_daemonset_pods_reduce_the_room_of_a_node() -> None:
    fresh = node("fresh", cpu=2000)
    daemon = spec(200)
    assert plan_for(pods("web", 1, spec(1900)), nodes=(fresh,), daemons=(daemon,)).existing == ()
    there = replace(fresh, pods=(daemon,), daemons=daemon.requests)
    plan = plan_for(pods("web", 1, spec(1800)), nodes=(there,), daemons=(daemon,))
    assert [p.node for p in plan.existing] == ["fresh"]


def test_terminating_pods_use_room_until_they_exit() -> None:
    busy = replace(node("busy", cpu=2000), terminating=Resources({"cpu": 1500, "pods": 1}))
    assert plan_for(pods("web", 1, spec(1000)), nodes=(busy,)).existing == ()
    assert len(plan_for(pods("web", 1, spec(400)), nodes=(busy,)).existing) == 1


APP = {"app": "web"}


@pytest.mark.parametrize(
    ("holding", "elsewhere"),
    [
        (spec(ports=frozenset({HostPort(80)})), True),
        (spec(labels=APP, pod_anti_affinity=(term(HOSTNAME, **APP),)), True),
        (spec(labels=APP, pod_anti_affinity=(term(ZONE, **APP),)), True),
        (spec(labels=APP, pod_affinity=(term(ZONE, **APP),)), False),
        (spec(labels=APP, spreads=(Spread(term(HOSTNAME, **APP), 1),)), False),
    ],
)
def test_terminating_pods_hold_their_host_ports_and_keep_their_anti_affinity(
    holding: PodSpec, elsewhere: bool
) -> None:
    ending = replace(node("ending"), terminating_pods=(holding.held,))
    plan = plan_for(pods("web", 1, holding), nodes=(ending,))
    assert (len(plan.launches), plan.unschedulable) == (int(elsewhere), ())
    apart_by_zone = any(one.topology == ZONE for one in holding.pod_anti_affinity)
    assert not (apart_by_zone and zones_of(plan) == ["a"])
    assert len(plan_for(pods("web", 1, spec(labels=APP)), nodes=(ending,)).existing) == (
        not holding.pod_anti_affinity
    )


@pytest.mark.parametrize(
    ("taint", "labels", "taken"),
    [
        (Taint("cilium", "", "NoExecute"), {}, True),
        (Taint("node.kubernetes.io/not-ready"), {}, True),
        (Taint("cilium", "", "NoExecute"), {INITIALIZED: "true"}, False),
        (Taint("other", "", "NoExecute"), {}, False),
    ],
)
def test_a_starting_node_of_a_pool_is_used(
    taint: Taint, labels: dict[str, str], taken: bool
) -> None:
    pool = NodePool("plain", startup_taints=(Taint("cilium", "", "NoExecute"),))
    starting = node("starting")
    starting = replace(starting, taints=(taint,), labels={**starting.labels, **labels})
    plan = plan_for(pods("web", 1, spec()), pool, nodes=(starting,))
    assert bool(plan.existing) is taken


def test_a_starting_node_gets_pods_that_select_initialized_nodes() -> None:
    started = spec(terms=(Requirements.from_labels({INITIALIZED: "true"}),))
    plan = plan_for(pods("web", 1, started), nodes=(node("starting"),))
    assert [placement.node for placement in plan.existing] == ["starting"]


def test_a_node_without_a_zone_gets_unconstrained_pods_and_is_no_domain() -> None:
    bare = replace(node("bare"), labels={ARCH: "amd64"})
    free = plan_for(pods("web", 1, spec()), nodes=(bare,))
    assert [p.node for p in free.existing] == ["bare"]
    spread = Spread(term(ZONE, app="web"), max_skew=1)
    web = spec(labels={"app": "web"}, spreads=(spread,))
    plan = plan_for(pods("web", 3, web), nodes=(bare,))
    assert (len(plan.existing), len(plan.unschedulable)) == (0, 0)
    assert zones_of(plan) == ["a", "b", "c"]


@pytest.mark.parametrize(("honors_taints", "placed"), [(False, 3), (True, 4)])
def test_zones_of_tainted_nodes_count_in_a_spread_unless_it_honors_taints(
    honors_taints: bool, placed: int
) -> None:
    # Zone "d" has nothing but a cordoned node: a pod more than one in any other is uneven.
    cordoned = (Taint("node.kubernetes.io/unschedulable"),)
    closed = replace(node("closed", "d"), taints=cordoned)
    spread = Spread(term(ZONE, app="web"), max_skew=1, honors_taints=honors_taints)
    plan = plan_for(pods("web", 4, spec(labels={"app": "web"}, spreads=(spread,))), nodes=(closed,))
    assert sum(len(launch.pods) for launch in plan.launches) == placed


@pytest.mark.parametrize(("honors_affinity", "placed"), [(True, 4), (False, 3)])
def test_zones_of_nodes_that_affinity_excludes_count_in_a_spread_that_ignores_it(
    honors_affinity: bool, placed: int
) -> None:
    elsewhere = node("elsewhere", "d")
    spread = Spread(term(ZONE, app="web"), max_skew=1, honors_affinity=honors_affinity)
    terms = (Requirements([Requirement.of(ZONE, "NotIn", ["d"])]),)
    web = spec(labels={"app": "web"}, spreads=(spread,), terms=terms)
    plan = plan_for(pods("web", 4, web), nodes=(elsewhere,))
    assert sum(len(launch.pods) for launch in plan.launches) == placed


def test_a_node_that_matches_one_of_several_affinity_terms_is_used() -> None:
    either = spec(
        terms=(
            Requirements.from_labels({ARCH: "riscv"}),
            Requirements.from_labels({ARCH: "arm64"}),
        )
    )
    assert types_of(plan_for(pods("web", 1, either))) == ["arm"]


def test_pods_are_unschedulable_if_there_are_fewer_zones_than_min_domains() -> None:
    spread = Spread(term(ZONE, app="web"), max_skew=1, min_domains=4)
    web = spec(labels={"app": "web"}, spreads=(spread,))
    plan = plan_for(pods("web", 5, web))
    assert len(plan.unschedulable) == 2
    assert plan.unschedulable[0].reason.code == TOPOLOGY_UNSATISFIABLE.name


def test_anti_affinity_by_hostname_uses_one_node_per_pod() -> None:
    web = spec(labels={"app": "web"}, pod_anti_affinity=(term(HOSTNAME, app="web"),))
    plan = plan_for(pods("web", 4, web))
    assert len(plan.launches) == 4
    assert plan.bound == pytest.approx(4 * 0.02)


def test_the_anti_affinity_of_a_running_pod_excludes_other_pods() -> None:
    shy = spec(pod_anti_affinity=(term(HOSTNAME, app="web"),))
    plan = plan_for(pods("web", 1, spec(labels={"app": "web"})), nodes=(node("here", "a", shy),))
    assert plan.existing == ()


def test_affinity_by_hostname_puts_pods_on_one_node() -> None:
    pair = spec(700, labels={"app": "pair"}, pod_affinity=(term(HOSTNAME, app="pair"),))
    (launch,) = plan_for(pods("pair", 4, pair)).launches
    assert launch.cheapest.type.name == "medium"


def test_pods_with_the_same_host_port_use_different_nodes() -> None:
    proxy = spec(ports=frozenset({HostPort(80)}))
    other = spec(ports=frozenset({HostPort(80, address="10.0.0.1")}))
    assert len(plan_for([*pods("p", 1, proxy), *pods("q", 1, other)]).launches) == 2


def test_the_pool_with_the_larger_weight_is_used_up_to_its_limit() -> None:
    first = NodePool("first", weight=10, limits={"cpu": 4000})
    plan = plan_for(pods("web", 4, spec(1800)), first, PLAIN)
    assert sorted(launch.pool for launch in plan.launches) == ["first", "first", "plain", "plain"]


def test_running_nodes_count_towards_the_limits_of_their_pool() -> None:
    limited = NodePool("plain", limits={"nodes": 2})
    nodes = (node("here", "a", spec(4000)),)
    plan = plan_for(pods("web", 2, spec(15000)), limited, nodes=nodes)
    assert len(plan.launches) == 1
    assert plan.unschedulable[0].reason == POOL_LIMIT_REACHED()


def test_if_a_limit_is_reached_pods_of_higher_priority_get_the_nodes() -> None:
    limited = NodePool("plain", limits={"nodes": 1})
    low, high = spec(15000), spec(15000, priority=100)
    plan = plan_for([*pods("low", 1, low), *pods("high", 1, high)], limited)
    assert [miss.pod for miss in plan.unschedulable] == ["default/low-0"]


def test_preferences_are_relaxed_only_if_they_cannot_be_satisfied() -> None:
    arm = Weighted(1, Requirements.from_labels({ARCH: "arm64"}))
    riscv = Weighted(2, Requirements.from_labels({ARCH: "riscv"}))
    assert types_of(plan_for(pods("web", 1, spec(preferred_terms=(arm,))))) == ["arm"]
    assert types_of(plan_for(pods("web", 1, spec(preferred_terms=(riscv,))))) == ["small"]


def test_a_spread_with_schedule_anyway_is_satisfied_if_possible() -> None:
    spread = Spread(term(HOSTNAME, app="web"), max_skew=1, required=False)
    web = spec(labels={"app": "web"}, spreads=(spread,))
    assert len(plan_for(pods("web", 3, web)).launches) == 3
    limited = NodePool("plain", limits={"nodes": 1})
    plan = plan_for(pods("web", 3, web), limited)
    assert len(plan.launches) <= 1


def test_nodes_with_soft_taints_are_used_last() -> None:
    soft = NodePool("soft", weight=10, taints=(Taint("spotInstance", "true", "PreferNoSchedule"),))
    assert [n.pool for n in plan_for(pods("web", 1, spec()), soft, PLAIN).launches] == ["plain"]
    assert [n.pool for n in plan_for(pods("web", 1, spec()), soft).launches] == ["soft"]


def test_pods_that_share_the_search_for_a_reason_are_each_told_their_own() -> None:
    daemon = spec(1500)
    arm = Requirements.from_labels({ARCH: "arm64"})
    waiting = [
        *pods("both", 1, spec(15_000, 31_000)),
        *pods("cpu", 1, spec(15_500)),
        *pods("memory", 1, spec(100, 2**20)),
        *pods("arm", 1, spec(3000, terms=(arm,))),
    ]
    plan = plan_for(waiting, daemons=(daemon,))
    causes = {one.pod: one.reason.message for one in plan.unschedulable}
    largest = "and the largest of the"
    assert f"15 of cpu besides DaemonSets, {largest} 4 types" in causes["default/both-0"]
    assert f"15500m of cpu besides DaemonSets, {largest} 4 types" in causes["default/cpu-0"]
    assert f"1Ti of memory besides DaemonSets, {largest} 4 types" in causes["default/memory-0"]
    assert f"3 of cpu besides DaemonSets, {largest} 1 types" in causes["default/arm-0"]


@pytest.mark.parametrize(
    ("pod", "code", "words"),
    [
        (
            spec(200_000),
            REQUEST_TOO_LARGE,
            "the largest of the 4 types that match all requirements has 16",
        ),
        (
            spec(terms=(Requirements.from_labels({ARCH: "nvidia"}),)),
            NO_NODE_POOL_MATCHES,
            "arch In [nvidia]",
        ),
        (
            spec(terms=(Requirements.from_labels({"team": "x"}),)),
            NO_NODE_POOL_MATCHES,
            "no node of the pool has the label",
        ),
        (
            spec(pod_anti_affinity=(term("rack", app="x"),)),
            TOPOLOGY_UNSATISFIABLE,
            "topologyKey rack",
        ),
    ],
)
def test_the_reason_of_an_unschedulable_pod_has_a_code_and_names_the_cause(
    pod: PodSpec, code: ReasonCode, words: str
) -> None:
    (unschedulable,) = plan_for(pods("web", 1, pod)).unschedulable
    assert unschedulable.reason.code == code.name
    assert words in unschedulable.reason.message


@pytest.mark.parametrize("key", ["team", ARCH])
def test_of_many_terms_that_no_node_meets_the_reason_names_the_first_ones(key: str) -> None:
    many = spec(terms=tuple(Requirements.from_labels({key: f"x-{n}"}) for n in range(250)))
    (unschedulable,) = plan_for(pods("web", 1, many)).unschedulable
    assert "[x-7]" in unschedulable.reason.message
    assert "[x-8]" not in unschedulable.reason.message
    assert "; or 242 more causes" in unschedulable.reason.message


def test_an_untolerated_taint_is_named() -> None:
    plan = plan_for(pods("web", 1, spec()), NodePool("gpu", taints=(Taint("nvidia.com/gpu"),)))
    assert plan.unschedulable[0].reason == NO_NODE_POOL_MATCHES(
        why="The pod does not tolerate the taint nvidia.com/gpu:NoSchedule of node pool gpu"
    )


def test_without_a_pool_the_reason_is_no_node_pool() -> None:
    plan = pack(pods("web", 1, spec()), Supply((), catalog()))
    assert plan.unschedulable[0].reason == NO_NODE_POOL()


def test_an_offering_without_a_price_is_the_last_choice() -> None:
    unknown = instance_type("unknown", 2000, 4096, None)
    dear = instance_type("dear", 2000, 4096, 3.0)
    plan = pack(pods("web", 1, spec()), Supply([PLAIN], catalog(unknown, dear)))
    assert types_of(plan) == ["dear"]
    alone = pack(pods("web", 1, spec()), Supply([PLAIN], catalog(unknown)))
    assert alone.launches[0].choices[0].price is None
    assert alone.price == 0


def test_a_pool_limit_is_reported_only_for_pods_that_would_fit_without_it() -> None:
    none = NodePool("none", limits={"cpu": 0})
    waiting = [*pods("web", 1, spec()), *pods("huge", 1, spec(10**6))]
    reasons = {pod.pod: pod.reason for pod in plan_for(waiting, none).unschedulable}
    assert reasons["default/web-0"] == POOL_LIMIT_REACHED()
    assert "the pod requests 1k of cpu" in reasons["default/huge-0"].message


def test_an_impossible_preference_does_not_relax_a_lighter_possible_one() -> None:
    impossible = Weighted(100, Requirements.from_labels({"example.com/none": "x"}))
    possible = Weighted(1, Requirements.from_labels({ZONE: "b"}))
    plan = plan_for(pods("web", 2, spec(preferred_terms=(impossible, possible))))
    assert zones_of(plan) == ["b"]
    heavier = Weighted(50, Requirements.from_labels({ZONE: "c"}))
    plan = plan_for(pods("web", 2, spec(preferred_terms=(impossible, possible, heavier))))
    assert zones_of(plan) == ["c"]


def test_a_preferred_zone_does_not_exclude_other_zones_from_a_spread() -> None:
    prefers_b = Weighted(100, Requirements.from_labels({ZONE: "b"}))
    spread = Spread(term(ZONE, app="web"), max_skew=1)
    web = spec(1500, labels={"app": "web"}, spreads=(spread,), preferred_terms=(prefers_b,))
    plan = plan_for(pods("web", 7, web), ON_DEMAND)
    zones = [launch.cheapest.offering.zone for launch in plan.launches for _ in launch.pods]
    assert sorted(map(zones.count, "abc")) == [2, 2, 3]


def test_a_pool_that_the_pod_excludes_is_no_part_of_the_reason() -> None:
    gpu = NodePool("gpu", taints=(Taint("gpu"),))
    plan = plan_for(pods("huge", 1, spec(cpu=900_000)), gpu, PLAIN)
    (found,) = plan.unschedulable
    assert found.reason.code == REQUEST_TOO_LARGE.name
    assert "gpu" not in found.reason.message
