"""What a storm asks of AWS: what every instance of a group has in common is read once for all."""

import time
from collections import Counter
from collections.abc import Sequence

from leeway.execution.shared_cache import FRESH_FOR

from sandbox.access_entries import access_key
from tests.end_to_end.rehearsal import Aftermath, Rehearsal

READS_OF_A_GROUP = 3
"""The group itself, its hooks, its refreshes."""

IN_TROUBLE = 2
"""Instances of ten whose asking may have met a call that timed out on a busy machine: each is then
read itself, which takes one call more than its group."""


def calls_of(rehearsal: Rehearsal, function: str) -> Counter[str]:
    """How often a function has made each call of AWS so far."""
    assert rehearsal.sandbox.deployed is not None
    (name,) = (f.name for f in rehearsal.sandbox.deployed.functions if f.name.endswith(function))
    by_key = rehearsal.sandbox.status()["aws"]["calls_by_access_key"]
    return Counter(by_key.get(access_key(name), {}))


def test_a_storm_reads_groups_and_not_the_instances_in_them(rehearsal: Rehearsal) -> None:
    storm = [*rehearsal.take(5, "hooked"), *rehearsal.take(5, "plain")]
    before, began, started = calls_of(rehearsal, "retire-node"), time.monotonic(), time.time()
    seen = rehearsal.interrupt(storm)
    lasted = time.monotonic() - began
    calls = calls_of(rehearsal, "retire-node") - before
    asked = {outcome["replacement"] for i in storm for outcome in seen.outcomes(i)}
    assert asked == {"terminate-in-group", "detach"}
    assert calls["autoscaling:TerminateInstanceInAutoScalingGroup"] == 5
    assert calls["autoscaling:DetachInstances"] == 5
    assert calls["autoscaling:DescribeAutoScalingInstances"] <= IN_TROUBLE
    reads = {call: n for call, n in calls.items() if call.startswith("autoscaling:Describe")}
    times = 1 + lasted // FRESH_FOR.total_seconds()
    alone = IN_TROUBLE * (READS_OF_A_GROUP + 1)
    assert 0 < sum(reads.values()) <= READS_OF_A_GROUP * 2 * times + alone, reads
    runs_of_reconcile_are_the_minutes(rehearsal, storm, started)


def runs_of_reconcile_are_the_minutes(
    rehearsal: Rehearsal, storm: Sequence[str], started: float
) -> None:
    """Nodes that were drained are cleaned up after by the minute, and not one by one."""

    def ended(seen: Aftermath) -> bool:
        states = seen.of("instance-state", state="terminated")
        return set(storm) <= {entry["instance"] for entry in states}

    rehearsal.until(started, ended, patience=120)
    time.sleep(3)
    runs = rehearsal.since(started).of("invocation", function="leeway-reconcile")
    minutes = 2 + (time.time() - started) // 60
    assert len(runs) <= minutes + IN_TROUBLE
