"""Small batches are packed one by one: every pod has a node, at a price near the bound."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leeway.selection.packing.planning import always, pack
from leeway.selection.packing.supply import Supply
from leeway.selection.pods import NodePool, Pod
from leeway.selection.solver.one_by_one import ruin_and_recreate
from leeway.selection.solver.problem import Problem, valid
from leeway.selection.solver.programs import cover, least
from leeway.selection.solver.solving import of_whole_nodes, price

from bench.plan_checker import violations
from bench.workloads import diverse_pods, generic_pods, synthetic_catalog

INF = np.inf


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Some groups, offerings and counters; the last offering holds one pod of any group."""
    groups, offerings = draw(st.integers(1, 6)), draw(st.integers(1, 8))
    counters = draw(st.integers(0, 2))
    size = st.integers(0, 8)
    sizes = draw(st.lists(st.tuples(size, size), min_size=groups, max_size=groups))
    held = st.tuples(st.integers(1, 30), st.integers(1, 30))
    capacity = draw(st.lists(held, min_size=offerings, max_size=offerings))
    several = st.lists(st.sampled_from([0, 1, 1, 2]), min_size=counters, max_size=counters)
    matches = draw(st.lists(several, min_size=groups, max_size=groups))
    capped = st.lists(st.sampled_from([2, 3, INF]), min_size=counters, max_size=counters)
    caps = draw(st.lists(capped, min_size=groups, max_size=groups))
    flags = st.lists(st.booleans(), min_size=offerings, max_size=offerings)
    allowed = np.array(draw(st.lists(flags, min_size=groups, max_size=groups)))
    allowed[:, -1] = True
    prices = draw(st.lists(st.integers(1, 40), min_size=offerings, max_size=offerings))
    return Problem(
        sizes=np.array(sizes, dtype=float),
        counts=np.array(draw(st.lists(st.integers(1, 9), min_size=groups, max_size=groups)), float),
        matches=np.array(matches, dtype=float).reshape(groups, counters),
        caps=np.array(caps, dtype=float).reshape(groups, counters),
        max_per_node=np.array(
            draw(st.lists(st.sampled_from([1, 2, INF]), min_size=groups, max_size=groups))
        ),
        strict=np.ones(counters, dtype=bool),
        capacity=np.array([*capacity[:-1], (30, 30)], dtype=float),
        prices=np.array(prices, dtype=float) / 10,
        allowed=allowed,
    )


@settings(max_examples=100, deadline=None)
@given(problems(), st.integers(0, 12))
def test_all_pods_have_a_node_that_every_rule_allows(problem: Problem, rounds: int) -> None:
    nodes = ruin_and_recreate(problem, rounds, 0.0, always)
    assert np.array_equal(sum(node.times * node.pods for node in nodes), problem.counts)
    assert all(valid(problem, node.pods, node.offering) for node in nodes)


@settings(max_examples=100, deadline=None)
@given(problems())
def test_the_quick_bound_is_below_every_plan(problem: Problem) -> None:
    nodes = ruin_and_recreate(problem, 12, 0.0, always)
    bound = least(problem)
    assert bound <= of_whole_nodes(problem, bound) + 1e-6 <= price(problem, nodes) + 2e-6


def test_the_price_of_whole_nodes_is_a_multiple_of_the_lowest_one() -> None:
    alike = Problem(
        sizes=np.array([[1.0]]),
        counts=np.array([5.0]),
        matches=np.zeros((1, 0)),
        caps=np.zeros((1, 0)),
        max_per_node=np.array([INF]),
        strict=np.ones(0, dtype=bool),
        capacity=np.array([[2.0], [4.0]]),
        prices=np.array([0.3, 0.6]),
        allowed=np.ones((1, 2), dtype=bool),
    )
    assert of_whole_nodes(alike, least(alike)) == pytest.approx(0.9)
    apart = replace(alike, prices=np.array([0.3, 0.61]))
    assert of_whole_nodes(apart, least(apart)) == least(apart)


def test_rounds_make_the_nodes_cheaper() -> None:
    supply = Supply([NodePool("default")], synthetic_catalog())
    plan = pack(diverse_pods(100), supply)
    assert not plan.unschedulable
    assert not violations(plan, diverse_pods(100), supply.pools)
    assert plan.price <= 1.08 * plan.bound


@pytest.mark.parametrize("count", [10, 50])
def test_the_same_pods_have_the_same_plan(count: int) -> None:
    supply = Supply([NodePool("default")], synthetic_catalog())
    first, again = (pack(diverse_pods(count), supply) for _ in range(2))
    assert [(one.cheapest, one.pods) for one in first.launches] == [
        (one.cheapest, one.pods) for one in again.launches
    ]


@pytest.mark.parametrize("pods_of", [generic_pods, diverse_pods])
def test_a_plan_without_time_for_improvements_is_complete(
    pods_of: Callable[[int], list[Pod]],
) -> None:
    supply = Supply([NodePool("default")], synthetic_catalog())
    pods = pods_of(300)
    quick = pack(pods, supply, proceed=lambda: False)
    assert not quick.unschedulable
    assert not violations(quick, pods, supply.pools)
    assert pack(pods, supply).price <= quick.price


def test_improvements_end_when_the_caller_has_no_more_time() -> None:
    supply = Supply([NodePool("default")], synthetic_catalog())
    answers = iter([True] * 5 + [False] * 100)
    asked = []

    def proceed() -> bool:
        asked.append(next(answers))
        return asked[-1]

    pack(diverse_pods(100), supply, proceed=proceed)
    assert asked.count(False) == 1


def test_capacity_above_the_total_requests_does_not_lower_the_bound() -> None:
    problem = Problem(
        sizes=np.array([[1.0]]),
        counts=np.array([2.0]),
        matches=np.zeros((1, 0)),
        caps=np.zeros((1, 0)),
        max_per_node=np.array([INF]),
        strict=np.zeros(0, dtype=bool),
        capacity=np.array([[2.0], [100.0]]),
        prices=np.array([1.0, 10.0]),
        allowed=np.ones((1, 2), dtype=bool),
    )
    assert cover(problem).bound == pytest.approx(0.2)  # a fiftieth of the large node
    assert least(problem) == pytest.approx(1.0)  # which is none that can be launched
