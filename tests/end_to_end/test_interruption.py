"""A Spot interruption, from EventBridge to the last Kubernetes Event."""

import time
from collections import Counter

import pytest
from leeway.interruption.reasons import NOTICE_REJECTED

from tests.end_to_end.rehearsal import Rehearsal, events_about


@pytest.mark.parametrize("group", ["hooked", "plain"])
def test_a_node_is_cordoned_replaced_and_drained_before_ec2_takes_it(
    rehearsal: Rehearsal, group: str
) -> None:
    (instance, node) = rehearsal.take(1, group).popitem()
    seen = rehearsal.interrupt([instance])
    (outcome,) = seen.outcomes(instance)
    assert outcome["result"] == "drained"
    assert outcome["replacement"] == {"hooked": "terminate-in-group", "plain": "detach"}[group]
    assert seen.of("node-cordoned", node=node)
    assert seen.of("node-tainted", node=node)
    assert not seen.died([node])
    launched = seen.of("instance-state", state="pending", group=group)
    assert len(launched) == 1
    cordoned = seen.of("node-cordoned", node=node)[0]["at"]
    evicted = [e["at"] for e in seen.of("eviction", node=node)]
    assert evicted
    assert min(evicted) >= cordoned


def test_the_group_that_holds_the_instance_for_us_is_told_to_go_on(rehearsal: Rehearsal) -> None:
    (instance,) = rehearsal.take(1, "hooked")
    seen = rehearsal.interrupt([instance])
    answers = [e["outcome"] for e in seen.of("lifecycle-action", instance=instance)]
    assert answers == ["begun", "CONTINUE"]
    assert seen.outcomes(instance)[0]["hooks"] == ["leeway-drain"]


def test_a_detached_instance_is_terminated_when_it_is_drained(rehearsal: Rehearsal) -> None:
    (instance,) = rehearsal.take(1, "plain")
    seen = rehearsal.interrupt([instance])
    assert seen.outcomes(instance)[0]["terminated"] is True
    assert seen.of("instance-state", instance=instance, state="shutting-down")
    assert not seen.of("reclaimed", instance=instance)


def test_the_outcome_is_a_log_line_a_metric_a_leeway_event_and_a_kubernetes_event(
    rehearsal: Rehearsal,
) -> None:
    (instance, node) = rehearsal.take(1).popitem()
    seen = rehearsal.interrupt([instance])
    logs = [e for e in seen.of("logs") if isinstance(e["line"], dict)]
    (said,) = (
        e for e in logs if e["line"].get("instance") == instance and "replacement" in e["line"]
    )
    assert said["line"]["result"] == "drained"
    lines = [e["line"] for e in logs if e["request_id"] == said["request_id"]]
    metrics = [line for line in lines if "NodesRetired" in line]
    assert [(m["NodesRetired"], m["Kind"]) for m in metrics] == [([1.0], "spot-interruption")]
    events = [e for e in seen.of("put-events") if e["detail"].get("instance") == instance]
    assert [e["detail_type"] for e in events] == ["Leeway Node Retired"]
    (event,) = events_about(rehearsal.sandbox, node)
    assert event.reason == "NodeDrained"
    assert "pods evicted" in (event.message or "")


def test_the_same_notice_three_times_is_one_retirement(rehearsal: Rehearsal) -> None:
    (instance, node) = rehearsal.take(1).popitem()
    since = time.time()
    rehearsal.sandbox.interrupt([instance], late=60, copies=3)
    seen = rehearsal.wait([instance], since)
    assert len(seen.outcomes(instance)) == 1
    accepted = Counter(e["uid"] for e in seen.of("eviction", node=node) if e["status"] == 201)
    assert set(accepted.values()) == {1}
    assert seen.attempts(instance) == [1]


def test_a_strangers_instance_is_left_alone_and_the_log_says_why(rehearsal: Rehearsal) -> None:
    (stranger,) = rehearsal.sandbox.endpoints.foreign_instances
    since = time.time()
    rehearsal.sandbox.interrupt([stranger], late=60)
    until = time.monotonic() + 20
    lines: list[dict[str, object]] = []
    while not lines and time.monotonic() < until:
        time.sleep(0.3)
        logs = [e["line"] for e in rehearsal.since(since).of("logs")]
        lines = [x for x in logs if isinstance(x, dict) and x.get("instance") == stranger]
    assert lines[0]["result"] == "not-ours"
    assert "does not manage cluster somebody-elses" in str(lines[0]["message"])
    assert not rehearsal.since(since).executions(stranger)


def test_an_event_that_is_no_notice_ends_in_the_dead_letter_queue(rehearsal: Rehearsal) -> None:
    since = time.time()
    broken = {
        "version": "0",
        "id": "b8a4f0de-0000-4000-8000-000000000001",
        "source": "aws.ec2",
        "detail-type": "EC2 Spot Instance Interruption Warning",
        "account": "123456789012",
        "time": "2026-11-20T09:45:00Z",
        "region": "us-east-1",
        "resources": [],
        "detail": {"instance-action": "terminate"},
    }
    assert rehearsal.sandbox.send(broken) == ["leeway-receive-notice"]
    until = time.monotonic() + 30
    while not rehearsal.since(since).of("dead-letter"):
        assert time.monotonic() < until
        time.sleep(0.3)
    seen = rehearsal.since(since)
    lines = [e["line"] for e in seen.of("logs") if isinstance(e["line"], dict)]
    errors = [line["message"] for line in lines if line.get("result") == "MalformedNotice"]
    assert errors == [str(NOTICE_REJECTED(error="detail.instance-id: field required"))] * 3
    assert len(seen.of("dead-letter")) == 1


def test_what_a_retirement_itself_brings_about_starts_no_other_one(rehearsal: Rehearsal) -> None:
    nodes = rehearsal.take(1, "plain") | rehearsal.take(1, "hooked")
    since = time.time()
    rehearsal.interrupt(list(nodes))
    until = time.monotonic() + 20
    for instance in nodes:
        while not rehearsal.since(since).of(
            "instance-state", instance=instance, state="terminated"
        ):
            assert time.monotonic() < until
            time.sleep(0.3)
    time.sleep(1)
    seen = rehearsal.since(since)
    assert [len(seen.outcomes(instance)) for instance in nodes] == [1, 1]
    for instance in nodes:
        assert seen.attempts(instance) == [1]
