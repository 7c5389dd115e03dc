"""Spot interruptions, from EventBridge to the last Kubernetes Event: what happens to a node, with
which calls to AWS, and with which rights in the cluster."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from leeway.execution.shared_cache import FRESH_FOR
from leeway.selection.labels import HOSTNAME
from leeway_sandbox.access_entries import access_key
from lightkube import Client, KubeConfig
from lightkube.models.core_v1 import (
    Container,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimVolumeSource,
    PodSpec,
    Volume,
    VolumeResourceRequirements,
)
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.models.policy_v1 import PodDisruptionBudgetSpec
from lightkube.resources.core_v1 import Node, PersistentVolumeClaim, Pod
from lightkube.resources.policy_v1 import PodDisruptionBudget

from tests.end_to_end.environment import Environment, Journal, events_about
from tests.end_to_end.rights import granted, used

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


READS_OF_A_GROUP = 3
"""The calls about the group, its hooks and its refreshes."""

IN_TROUBLE = 2
"""How many of ten instances may be read alone after a timeout on a busy machine. Each of them takes
one more call than its group."""


def calls_of(env: Environment, function: str) -> Counter[str]:
    """Return how often a function has made each AWS call."""
    assert env.sandbox.deployed is not None
    (name,) = (f.name for f in env.sandbox.deployed.functions if f.name.endswith(function))
    by_key = env.sandbox.status()["aws"]["calls_by_access_key"]
    return Counter(by_key.get(access_key(name), {}))


def test_a_storm_reads_each_group_and_not_each_of_its_instances(env: Environment) -> None:
    storm = [*env.unused_nodes(5, "hooked"), *env.unused_nodes(5, "plain")]
    before, began, started = calls_of(env, "retire-node"), time.monotonic(), time.time()
    seen = env.interrupt(storm)
    lasted = time.monotonic() - began
    calls = calls_of(env, "retire-node") - before
    replacements = {outcome["replacement"] for i in storm for outcome in seen.outcomes(i)}
    assert replacements == {"terminate-in-group", "detach"}
    assert calls["autoscaling:TerminateInstanceInAutoScalingGroup"] == 5
    assert calls["autoscaling:DetachInstances"] == 5
    assert calls["autoscaling:DescribeAutoScalingInstances"] <= IN_TROUBLE
    reads = {call: n for call, n in calls.items() if call.startswith("autoscaling:Describe")}
    times = 1 + lasted // FRESH_FOR.total_seconds()
    alone = IN_TROUBLE * (READS_OF_A_GROUP + 1)
    # None, if the storm of another test has read both groups a moment before.
    assert sum(reads.values()) <= READS_OF_A_GROUP * 2 * times + alone, reads
    runs_of_reconcile_are_the_minutes(env, storm, started)


def runs_of_reconcile_are_the_minutes(
    env: Environment, storm: Sequence[str], started: float
) -> None:
    """The cleanup of drained nodes every minute handles all nodes together."""

    def ended(seen: Journal) -> bool:
        states = seen.of("instance-state", state="terminated")
        return set(storm) <= {entry["instance"] for entry in states}

    env.until(started, ended)
    time.sleep(3)
    runs = env.since(started).of("invocation", function="leeway-reconcile")
    minutes = 2 + (time.time() - started) // 60
    assert len(runs) <= minutes + IN_TROUBLE


def start(kube: Client, node: str, name: str, budgets: int, *claims: str) -> None:
    """Create a pod on the node and a number of budgets that always block its eviction."""
    labels = {"app": name}
    for number in range(budgets):
        rule = PodDisruptionBudgetSpec(selector=LabelSelector(matchLabels=labels), maxUnavailable=0)
        budget = ObjectMeta(name=f"{name}-{number}", namespace="default")
        kube.create(PodDisruptionBudget(metadata=budget, spec=rule))
    for claim in claims:
        kube.create(
            PersistentVolumeClaim(
                metadata=ObjectMeta(name=claim, namespace="default"),
                spec=PersistentVolumeClaimSpec(
                    accessModes=["ReadWriteOnce"],
                    resources=VolumeResourceRequirements(requests={"storage": "1Gi"}),
                ),
            )
        )
    spec = PodSpec(
        containers=[Container(name="c", image="pause")],
        # The scheduler binds the claims too, which wait for the first pod that it places.
        nodeSelector={HOSTNAME: node},
        terminationGracePeriodSeconds=5,
        volumes=[
            Volume(c, persistentVolumeClaim=PersistentVolumeClaimVolumeSource(c)) for c in claims
        ],
    )
    metadata = ObjectMeta(name=name, namespace="default", labels=labels)
    kube.create(Pod(metadata=metadata, spec=spec))
    # A budget does not block a pod that is not Ready.
    kube.wait(Pod, name, namespace="default", for_conditions=["Ready"])


def test_the_role_grants_only_the_calls_of_retirements(env: Environment) -> None:
    (blocked, busy), (bare, unregistered) = env.unused_nodes(2, "hooked").items()
    with Client(KubeConfig.from_file(env.sandbox.kubeconfig), trust_env=False) as kube:
        start(kube, busy, "blocked", 1)
        start(kube, busy, "guarded-twice", 2)
        start(kube, busy, "stateful", 0, "data")
        # It is read by its name, which fails, and then searched among all nodes.
        kube.delete(Node, unregistered)
    seen = env.interrupt([blocked, bare], late=90)
    for name in ("blocked", "guarded-twice"):
        assert [e["via"] for e in seen.of("pod-deletion", pod=f"default/{name}")] == ["delete"]
    (outcome,) = seen.outcomes(blocked)
    pods = {pod["pod"]: pod for pod in outcome["pods"]}
    assert sorted(pods["default/guarded-twice"]["budgets"]) == [
        "guarded-twice-0",
        "guarded-twice-1",
    ]
    assert pods["default/stateful"]["detached_at"]
    # Its end may cause a notice too, at which it has no node either.
    assert {o["result"] for o in seen.outcomes(bare)} == {"no-node"}
    assert used(env.sandbox, "RetireNodeRole") == granted("leeway-drain")
