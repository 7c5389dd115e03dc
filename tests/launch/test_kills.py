"""A run that is killed after any call, and is started again. In tests/provisioning/test_kills.py
every launch succeeds."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from leeway.launch.intent import INTENT_BY_HAND
from leeway.launch.launch_nodes import LaunchNodes
from leeway.launch.launch_run import LaunchDependencies
from leeway.selection.offers.catalog import Catalog

from tests.fakes.crashes import Crash, Crashed, crashing_launches
from tests.fakes.fleets import Shortage
from tests.launch.launching import World, order
from tests.launch.pools import node_class, pods, pool


def fallback(world: World) -> None:
    """Spot has no capacity."""
    world.fleets.shortages = [Shortage(capacity_type="spot")]


def partial_success(world: World) -> None:
    """One subnet has one free address."""
    world.fleets.free = {"subnet-a": 1, "subnet-b": 1}


def lost_answer(world: World) -> None:
    """The first answer of EC2 is lost."""
    world.fleets.lost = 1


SIZE = {"cpu": ["96"], "family": ["m5", "m6a", "m8g"]}
DOCUMENTS = (
    pool("arms", arch=["arm64"], only=SIZE, limits={"nodes": 1}, weight=5),
    pool(only=SIZE),
    node_class(),
)
"""A node of each type has room for one pod."""


def run_to_the_end(deps: LaunchDependencies, catalog: Catalog, number: int) -> int:
    """Run, killed at a call, and again without a kill; returns the calls of the first run."""
    request = order(catalog, *DOCUMENTS, waiting=pods(3, cpu=90_000))
    crash = Crash(number, "after")
    try:
        outcome = LaunchNodes(crashing_launches(deps, crash)).launch(request)
    except Crashed:
        outcome = LaunchNodes(deps).launch(request)
    assert outcome.complete, outcome.without_node
    return crash.calls


@pytest.mark.parametrize("case", [fallback, partial_success, lost_answer])
def test_a_run_that_is_killed_at_any_call_launches_nothing_twice(
    case: Callable[[World], None], catalog: Catalog
) -> None:
    unharmed = World()
    case(unharmed)
    calls = run_to_the_end(unharmed.deps, catalog, 0)
    assert len(unharmed.fleets.running) == 3
    assert calls > 15
    for number in range(1, calls + 1):
        world = World()
        case(world)
        run_to_the_end(world.deps, catalog, number)
        assert len(world.fleets.running) == 3, f"killed after call {number}"
        assert {*world.admitted()} == {*world.fleets.running}, f"killed after call {number}"
        assert world.admissions.keys() == world.fleets.running.keys()


@pytest.mark.parametrize("case", [fallback, partial_success, lost_answer])
def test_a_command_that_is_killed_at_any_call_launches_nothing_twice(
    case: Callable[[World], None], catalog: Catalog
) -> None:
    number, calls = 0, 1
    while number <= calls:
        world = World()
        case(world)
        by_hand = replace(world.deps, intents=INTENT_BY_HAND)
        calls = max(calls, run_to_the_end(by_hand, catalog, number))
        assert len(world.fleets.running) == 3, f"killed after call {number}"
        number += 1
