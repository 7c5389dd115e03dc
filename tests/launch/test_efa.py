"""Pods that request Elastic Fabric Adapters get nodes with their interfaces, others do not."""

import json
from collections.abc import Sequence
from typing import Any

from leeway.launch.intent import INTENT, LaunchIntent
from leeway.selection.offers.catalog import Catalog
from leeway.selection.offers.machines import EFA
from leeway.selection.pods import Pod, PodSpec
from leeway.selection.resources import Resources

from tests.launch.launching import World, order
from tests.launch.pools import node_class, pods, pool


def efa_pods(efas: int, cpu: int = 4000) -> list[Pod]:
    """A pod that requests so many EFAs."""
    amounts = {"cpu": cpu, "memory": 2**30, "pods": 1, EFA: efas}
    return [Pod("shop/hpc", PodSpec(requests=Resources(amounts)))]


def types(families: Sequence[str], *sizes: str) -> dict[str, Any]:
    """A pool of on-demand instances of these families and sizes."""
    return pool(capacity=("on-demand",), only={"family": families, "size": sizes})


TWO_EFAS = types(["m6in"], "32xlarge")
ONE_EFA = types(["m5n"], "24xlarge")


def interfaces_of(world: World, intent: LaunchIntent) -> set[tuple[str, ...]]:
    """The types of the network interfaces of each template of an intent."""
    found = (json.loads(world.templates.existing[name].data) for name in intent.templates)
    return {
        tuple(one.get("InterfaceType", "interface") for one in data["NetworkInterfaces"])
        for data in found
    }


def test_pods_that_request_efas_get_nodes_with_efa_interfaces_and_others_do_not(
    world: World, catalog: Catalog
) -> None:
    waiting = [*efa_pods(2, cpu=100_000), *pods(1, cpu=100_000)]
    outcome = world.launch_nodes.launch(order(catalog, TWO_EFAS, node_class(), waiting=waiting))
    assert outcome.complete, outcome.without_node
    by_pods = {one.pods: one for one in world.table.list(INTENT, cluster="prod")}
    with_efas, without = by_pods["shop/hpc",], by_pods["shop/web-0",]
    assert (with_efas.efa, without.efa) == (True, False)
    assert interfaces_of(world, with_efas) == {("efa", "efa")}
    assert interfaces_of(world, without) == {("interface",)}


def test_a_node_that_was_launched_without_efas_is_no_place_for_a_pod_that_requests_them(
    world: World, catalog: Catalog
) -> None:
    first = pods(1, cpu=100_000)
    world.launch_nodes.launch(order(catalog, TWO_EFAS, node_class(), waiting=first))
    both = [*first, *efa_pods(1)]
    outcome = world.launch_nodes.launch(order(catalog, TWO_EFAS, node_class(), waiting=both))
    assert outcome.complete, outcome.without_node
    assert len(world.fleets.running) == 2


def test_a_node_that_was_launched_with_efas_is_a_place_for_the_next_pod_that_requests_one(
    world: World, catalog: Catalog
) -> None:
    first = efa_pods(1)
    world.launch_nodes.launch(order(catalog, TWO_EFAS, node_class(), waiting=first))
    both = [*first, Pod("shop/second", first[0].spec)]
    outcome = world.launch_nodes.launch(order(catalog, TWO_EFAS, node_class(), waiting=both))
    assert outcome.complete, outcome.without_node
    assert len(world.fleets.running) == 1


def test_each_template_of_a_fleet_has_types_with_the_same_number_of_efas(
    world: World, catalog: Catalog
) -> None:
    own = types(["m6in", "m5n"], "24xlarge", "32xlarge")
    waiting = efa_pods(1)
    outcome = world.launch_nodes.launch(order(catalog, own, node_class(), waiting=waiting))
    assert outcome.complete, outcome.without_node
    (intent,) = world.table.list(INTENT, cluster="prod")
    assert interfaces_of(world, intent) == {("efa",), ("efa", "efa")}
    (request,) = world.fleets.requests
    for one in request.templates:
        data = json.loads(world.templates.existing[one.template].data)
        machines = [catalog.machine(each.instance_type) for each in one.overrides]
        efas = {machine.devices[EFA] for machine in machines if machine is not None}
        assert efas == {len(data["NetworkInterfaces"])}


def test_a_type_that_needs_several_interfaces_offers_no_efa_beside_public_addresses(
    world: World, catalog: Catalog
) -> None:
    public, waiting = node_class(associatePublicIPAddress=True), efa_pods(1)
    outcome = world.launch_nodes.launch(order(catalog, TWO_EFAS, public, waiting=waiting))
    assert not outcome.complete
    assert not world.fleets.requests
    outcome = world.launch_nodes.launch(order(catalog, ONE_EFA, public, waiting=waiting))
    assert outcome.complete, outcome.without_node
