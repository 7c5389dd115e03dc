"""No pod has a place because of another pod that has none in the end, or comes elsewhere."""

from dataclasses import replace

from leeway.selection.labels import (
    ARCH,
    CAPACITY_TYPE,
    HOSTNAME,
    INSTANCE_TYPE,
    ON_DEMAND,
    SPOT,
    ZONE,
)
from leeway.selection.offers.reservations import Reservation, ReservedCapacity
from leeway.selection.packing.plan import Plan
from leeway.selection.packing.planning import Effort, pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import (
    ExistingNode,
    NodePool,
    OnDemandShare,
    Pod,
    Spread,
    Toleration,
    Weighted,
)
from leeway.selection.requirements import Requirement, Requirements
from leeway.selection.resources import Resources

from bench.launch_checker import Batch
from bench.plan_checker import violations
from tests.selection.workloads import (
    FEW,
    GIB,
    GPU,
    LIMITED,
    PLAIN,
    TAINTED,
    ZONES,
    catalog,
    instance_type,
    pods,
    spec,
    term,
)

WEB, DB = {"app": "web"}, {"app": "db"}


def planned(waiting: list[Pod], *pools: NodePool) -> tuple[Plan, dict[str, str]]:
    """A plan that keeps every constraint, and the reasons of the pods without a node."""
    plan = pack(waiting, Supply(pools, catalog()))
    assert violations(plan, waiting, pools) == []
    return plan, {miss.pod: miss.reason.message for miss in plan.unschedulable}


def test_a_pod_waits_if_the_pod_beside_which_it_was_placed_has_no_node() -> None:
    near_db = spec(labels=WEB, pod_affinity=(term(ZONE, **DB),))
    with_web = (term(HOSTNAME, **WEB),)
    impossible = spec(labels=DB, pod_affinity=with_web, pod_anti_affinity=with_web)
    waiting = [
        *pods("plain", 1, spec(labels=WEB)),
        *pods("near", 1, near_db),
        *pods("impossible", 1, impossible),
    ]
    plan, missed = planned(waiting, PLAIN, LIMITED)
    assert [node.pods for node in plan.launches] == [("default/plain-0",)]
    assert missed.keys() == {"default/near-0", "default/impossible-0"}
    assert all("pod affinity of the pod cannot be met" in why for why in missed.values())


def test_a_pod_that_leads_and_excludes_its_own_kind_leaves_the_spread_of_others_even() -> None:
    by_zone = (term(ZONE, **DB),)
    waiting = [
        *pods("alone", 1, spec(labels=DB, pod_affinity=by_zone, pod_anti_affinity=by_zone)),
        *pods("even", 2, spec(labels=WEB, spreads=(Spread(term(ZONE, **WEB), 1),))),
        *pods("web", 1, spec(labels=WEB)),
        *pods("db", 1, spec(labels=DB)),
    ]
    plan, missed = planned(waiting, PLAIN)
    assert not missed
    assert len(plan.launches) >= 2


def test_a_pod_waits_if_too_few_types_have_room_for_the_pod_that_it_follows() -> None:
    flexible = Requirements([replace(Requirement.of(INSTANCE_TYPE, "Exists"), min_values=3)])
    waiting = [
        *pods("leader", 1, spec(3500, labels=DB, terms=(Requirements.from_labels({ZONE: "b"}),))),
        *pods("follower", 1, spec(labels=WEB, pod_affinity=(term(ZONE, **DB),))),
    ]
    plan, missed = planned(waiting, NodePool("flexible", flexible))
    assert not plan.launches
    assert "minValues 3" in missed["default/leader-0"]
    assert "pod affinity of the pod cannot be met" in missed["default/follower-0"]


def test_a_pod_that_follows_a_node_of_a_gpu_has_a_launch_request_that_fits_both() -> None:
    """A later run puts a pod without a GPU onto the only node that the limits leave."""
    many = instance_type("many", 8000, 8192, 0.2, ("b",), devices={GPU: 2})
    large = instance_type("large", 16000, 32768, 0.16, ("a", "b"))
    alone = spec(1500, 1024, labels=WEB, pod_anti_affinity=(term(ZONE, **WEB),))
    with_gpu = replace(alone, requests=alone.requests + Resources({GPU: 1}))
    there = (Requirements.from_labels({ZONE: "b"}),)
    waiting = [
        *pods("web", 1, spec(100, 1024, labels=WEB)),
        *pods("gpu", 2, with_gpu),
        *pods("bound", 1, spec(1500, 1024, labels=DB, terms=there)),
    ]
    batch = Batch(waiting, [], [FEW], [], [large, many])
    plan = pack(waiting, batch.supply)
    assert batch.faults(plan) == []


