"""The end-to-end tests' promises can be broken, and what breaks one is named."""

from dataclasses import replace
from typing import Any

import pytest

from tests.end_to_end.promises import (
    Evidence,
    Expected,
    Group,
    RetirementProgress,
    broken,
    unfinished,
)

Entry = dict[str, Any]

RECLAIM = 1120.0
"""Two minutes after the notice at 1,000."""


def entry(at: float, kind: str, **facts: Any) -> Entry:
    return {"at": at, "kind": kind, **facts}


def eviction(at: float, uid: str = "u-1", node: str = "n-1", **facts: Any) -> Entry:
    told = {"pod": f"default/{uid}", "uid": uid, "node": node, "user": "leeway"}
    return entry(at, "eviction", **{**told, "status": 201, "answered": True, **facts})


def deletion(at: float, via: str, grace: int, **facts: Any) -> Entry:
    pod = {"pod": "default/u-1", "uid": "u-1", "node": "n-1"}
    told = {"grace": grace, "own_grace": 30, "volumes": False, "via": via}
    return entry(at, "pod-deletion", **{**pod, **told, **facts})


def end(at: float, how: str, owner: str | None = "Deployment/default/web") -> Entry:
    return entry(at, "pod-ended", pod="default/u-1", uid="u-1", node="n-1", owner=owner, how=how)


def hook(at: float, outcome: str) -> Entry:
    told = {"instance": "i-1", "group": "g", "hook": "leeway-drain", "token": "t-1"}
    return entry(at, "lifecycle-action", outcome=outcome, **told)


def launch(at: float, instance: str, group: str | None = "g") -> Entry:
    return entry(at, "instance-state", instance=instance, state="pending", group=group)


RETIRED = Expected(retired=["i-1"])

GOOD = Evidence(
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
    nodes=(RetirementProgress("n-2", "i-2"), RetirementProgress("n-3", "i-3")),
    running={"i-2", "i-3"},
)


def but(*entries: Entry, **changes: Any) -> Evidence:
    """The good story with more in its journals, in order, or another end."""
    told = sorted([*GOOD.entries, *entries], key=lambda one: one["at"])
    return replace(GOOD, entries=tuple(told), **changes)


def without(kind: str, seen: Evidence = GOOD, **facts: Any) -> tuple[Entry, ...]:
    wanted = {"kind": kind, **facts}
    return tuple(e for e in seen.entries if not wanted.items() <= e.items())


def test_a_retirement_by_the_book_breaks_no_promise() -> None:
    assert broken(GOOD, RETIRED) == []
    assert list(unfinished(GOOD, RETIRED)) == []


def group(desired: int, **members: str) -> dict[str, Group]:
    named = {name.replace("_", "-"): state for name, state in members.items()}
    return {"g": Group(desired, named)}


BROKEN = {
    "pod default/u-1 on n-1 died with its node": but(end(1110, "died-with-node")),
    "a pod that no controller owns": but(end(1110, "died-with-node", None)),
    "was ended by force": but(end(1110, "forced")),
    "was deleted with 112.0 s to the deadline, before its moment": but(
        deletion(1003, "delete", 30)
    ),
    "whose grace was cut to 5 s of 112.0 s left, was killed": but(
        deletion(1003, "eviction", 5), end(1008, "grace-period-expired")
    ),
    "was evicted 2 times": but(eviction(1003)),
    "was asked to go, though its node stays": but(eviction(1003, "u-2", "n-2")),
    "hook leeway-drain of i-1 was left to time out": but(hook(1301, "timed-out")),
    "hook leeway-drain of i-1 waits": replace(
        GOOD,
        entries=without("lifecycle-action", outcome="CONTINUE"),
        after=group(2, i_1="Terminating:Wait", i_2="InService", i_3="InService"),
    ),
    "group g launched 2 for 1 to be replaced": but(
        launch(1003, "i-4"), after=group(2, i_2="InService", i_3="InService", i_4="InService")
    ),
    "group g launched 0 for 1 to be replaced": replace(
        GOOD, entries=without("instance-state", state="pending"), after=group(2, i_2="InService")
    ),
    "group g wanted 2 and wants 3 now": but(after=group(3, i_2="InService", i_3="InService")),
    "group g lost i-2, of which nobody told": but(after=group(2, i_3="InService")),
    "group g lost i-3, of which nobody told": but(after=group(2, i_2="InService")),
    "i-4 was launched outside any group": but(launch(1003, "i-4", None)),
    "node n-2 of i-2, which runs, has a cordon, the mark leeway.sh/cordoned": but(
        nodes=(RetirementProgress("n-2", "i-2", ("a cordon", "the mark leeway.sh/cordoned")),)
    ),
}


@pytest.mark.parametrize("said", BROKEN)
def test_a_broken_promise_is_named(said: str) -> None:
    found = broken(BROKEN[said], RETIRED)
    assert found
    wanted = "died with its node" if said.startswith("a pod") else said
    assert any(wanted in one for one in found), found


KEPT = {
    "a repeated eviction whose first answer was lost": but(eviction(1001, answered=False)),
    "an eviction that was refused before": but(eviction(1001, status=429)),
    "a blocked pod that is deleted at its latest moment": but(deletion(1085, "delete", 30)),
    "a pod with volumes, which leaves twenty seconds more": but(
        deletion(1065, "delete", 30, volumes=True)
    ),
    "a grace that was cut to what was left": but(
        deletion(1100, "eviction", 15), end(1115, "grace-period-expired")
    ),
    "a node that is on its way out": but(
        nodes=(RetirementProgress("n-1", "i-1", ("a cordon",)),),
    ),
}


@pytest.mark.parametrize("what", KEPT)
def test_what_a_correct_drain_does_breaks_no_promise(what: str) -> None:
    assert broken(KEPT[what], RETIRED) == []


def test_who_was_beyond_saving_or_is_still_leaving_is_not_held_against_anybody() -> None:
    died = but(end(1110, "died-with-node"))
    assert broken(died, replace(RETIRED, doomed=["i-1"])) == []
    waits = replace(
        GOOD,
        entries=without("lifecycle-action", outcome="CONTINUE"),
        after=group(2, i_1="Terminating:Wait", i_2="InService", i_3="InService"),
        nodes=(RetirementProgress("n-1", "i-1", ("a cordon",)),),
        running={"i-1", "i-2", "i-3"},
    )
    leaving = replace(RETIRED, leaving=["i-1"])
    assert broken(waits, leaving) == []
    assert list(unfinished(waits, leaving)) == []
    assert broken(waits, RETIRED)


def test_without_a_successor_wanted_the_group_is_one_smaller() -> None:
    shrunk = replace(
        GOOD,
        entries=without("instance-state", state="pending"),
        after=group(1, i_2="InService"),
    )
    assert broken(shrunk, replace(RETIRED, unreplaced=["i-1"])) == []
    assert broken(GOOD, replace(RETIRED, unreplaced=["i-1"]))


UNFINISHED = {
    "execution retire-i-1-1 has not ended": replace(GOOD, entries=without("execution-ended")),
    "i-1 was to be retired and runs": but(running={"i-1", "i-2", "i-3"}),
    "group g wants 2 and has {'InService': 1, 'Pending': 1}": but(
        after=group(2, i_2="InService", i_3="Pending")
    ),
    "group g has not noticed that i-3 is gone": but(running={"i-2"}),
}


@pytest.mark.parametrize("said", UNFINISHED)
def test_what_is_still_under_way_is_waited_for(said: str) -> None:
    assert list(unfinished(UNFINISHED[said], RETIRED)) == [said]
