"""NodeOverlays decide what is launched, and what a launched node has to offer."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from leeway.launch.fleets import FleetRequest, Offers
from leeway.launch.intent import INTENT, nodes_on_the_way, promised_nodes
from leeway.launch.prices import PriceCeiling
from leeway.manifests.node_pool import pools_of, without_conflicts
from leeway.provisioning.demand import starting_nodes
from leeway.selection.labels import NODEPOOL
from leeway.selection.offers.catalog import Catalog
from leeway.selection.pods import ExistingNode, Pod, Taint
from leeway.selection.resources import Resources

from tests.launch.conftest import catalog
from tests.launch.launching import NOW, World, order
from tests.launch.pools import document, node_class, pods, pool
from tests.manifests.texts import manifests

__all__ = ["catalog"]

FUSE = "smarter-devices/fuse"
TYPES = ("m5.large", "m5.xlarge", "m6i.large", "m6i.xlarge", "m7i.large")


def overlay(
    name: str, on: Mapping[str, Sequence[str]] | None = None, **spec: Any
) -> dict[str, Any]:
    requirements = [
        {"key": key, "operator": "In", "values": [*values]} for key, values in (on or {}).items()
    ]
    return document("NodeOverlay", name, {"requirements": requirements, **spec})


def small(name: str = "web", **more: Any) -> dict[str, Any]:
    """A pool of some types."""
    given = pool(name, **{"capacity": ["on-demand"], **more})
    kinds = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [*TYPES]}
    given["spec"]["template"]["spec"]["requirements"].append(kinds)
    return given


def asking(*resources: str, count: int = 1) -> list[Pod]:
    """Pods that request one of each resource."""
    extra = Resources(dict.fromkeys(resources, 1))
    return [
        replace(pod, spec=replace(pod.spec, requests=pod.spec.requests + extra))
        for pod in pods(count)
    ]


def request(world: World) -> FleetRequest:
    """The only request."""
    (found,) = world.fleets.requests
    return found


def of_type(name: str) -> dict[str, Sequence[str]]:
    return {"node.kubernetes.io/instance-type": [name]}


def test_a_pod_that_asks_for_a_promised_resource_gets_a_node_that_has_to_offer_it(
    catalog: Catalog,
) -> None:
    world = World()
    promise = overlay("fuse", of_type("m5.xlarge"), capacity={FUSE: 2})
    given = [small(), node_class(), promise]
    outcome = world.launch_nodes.launch(order(catalog, *given, waiting=asking(FUSE)))
    assert outcome.complete
    assert {one.instance_type for one in world.fleets.running.values()} == {"m5.xlarge"}
    (intent,) = world.table.list(INTENT, cluster="prod")
    assert intent.promised == (FUSE,)
    (admission,) = [*world.admissions.values()]
    assert admission.promised == (FUSE,)
    coming = nodes_on_the_way([intent], (), pools_of(manifests(*given)), catalog, NOW)
    assert [one.allocatable.of(FUSE) for one in coming] == [2]


def test_without_the_overlay_the_pod_gets_no_node(catalog: Catalog) -> None:
    world = World()
    outcome = world.launch_nodes.launch(order(catalog, small(), node_class(), waiting=asking(FUSE)))
    assert not world.fleets.requests
    assert FUSE in outcome.without_node[0].reason.message


def test_a_node_need_not_offer_what_its_pods_do_not_request(catalog: Catalog) -> None:
    world = World()
    promise = overlay("fuse", capacity={FUSE: 2})
    world.launch_nodes.launch(order(catalog, small(), node_class(), promise, waiting=asking()))
    (intent,) = world.table.list(INTENT, cluster="prod")
    assert intent.promised == ()


@pytest.mark.parametrize("offered", [0, 2])
def test_a_node_that_does_not_offer_a_promised_resource_yet_starts(
    catalog: Catalog, offered: int
) -> None:
    world = World()
    pages: dict[str, str | int] = {"hugepages-2Mi": "1Gi"}
    given = [small(), node_class(), overlay("fuse", capacity={FUSE: 2, **pages})]
    world.launch_nodes.launch(order(catalog, *given, waiting=asking(FUSE, "hugepages-2Mi")))
    (intent,) = world.table.list(INTENT, cluster="prod")
    (promise,) = promised_nodes([intent], pools_of(manifests(*given)), catalog).values()
    own: dict[str, str | int] = {FUSE: 2, **pages} if offered else {}
    amounts = {**promise.allocatable, "memory": 8 * 2**30, FUSE: 0, "hugepages-2Mi": 0}
    joined = ExistingNode(
        "n-1",
        {NODEPOOL: "web"},
        Resources({**amounts, **Resources.parsed(own)}),
        taints=(Taint("example.com/own"),),
        pool="web",
    )
    found = starting_nodes([joined], {promise.name: "n-1"}, {promise.name: promise}, [intent], NOW)
    if offered:
        assert not found
    else:
        allocatable = found["n-1"].node.allocatable
        assert allocatable.of(FUSE) == 2
        assert allocatable.of("hugepages-2Mi") == 2**30
        assert allocatable.of("memory") == 7 * 2**30, "huge pages are taken from the memory"
    late = NOW + timedelta(minutes=16)
    assert not starting_nodes(
        [joined], {promise.name: "n-1"}, {promise.name: promise}, [intent], late
    )


def test_ec2_chooses_by_the_prices_of_overlays(catalog: Catalog) -> None:
    """EC2 would choose by its own prices."""
    world = World()
    cheap = overlay("covered", of_type("m7i.large"), price="0.001")
    world.launch_nodes.launch(order(catalog, small(), node_class(), cheap, waiting=asking()))
    asked = request(world)
    assert asked.prioritized
    first = min(asked.overrides, key=lambda one: one.priority or 0)
    assert (first.instance_type, first.priority) == ("m7i.large", 0.001)
    offers = Offers(catalog)
    for one in asked.overrides:
        if one.instance_type != "m7i.large":
            assert one.priority == offers.price(one.instance_type, one.zone, "on-demand")


@pytest.mark.parametrize("more", [(), (overlay("other", of_type("c5.large"), price="9"),)])
def test_without_another_price_ec2_chooses_by_its_own_prices(
    catalog: Catalog, more: Sequence[dict[str, Any]]
) -> None:
    world = World()
    world.launch_nodes.launch(order(catalog, small(), node_class(), *more, waiting=asking()))
    assert not request(world).prioritized


def test_an_overlay_of_one_pool_leaves_the_others_as_they_are(catalog: Catalog) -> None:
    given = manifests(
        small(), small("batch"), overlay("x", {NODEPOOL: ["batch"]}, price="0.01"), node_class()
    )
    applied, _ = without_conflicts(given, catalog)
    prices = {
        one.name: Offers(catalog, node_class=one.node_class).price(
            "m5.large", "us-east-1a", "on-demand"
        )
        for one in pools_of(applied)
    }
    assert prices["batch"] == 0.01
    assert prices["web"] == Offers(catalog).price("m5.large", "us-east-1a", "on-demand")


def test_a_price_of_an_overlay_releases_no_limit_in_money(catalog: Catalog) -> None:
    world = World()
    free = overlay("free", price="0")
    given = order(
        catalog, small(), node_class(), free, waiting=asking(), ceiling=PriceCeiling(0.01)
    )
    outcome = world.launch_nodes.launch(given)
    assert not world.fleets.requests
    assert [one.cause.code for one in outcome.without_node] == ["PriceCeilingReached"]


def test_ec2_cannot_choose_an_offering_above_a_limit_in_money(catalog: Catalog) -> None:
    """The cheapest by overlays is not the cheapest on the bill."""
    world = World()
    bills = Offers(catalog)
    small_price = bills.price("m5.large", "us-east-1a", "on-demand") or 0
    favoured = overlay("favoured", of_type("m5.large"), price="0.001")
    ceiling = PriceCeiling(small_price * 1.5)
    world.launch_nodes.launch(
        order(catalog, small(), node_class(), favoured, waiting=asking(), ceiling=ceiling)
    )
    for one in request(world).overrides:
        assert (bills.price(one.instance_type, one.zone, "on-demand") or 9) <= ceiling.most