def test_nodes_that_are_split_for_min_values_keep_to_reservations_and_limits() -> None:
    two = Requirements([Requirement.of(INSTANCE_TYPE, "Exists", min_values=2)])
    types = [instance_type("small", 2000, 4096, 0.1), instance_type("large", 4000, 8192, 0.2)]
    one = Reservation(ReservedCapacity("cr-1"), "large", "a", 1)
    waiting = pods("web", 4, spec(900))
    reserved = Batch(waiting, [], [NodePool("r", two, reservations=(one,))], [], types)
    plan = pack(waiting, reserved.supply)
    assert reserved.faults(plan) == []
    assert [len(node.pods) for node in plan.launches] == [2, 2]
    limited = Batch(waiting, [], [NodePool("l", two, limits={"nodes": 1})], [], types)
    plan = pack(waiting, limited.supply)
    assert limited.faults(plan) == []
    assert [miss.reason.code for miss in plan.unschedulable] == ["PoolLimitReached"] * 2


def test_a_pod_that_leads_a_pod_of_a_later_run_is_launched_where_it_was_counted() -> None:
    """On-demand capacity for the leader would leave the follower alone on Spot."""
    types = [
        instance_type("small", 2000, 4096, 0.05, spot=0.02),
        instance_type("warm", 4000, 8192, 0.09, ("a", "c"), arch="arm64", spot=0.1),
    ]
    job = {"app": "job"}
    near, apart = (term(HOSTNAME, **job),), (term(ARCH, **job),)
    alone = spec(1500, 1024, labels=job, pod_affinity=near, pod_anti_affinity=apart)
    waiting = [
        *pods("db", 1, spec(1500, 1024, labels=DB)),
        *pods("job", 1, alone),
        *pods("near", 1, spec(labels=job, pod_affinity=(term(CAPACITY_TYPE, **DB),))),
    ]
    batch = Batch(waiting, [], [PLAIN], [], types)
    plan = pack(waiting, batch.supply)
    assert not plan.unschedulable
    assert batch.faults(plan) == []


def test_a_pod_that_gave_up_a_preference_avoids_the_values_of_pods_that_exclude_it() -> None:
    """It is placed after them, and EC2 may launch any type of its request."""
    types = [instance_type("small", 2000, 4096, 0.05, spot=0.02)]
    lasting = (Requirements.from_labels({CAPACITY_TYPE: "on-demand"}),)
    apart = (term(CAPACITY_TYPE, **DB),)
    loner = spec(1500, labels=WEB, terms=lasting, pod_anti_affinity=apart)
    hoping = (Weighted(50, Requirements.from_labels({ZONE: "nowhere"})),)
    waiting = [
        *pods("loner", 1, loner),
        *pods("db", 1, spec(1500, labels=DB, preferred_terms=hoping)),
    ]
    batch = Batch(waiting, [], [PLAIN], [], types)
    plan = pack(waiting, batch.supply)
    assert not plan.unschedulable
    assert batch.faults(plan) == []


def test_preferred_anti_affinity_costs_no_later_pod_its_node() -> None:
    """The limit of the pool excludes a pod, and a larger batch is planned once."""
    types = [instance_type("small", 2000, 4096, 0.05), instance_type("large", 16000, 32768, 0.4)]
    loner = spec(1500, labels=WEB, preferred_pod_anti_affinity=(Weighted(50, term(ARCH, **DB)),))
    hoping = (Weighted(50, Requirements.from_labels({ZONE: "nowhere"})),)
    waiting = [
        *pods("loner", 1, loner),
        *pods("db", 1, spec(1500, labels=DB, preferred_terms=hoping)),
        *pods("large", 1, spec(10_000)),
    ]
    batch = Batch(waiting, [], [LIMITED], [], types)
    plan = pack(waiting, batch.supply, effort=Effort(pods=0))
    assert [miss.pod for miss in plan.unschedulable] == ["default/large-0"]
    assert batch.faults(plan) == []


