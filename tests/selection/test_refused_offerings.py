"""EC2's refusals come first where they removed offerings that fit."""

from collections.abc import Iterable

from leeway.selection.labels import ARCH, CAPACITY_TYPE
from leeway.selection.offers.catalog import ANY, Unavailable
from leeway.selection.packing.refused_offerings import refused_offerings
from leeway.selection.pods import ExistingNode, NodePool, Pod, PodSpec
from leeway.selection.requirements import Requirement, Requirements
from leeway.selection.resources import Resources
from leeway_cli.explain.plan_pod import Situation, explain_pod

from tests.selection.workloads import GIB, catalog, spec

POOL = NodePool("web", Requirements([Requirement.of(ARCH, "In", ["amd64"])]))
SPOT = NodePool("web", Requirements([Requirement.of(CAPACITY_TYPE, "In", ["spot"])]))


def all_of(*types: str) -> list[Unavailable]:
    return [Unavailable(one, ANY, kind) for one in types for kind in ("spot", "on-demand")]


def refused(pod: PodSpec, marked: Iterable[Unavailable], pool: NodePool = POOL) -> str:
    found = refused_offerings([Pod("shop/web", pod)], [pool], catalog(), [*marked])
    return found["shop/web"].message if found else ""


def test_a_pod_that_only_refused_types_are_large_enough_for_gets_their_names() -> None:
    large = [n for n in catalog().names if refused(spec(6000), all_of(*catalog().names))]
    assert large, "with every offering refused, the pod has the reason"
    said = refused(spec(6000), all_of("large"))
    assert "node pool web" in said
    assert "large as" in said


def test_a_pod_that_no_type_is_large_enough_for_keeps_its_reason() -> None:
    assert refused(spec(900_000), all_of(*catalog().names)) == ""


def test_nothing_is_said_if_another_offering_fits_or_nothing_was_refused() -> None:
    assert refused(spec(500), all_of("large")) == ""
    assert refused(spec(6000), []) == ""


def test_all_spot_may_be_refused_at_once() -> None:
    said = refused(spec(500), [Unavailable(ANY, ANY, "spot")], SPOT)
    assert "as spot in" in said


def test_a_pod_that_a_limit_keeps_from_its_node_keeps_this_reason() -> None:
    full = NodePool("web", limits={"nodes": 1})
    amounts = Resources({"cpu": 4000, "memory": 16 * GIB, "pods": 110})
    here = ExistingNode("n1", {}, amounts, amounts, pool="web")
    pods = [Pod("shop/web", spec(500))]
    marked = [Unavailable(ANY, ANY, "spot")]
    assert refused_offerings(pods, [full], catalog(), marked, nodes=[here]) == {}


def test_explain_pod_says_the_refusal_first_for_the_pod_and_for_its_pool() -> None:
    marked = catalog().without(all_of("large"))
    now = Situation([Pod("shop/web", spec(6000))], (), (), (), [POOL], marked)
    found = explain_pod("shop/web", now)
    assert found.reason is not None
    assert found.reason.code == "OfferingsRefused"
    assert [one.reason.code for one in found.misses] == ["OfferingsRefused"]
