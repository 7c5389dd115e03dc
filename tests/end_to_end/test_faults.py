"""Faults: crashing functions, an API server that fails, and notices that arrive twice, late, in any
order or never. The invariants hold."""

import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from leeway_sandbox.provisioning import client
from lightkube.resources.core_v1 import Node

from tests.end_to_end.environment import Environment, events_about, kube_client, run_reconcile
from tests.end_to_end.invariants import InvariantChecks

CHECKPOINTS = 12
"""More checkpoints than a retirement has; faults after its last one have no effect."""


def test_a_retirement_survives_a_crash_of_its_function_at_every_checkpoint(
    env: Environment,
) -> None:
    points = [(when, step) for step in range(1, CHECKPOINTS + 1) for when in ("before", "after")]
    half = len(points) // 2
    nodes = env.unused_nodes(half, "hooked") | env.unused_nodes(half, "plain")
    faults = [
        {"function": "*retire*", "execution": f"retire-{i}-*", "kill": when, "step": step}
        for i, (when, step) in zip(nodes, points, strict=True)
    ]
    invariants = InvariantChecks(env)
    env.sandbox.faults("lambda", faults)
    env.interrupt(list(nodes), late=40)

    seen = invariants.check(nodes)
    killed = [e for e in seen.of("invocation") if e["outcome"] == "killed"]
    assert len(killed) >= 14, "the faults must have met the middle of the work"
    for instance, node in nodes.items():
        outcomes = seen.outcomes(instance)
        assert [o["result"] for o in outcomes] == ["drained"] * len(outcomes)
        # A crash between the event and its checkpoint repeats the same event.
        assert all(o == outcomes[0] for o in outcomes)
        assert 1 <= len(outcomes) <= 2
        assert len(events_about(env.sandbox, node)) == 1
    hooked = [e for e in seen.of("lifecycle-action") if e["outcome"] != "begun"]
    assert Counter(e["outcome"] for e in hooked) == {"CONTINUE": half}


def test_a_notice_survives_a_crash_of_the_function_that_receives_it(env: Environment) -> None:
    (instance,) = env.unused_nodes(1)
    invariants = InvariantChecks(env)
    env.sandbox.faults("lambda", [{"function": "*receive*", "kill": "before"}])
    env.interrupt([instance])
    seen = invariants.check([instance])
    assert [e["outcome"] for e in seen.of("invocation") if e["outcome"] == "killed"] == ["killed"]
    assert [o["result"] for o in seen.outcomes(instance)] == ["drained"]


def test_a_node_is_drained_when_its_api_server_refuses_the_token_at_first(
    env: Environment,
) -> None:
    nodes = env.unused_nodes(2, "hooked") | env.unused_nodes(1, "plain")
    invariants = InvariantChecks(env)
    env.sandbox.faults("kubernetes", [{"status": 401, "count": 4}])
    env.interrupt(list(nodes), late=60)
    seen = invariants.check(nodes)
    for instance in nodes:
        assert [o["result"] for o in seen.outcomes(instance)] == ["drained"]


def test_evictions_that_the_api_server_holds_are_not_abandoned(
    env: Environment,
) -> None:
    nodes = env.unused_nodes(2, "plain")
    invariants = InvariantChecks(env)
    env.sandbox.faults("kubernetes", [{"resource": "pods/eviction", "hold": 12}])
    env.interrupt(list(nodes), late=0)
    seen = invariants.check(nodes)
    answers = Counter(e["status"] for e in seen.of("eviction"))
    assert answers[201] > 0
    assert answers[499] == 0, "a client that leaves costs its pod's budget a slot"
    granted = [e["uid"] for e in seen.of("eviction", status=201)]
    assert len(granted) == len(set(granted)), "no pod is evicted twice"
    for instance in nodes:
        assert [o["result"] for o in seen.outcomes(instance)] == ["drained"]


def test_an_unavailable_api_server_delays_the_drain_and_not_the_replacement(
    env: Environment,
) -> None:
    (instance, node) = env.unused_nodes(1, "hooked").popitem()
    invariants = InvariantChecks(env)
    env.sandbox.faults("kubernetes", [{"refuse": True}])
    healed: list[float] = []

    def heal() -> None:
        env.sandbox.faults("kubernetes", [])
        healed.append(time.time())

    healing = threading.Timer(10, heal)
    healing.start()
    env.interrupt([instance], late=60)
    healing.join()
    seen = invariants.check([instance])
    assert [o["result"] for o in seen.outcomes(instance)] == ["drained"]
    assert seen.of("instance-state", state="pending")[0]["at"] < healed[0]
    assert seen.of("node-cordoned", node=node)[0]["at"] >= healed[0] - 0.1


def test_the_check_finds_a_remaining_node_that_is_cordoned(env: Environment) -> None:
    """The checks can fail; otherwise the tests above would prove nothing."""
    (node,) = env.unused_nodes(1).values()
    invariants = InvariantChecks(env)
    with kube_client(env.sandbox) as kube:
        kube.patch(Node, node, {"spec": {"unschedulable": True}})
        with pytest.raises(
            AssertionError, match=f"remaining node cordoned: node {node} .* a cordon"
        ):
            invariants.check([])
        kube.patch(Node, node, {"spec": {"unschedulable": None}})
    invariants.check([])


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
