"""A Spot interruption, from EventBridge to the last Kubernetes Event."""

import time
from dataclasses import dataclass

import pytest
from leeway.interruption.receive_notice import NOTICE_REJECTED

from tests.end_to_end.environment import Environment, Journal, events_about

REPLACED = {"hooked": "terminate-in-group", "plain": "detach"}


@dataclass(frozen=True)
class Interrupted:
    """The instance and the node of each group, and what happened until both had ended."""

    nodes: dict[str, tuple[str, str]]
    seen: Journal


@pytest.fixture(scope="module")
def interrupted(env: Environment) -> Interrupted:
    """Interrupt a node of each group."""
    nodes = {group: env.unused_nodes(1, group).popitem() for group in REPLACED}
    instances = {instance for instance, _ in nodes.values()}
    since = time.time()
    env.interrupt([*instances])

    def ended(seen: Journal) -> bool:
        states = seen.of("instance-state", state="terminated")
        return instances <= {entry["instance"] for entry in states}

    env.until(since, ended)
    env.until(since, lambda seen: not seen.running(instances))
    return Interrupted(nodes, env.since(since))


@pytest.mark.parametrize("group", REPLACED)
def test_a_node_is_cordoned_replaced_and_drained_before_ec2_reclaims_it(
    interrupted: Interrupted, group: str
) -> None:
    (instance, node), seen = interrupted.nodes[group], interrupted.seen
    (outcome,) = seen.outcomes(instance)
    assert (outcome["result"], outcome["replacement"]) == ("drained", REPLACED[group])
    assert seen.of("node-tainted", node=node)
    assert not seen.died([node])
    launched = seen.of("instance-state", state="pending", group=group)
    assert len(launched) == 1
    cordoned = seen.of("node-cordoned", node=node)[0]["at"]
    evicted = [e["at"] for e in seen.of("eviction", node=node)]
    assert evicted
    assert min(evicted) >= cordoned


def test_the_terminate_hook_is_answered_with_continue(interrupted: Interrupted) -> None:
    (instance, _), seen = interrupted.nodes["hooked"], interrupted.seen
    answers = [e["outcome"] for e in seen.of("lifecycle-action", instance=instance)]
    assert answers == ["begun", "CONTINUE"]
    # A hook that begins after the outcome is answered too, and the outcome does not name it.
    assert {hook for one in seen.outcomes(instance) for hook in one["hooks"]} <= {"leeway-drain"}


def test_a_detached_instance_is_terminated_after_its_drain(interrupted: Interrupted) -> None:
    (instance, _), seen = interrupted.nodes["plain"], interrupted.seen
    assert seen.outcomes(instance)[0]["terminated"] is True
    assert seen.of("instance-state", instance=instance, state="shutting-down")
    assert not seen.of("reclaimed", instance=instance)


@pytest.mark.parametrize("group", REPLACED)
def test_the_outcome_is_a_log_line_a_leeway_event_and_a_kubernetes_event(
    env: Environment, interrupted: Interrupted, group: str
) -> None:
    (instance, node), seen = interrupted.nodes[group], interrupted.seen
    logs = [e["line"] for e in seen.of("logs") if isinstance(e["line"], dict)]
    (line,) = (x for x in logs if x.get("instance") == instance and "replacement" in x)
    assert (line["result"], line["kind"]) == ("drained", "spot-interruption")
    assert 0 <= line["seconds_to_cordon"] <= line["seconds_to_end"]
    events = [e for e in seen.of("put-events") if e["detail"].get("instance") == instance]
    assert [e["detail_type"] for e in events] == ["Leeway Node Retired"]
    (event,) = events_about(env.sandbox, node)
    assert event.reason == "NodeDrained"
    assert "pods evicted" in (event.message or "")


def test_events_that_a_retirement_causes_start_no_other_retirement(
    interrupted: Interrupted,
) -> None:
    for instance, _ in interrupted.nodes.values():
        assert len(interrupted.seen.outcomes(instance)) == 1
        assert interrupted.seen.attempts(instance) == [1]


def test_an_instance_of_another_cluster_is_ignored_with_a_log_line(env: Environment) -> None:
    (other,) = env.sandbox.endpoints.foreign_instances
    since = time.time()
    env.sandbox.interrupt([other], late=60)

    def about_it(seen: Journal) -> list[dict[str, object]]:
        logs = [e["line"] for e in seen.of("logs")]
        return [x for x in logs if isinstance(x, dict) and x.get("instance") == other]

    lines = env.until(since, about_it)
    assert lines[0]["result"] == "not-ours"
    assert "does not name its cluster somebody-elses" in str(lines[0]["message"])
    assert not env.since(since).executions(other)


def test_a_malformed_notice_goes_to_the_dead_letter_queue(env: Environment) -> None:
    since = time.time()
    malformed = {
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
    assert env.sandbox.send(malformed) == ["leeway-receive-notice"]
    env.until(since, lambda seen: seen.of("dead-letter"))
    seen = env.since(since)
    lines = [e["line"] for e in seen.of("logs") if isinstance(e["line"], dict)]
    errors = [line["message"] for line in lines if line.get("result") == "MalformedNotice"]
    assert errors == [str(NOTICE_REJECTED(error="detail.instance-id: field required"))] * 3
    assert len(seen.of("dead-letter")) == 1
