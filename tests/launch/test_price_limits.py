"""What is launched for pods that move to save money costs less than what goes."""

from typing import Any

from leeway.capacity_requests import PriceLimit
from leeway.launch.fleets import Offers
from leeway.launch.intent import LaunchOutcome
from leeway.selection.offers.catalog import Catalog

from tests.fakes.fleets import Shortage
from tests.launch.conftest import catalog
from tests.launch.launching import ZONES, World, order
from tests.launch.pools import node_class, pods, pool

__all__ = ["catalog"]

MOVING = pods(2, cpu=1500, name="moving")
OWN = pool(capacity=["on-demand"])


def limited(below: float, decision: str = "n-1") -> dict[str, PriceLimit]:
    """The limit of the pods that move."""
    return {pod.name: PriceLimit(decision=decision, below=below) for pod in MOVING}


def launched(world: World, catalog: Catalog, **more: Any) -> LaunchOutcome:
    """The outcome of a launch for the pods that move, and others."""
    given = {"waiting": MOVING, **more}
    return world.launch_nodes.launch(order(catalog, OWN, node_class(), **given))


def price_of(outcome: LaunchOutcome, catalog: Catalog) -> float:
    """The price of all that was launched."""
    offers, found = Offers(catalog), 0.0
    for one in outcome.launched:
        node = one.instance
        price = offers.price(node.instance_type, node.zone, node.capacity_type)
        assert price is not None
        found += price
    return found


def overrides(world: World) -> list[tuple[str, str]]:
    """What was requested from EC2."""
    return [(o.instance_type, o.zone) for one in world.fleets.requests for o in one.overrides]


def test_only_cheaper_offerings_are_requested(catalog: Catalog) -> None:
    free, world = World(), World()
    price = price_of(launched(free, catalog), catalog)
    below = price * 1.05
    outcome = launched(world, catalog, price_limits=limited(below))
    assert price_of(outcome, catalog) == price
    offers, nodes = Offers(catalog), len(outcome.launched)
    prices = [offers.price(kind, zone, "on-demand") or 0 for kind, zone in overrides(world)]
    assert prices
    assert max(prices) * nodes < below
    assert len(prices) < len(overrides(free)), "others are offered without the limit"


def test_nothing_is_launched_if_nothing_costs_less(catalog: Catalog) -> None:
    price = price_of(launched(World(), catalog), catalog)
    world = World()
    outcome = launched(world, catalog, price_limits=limited(price))
    assert outcome.launched == ()
    assert not world.fleets.requests
    assert {one.pod for one in outcome.without_node} == {pod.name for pod in MOVING}
    assert all("costs less" in one.reason.message for one in outcome.without_node)


def test_if_the_cheap_offerings_are_out_nothing_dearer_is_launched(catalog: Catalog) -> None:
    price = price_of(launched(World(), catalog), catalog)
    world, offers = World(), Offers(catalog)
    below = price * 1.02
    cheap = {
        (name, zone)
        for name in catalog.index
        for zone in ZONES
        if (offers.price(name, zone, "on-demand") or below) < below
    }
    world.fleets.shortages = [
        Shortage(instance_type=name, zone=zone, capacity_type="on-demand") for name, zone in cheap
    ]
    outcome = launched(world, catalog, price_limits=limited(below))
    assert overrides(world), "the cheap ones were tried"
    assert set(overrides(world)) <= cheap
    assert outcome.launched == ()
    again = World()
    again.fleets.shortages = world.fleets.shortages
    assert price_of(launched(again, catalog), catalog) >= below, "without the limit"


def test_pods_that_wait_get_their_node_and_others_may_use_it(catalog: Catalog) -> None:
    waiting = pods(1, cpu=1500, name="waiting")
    outcome = launched(
        World(), catalog, waiting=[*MOVING, *waiting], price_limits=limited(0.000001)
    )
    assert outcome.launched
    assert not {one.pod for one in outcome.without_node} & {waiting[0].name}


def test_each_decision_has_its_own_limit(catalog: Catalog) -> None:
    first, second = MOVING
    limits = {
        first.name: PriceLimit(decision="n-1", below=1_000.0),
        second.name: PriceLimit(decision="n-2", below=0.000001),
    }
    outcome = launched(World(), catalog, price_limits=limits)
    assert len(outcome.launched) == 1
    assert [one.pod for one in outcome.without_node] == [second.name]
