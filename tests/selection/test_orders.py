"""A plan works in every order in which kube-scheduler may bind its pods."""

from leeway.selection.labels import ARCH, HOSTNAME, ZONE
from leeway.selection.packing.plan import Plan
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import NodePool, Pod, Spread, Weighted
from leeway.selection.requirements import Requirements

from bench.plan_checker import violations
from tests.selection.workloads import catalog, pods, spec, term

PLAIN = NodePool("plain")
WEB = {"app": "web"}
NOBODY = Weighted(5, term(HOSTNAME, app="nobody"))


def planned(*waiting: Pod) -> Plan:
    plan = pack(waiting, Supply([PLAIN], catalog()))
    assert violations(plan, waiting, [PLAIN]) == []
    return plan


def test_pods_with_affinity_to_their_replicas_share_a_node_with_an_unconstrained_pod() -> None:
    like = pods("like", 3, spec(labels=WEB))
    near = pods("near", 3, spec(labels=WEB, pod_affinity=(term(HOSTNAME, **WEB),)))
    plan = planned(*like, *near)
    assert not plan.unschedulable
    (node,) = [n.pods for n in plan.launches if "default/near-0" in n.pods]
    assert {"default/near-1", "default/near-2"} < set(node)
    assert any(pod.startswith("default/like") for pod in node)


def test_by_zone_they_are_placed_in_the_zone_of_such_a_pod() -> None:
    on_arm = spec(labels=WEB, terms=(Requirements.from_labels({ARCH: "arm64"}),))
    near = pods("near", 4, spec(labels=WEB, pod_affinity=(term(ZONE, **WEB),)))
    plan = planned(*pods("like", 1, on_arm), *near)
    assert {launch.cheapest.offering.zone for launch in plan.launches} == {"c"}


def test_if_no_node_fits_both_the_reason_is_reported() -> None:
    on_arm = spec(labels=WEB, terms=(Requirements.from_labels({ARCH: "arm64"}),))
    on_amd64 = (Requirements.from_labels({ARCH: "amd64"}),)
    near = pods("near", 2, spec(labels=WEB, terms=on_amd64, pod_affinity=(term(HOSTNAME, **WEB),)))
    plan = planned(*pods("like", 1, on_arm), *near)
    assert {miss.pod for miss in plan.unschedulable} == {"default/near-0", "default/near-1"}


def test_relaxed_pods_do_not_make_earlier_pods_unschedulable() -> None:
    hopeful = pods("hopeful", 1, spec(labels=WEB, preferred_pod_affinity=(NOBODY,)))
    alone = Spread(term(HOSTNAME, **WEB), 1)
    near = pods("near", 1, spec(labels=WEB, pod_affinity=(term(ZONE, **WEB),), spreads=(alone,)))
    plan = planned(*hopeful, *near)
    assert not plan.unschedulable
    assert len({launch.cheapest.offering.zone for launch in plan.launches}) == 1


def test_relaxed_pods_find_room_next_to_the_pods_of_their_affinity() -> None:
    at_most_two = Spread(term(HOSTNAME, **WEB), 2, required=False)
    near = spec(3000, labels=WEB, pod_affinity=(term(HOSTNAME, **WEB),), spreads=(at_most_two,))
    plan = planned(*pods("like", 2, spec(3000, labels=WEB)), *pods("near", 3, near))
    assert not plan.unschedulable
