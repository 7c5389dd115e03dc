"""NodeOverlays: what is valid, to which pools they apply, and which of them conflict."""

import json
from typing import Any

import pytest
from leeway.manifests.node_overlay import NodeOverlay
from leeway.manifests.node_pool import pools_of, without_conflicts
from leeway.manifests.reading import Reading, read_manifests
from leeway.reasons import Reason
from leeway.selection.offers.catalog import Catalog
from leeway_cli.selection.sources import sandbox_catalog

from tests.manifests.texts import manifests


def overlay(name: str = "x", *requirements: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": {"name": name},
        "spec": {"requirements": list(requirements), **spec},
    }


def pool(name: str = "web", **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": {"metadata": {"labels": labels}}},
    }


def on(key: str, *values: str, operator: str = "In") -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def types(*names: str) -> dict[str, Any]:
    return on("node.kubernetes.io/instance-type", *names)


def read(*documents: dict[str, Any]) -> Reading:
    return read_manifests("\n---\n".join(map(json.dumps, documents)), "o.yaml")


def problems(**spec: Any) -> list[str]:
    return [str(problem) for problem in read(overlay(**spec)).problems]


@pytest.mark.parametrize(
    "spec",
    [
        {"price": "0.25"},
        {"price": "5"},
        *({"priceAdjustment": given} for given in ("+0.5", "-3", "+.5", "-15%", "-15.5%", "-100%")),
        *({"priceAdjustment": given} for given in ("+10%", "+250.5%", "+7")),
        {"capacity": {"smarter-devices/fuse": 1, "hugepages-2Mi": "100Mi"}, "weight": 10_000},
        {"capacity": {"nvidia.com/gpu": "4"}},
        {},
    ],
)
def test_what_karpenter_accepts_is_accepted(spec: dict[str, Any]) -> None:
    assert not problems(**spec)


def test_a_price_is_a_plain_number() -> None:
    for given in ("+42", ".5", "42.", "42%", "3,14", "1e10", "-1", "42 ", "-"):
        (problem,) = problems(price=given)
        assert problem.startswith("o.yaml:1: spec.price: expected text that matches"), given


def test_a_change_of_the_price_has_a_sign_and_keeps_at_least_nothing() -> None:
    for given in ("42", "10%", "4.2", "+", "-100.0%", "-101%", "+-1", "5 "):
        (problem,) = problems(priceAdjustment=given)
        expected = "o.yaml:1: spec.priceAdjustment: expected text that matches"
        assert problem.startswith(expected), given


def test_a_price_and_a_change_of_it_exclude_each_other() -> None:
    (problem,) = problems(price="1", priceAdjustment="+1")
    assert problem == "o.yaml:1: spec: expected either price or priceAdjustment"


def test_an_overlay_promises_only_what_pods_may_request_besides() -> None:
    for resource in (
        *("cpu", "memory", "ephemeral-storage", "pods", "storage", "licences"),
        *("kubernetes.io/x", "node.kubernetes.io/x", "requests.example.com/x"),
        "attachable-volumes-csi-ebs.csi.aws.com",
    ):
        (problem,) = problems(capacity={resource: 1})
        assert "expected an extended resource such as smarter-devices/fuse" in problem, resource
        assert f"an overlay can't promise {resource}" in problem


@pytest.mark.parametrize(
    ("capacity", "expected"),
    [
        (
            {"smarter-devices/fuse": "500m"},
            '["smarter-devices/fuse"]: expected a whole number, got 500m',
        ),
        ({"hugepages-2Mi": "3Mi"}, "hugepages-2Mi: expected a multiple of 2097152 bytes, got 3Mi"),
        ({"hugepages-x": "1"}, "a size of huge pages such as hugepages-2Mi, got hugepages-x"),
        ({"example.com/x": "-1"}, 'an amount that is not negative, got "-1"'),
    ],
)
def test_amounts_are_those_that_a_node_can_report(capacity: Any, expected: str) -> None:
    (problem,) = problems(capacity=capacity)
    assert expected in problem


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        (on("kubernetes.io/arch"), "at least one value for In"),
        (on("kubernetes.io/arch", operator="NotIn"), "at least one value for NotIn"),
        (on("karpenter.k8s.aws/instance-cpu", "-1", operator="Gt"), 'got "-1"'),
        (on("karpenter.k8s.aws/instance-cpu", "x", operator="Lte"), "one integer for Lte"),
        (on("karpenter.sh/unknown", "x"), "a well-known label or a label of your own domain"),
        (on("kubernetes.io/arch", "arm64", operator="Near"), "expected 'In'"),
    ],
)
def test_a_requirement_is_valid_as_in_a_pool(requirement: Any, expected: str) -> None:
    (problem,) = [str(one) for one in read(overlay("x", requirement)).problems]
    assert expected in problem


