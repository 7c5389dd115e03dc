"""The nodes whose pods a spread counts, as in kube-scheduler."""

from collections import Counter
from dataclasses import replace

import pytest
from leeway.selection.labels import ARCH, CAPACITY_TYPE, ZONE
from leeway.selection.packing.plan import Plan
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import ExistingNode, NodePool, PodSpec, Spread, Taint, Toleration
from leeway.selection.requirements import Requirement, Requirements
from leeway.selection.resources import Resources

from bench.plan_checker import violations
from tests.selection.workloads import GIB, catalog, pods, spec, term

WEB = {"app": "web"}
BY_ZONE = Spread(term(ZONE, **WEB), 1)
ON_AMD64 = (Requirements.from_labels({ARCH: "amd64"}),)
ON_ARM64 = (Requirements.from_labels({ARCH: "arm64"}),)
PLAIN = NodePool("plain")


def node(zone: str, *running: PodSpec, arch: str = "amd64", taint: str = "") -> ExistingNode:
    full = Resources({"cpu": 1000, "memory": GIB, "pods": max(1, len(running))})
    labels = {ZONE: zone, ARCH: arch}
    taints = (Taint(taint),) if taint else ()
    return ExistingNode(f"node-{zone}", labels, full, full, taints, running)


def zones_of(plan: Plan, name: str) -> list[str]:
    """The zones of the new nodes of one set's pods, one for each pod."""
    return sorted(
        launch.cheapest.offering.zone
        for launch in plan.launches
        for pod in launch.pods
        if pod.startswith(f"default/{name}-")
    )


RUNNING = (spec(labels=WEB), spec(labels=WEB))


@pytest.mark.parametrize(
    ("spread", "terms", "around", "zones"),
    [
        (BY_ZONE, ON_AMD64, node("a", *RUNNING, arch="arm64"), "abc"),
        (
            replace(BY_ZONE, honors_affinity=False),
            ON_AMD64,
            node("a", *RUNNING, arch="arm64"),
            "bc",
        ),
        (replace(BY_ZONE, honors_taints=True), (), node("a", *RUNNING, taint="dedicated"), "abc"),
        (BY_ZONE, (), node("a", *RUNNING, taint="dedicated"), "bc"),
    ],
)
def test_pods_count_in_a_spread_unless_it_honors_what_excludes_their_node(
    spread: Spread, terms: tuple[Requirements, ...], around: ExistingNode, zones: str
) -> None:
    web = spec(labels=WEB, spreads=(spread,), terms=terms)
    plan = pack(pods("web", len(zones), web), Supply([PLAIN], catalog()), [around])
    assert zones_of(plan, "web") == list(zones)


def test_pending_pods_on_excluded_nodes_do_not_count_in_a_spread() -> None:
    on_arm = spec(1500, labels=WEB, terms=ON_ARM64)
    web = spec(labels=WEB, spreads=(BY_ZONE,), terms=ON_AMD64)
    waiting = [*pods("old", 3, on_arm), *pods("web", 3, web)]
    plan = pack(waiting, Supply([PLAIN], catalog()))
    assert zones_of(plan, "web") == ["a", "b", "c"]
    assert violations(plan, waiting, [PLAIN]) == []


def test_conditionally_counted_pods_add_to_their_domain_but_not_to_the_minimum() -> None:
    anywhere = spec(labels=WEB, terms=(Requirements.from_labels({ZONE: "c"}),))
    web = spec(labels=WEB, spreads=(BY_ZONE,), terms=ON_AMD64)
    waiting = [*pods("any", 2, anywhere), *pods("web", 4, web)]
    plan = pack(waiting, Supply([PLAIN], catalog()))
    assert violations(plan, waiting, [PLAIN]) == []


def test_the_zone_of_a_volume_does_not_exclude_other_zones_from_a_spread() -> None:
    in_a = (Requirements.from_labels({ZONE: "a"}),)
    bound = spec(labels=WEB, spreads=(BY_ZONE,), terms=in_a, affinity=())
    around = [node("a", spec(labels=WEB)), node("b")]
    plan = pack(pods("web", 1, bound), Supply([PLAIN], catalog()), around)
    assert "maxSkew" in plan.unschedulable[0].reason.message
    by_itself = replace(bound, affinity=None)
    assert zones_of(pack(pods("web", 1, by_itself), Supply([PLAIN], catalog()), around), "web")


