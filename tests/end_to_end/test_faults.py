"""Faults: a function that dies at any step, an API server that fails, an AWS that throttles."""

import threading
import time
from collections import Counter
from typing import Any

import pytest
from lightkube import Client, KubeConfig
from lightkube.resources.core_v1 import Node

from tests.end_to_end.promises import Promises
from tests.end_to_end.rehearsal import Rehearsal, events_about

CHECKPOINTS = 12
"""More than a retirement makes; the faults beyond its last checkpoint do not fire."""


def test_a_retirement_survives_the_death_of_its_function_at_every_checkpoint(
    rehearsal: Rehearsal,
) -> None:
    points = [(when, step) for step in range(1, CHECKPOINTS + 1) for when in ("before", "after")]
    half = len(points) // 2
    nodes = rehearsal.take(half, "hooked") | rehearsal.take(half, "plain")
    faults = [
        {"function": "*retire*", "execution": f"retire-{i}-*", "kill": when, "step": step}
        for i, (when, step) in zip(nodes, points, strict=True)
    ]
    promises = Promises(rehearsal)
    rehearsal.sandbox.faults("lambda", faults)
    rehearsal.interrupt(list(nodes), late=40)

    seen = promises.hold(nodes)
    killed = [e for e in seen.of("invocation") if e["outcome"] == "killed"]
    assert len(killed) >= 14, "the faults must have met the middle of the work"
    for instance, node in nodes.items():
        outcomes = seen.outcomes(instance)
        assert [o["result"] for o in outcomes] == ["drained"] * len(outcomes)
        # A death between the event and its checkpoint repeats the event, word for word.
        assert all(o == outcomes[0] for o in outcomes)
        assert 1 <= len(outcomes) <= 2
        assert len(events_about(rehearsal.sandbox, node)) == 1
    hooked = [e for e in seen.of("lifecycle-action") if e["outcome"] != "begun"]
    assert Counter(e["outcome"] for e in hooked) == {"CONTINUE": half}


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_notice_survives_the_death_of_the_function_that_receives_it(
    rehearsal: Rehearsal, when: str
) -> None:
    (instance,) = rehearsal.take(1)
    promises = Promises(rehearsal)
    rehearsal.sandbox.faults("lambda", [{"function": "*receive*", "kill": when}])
    rehearsal.interrupt([instance])
    seen = promises.hold([instance])
    assert [e["outcome"] for e in seen.of("invocation") if e["outcome"] == "killed"] == ["killed"]
    assert [o["result"] for o in seen.outcomes(instance)] == ["drained"]


API_FAULTS: dict[str, list[dict[str, Any]]] = {
    "answers 401": [{"status": 401, "count": 4}],
    "answers 429": [{"status": 429, "retryAfter": 1, "rate": 0.4}],
    "answers 500": [{"status": 500, "rate": 0.4}],
    "drops the connection midway": [{"drop": True, "rate": 0.4}],
    "drops the connection before it did anything": [{"drop": "before", "rate": 0.4}],
}


@pytest.mark.parametrize("name", API_FAULTS)
def test_a_node_is_drained_though_its_api_server(rehearsal: Rehearsal, name: str) -> None:
    nodes = rehearsal.take(2, "hooked") | rehearsal.take(1, "plain")
    promises = Promises(rehearsal)
    rehearsal.sandbox.faults("kubernetes", API_FAULTS[name])
    rehearsal.interrupt(list(nodes), late=60)
    seen = promises.hold(nodes)
    for instance in nodes:
        assert [o["result"] for o in seen.outcomes(instance)] == ["drained"]


def test_evictions_that_the_api_server_holds_for_long_are_not_given_up(
    rehearsal: Rehearsal,
) -> None:
    nodes = rehearsal.take(2, "plain")
    promises = Promises(rehearsal)
    rehearsal.sandbox.faults("kubernetes", [{"resource": "pods/eviction", "hold": 12}])
    rehearsal.interrupt(list(nodes), late=0, patience=150)
    seen = promises.hold(nodes)
    answers = Counter(e["status"] for e in seen.of("eviction"))
    assert answers[201] > 0
    assert answers[499] == 0, "a client that leaves costs its pod's budget a slot"
    granted = [e["uid"] for e in seen.of("eviction", status=201)]
    assert len(granted) == len(set(granted)), "no pod is evicted twice"
    for instance in nodes:
        assert [o["result"] for o in seen.outcomes(instance)] == ["drained"]


def test_an_api_server_that_refuses_connections_holds_up_the_drain_but_not_the_successor(
    rehearsal: Rehearsal,
) -> None:
    (instance, node) = rehearsal.take(1, "hooked").popitem()
    promises = Promises(rehearsal)
    rehearsal.sandbox.faults("kubernetes", [{"refuse": True}])
    healed: list[float] = []

    def heal() -> None:
        rehearsal.sandbox.faults("kubernetes", [])
        healed.append(time.time())

    healing = threading.Timer(10, heal)
    healing.start()
    rehearsal.interrupt([instance], late=60)
    healing.join()
    seen = promises.hold([instance])
    assert [o["result"] for o in seen.outcomes(instance)] == ["drained"]
    assert seen.of("instance-state", state="pending")[0]["at"] < healed[0]
    assert seen.of("node-cordoned", node=node)[0]["at"] >= healed[0] - 0.1


def test_a_throttled_aws_delays_a_retirement_and_loses_nothing(rehearsal: Rehearsal) -> None:
    nodes = rehearsal.take(2, "hooked") | rehearsal.take(2, "plain")
    throttled = [
        {"service": "ec2", "error": "RequestLimitExceeded", "status": 503, "rate": 0.4},
        {"service": "autoscaling", "error": "Throttling", "rate": 0.4},
        {"service": "dynamodb", "error": "ThrottlingException", "rate": 0.3},
        {"service": "events", "error": "ThrottlingException", "action": "PutEvents", "rate": 0.4},
    ]
    promises = Promises(rehearsal)
    rehearsal.sandbox.faults("aws", throttled)
    rehearsal.interrupt(list(nodes), late=40)
    seen = promises.hold(nodes)
    for instance in nodes:
        # A hook's notice that the throttling held back until the end has an attempt of its own.
        outcomes = seen.outcomes(instance)
        assert {o["result"] for o in outcomes} == {"drained"}
        assert len({o["attempt"] for o in outcomes}) == len(outcomes)


def test_a_survivor_that_is_left_cordoned_is_seen(rehearsal: Rehearsal) -> None:
    """The promises themselves can fail: otherwise they would say nothing about the tests above."""
    (node,) = rehearsal.take(1).values()
    promises = Promises(rehearsal)
    with Client(KubeConfig.from_file(rehearsal.sandbox.kubeconfig), trust_env=False) as kube:
        kube.patch(Node, node, {"spec": {"unschedulable": True}})
        with pytest.raises(AssertionError, match=f"survivor cordoned: node {node} .* a cordon"):
            promises.hold([])
        kube.patch(Node, node, {"spec": {"unschedulable": None}})
    promises.hold([])
