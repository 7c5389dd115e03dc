"""A plan works in whatever order the scheduler binds its pods: nobody waits for who never comes."""

from leeway.selection.labels import ARCH, HOSTNAME, ZONE
from leeway.selection.packing.plan import Plan
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import Pod, Spread, Weighted
from leeway.selection.pools import NodePool
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


def test_pods_near_their_like_by_hostname_have_one_with_them_that_minds_nobody() -> None:
    like = pods("like", 3, spec(labels=WEB))
    near = pods("near", 3, spec(labels=WEB, pod_affinity=(term(HOSTNAME, **WEB),)))
    plan = planned(*like, *near)
    assert not plan.unschedulable
    (node,) = [n.pods for n in plan.launches if "default/near-0" in n.pods]
    assert {"default/near-1", "default/near-2"} < set(node)
    assert any(pod.startswith("default/like") for pod in node)


def test_by_zone_they_go_to_where_such_a_pod_is() -> None:
    on_arm = spec(labels=WEB, terms=(Requirements.from_labels({ARCH: "arm64"}),))
    near = pods("near", 4, spec(labels=WEB, pod_affinity=(term(ZONE, **WEB),)))
    plan = planned(*pods("like", 1, on_arm), *near)
    assert {launch.cheapest.offering.zone for launch in plan.launches} == {"c"}


def test_where_no_node_takes_both_they_are_told_so() -> None:
    on_arm = spec(labels=WEB, terms=(Requirements.from_labels({ARCH: "arm64"}),))
    on_amd64 = (Requirements.from_labels({ARCH: "amd64"}),)
    near = pods("near", 2, spec(labels=WEB, terms=on_amd64, pod_affinity=(term(HOSTNAME, **WEB),)))
    plan = planned(*pods("like", 1, on_arm), *near)
    assert {miss.pod for miss in plan.unschedulable} == {"default/near-0", "default/near-1"}


def test_pods_that_gave_up_a_preference_do_not_strand_those_that_came_first() -> None:
    hopeful = pods("hopeful", 1, spec(labels=WEB, preferred_pod_affinity=(NOBODY,)))
    alone = Spread(term(HOSTNAME, **WEB), 1)
    near = pods("near", 1, spec(labels=WEB, pod_affinity=(term(ZONE, **WEB),), spreads=(alone,)))
    plan = planned(*hopeful, *near)
    assert not plan.unschedulable
    assert len({launch.cheapest.offering.zone for launch in plan.launches}) == 1


def test_who_gave_up_a_preference_still_finds_room_beside_those_it_has_to_be_near() -> None:
    at_most_two = Spread(term(HOSTNAME, **WEB), 2, required=False)
    near = spec(3000, labels=WEB, pod_affinity=(term(HOSTNAME, **WEB),), spreads=(at_most_two,))
    plan = planned(*pods("like", 2, spec(3000, labels=WEB)), *pods("near", 3, near))
    assert not plan.unschedulable