def test_tolerating_a_soft_taint_does_not_change_the_counted_nodes() -> None:
    soft = NodePool("soft", taints=(Taint("slow", "", "PreferNoSchedule"),))
    tolerant = (Toleration("dedicated", "Exists"),)
    web = spec(labels=WEB, spreads=(replace(BY_ZONE, honors_taints=True),), tolerations=tolerant)
    around = [node("a", spec(labels=WEB), taint="dedicated")]
    plan = pack(pods("web", 2, web), Supply([soft], catalog()), around)
    assert zones_of(plan, "web") == ["b", "c"]


RATIO = "example.com/capacity-spread"


def labels_of(plan: Plan, label: str) -> Counter[str]:
    """How many pods are on new nodes with each value of a label."""
    found: Counter[str] = Counter()
    for launch in plan.launches:
        chosen = launch.cheapest
        labels = {
            **chosen.type.labels,
            **chosen.pool.labels,
            CAPACITY_TYPE: chosen.offering.capacity_type,
        }
        found[labels[label]] += len(launch.pods)
    return found


@pytest.mark.parametrize(
    ("label", "values"),
    [(CAPACITY_TYPE, ("on-demand", "spot")), (ARCH, ("amd64", "arm64")), (RATIO, ("1", "2", "3"))],
)
def test_pods_are_spread_by_any_label_of_nodes(label: str, values: tuple[str, ...]) -> None:
    pool = NodePool("plain", Requirements([Requirement.of(RATIO, "In", ["1", "2", "3"])]))
    web = spec(labels=WEB, spreads=(Spread(term(label, **WEB), 1),))
    waiting = pods("web", 6, web)
    plan = pack(waiting, Supply([pool], catalog()))
    assert labels_of(plan, label) == dict.fromkeys(values, 6 // len(values))
    assert violations(plan, waiting, [pool]) == []


def test_each_request_uses_the_capacity_type_that_its_pods_are_assigned_to() -> None:
    web = spec(labels=WEB, spreads=(Spread(term(CAPACITY_TYPE, **WEB), 1),))
    plan = pack(pods("web", 4, web), Supply([PLAIN], catalog()))
    assert [{c.capacity_type for c in launch.choices} for launch in plan.launches] == [
        {launch.cheapest.offering.capacity_type} for launch in plan.launches
    ]


def test_pods_on_existing_nodes_count_in_a_spread_by_capacity_type() -> None:
    web = spec(labels=WEB, spreads=(Spread(term(CAPACITY_TYPE, **WEB), 1),))
    full = node("a", web, web)
    full = replace(full, labels={**full.labels, CAPACITY_TYPE: "spot"})
    plan = pack(pods("web", 2, web), Supply([PLAIN], catalog()), [full])
    assert labels_of(plan, CAPACITY_TYPE) == {"on-demand": 2}


def test_a_spread_by_capacity_type_and_one_by_zone_hold_together() -> None:
    both = (Spread(term(CAPACITY_TYPE, **WEB), 1), Spread(term(ZONE, **WEB), 1))
    waiting = pods("web", 6, spec(1500, labels=WEB, spreads=both))
    plan = pack(waiting, Supply([PLAIN], catalog()))
    assert violations(plan, waiting, [PLAIN]) == []
    assert labels_of(plan, CAPACITY_TYPE) == {"on-demand": 3, "spot": 3}
    assert zones_of(plan, "web") == ["a", "a", "b", "b", "c", "c"]


def test_a_capacity_type_without_a_node_for_the_pods_limits_the_other_one() -> None:
    on_demand = (Requirements.from_labels({CAPACITY_TYPE: "on-demand"}),)
    full = replace(node("a"), labels={ZONE: "a", ARCH: "amd64", CAPACITY_TYPE: "spot"})
    spread = Spread(term(CAPACITY_TYPE, **WEB), 1, honors_affinity=False)
    web = spec(2000, labels=WEB, spreads=(spread,), terms=on_demand)
    plan = pack(pods("web", 2, web), Supply([PLAIN], catalog()), [full])
    (miss,) = plan.unschedulable
    assert "no node for the pod exists in spot" in miss.reason.message
