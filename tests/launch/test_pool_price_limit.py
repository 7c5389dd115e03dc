"""What the nodes of a pool cost per hour stays below its limit in money."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leeway.launch.intent import LaunchOutcome
from leeway.launch.prices import PriceCeiling, Prices, SpendingLimit, affordable
from leeway.manifests.node_pool import pools_of
from leeway.manifests.reading import read_manifests
from leeway.selection.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODEPOOL, ZONE
from leeway.selection.offers.catalog import Catalog
from leeway.selection.pods import ExistingNode
from leeway.selection.resources import Resources

from tests.launch.conftest import catalog
from tests.launch.launching import World, order
from tests.launch.pools import node_class, pods, pool
from tests.launch.test_price_ceiling import planned, usual
from tests.manifests.texts import manifests

__all__ = ["catalog"]

PODS = pods(6, cpu=1500)
"""A node with two CPUs has room for one."""


def limited(name: str = "web", usd: str = "0.3", **more: Any) -> dict[str, Any]:
    given = {"capacity": ["on-demand"], "only": {"cpu": ["2"]}, **more}
    limits = {"leeway.sh/usd-per-hour": usd, **given.pop("limits", {})}
    return pool(name, limits=limits, **given)


def launch(world: World, catalog: Catalog, *documents: Any, **more: Any) -> LaunchOutcome:
    given = {"waiting": PODS, **more}
    return world.launch_nodes.launch(order(catalog, *documents, node_class(), **given))


def spent(world: World, catalog: Catalog) -> float:
    return sum(map(Prices(catalog).of_instance, world.fleets.running.values()))


def of_pools(outcome: LaunchOutcome) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in outcome.launched:
        found[one.pool] = found.get(one.pool, 0) + 1
    return found


@pytest.mark.parametrize("usd", ["0", "500m"])
def test_launches_of_a_pool_stop_at_its_limit_in_this_run_and_the_next(
    catalog: Catalog, usd: str
) -> None:
    world, own = World(), limited(usd=usd)
    most = {"0": 0.0, "500m": 0.5}[usd]
    outcome = launch(world, catalog, own)
    count = len(world.fleets.running)
    assert count < len(PODS)
    assert spent(world, catalog) <= most
    if most > 0.2:
        assert count, "it is filled"
    causes = {one.cause.code for one in outcome.without_node}
    assert causes == {"PoolPriceLimitReached"}
    assert not launch(world, catalog, own).launched
    assert spent(world, catalog) <= most


def test_the_reason_names_the_limit_what_is_used_and_what_is_asked(catalog: Catalog) -> None:
    outcome = launch(World(), catalog, limited(usd="0.05"))
    message = outcome.without_node[0].cause.message
    assert "The nodes of pool web cost 0.00 of at most 0.05 USD per hour" in message
    assert "and a node costs 0.0" in message
    assert "leeway.sh/usd-per-hour in spec.limits of the NodePool changes the maximum" in message


def test_pods_get_nodes_of_another_pool(catalog: Catalog) -> None:
    world = World()
    other = pool("other", capacity=["on-demand"], only={"cpu": ["2"]})
    outcome = launch(world, catalog, limited(weight=10), other)
    assert outcome.complete
    launched = of_pools(outcome)
    assert launched["web"] > 0
    assert launched["other"] == len(PODS) - launched["web"]


def test_a_smaller_node_is_launched_if_a_larger_one_does_not_fit(catalog: Catalog) -> None:
    world = World()
    some = pods(40, cpu=400)
    free = World()
    plain = pool(capacity=["on-demand"])
    launch(free, catalog, plain, waiting=some)
    most = 0.15
    assert max(map(Prices(catalog).of_instance, free.fleets.running.values())) > most
    outcome = launch(world, catalog, limited(usd=str(most), only={}), waiting=some)
    assert outcome.launched
    assert spent(world, catalog) <= most
    assert {one.cause.code for one in outcome.without_node} == {"PoolPriceLimitReached"}


def test_it_limits_launches_by_hand_too_and_beside_other_limits(catalog: Catalog) -> None:
    outcome = launch(World(), catalog, limited(limits={"nodes": "1"}), ceiling=None)
    assert len(outcome.launched) == 1
    assert {one.cause.code for one in outcome.without_node} == {"PoolLimitReached"}


def test_a_node_that_retires_is_replaced_at_its_price_at_the_limit(catalog: Catalog) -> None:
    moving = {PODS[0].name: "i-old"}
    price = Prices(catalog).of("m5.large", "us-east-1a", "on-demand")
    ceiling = PriceCeiling(uncounted=frozenset({"old"}), moving=moving, replacing={"web": price})
    world = World()
    outcome = launch(world, catalog, limited(usd="0"), ceiling=ceiling)
    assert len(outcome.launched) == 1
    assert spent(world, catalog) <= price
    (placed,) = {pod.pod for pod in outcome.without_node} ^ {pod.name for pod in PODS}
    assert placed == PODS[0].name


def test_a_node_of_another_pool_that_retires_gives_no_place(catalog: Catalog) -> None:
    moving = {PODS[0].name: "i-old"}
    ceiling = PriceCeiling(uncounted=frozenset({"old"}), moving=moving, replacing={"other": 1.0})
    assert not launch(World(), catalog, limited(usd="0"), ceiling=ceiling).launched


def test_nodes_that_exist_count_with_their_price_of_now(catalog: Catalog) -> None:
    labels = {
        NODEPOOL: "web",
        INSTANCE_TYPE: "m5.24xlarge",
        ZONE: "us-east-1a",
        CAPACITY_TYPE: "on-demand",
    }
    large = ExistingNode("n-1", labels, Resources(), pool="web")
    assert not launch(World(), catalog, limited(usd="4"), nodes=[large]).launched
    assert launch(World(), catalog, limited(usd="5.2"), nodes=[large]).launched


PRICES = st.floats(0.001, 5, allow_nan=False)
AMOUNTS = st.floats(0, 20, allow_nan=False)


@given(st.lists(st.tuples(PRICES, st.booleans()), max_size=10), AMOUNTS, AMOUNTS, AMOUNTS)
def test_whatever_ec2_launches_keeps_all_limits(
    nodes: list[tuple[float, bool]], cluster: float, own: float, replacing: float
) -> None:
    wanted = [planned(f"p-{n}", price) for n, (price, _) in enumerate(nodes)]
    moving = {f"p-{n}" for n, (_, moves) in enumerate(nodes) if moves}
    limits = [
        SpendingLimit("prod", "", most=cluster, replacing=replacing),
        SpendingLimit("prod", "web", most=own, replacing=replacing),
        SpendingLimit("prod", "other", most=0.0),
    ]
    found = affordable(wanted, limits, moving, Prices(usual()))
    dearest = sum(found.below.values())
    replaces = any(pods[0] in moving for pods in found.below)
    for limit in limits[:2]:
        assert dearest <= (limit.widest if replaces else limit.left) + 1e-6
        if any(pods[0] not in moving for pods in found.below):
            assert dearest <= limit.left + 1e-6, "only replacements may exceed what is left"
    for node in wanted:
        if node.pods in found.below:
            assert node.cheapest.price < found.below[node.pods], "the node itself is not excluded"
    assert bool(found.refused) == (len(found.below) < len(wanted))
    assert limits[2] not in found.refused, "a pool without planned nodes refuses none"


def test_an_unknown_limit_of_leeway_is_an_error_and_a_similar_one_a_warning() -> None:
    def reading(name: str) -> Any:
        text = f"""\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {{name: web}}
spec: {{limits: {{{name}: "2.5"}}}}
"""
        return read_manifests(text, "p.yaml")

    (problem,) = reading("leeway.sh/usd").problems
    expected = "unknown limit leeway.sh/usd; expected leeway.sh/usd-per-hour"
    assert str(problem) == f"p.yaml:4: spec.limits: {expected}"
    (warning,) = reading("usdPerHour").warnings
    assert "no node has this resource: expected leeway.sh/usd-per-hour?" in str(warning)
    found = reading("leeway.sh/usd-per-hour")
    assert not found.warnings
    (own,) = pools_of([one.manifest for one in found.written])
    assert (own.usd_per_hour, own.limits) == (2.5, None)
    assert pools_of(manifests(limited(limits={"cpu": "10"})))[0].limits == {"cpu": 10_000}
