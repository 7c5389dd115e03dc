"""Which nodes' pods a spread by zone counts: kube-scheduler's rule, held of plans."""

from dataclasses import replace

from leeway.selection.labels import ARCH, ZONE
from leeway.selection.packing.plan import Plan
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import ExistingNode, PodSpec, Spread, Toleration
from leeway.selection.pools import NodePool, Taint
from leeway.selection.requirements import Requirements
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


def test_pods_on_nodes_that_the_pods_own_affinity_excludes_do_not_count() -> None:
    web = spec(labels=WEB, spreads=(BY_ZONE,), terms=ON_AMD64)
    running = (spec(labels=WEB), spec(labels=WEB))
    around = [node("a", *running, arch="arm64")]
    plan = pack(pods("web", 3, web), Supply([PLAIN], catalog()), around)
    assert zones_of(plan, "web") == ["a", "b", "c"]


def test_they_do_count_where_the_spread_ignores_affinity() -> None:
    ignoring = replace(BY_ZONE, heeds_affinity=False)
    web = spec(labels=WEB, spreads=(ignoring,), terms=ON_AMD64)
    around = [node("a", spec(labels=WEB), spec(labels=WEB), arch="arm64")]
    plan = pack(pods("web", 2, web), Supply([PLAIN], catalog()), around)
    assert zones_of(plan, "web") == ["b", "c"]


def test_pods_on_nodes_whose_taint_is_not_tolerated_do_not_count_where_taints_are_heeded() -> None:
    heeding = replace(BY_ZONE, heeds_taints=True)
    around = [node("a", spec(labels=WEB), spec(labels=WEB), taint="dedicated")]
    waiting = pods("web", 3, spec(labels=WEB, spreads=(heeding,)))
    plan = pack(waiting, Supply([PLAIN], catalog()), around)
    assert zones_of(plan, "web") == ["a", "b", "c"]


def test_they_do_count_where_taints_are_not_heeded() -> None:
    around = [node("a", spec(labels=WEB), spec(labels=WEB), taint="dedicated")]
    waiting = pods("web", 2, spec(labels=WEB, spreads=(BY_ZONE,)))
    plan = pack(waiting, Supply([PLAIN], catalog()), around)
    assert zones_of(plan, "web") == ["b", "c"]


def test_pods_that_wait_for_nodes_which_do_not_count_are_no_matter_to_a_spread() -> None:
    on_arm = spec(1500, labels=WEB, terms=ON_ARM64)
    web = spec(labels=WEB, spreads=(BY_ZONE,), terms=ON_AMD64)
    waiting = [*pods("old", 3, on_arm), *pods("web", 3, web)]
    plan = pack(waiting, Supply([PLAIN], catalog()))
    assert zones_of(plan, "web") == ["a", "b", "c"]
    assert violations(plan, waiting, [PLAIN]) == []


def test_pods_that_perhaps_count_take_room_in_a_spread_and_make_none() -> None:
    anywhere = spec(labels=WEB, terms=(Requirements.from_labels({ZONE: "c"}),))
    web = spec(labels=WEB, spreads=(BY_ZONE,), terms=ON_AMD64)
    waiting = [*pods("any", 2, anywhere), *pods("web", 4, web)]
    plan = pack(waiting, Supply([PLAIN], catalog()))
    assert violations(plan, waiting, [PLAIN]) == []


def test_where_a_volume_is_makes_no_other_zone_less_of_a_domain() -> None:
    in_a = (Requirements.from_labels({ZONE: "a"}),)
    bound = spec(labels=WEB, spreads=(BY_ZONE,), terms=in_a, affinity=())
    around = [node("a", spec(labels=WEB)), node("b")]
    plan = pack(pods("web", 1, bound), Supply([PLAIN], catalog()), around)
    assert "maxSkew" in plan.unschedulable[0].reason
    by_itself = replace(bound, affinity=None)
    assert zones_of(pack(pods("web", 1, by_itself), Supply([PLAIN], catalog()), around), "web")


def test_a_soft_taint_that_is_borne_after_all_changes_nothing_about_what_counts() -> None:
    soft = NodePool("soft", taints=(Taint("slow", "", "PreferNoSchedule"),))
    tolerant = (Toleration("dedicated", "Exists"),)
    web = spec(labels=WEB, spreads=(replace(BY_ZONE, heeds_taints=True),), tolerations=tolerant)
    around = [node("a", spec(labels=WEB), taint="dedicated")]
    plan = pack(pods("web", 2, web), Supply([soft], catalog()), around)
    assert zones_of(plan, "web") == ["b", "c"]