def test_warnings_name_what_has_no_effect() -> None:
    empty = read(overlay()).warnings
    assert [str(one) for one in empty] == [
        "o.yaml:1: spec: the overlay sets no price and no capacity"
    ]
    none = read(overlay(capacity={"example.com/x": 0})).warnings
    assert "an amount of 0 promises nothing" in str(none[0])


def overlays(*documents: dict[str, Any]) -> dict[str, list[str]]:
    """The names of the overlays of each pool, the first that counts first."""
    return {
        one.name: [each.name for each in one.node_class.overlays]
        for one in pools_of(manifests(*documents))
    }


def test_labels_of_a_pool_select_it() -> None:
    found = overlays(
        pool("web", team="a"),
        pool("batch"),
        overlay("of-web", on("karpenter.sh/nodepool", "web"), price="1"),
        overlay("of-team", on("team", "a"), price="1", weight=7),
        overlay("of-none", on("team", "b"), price="1"),
        overlay("not-a", on("team", "a", operator="NotIn"), price="1"),
        overlay("of-all", price="1"),
    )
    assert found == {
        "web": ["of-team", "of-web", "of-all"],
        "batch": ["of-all", "not-a"],
    }


def settled(*documents: dict[str, Any]) -> tuple[set[str], tuple[Reason, ...]]:
    """The overlays that apply, and the conflicts."""
    catalog: Catalog = sandbox_catalog("us-east-1")
    left, conflicts = without_conflicts(manifests(pool(), *documents), catalog)
    return {one.metadata.name for one in left if isinstance(one, NodeOverlay)}, tuple(
        conflicts.values()
    )


ARM = on("kubernetes.io/arch", "arm64")
SPOT, ON_DEMAND = (on("karpenter.sh/capacity-type", one) for one in ("spot", "on-demand"))
FUSE = {"smarter-devices/fuse": 1}


def test_two_overlays_of_one_weight_that_set_one_price_conflict() -> None:
    names, (reason,) = settled(
        overlay("a", ARM, price="1.03", weight=10), overlay("b", SPOT, price="23", weight=10)
    )
    assert names == {"b"}, "the later name stays, as in Karpenter"
    assert reason.code == "OverlayConflict"
    assert "NodeOverlay a is not applied: NodeOverlay b has the same weight (10)" in reason.message
    assert "also sets the price of " in reason.message
    assert reason.message.count("\n") == 0


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (overlay("a", ARM, price="1"), overlay("b", price="1")),
        (overlay("a", ARM, price="1"), overlay("b", priceAdjustment="-1%")),
        (overlay("a", capacity=FUSE), overlay("b", ARM, capacity=FUSE)),
        (overlay("a", SPOT, capacity=FUSE), overlay("b", ON_DEMAND, capacity=FUSE)),
    ],
)
def test_equal_values_conflict_too(one: dict[str, Any], two: dict[str, Any]) -> None:
    names, conflicts = settled(one, two)
    assert names == {"b"}
    assert len(conflicts) == 1


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (overlay("a", price="1", weight=1), overlay("b", price="2")),
        (overlay("a", SPOT, price="1"), overlay("b", ON_DEMAND, price="2")),
        (overlay("a", types("m5.large"), price="1"), overlay("b", types("c5.large"), price="2")),
        (overlay("a", price="1"), overlay("b", capacity=FUSE)),
        (overlay("a", capacity=FUSE), overlay("b", capacity={"example.com/x": 1})),
        (overlay("a", types("x99.large"), price="1"), overlay("b", types("x99.large"), price="2")),
    ],
)
def test_overlays_that_do_not_meet_both_apply(one: dict[str, Any], two: dict[str, Any]) -> None:
    assert settled(one, two) == ({"a", "b"}, ())


def test_an_overlay_that_conflicts_applies_nowhere_and_keeps_no_third_one_out() -> None:
    both = [types("m5.large", "m5.xlarge"), types("m5.xlarge", "c5.large")]
    names, conflicts = settled(
        overlay("a", types("m5.large"), price="1"),
        overlay("b", both[0], price="2"),
        overlay("c", both[1], price="3"),
    )
    assert names == {"a", "c"}
    assert [one.message.split()[1] for one in conflicts] == ["b"]


def test_a_conflict_in_one_pool_is_a_conflict_in_all() -> None:
    documents = [
        pool("other", team="x"),
        overlay("a", price="1"),
        overlay("b", on("team", "x"), price="2"),
    ]
    assert settled(*documents)[0] == {"b"}
