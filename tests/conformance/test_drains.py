"""Drains on a cluster that runs already: its own API, budgets, RBAC and controllers."""

import time
from collections.abc import Callable
from typing import Any

from lightkube import ApiError
from lightkube.models.core_v1 import NodeSpec
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.models.policy_v1 import PodDisruptionBudgetSpec
from lightkube.resources.core_v1 import Node
from lightkube.resources.policy_v1 import PodDisruptionBudget

from tests.conformance.conftest import Conformance
from tests.end_to_end.environment import Journal, until


def test_an_interrupted_node_is_drained_before_its_instance_ends(env: Conformance) -> None:
    env.deploy("web", 10)
    (instance, node) = env.unused_nodes(1).popitem()
    since = time.time()
    env.sandbox.interrupt([instance], late=75)
    # The marks of a retirement are on the cluster's own Node while it lasts.
    marked = until(lambda: marks_of(env, node))
    assert any(key.startswith("leeway.sh/") for key in marked)
    seen = env.wait([instance], since)
    (outcome,) = seen.outcomes(instance)
    assert (outcome["result"], outcome["replacement"]) == ("drained", "terminate-in-group")
    assert first(seen, "node-cordoned", node) <= first(seen, "eviction", node)
    assert {e["status"] for e in seen.of("eviction", node=node)} <= {201, 429, 404}
    assert all("retire-node" in e["user"] for e in seen.of("eviction", node=node))
    # The instance ends after the pods, and its Node goes with it.
    env.until(since, lambda s: s.of("node-deleted", node=node))
    ended = first(env.since(since), "machine-ends", node)
    gone = [e for e in env.since(since).of("pod-ended", node=node) if mine(env, e)]
    assert gone
    assert max(e["at"] for e in gone) <= ended
    env.ready("web", 10)
    env.delete("web")


def test_a_budget_of_the_cluster_limits_how_many_pods_are_away(env: Conformance) -> None:
    env.deploy("limited", 6)
    labels = LabelSelector(matchLabels={"app": "limited"})
    budget = PodDisruptionBudget(
        metadata=ObjectMeta(name="limited", namespace=env.namespace),
        spec=PodDisruptionBudgetSpec(maxUnavailable=1, selector=labels),
    )
    env.kube.create(budget)
    until(lambda: allowed(env, "limited") == 1)
    nodes = env.unused_nodes(2)
    since = time.time()
    env.sandbox.interrupt(list(nodes), late=45)
    seen = env.wait(nodes, since)
    assert {o["result"] for i in nodes for o in seen.outcomes(i)} == {"drained"}
    env.ready("limited", 6)
    assert [e for node in nodes.values() for e in seen.of("eviction", node=node) if mine(env, e)]
    assert most_away(env.since(0), f"Deployment/{env.namespace}/limited", since) == 1
    env.kube.delete(PodDisruptionBudget, "limited", namespace=env.namespace)
    env.delete("limited")


def test_a_rebalance_waits_for_a_ready_successor(env: Conformance) -> None:
    (instance, node) = env.unused_nodes(1).popitem()
    since = time.time()
    env.sandbox.interrupt([instance], rebalance=True, warning=False)
    seen = env.wait([instance], since)
    (outcome,) = seen.outcomes(instance)
    assert (outcome["result"], outcome["replacement"]) == ("drained", "launch-successor")
    (successor,) = outcome["successors"]
    (joined,) = env.since(since).of("node-joined", instance=successor["instance"])
    assert all(e["at"] >= joined["at"] for e in seen.of("eviction", node=node))


def test_reconcile_deletes_the_node_of_an_instance_that_has_ended(
    env: Conformance, schedules: Callable[[str], None]
) -> None:
    ended = [e["instance"] for e in env.since(0).of("instance-state", state="terminated")]
    labels = {"topology.kubernetes.io/zone": "us-east-1a"}
    ghost = Node(
        metadata=ObjectMeta(name="ghost", labels=labels),
        spec=NodeSpec(providerID=f"aws:///us-east-1a/{ended[0]}"),
    )
    env.kube.create(ghost)

    def gone() -> bool:
        schedules("reconcile")
        time.sleep(2)
        names = {one.metadata.name for one in env.kube.list(Node) if one.metadata}
        return "ghost" not in names

    until(gone)


def marks_of(env: Conformance, node: str) -> dict[str, Any]:
    try:
        found = env.node(node)
    except ApiError:
        return {}
    annotations: dict[str, Any] = found.metadata.annotations or {}
    return annotations if found.spec.unschedulable else {}


def allowed(env: Conformance, name: str) -> int:
    status = env.kube.get(PodDisruptionBudget, name, namespace=env.namespace).status
    return (status.disruptionsAllowed if status else None) or 0


def mine(env: Conformance, entry: dict[str, Any]) -> bool:
    return str(entry["pod"]).startswith(f"{env.namespace}/")


def most_away(seen: Journal, workload: str, since: float) -> int:
    """Return how many running pods of a Deployment were evicted at most before another one ran
    instead. A budget does not count a pod that is evicted before it runs."""
    ran: set[str] = set()
    away = most = 0
    for entry in seen.entries:
        if entry.get("owner") != workload:
            continue
        if entry["kind"] == "pod-running":
            ran.add(entry["uid"])
            away -= entry["at"] >= since
        elif entry["kind"] == "pod-deletion" and entry["uid"] in ran:
            away += entry["at"] >= since
        most = max(most, away)
    return most


def first(seen: Journal, kind: str, node: str) -> float:
    return min(float(entry["at"]) for entry in seen.of(kind, node=node))
