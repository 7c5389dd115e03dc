"""A run that is killed after any of its calls, and the next one."""

from dataclasses import fields, replace
from typing import Any

from leeway.launch.launch_nodes import LaunchNodes
from leeway.launch.resolve_pools import NodeSources
from leeway.provision_run import Dependencies, NodeProvisioning
from leeway.selection.offers.catalog import Catalog

from tests.launch.pools import pods
from tests.launch.test_kills import Killed, Killer, Mortal
from tests.provisioning.buying import RETIRING, Buying, big_pods

FOR_ALL = 58


def mortal(buying: Buying, killer: Killer) -> NodeProvisioning:
    """The use case on ports that kill."""
    of_launch: dict[str, Any] = {
        one.name: Mortal(getattr(buying.deps, one.name), killer)
        for one in fields(buying.deps)
        if one.name not in {"sources", "clock", "new_id", "intents"}
    }
    sources: dict[str, Any] = {
        one.name: Mortal(getattr(buying.deps.sources, one.name), killer)
        for one in fields(NodeSources)
    }
    launch = LaunchNodes(replace(buying.deps, sources=NodeSources(**sources), **of_launch))
    deps = buying.dependencies()
    ports: dict[str, Any] = {
        name: Mortal(getattr(deps, name), killer)
        for name in ("manifests", "catalog", "states", "table", "groups")
    }
    # One event at a time: a thread's kill would not reach the run in order.
    events: Any = Mortal(buying.events, killer)
    return NodeProvisioning(
        Dependencies(
            **ports,
            launch_nodes=launch,
            upcoming=deps.upcoming,
            returns=deps.returns,
            events_in=lambda _: events,
            launch_block=deps.launch_block,
            clock=buying,
        )
    )


def run_to_the_end(catalog: Catalog, number: int) -> tuple[Buying, int]:
    """Run, killed after a call, and again without a kill; return the calls of the first run."""
    buying = Buying(catalog)
    buying.wait_for_nodes(*big_pods(2), *pods(1, cpu=900_000, name="huge"))
    buying.retire(*big_pods(1, "moving"))
    killer = Killer(number, "after")
    until = buying.time.fromtimestamp(buying.time.timestamp() + FOR_ALL, buying.time.tzinfo)
    try:
        mortal(buying, killer).run("prod", "first", until)
    except Killed:
        buying.run("second")
    return buying, killer.calls


def test_a_run_that_is_killed_after_any_call_is_completed_by_the_next(catalog: Catalog) -> None:
    _, calls = run_to_the_end(catalog, 0)
    assert calls > 25
    for number in range(1, calls + 1):
        buying, _ = run_to_the_end(catalog, number)
        where = f"killed after call {number}"
        assert len(buying.fleets.running) == 3, where
        assert {*buying.admitted()} == {*buying.fleets.running}, where
        answer = buying.requests[RETIRING].answer
        assert answer is not None, where
        assert len(answer.launched) == 1, where
        assert [*buying.events.existing], where
        assert len(buying.events.existing) == 1, where
        assert "prod" in buying.statuses, where
