"""Faults: crashing functions, and an API server that fails."""

import threading
import time
from collections import Counter

import pytest
from lightkube import Client, KubeConfig
from lightkube.resources.core_v1 import Node

from tests.end_to_end.environment import Environment, events_about
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
    with Client(KubeConfig.from_file(env.sandbox.kubeconfig), trust_env=False) as kube:
        kube.patch(Node, node, {"spec": {"unschedulable": True}})
        with pytest.raises(
            AssertionError, match=f"remaining node cordoned: node {node} .* a cordon"
        ):
            invariants.check([])
        kube.patch(Node, node, {"spec": {"unschedulable": None}})
    invariants.check([])
