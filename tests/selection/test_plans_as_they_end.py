"""No pod has a place because of another pod that has none in the end, or comes elsewhere."""

from dataclasses import replace

from leeway.selection.labels import HOSTNAME, INSTANCE_TYPE, ZONE
from leeway.selection.packing.plan import Plan
from leeway.selection.packing.planning import pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import NodePool, Pod, Spread
from leeway.selection.requirements import Requirement, Requirements

from bench.plan_checker import violations
from tests.selection.workloads import LIMITED, PLAIN, catalog, pods, spec, term

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
