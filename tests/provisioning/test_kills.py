"""A run that is killed after any of its calls, and the next one."""

from dataclasses import replace
from typing import Any

from leeway.launch.launch_nodes import LaunchNodes
from leeway.provision_run import NodeProvisioning
from leeway.selection.offers.catalog import Catalog

from tests.fakes.crashes import Crash, Crashed, Crashing, crashing, crashing_launches
from tests.launch.pools import pods
from tests.provisioning.buying import RETIRING, Buying, big_pods

FOR_ALL = 58


def mortal(buying: Buying, crash: Crash) -> NodeProvisioning:
    """The use case on ports that crash."""
    deps = buying.dependencies()
    names = ("manifests", "catalog", "states", "table", "groups")
    # One event at a time: a crash in a thread would not reach the run in order.
    events: Any = Crashing(buying.events, crash)
    launch_nodes = LaunchNodes(crashing_launches(buying.deps, crash))
    ports = crashing(deps, crash, only=names)
    return NodeProvisioning(
        replace(deps, launch_nodes=launch_nodes, events_in=lambda _: events.write, **ports)
    )


def run_to_the_end(catalog: Catalog, number: int) -> tuple[Buying, int]:
    """Run, killed after a call, and again without a kill; return the calls of the first run."""
    buying = Buying(catalog)
    buying.wait_for_nodes(*big_pods(2), *pods(1, cpu=900_000, name="huge"))
    buying.retire(*big_pods(1, "moving"))
    crash = Crash(number, "after")
    until = buying.time.fromtimestamp(buying.time.timestamp() + FOR_ALL, buying.time.tzinfo)
    try:
        mortal(buying, crash).run("prod", "first", until)
    except Crashed:
        buying.run("second")
    return buying, crash.calls


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
