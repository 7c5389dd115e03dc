"""The AWS calls of a storm: common facts of a group are read once for all its instances."""

import time
from collections import Counter
from collections.abc import Sequence

from leeway.execution.shared_cache import FRESH_FOR
from leeway_sandbox.access_entries import access_key

from tests.end_to_end.environment import Environment, Journal

READS_OF_A_GROUP = 3
"""The calls about the group, its hooks and its refreshes."""

IN_TROUBLE = 2
"""How many of ten instances may be read alone after a timeout on a busy machine. Each of them takes
one more call than its group."""


def calls_of(env: Environment, function: str) -> Counter[str]:
    """Return how often a function has made each AWS call."""
    assert env.sandbox.deployed is not None
    (name,) = (f.name for f in env.sandbox.deployed.functions if f.name.endswith(function))
    by_key = env.sandbox.status()["aws"]["calls_by_access_key"]
    return Counter(by_key.get(access_key(name), {}))


def test_a_storm_reads_each_group_and_not_each_of_its_instances(env: Environment) -> None:
    storm = [*env.unused_nodes(5, "hooked"), *env.unused_nodes(5, "plain")]
    before, began, started = calls_of(env, "retire-node"), time.monotonic(), time.time()
    seen = env.interrupt(storm)
    lasted = time.monotonic() - began
    calls = calls_of(env, "retire-node") - before
    replacements = {outcome["replacement"] for i in storm for outcome in seen.outcomes(i)}
    assert replacements == {"terminate-in-group", "detach"}
    assert calls["autoscaling:TerminateInstanceInAutoScalingGroup"] == 5
    assert calls["autoscaling:DetachInstances"] == 5
    assert calls["autoscaling:DescribeAutoScalingInstances"] <= IN_TROUBLE
    reads = {call: n for call, n in calls.items() if call.startswith("autoscaling:Describe")}
    times = 1 + lasted // FRESH_FOR.total_seconds()
    alone = IN_TROUBLE * (READS_OF_A_GROUP + 1)
    # None, if the storm of another test has read both groups a moment before.
    assert sum(reads.values()) <= READS_OF_A_GROUP * 2 * times + alone, reads
    runs_of_reconcile_are_the_minutes(env, storm, started)


def runs_of_reconcile_are_the_minutes(
    env: Environment, storm: Sequence[str], started: float
) -> None:
    """The cleanup of drained nodes every minute handles all nodes together."""

    def ended(seen: Journal) -> bool:
        states = seen.of("instance-state", state="terminated")
        return set(storm) <= {entry["instance"] for entry in states}

    env.until(started, ended)
    time.sleep(3)
    runs = env.since(started).of("invocation", function="leeway-reconcile")
    minutes = 2 + (time.time() - started) // 60
    assert len(runs) <= minutes + IN_TROUBLE
