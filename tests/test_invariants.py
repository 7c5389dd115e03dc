"""The checks of the end-to-end tests find every kind of violation."""

from dataclasses import replace
from typing import Any

import pytest

from tests.end_to_end.invariants import (
    Expected,
    Group,
    NodeStatus,
    Observations,
    unfinished,
    violations,
)

Entry = dict[str, Any]

RECLAIM = 1120.0
"""Two minutes after the notice at 1,000."""


def entry(at: float, kind: str, **facts: Any) -> Entry:
    return {"at": at, "kind": kind, **facts}


def eviction(at: float, uid: str = "u-1", node: str = "n-1", **facts: Any) -> Entry:
    defaults = {"pod": f"default/{uid}", "uid": uid, "node": node, "user": "leeway"}
    return entry(at, "eviction", **{**defaults, "status": 201, "answered": True, **facts})


def deletion(at: float, via: str, grace: int, **facts: Any) -> Entry:
    pod = {"pod": "default/u-1", "uid": "u-1", "node": "n-1"}
    defaults = {"grace": grace, "own_grace": 30, "volumes": False, "via": via}
    return entry(at, "pod-deletion", **{**pod, **defaults, **facts})


def end(at: float, how: str, owner: str | None = "Deployment/default/web") -> Entry:
    return entry(at, "pod-ended", pod="default/u-1", uid="u-1", node="n-1", owner=owner, how=how)


def hook(at: float, outcome: str) -> Entry:
    defaults = {"instance": "i-1", "group": "g", "hook": "leeway-drain", "token": "t-1"}
    return entry(at, "lifecycle-action", outcome=outcome, **defaults)


def launch(at: float, instance: str, group: str | None = "g") -> Entry:
    return entry(at, "instance-state", instance=instance, state="pending", group=group)


RETIRED = Expected(retired=["i-1"])

GOOD = Observations(
    entries=(
        entry(1000, "interrupted", instance="i-1", reclaim_at=RECLAIM),
        entry(1000, "execution-started", execution="retire-i-1-1", execution_arn="a-1"),
        launch(1001, "i-3"),
        hook(1001, "begun"),
        eviction(1002),
        deletion(1002, "eviction", 30),
        end(1004, "graceful"),
        end(1118, "died-with-node", "DaemonSet/kube-system/cni"),
        hook(1117, "CONTINUE"),
        entry(1118, "instance-state", instance="i-1", state="shutting-down", group="g"),
        entry(1118, "execution-ended", execution="retire-i-1-1", execution_arn="a-1"),
    ),
    instance_of={"n-1": "i-1", "n-2": "i-2", "n-3": "i-3"},
    before={"g": Group(2, {"i-1": "InService", "i-2": "InService"})},
    after={"g": Group(2, {"i-2": "InService", "i-3": "InService"})},
    nodes=(NodeStatus("n-2", "i-2"), NodeStatus("n-3", "i-3")),
    running={"i-2", "i-3"},
)


def but(*entries: Entry, **changes: Any) -> Observations:
    """Return GOOD with more journal entries, in order, or with other changes."""
    defaults = sorted([*GOOD.entries, *entries], key=lambda one: one["at"])
    return replace(GOOD, entries=tuple(defaults), **changes)


def without(kind: str, seen: Observations = GOOD, **facts: Any) -> tuple[Entry, ...]:
    wanted = {"kind": kind, **facts}
    return tuple(e for e in seen.entries if not wanted.items() <= e.items())


def test_a_correct_retirement_violates_no_invariant() -> None:
    assert violations(GOOD, RETIRED) == []
    assert list(unfinished(GOOD, RETIRED)) == []


def group(desired: int, **members: str) -> dict[str, Group]:
    named = {name.replace("_", "-"): state for name, state in members.items()}
    return {"g": Group(desired, named)}


