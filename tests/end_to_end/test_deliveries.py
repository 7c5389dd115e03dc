"""Duplicated, late, unordered and lost notices: the invariants hold."""

import time
from dataclasses import dataclass
from typing import Any

import pytest
from leeway_sandbox.provisioning import client

from tests.end_to_end.environment import Environment, run_reconcile
from tests.end_to_end.invariants import InvariantChecks

Fault = dict[str, Any]


def delivering(detail_type: str = "*", **how: Any) -> Fault:
    """Return the fault that changes the delivery of events of this type."""
    return {"service": "events", "action": "Deliver", "detail_type": detail_type, **how}


WARNING, HOOK, CHANGE = "*Interruption Warning", "*Lifecycle Action", "*State-change*"


@dataclass(frozen=True)
class Case:
    """One kind of delivery.

    EventBridge gets the warning `late` seconds after its own time. With `rebalance`, EC2 sends a
    recommendation first. With `ended_by_group`, the group terminates the instances at the warning.
    `doomed` instances end before Leeway can know of their interruption.
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
    "the warning comes when its deadline has passed": Case(late=117, doomed=True),
    "the warning comes when EC2 has taken the instance": Case(late=125, doomed=True),
}


@pytest.mark.parametrize("name", DELIVERIES)
def test_the_invariants_hold_when(env: Environment, name: str) -> None:
    case, sandbox = DELIVERIES[name], env.sandbox
    nodes: dict[str, str] = {}
    for group in case.groups:
        nodes |= env.unused_nodes(2, group)
    invariants, since = InvariantChecks(env), time.time()
    sandbox.faults("aws", case.faults)
    if case.ended_by_group:
        scaling = client("autoscaling", sandbox.aws_url)
        for instance in nodes:
            scaling.terminate_instance_in_auto_scaling_group(
                InstanceId=instance, ShouldDecrementDesiredCapacity=False
            )
    sandbox.interrupt(list(nodes), late=case.late, rebalance=case.rebalance)
    env.wait(nodes, since)
    seen = invariants.check(nodes, doomed=nodes if case.doomed else ())
    for instance in nodes:
        outcomes = seen.outcomes(instance)
        # An attempt ends once in spite of duplicates; a late hook may start an attempt of its own.
        assert len({o["attempt"] for o in outcomes}) == len(outcomes) <= 2
        results = [o["result"] for o in outcomes]
        if not case.doomed:
            assert results[0] == "drained"
            assert set(results) <= {"drained", "no-node"}


def test_the_invariants_hold_without_the_delivery_of_all_of_them(env: Environment) -> None:
    nodes = env.unused_nodes(1, "hooked") | env.unused_nodes(1, "plain")
    invariants, since = InvariantChecks(env), time.time()
    env.sandbox.faults("aws", [delivering(lost, drop=True) for lost in (WARNING, HOOK, CHANGE)])
    env.sandbox.interrupt(list(nodes), late=30)
    run_reconcile(env)
    env.wait(nodes, since)
    run_reconcile(env)
    seen = invariants.check(nodes)
    for instance in nodes:
        assert {o["result"] for o in seen.outcomes(instance)} == {"drained"}
