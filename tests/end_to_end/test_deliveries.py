"""Notices that come twice, late, in any order or not at all: the promises hold."""

import time
from dataclasses import dataclass
from typing import Any

import pytest

from sandbox.provisioning import client
from tests.end_to_end.promises import Promises
from tests.end_to_end.rehearsal import Rehearsal, tick

Fault = dict[str, Any]


def delivering(detail_type: str = "*", **how: Any) -> Fault:
    """How EventBridge delivers events of this type."""
    return {"service": "events", "action": "Deliver", "detail_type": detail_type, **how}


WARNING, HOOK, CHANGE = "*Interruption Warning", "*Lifecycle Action", "*State-change*"


@dataclass(frozen=True)
class Case:
    """One way to deliver.

    `late` is how many seconds of the two minutes are gone when EventBridge gets the warning. With
    `rebalance` the recommendation comes first, with `ended_by_group` the group ends the instances
    itself as EC2 warns of them. `doomed` are gone before anybody can know.
    """

    faults: tuple[Fault, ...] = ()
    late: float = 60
    rebalance: bool = False
    ended_by_group: bool = False
    doomed: bool = False
    groups: tuple[str, ...] = ("hooked", "plain")


DELIVERIES = {
    "every notice comes five times": Case((delivering(copies=5),)),
    "all come twice, in any order": Case((delivering(copies=2, jitter=6),), rebalance=True),
    "the recommendation comes after the warning": Case(
        (delivering("*Rebalance*", latency=2),), rebalance=True
    ),
    "the warning comes after the state change": Case(
        (delivering(WARNING, latency=6),), late=118, doomed=True
    ),
    "the hook comes after the state change": Case(
        (delivering(HOOK, latency=19),), late=105, groups=("hooked",)
    ),
    "the hook comes before the warning": Case(
        (delivering(WARNING, latency=4),), ended_by_group=True, groups=("hooked",)
    ),
    "the warning is 30 s late": Case(late=30),
    "the warning is 90 s late": Case(late=90),
    "the warning comes when its deadline has passed": Case(late=117, doomed=True),
    "the warning comes when EC2 has taken the instance": Case(late=125, doomed=True),
}


@pytest.mark.parametrize("name", DELIVERIES)
def test_the_promises_hold_though(rehearsal: Rehearsal, name: str) -> None:
    case, sandbox = DELIVERIES[name], rehearsal.sandbox
    nodes: dict[str, str] = {}
    for group in case.groups:
        nodes |= rehearsal.take(2, group)
    promises, since = Promises(rehearsal), time.time()
    sandbox.faults("aws", case.faults)
    if case.ended_by_group:
        scaling = client("autoscaling", sandbox.aws_url)
        for instance in nodes:
            scaling.terminate_instance_in_auto_scaling_group(
                InstanceId=instance, ShouldDecrementDesiredCapacity=False
            )
    sandbox.interrupt(list(nodes), late=case.late, rebalance=case.rebalance)
    rehearsal.wait(nodes, since)
    seen = promises.hold(nodes, doomed=nodes if case.doomed else ())
    for instance in nodes:
        outcomes = seen.outcomes(instance)
        # A attempt ends once, whatever comes how often; a late hook may have one of its own.
        assert len({o["attempt"] for o in outcomes}) == len(outcomes) <= 2
        results = [o["result"] for o in outcomes]
        if not case.doomed:
            assert results[0] == "drained"
            assert set(results) <= {"drained", "no-node"}


LOST = {"the warning": [WARNING], "the hook": [HOOK], "all of them": [WARNING, HOOK, CHANGE]}


@pytest.mark.parametrize("name", LOST)
def test_the_promises_hold_though_nobody_hears_of(rehearsal: Rehearsal, name: str) -> None:
    nodes = rehearsal.take(1, "hooked") | rehearsal.take(1, "plain")
    promises, since = Promises(rehearsal), time.time()
    rehearsal.sandbox.faults("aws", [delivering(lost, drop=True) for lost in LOST[name]])
    rehearsal.sandbox.interrupt(list(nodes), late=30)
    tick(rehearsal)
    rehearsal.wait(nodes, since)
    tick(rehearsal)
    seen = promises.hold(nodes)
    for instance in nodes:
        assert {o["result"] for o in seen.outcomes(instance)} == {"drained"}