BROKEN = {
    "pod default/u-1 on n-1 died with its node": but(end(1110, "died-with-node")),
    "a pod that no controller owns": but(end(1110, "died-with-node", None)),
    "was ended without a grace period": but(end(1110, "forced")),
    "was deleted with 112.0 s to the deadline, before its latest time": but(
        deletion(1003, "delete", 30)
    ),
    "whose grace period was reduced to 5 s of 112.0 s, was killed": but(
        deletion(1003, "eviction", 5), end(1008, "grace-period-expired")
    ),
    "was evicted 2 times": but(eviction(1003)),
    "was evicted, but its node stays": but(eviction(1003, "u-2", "n-2")),
    "hook leeway-drain of i-1 timed out": but(hook(1301, "timed-out")),
    "hook leeway-drain of i-1 is open": replace(
        GOOD,
        entries=without("lifecycle-action", outcome="CONTINUE"),
        after=group(2, i_1="Terminating:Wait", i_2="InService", i_3="InService"),
    ),
    "group g launched 2 instances for 1 to replace": but(
        launch(1003, "i-4"), after=group(2, i_2="InService", i_3="InService", i_4="InService")
    ),
    "group g launched 0 instances for 1 to replace": replace(
        GOOD, entries=without("instance-state", state="pending"), after=group(2, i_2="InService")
    ),
    "group g had the desired capacity 2 and has 3 now": but(
        after=group(3, i_2="InService", i_3="InService")
    ),
    "group g lost i-2 without a retirement": but(after=group(2, i_3="InService")),
    "group g lost i-3 without a retirement": but(after=group(2, i_2="InService")),
    "i-4 was launched outside any group": but(launch(1003, "i-4", None)),
    "node n-2 of i-2, which still runs, has a cordon, the key leeway.sh/cordoned": but(
        nodes=(NodeStatus("n-2", "i-2", ("a cordon", "the key leeway.sh/cordoned")),)
    ),
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_violation_is_reported(text: str) -> None:
    found = violations(BROKEN[text], RETIRED)
    assert found
    wanted = "died with its node" if text.startswith("a pod") else text
    assert any(wanted in one for one in found), found


KEPT = {
    "a repeated eviction whose first answer was lost": but(eviction(1001, answered=False)),
    "an eviction that was refused before": but(eviction(1001, status=429)),
    "a blocked pod that is deleted at its latest time": but(deletion(1085, "delete", 30)),
    "a pod with volumes, which needs twenty seconds more": but(
        deletion(1065, "delete", 30, volumes=True)
    ),
    "a grace period that was reduced to the remaining time": but(
        deletion(1100, "eviction", 15), end(1115, "grace-period-expired")
    ),
    "a node that is being retired": but(
        nodes=(NodeStatus("n-1", "i-1", ("a cordon",)),),
    ),
}


@pytest.mark.parametrize("what", KEPT)
def test_the_actions_of_a_correct_drain_violate_no_invariant(what: str) -> None:
    assert violations(KEPT[what], RETIRED) == []


def test_doomed_and_leaving_instances_are_no_violation() -> None:
    died = but(end(1110, "died-with-node"))
    assert violations(died, replace(RETIRED, doomed=["i-1"])) == []
    waits = replace(
        GOOD,
        entries=without("lifecycle-action", outcome="CONTINUE"),
        after=group(2, i_1="Terminating:Wait", i_2="InService", i_3="InService"),
        nodes=(NodeStatus("n-1", "i-1", ("a cordon",)),),
        running={"i-1", "i-2", "i-3"},
    )
    leaving = replace(RETIRED, leaving=["i-1"])
    assert violations(waits, leaving) == []
    assert list(unfinished(waits, leaving)) == []
    assert violations(waits, RETIRED)


def test_a_group_without_a_replacement_is_one_smaller() -> None:
    shrunk = replace(
        GOOD,
        entries=without("instance-state", state="pending"),
        after=group(1, i_2="InService"),
    )
    assert violations(shrunk, replace(RETIRED, unreplaced=["i-1"])) == []
    assert violations(GOOD, replace(RETIRED, unreplaced=["i-1"]))


UNFINISHED = {
    "execution retire-i-1-1 has not ended": replace(GOOD, entries=without("execution-ended")),
    "i-1 must be retired and still runs": but(running={"i-1", "i-2", "i-3"}),
    "group g has the desired capacity 2 and the instances {'InService': 1, 'Pending': 1}": but(
        after=group(2, i_2="InService", i_3="Pending")
    ),
    "group g still has i-3, which is gone": but(running={"i-2"}),
}


@pytest.mark.parametrize("text", UNFINISHED)
def test_work_in_progress_is_reported(text: str) -> None:
    assert list(unfinished(UNFINISHED[text], RETIRED)) == [text]