def test_pods_without_a_node_keep_no_later_pod_out_of_their_zones() -> None:
    types = [instance_type("small", 2000, 4096, 0.05), instance_type("large", 16000, 32768, 0.4)]
    alone = spec(10_000, labels=WEB, pod_anti_affinity=(term(ZONE, **DB),))
    hoping = (Weighted(50, Requirements.from_labels({ZONE: "nowhere"})),)
    waiting = pods("db", 1, spec(1500, labels=DB, preferred_terms=hoping))
    for zone in ZONES:
        there = replace(alone, terms=(Requirements.from_labels({ZONE: zone}),))
        waiting += pods(f"alone-{zone}", 1, there)
    batch = Batch(waiting, [], [LIMITED], [], types)
    plan = pack(waiting, batch.supply, effort=Effort(pods=0))
    assert [node.pods for node in plan.launches] == [("default/db-0",)]
    assert batch.faults(plan) == []


def test_a_spread_compares_the_nodes_that_are_launched_after_a_split() -> None:
    """Two pods share a node of amd64; split for minValues, each is launched on arm64, where no pod
    of the spread has a node."""
    three = Requirements([Requirement.of(INSTANCE_TYPE, "Exists", min_values=3)])
    types = [
        instance_type("small", 2000, 4096, 0.03),
        instance_type("medium", 4000, 8192, 0.1),
        instance_type("large", 7000, 16384, 0.11),
        instance_type("huge", 16000, 32768, 0.5),
        instance_type("arm", 4000, 8192, 0.08, arch="arm64"),
    ]
    waiting = [
        *pods("even", 3, spec(1900, labels=WEB, spreads=(Spread(term(ARCH, **WEB), 1),))),
        *pods("other", 2, spec(3000)),
    ]
    batch = Batch(waiting, [], [NodePool("flexible", three)], [], types)
    plan = pack(waiting, batch.supply)
    assert batch.faults(plan) == []
    assert len(plan.unschedulable) == 2


def test_a_pod_that_a_limit_excluded_at_first_pins_the_pods_that_it_follows() -> None:
    """Its affinity is registered after the plan of the other pods, when they are planned without
    it: the leader must be launched on amd64 then, where the follower has a node."""
    types = [
        instance_type("tiny", 500, 1024, 0.001, arch="arm64"),
        instance_type("small", 2000, 4096, 0.05),
        instance_type("arm", 2000, 4096, 0.08, arch="arm64"),
        instance_type("large", 16000, 32768, 0.4),
        instance_type("arm-large", 16000, 32768, 0.4, arch="arm64"),
    ]
    size = Resources({"cpu": 12_000, "memory": 16 * GIB, "pods": 20})
    taints, tolerations = TAINTED.taints, (Toleration("dedicated", "Exists"),)
    there = ExistingNode("there", {ARCH: "amd64", ZONE: "a"}, size, size, taints, pool="limited")
    near = (term(ARCH, **WEB),)
    follower = spec(10_000, labels=DB, pod_affinity=near, tolerations=tolerations)
    waiting = [
        *pods("leader", 1, spec(1500, labels=WEB)),
        *pods("follower", 1, follower),
        *pods("even", 1, spec(labels={"app": "job"}, spreads=(Spread(term(ZONE, **DB), 1),))),
        *pods("lonely", 1, spec(labels=DB, pod_affinity=(term(ZONE, app="none"),))),
    ]
    limited = NodePool("limited", limits={"cpu": 14_000})
    batch = Batch(waiting, [there], [limited], [], types)
    plan = pack(waiting, batch.supply, batch.nodes)
    assert [miss.pod for miss in plan.unschedulable] == ["default/lonely-0"]
    assert batch.faults(plan) == []


def test_an_on_demand_share_changes_no_capacity_type_that_a_term_has_counted() -> None:
    types = catalog(instance_type("small", 2000, 4096, 0.05, spot=0.02))
    shared = replace(PLAIN, on_demand=OnDemandShare(percent=100))
    even = Spread(term(CAPACITY_TYPE, **WEB), max_skew=1)
    waiting = [
        *pods("counted", 2, spec(1500, labels=WEB)),
        *pods("even", 2, spec(1500, labels=WEB, spreads=(even,))),
        *pods("other", 1, spec(1500, labels=DB)),
    ]
    usual, lasting = (
        {
            name: node.choices[0].capacity_type
            for node in pack(waiting, Supply([pool], types)).launches
            for name in node.pods
        }
        for pool in (PLAIN, shared)
    )
    # Only the pod that no term counts may be on-demand instead.
    assert usual["default/other-0"] == SPOT
    assert lasting == {**usual, "default/other-0": ON_DEMAND}
    assert SPOT in {lasting["default/counted-0"], lasting["default/counted-1"]}
