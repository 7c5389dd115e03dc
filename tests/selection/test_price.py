"""The price of plans, compared with the best plan (by brute force for a few pods)."""

from collections.abc import Iterator, Sequence
from functools import cache
from random import Random
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leeway.selection.labels import CAPACITY_TYPE, INSTANCE
from leeway.selection.offers.catalog import Catalog
from leeway.selection.packing.planning import LAUNCHES, Effort, pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import NodePool, Pod
from leeway.selection.requirements import Requirement, Requirements
from leeway_cli.simulated_day.bound import covering_bound

from bench.integer_bound import Batch, Search
from bench.workloads import diverse_pods, generic_pods, spread_pods, synthetic_catalog
from tests.selection.workloads import catalog as small_catalog
from tests.selection.workloads import instance_type, pods, spec

SUPPLY = Supply([NodePool("plain")], small_catalog())


def best(waiting: Sequence[Pod]) -> float:
    """The least price of any way to part the pods onto nodes."""

    @cache
    def least(left: frozenset[int]) -> float:
        if not left:
            return 0.0
        first, *others = sorted(left)
        together = ([first, *more] for more in _subsets(others))
        return min(
            (
                price + least(left - set(node))
                for node in together
                if (price := _price(node, waiting))
            ),
            default=float("inf"),
        )

    return least(frozenset(range(len(waiting))))


def _subsets(items: Sequence[int]) -> Iterator[list[int]]:
    for mask in range(1 << len(items)):
        yield [item for i, item in enumerate(items) if mask >> i & 1]


def _price(node: Sequence[int], waiting: Sequence[Pod]) -> float | None:
    """The cheapest offering that holds these pods."""
    asked = waiting[node[0]].spec.requests
    for i in node[1:]:
        asked = asked + waiting[i].spec.requests
    prices = [c.price for c in SUPPLY.candidates if asked.fits(c.type.allocatable)]
    return min(prices, default=None)


CPU, MEMORY = (100, 400, 900, 1500, 2600), (128, 1500, 6000)


def few_pods(sizes: Sequence[tuple[int, int]]) -> list[Pod]:
    return [pod for i, size in enumerate(sizes) for pod in pods(f"p{i}", 1, spec(*size))]


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from(CPU), st.sampled_from(MEMORY)),
        min_size=1,
        max_size=7,
    )
)
def test_no_plan_is_cheaper_than_the_best_and_the_bound_is_below_it(
    sizes: list[tuple[int, int]],
) -> None:
    waiting = few_pods(sizes)
    plan = pack(waiting, SUPPLY)
    optimum = best(waiting)
    assert plan.bound - 1e-9 <= optimum <= plan.price + 1e-9
    assert plan.price <= 1.25 * optimum


def test_plans_of_a_few_pods_nearly_always_have_the_best_price() -> None:
    dice = Random(5)  # noqa: S311 - a workload, not a secret
    ratios = []
    for _ in range(60):
        count = dice.randint(1, 7)
        waiting = few_pods([(dice.choice(CPU), dice.choice(MEMORY)) for _ in range(count)])
        ratios.append(pack(waiting, SUPPLY).price / best(waiting))
    assert sum(ratio > 1 + 1e-9 for ratio in ratios) <= 2
    assert fmean(ratios) < 1.005


@pytest.mark.parametrize("seed", range(4))
def test_the_bound_of_whole_nodes_is_the_price_of_the_best_plan(seed: int) -> None:
    dice = Random(seed)  # noqa: S311 - a workload, not a secret
    waiting = few_pods([(dice.choice(CPU), dice.choice(MEMORY)) for _ in range(7)])
    found = Search(Batch(waiting, SUPPLY), 2 * best(waiting), seconds=10).bounds()
    assert found.patterns <= found.lower + 1e-9
    assert found.lower == pytest.approx(best(waiting))
    assert found.upper == pytest.approx(best(waiting))


@pytest.mark.parametrize("waiting", [generic_pods(20), spread_pods(9)], ids=["generic", "spread"])
def test_the_bound_of_whole_nodes_is_between_the_linear_one_and_a_plan(waiting: list[Pod]) -> None:
    supply = Supply([NodePool("default")], synthetic_catalog(8))
    plan = pack(waiting, supply)
    found = Search(Batch(waiting, supply), plan.price, seconds=1).bounds()
    assert covering_bound(waiting, supply) <= found.lower * (1 + 1e-6)
    assert found.lower <= found.upper * (1 + 1e-6) <= plan.price * (1 + 2e-6)


@pytest.mark.parametrize(
    "waiting", [generic_pods(300), diverse_pods(300)], ids=["generic", "diverse"]
)
def test_the_bound_is_that_of_the_whole_covering_program(waiting: list[Pod]) -> None:
    supply = Supply([NodePool("default")], synthetic_catalog(100))
    plan = pack(waiting, supply)
    assert plan.bound == pytest.approx(covering_bound(waiting, supply), rel=1e-6)
    assert plan.price >= plan.bound


def test_a_zone_without_newer_types_does_not_raise_the_price_in_other_zones(
    catalog: Catalog,
) -> None:
    usual = Requirements(
        [
            Requirement.of(CAPACITY_TYPE, "In", ["on-demand"]),
            Requirement.of(f"{INSTANCE}category", "In", ["c", "m", "r"]),
            Requirement.of(f"{INSTANCE}generation", "Gt", ["2"]),
        ]
    )
    waiting, supply = diverse_pods(500), Supply([NodePool("usual", usual)], catalog)
    plan = pack(waiting, supply)
    assert not plan.unschedulable
    # Where pods of us-east-1e counted as pods of any zone, it was 1.174.
    assert plan.price < 1.15 * covering_bound(waiting, supply)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from(CPU), st.sampled_from(MEMORY)), min_size=1, max_size=12),
    st.sampled_from([0.5, 1.0, 4.0]),
)
def test_launches_have_no_more_nodes_and_true_prices(
    sizes: Sequence[tuple[int, int]], stranded: float
) -> None:
    waiting = few_pods(sizes)
    usual = pack(waiting, SUPPLY)
    found = pack(waiting, SUPPLY, effort=Effort(stranded=stranded))
    assert found.price == pytest.approx(sum(one.cheapest.price for one in found.launches))
    assert found.bound == pytest.approx(usual.bound)
    mean = sum(_price([at], waiting) or 0 for at in range(len(waiting))) / len(waiting)
    fewer = len(usual.launches) - len(found.launches)
    assert found.price <= usual.price + stranded * mean * max(fewer, 0) + 1e-9
    names = [name for one in found.launches for name in one.pods]
    assert sorted(names) == sorted(pod.name for pod in waiting)


def test_one_larger_node_replaces_small_ones_of_nearly_its_price() -> None:
    types = [instance_type("small", 2000, 4096, 0.05), instance_type("large", 8000, 16384, 0.205)]
    supply = Supply([NodePool("plain")], small_catalog(*types))
    waiting = pods("web", 8, spec(1000, 2048))
    assert len(pack(waiting, supply).launches) == 4
    (node,) = pack(waiting, supply, effort=LAUNCHES).launches
    assert (node.cheapest.type.name, node.cheapest.price) == ("large", 0.205)
    (alone,) = pack(waiting[:2], supply, effort=LAUNCHES).launches
    assert alone.cheapest.type.name == "small"
