"""Hazards: blocking budgets, vanishing nodes, pods that do not end, clock differences.

Every test ends with the check of the invariants.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import pytest
from leeway_sandbox.provisioning import HOOK, client
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import Group, Scenario
from lightkube.resources.core_v1 import Node, Pod

from tests.end_to_end.cluster_actions import (
    Case,
    ClusterActions,
    as_node,
    blocked,
    pod,
    tolerating_deployment,
)
from tests.end_to_end.conftest import daemonset, deployment
from tests.end_to_end.environment import Entry, Environment, Journal, kube_client, say
from tests.end_to_end.invariants import InvariantChecks

CLUSTER = "hazards"
HEARTBEAT = 60  # seconds, of which a busy machine may need half to start a function
TIMEOUT = 72.0
"""Seconds of the policy for an instance that its group terminates: its hook would time out before
the pod that is held back may be deleted."""
MARGIN = 5.0  # seconds between the end of a drain and the reclaim
LAST_CHANCE = 15.0  # seconds for pods after the two minutes have passed
LATE = 75.0
"""Seconds by which warnings come late. Less than the cap of a blocked pod's grace period is left,
and enough for functions that start slowly on a busy machine."""
FINALIZER = "backups.example.com/upload"

WORLD = Scenario(
    cluster=CLUSTER,
    groups=(Group("hooked", 12, terminate_hook=True), Group("plain", 5)),
    workloads=(deployment("web", 34, 5), daemonset("cni")),
)


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """A sandbox whose hooks have a short heartbeat and whose policy has a short deadline."""
    options = {"lambda": ["--retry-delay", "1"]}
    state = tmp_path_factory.mktemp("hazards")
    with Sandbox.start(WORLD, state_dir=state, options=options) as sandbox:
        say(sandbox, notices={"terminate-hook": {"deadline": f"{TIMEOUT:g}s"}})
        client("autoscaling", sandbox.aws_url).put_lifecycle_hook(
            AutoScalingGroupName="hooked",
            LifecycleHookName=HOOK,
            LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING",
            HeartbeatTimeout=HEARTBEAT,
            DefaultResult="CONTINUE",
        )
        yield Environment(sandbox)


@pytest.fixture(scope="module")
def actions(env: Environment) -> Iterator[ClusterActions]:
    with kube_client(env.sandbox) as kube:
        yield ClusterActions(env, kube)


@dataclass(frozen=True)
class HazardResults:
    """The results of several hazards that happened at the same time."""

    seen: Journal
    cases: dict[str, Case]


HOOKED = ("blocked", "held", "deleted", "lifeless", "tolerating", "future", "overdue")
PLAIN = ("early", "kept")


@pytest.fixture(scope="module")
def results(actions: ClusterActions) -> HazardResults:
    """Cause all hazards that need no fault of the sandbox at the same time, because they mostly
    wait."""
    hooked = actions.env.unused_nodes(len(HOOKED), "hooked")
    plain = actions.env.unused_nodes(len(PLAIN), "plain")
    at = {**dict(zip(HOOKED, hooked.items(), strict=True))}
    at |= dict(zip(PLAIN, plain.items(), strict=True))
    node = {name: where for name, (_, where) in at.items()}
    instance = {name: one for name, (one, _) in at.items()}
    actions.put(
        *blocked("blocked-short", node["blocked"], grace=6),
        *blocked("blocked-long", node["blocked"], grace=300),
        *blocked("held-back", node["held"], grace=3),
        *blocked("nodeless", node["deleted"], grace=4),
        pod("cut-off", node["lifeless"], grace=10, ends_after=8),
        pod("slow", node["early"], grace=60, ends_after=50),
        pod("stuck", node["kept"], finalizers=[FINALIZER]),
        pod("needed", node["kept"], priority="system-node-critical"),
        pod("unhurried", node["overdue"], grace=2, ends_after=1),
        tolerating_deployment("tolerating", node["tolerating"]),
    )
    invariants, since = InvariantChecks(actions.env), time.time()
    ends: dict[str, float] = {}

    def interrupt(*names: str, late: float, early: float = 0) -> None:
        interrupted = [instance[name] for name in names]
        begun = actions.sandbox.interrupt(interrupted, late=late, early=early)
        ends.update({n: one["reclaim_at"] for n, one in zip(names, begun, strict=True)})

    interrupt("blocked", "deleted", "lifeless", "kept", "tolerating", late=LATE)
    interrupt("early", late=60, early=30)
    interrupt("future", late=-60, early=60)
    interrupt("overdue", late=150, early=-70)
    client("autoscaling", actions.sandbox.aws_url).terminate_instance_in_auto_scaling_group(
        InstanceId=instance["held"], ShouldDecrementDesiredCapacity=False
    )
    ends["held"] = time.time() + TIMEOUT
    actions.cordoned(since, node["lifeless"])
    actions.sandbox.report(instance["lifeless"], "stopped")
    actions.env.until(since, lambda seen: seen.of("eviction", node=node["deleted"]))
    actions.kube.delete(Node, node["deleted"])
    actions.env.wait(instance.values(), since)
    doomed = [instance[name] for name in ("lifeless", "early", "tolerating")]
    deadlines = {instance["held"]: ends["held"], instance["overdue"]: since + LAST_CHANCE}
    seen = invariants.check(instance.values(), doomed=doomed, deadlines=deadlines)
    cases = {name: Case(instance[name], node[name], ends[name]) for name in at}
    return HazardResults(seen, cases)


def moment(text: str) -> float:
    """Return a time of an outcome in epoch seconds."""
    return datetime.fromisoformat(text).timestamp()


def deleted(seen: Journal, name: str) -> list[Entry]:
    """Return the deletions of a pod past its budget."""
    return seen.of("pod-deletion", pod=f"default/{name}", via="delete")


def test_pods_that_a_budget_always_blocks_are_deleted_at_their_latest_time_in_an_interruption(
    results: HazardResults,
) -> None:
    case, seen = results.cases["blocked"], results.seen
    assert case.outcome(seen)["result"] == "drained"
    (short,), (long,) = deleted(seen, "blocked-short"), deleted(seen, "blocked-long")
    deadline = case.ends - MARGIN
    assert deadline - 6 - 1 <= short["at"], "by its grace ahead, and no sooner"
    assert short["grace"] <= 6
    assert long["at"] < short["at"], "the cap of its grace is past already"
    assert 1 < long["grace"] <= deadline - long["at"] + 1, "cut to what is left"
    for name in ("blocked-short", "blocked-long"):
        answers = [e["status"] for e in seen.of("eviction", pod=f"default/{name}")]
        assert set(answers) == {429}, "it was asked for by the book before"
        (end,) = seen.of("pod-ended", pod=f"default/{name}")
        assert end["how"] == "graceful"


def test_heartbeats_extend_a_terminate_hook_until_the_end_of_the_retirement(
    results: HazardResults,
) -> None:
    case, seen = results.cases["held"], results.seen
    outcome = case.outcome(seen)
    assert (outcome["kind"], outcome["result"]) == ("terminate-hook", "drained")
    first, *heartbeats, last = seen.of("lifecycle-action", instance=case.instance)
    assert (first["outcome"], last["outcome"]) == ("begun", "CONTINUE")
    assert {e["outcome"] for e in heartbeats} == {"heartbeat"}
    assert last["at"] - first["at"] > HEARTBEAT, "without heartbeats it would have timed out"
    (gone,) = deleted(seen, "held-back")
    assert case.ends - 3 - 2 <= gone["at"]
    assert len(seen.of("eviction", pod="default/held-back", status=429)) > 3


def test_a_deleted_node_object_does_not_shorten_the_grace_periods_of_pods(
    results: HazardResults,
) -> None:
    case, seen = results.cases["deleted"], results.seen
    assert case.outcome(seen)["result"] == "drained"
    (gone,) = deleted(seen, "nodeless")
    (lost,) = seen.of("node-deleted", node=case.node)
    assert lost["at"] < gone["at"]
    (end,) = seen.of("pod-ended", pod="default/nodeless")
    assert end["how"] == "graceful"


def test_an_instance_that_ec2_reclaims_early_is_replaced_once_and_cleaned_up(
    results: HazardResults,
) -> None:
    case, seen = results.cases["early"], results.seen
    assert seen.of("reclaimed", instance=case.instance)
    assert {e["pod"] for e in seen.died([case.node])} == {"default/slow"}
    assert [o["replacement"] for o in seen.outcomes(case.instance)][:1] == ["detach"]
    assert seen.of("node-deleted", node=case.node)


def test_a_failed_kubelet_delays_the_hook_until_the_deadline_at_most(
    results: HazardResults,
) -> None:
    case, seen = results.cases["lifeless"], results.seen
    assert case.outcome(seen)["result"] == "incomplete"
    assert "default/cut-off" in case.failed(seen)
    assert "came while the pod was terminating" in case.failed(seen)["default/cut-off"]
    (*_, answer) = seen.of("lifecycle-action", instance=case.instance)
    assert answer["outcome"] == "CONTINUE"
    assert answer["at"] <= case.ends


def test_a_pod_with_a_finalizer_is_reported_and_delays_no_other_pod(
    results: HazardResults,
) -> None:
    case, seen = results.cases["kept"], results.seen
    outcome = case.outcome(seen)
    assert outcome["result"] == "drained"
    assert case.failed(seen) == {}
    (kept,) = [pod for pod in outcome["pods"] if pod["pod"] == "default/stuck"]
    assert (kept["stage"], kept["kept_by"]) == ("gone", [FINALIZER])
    (stuck,) = seen.of("pod-ended", pod="default/stuck")
    (needed,) = seen.of("pod-deletion", pod="default/needed")
    assert stuck["at"] < needed["at"] < case.ends - MARGIN - 5 - 1, "before its own latest moment"
    (reason,) = [
        e["line"]["message"]
        for e in seen.of("logs")
        if isinstance(e["line"], dict) and e["line"].get("instance") == case.instance
        if "replacement" in e["line"]
    ]
    assert "default/stuck" in reason
    assert FINALIZER in reason


def test_a_returning_pod_that_tolerates_all_taints_is_evicted_once_and_deleted_late(
    results: HazardResults,
) -> None:
    case, seen = results.cases["tolerating"], results.seen
    mine = [p for p in case.outcome(seen)["pods"] if p["pod"].startswith("default/tolerating-")]
    first, second, *rest = mine
    assert (first["method"], second["method"]) == ("evict", "delete")
    assert "its toleration (operator Exists for every key) ignores" in second["reason"]["message"]
    assert all(p["stage"] == "left" for p in rest)
    evicted = [e for e in seen.of("eviction") if e["pod"].startswith("default/tolerating-")]
    assert len(evicted) == 1
    (gone,) = deleted(seen, second["pod"].removeprefix("default/"))
    assert case.ends - MARGIN - 3 - 1 <= gone["at"]
    died = seen.died([case.node])
    assert {e["owner"] for e in died} <= {"Deployment/default/tolerating"}


def test_a_warning_with_a_future_time_is_clamped_to_its_arrival(results: HazardResults) -> None:
    case, seen = results.cases["future"], results.seen
    outcome = case.outcome(seen)
    assert outcome["result"] == "drained"
    assert moment(outcome["noticed_at"]) < moment(outcome["cordoned_at"])
    assert moment(outcome["deadline"]) - moment(outcome["noticed_at"]) == 120 - MARGIN


def test_pods_keep_their_grace_periods_if_ec2_reclaims_late(
    results: HazardResults,
) -> None:
    case, seen = results.cases["overdue"], results.seen
    assert case.outcome(seen)["result"] == "drained"
    (gone,) = seen.of("pod-deletion", pod="default/unhurried")
    assert (gone["via"], gone["grace"]) == ("eviction", 2)
    (end,) = seen.of("pod-ended", pod="default/unhurried")
    assert end["how"] == "graceful"


@pytest.mark.parametrize(
    ("functions", "api_server"), [(60, -60), (-60, 60)], ids=["ahead", "behind"]
)
def test_a_clock_difference_of_a_minute_has_no_effect(
    actions: ClusterActions, functions: float, api_server: float
) -> None:
    (instance, node) = actions.env.unused_nodes(1, "hooked").popitem()
    name = f"clock-{'ahead' if functions > 0 else 'behind'}"
    actions.put(
        *blocked(name, node, grace=6, ends_after=4),
        pod(f"{name}-leaving", node, grace=70, ends_after=30),
        pod(f"{name}-long", node, grace=12, ends_after=10),
    )
    invariants, since = InvariantChecks(actions.env), time.time()
    actions.sandbox.faults("lambda", [{"clock": functions}])
    actions.sandbox.faults("kubernetes", [{"clock": api_server}])
    actions.kube.delete(Pod, f"{name}-leaving", namespace="default")
    (begun,) = actions.sandbox.interrupt([instance], late=LATE)
    actions.env.wait([instance], since)
    seen = invariants.check([instance])
    (outcome,) = seen.outcomes(instance)
    assert outcome["result"] == "drained"
    deadline = begun["reclaim_at"] - MARGIN
    (gone,) = deleted(seen, name)
    assert deadline - 6 - 2 <= gone["at"]
    (hurried,) = [e for e in deleted(seen, f"{name}-leaving") if e["grace"] < 70]
    assert hurried["grace"] <= deadline - hurried["at"] + 2
    (whole,) = seen.of("pod-deletion", pod=f"default/{name}-long")
    assert (whole["via"], whole["grace"]) == ("eviction", 12)
    assert not seen.died([node])


def test_another_machine_with_the_nodes_name_keeps_its_pods_and_its_node(
    actions: ClusterActions,
) -> None:
    (instance, node) = actions.env.unused_nodes(1, "hooked").popitem()
    actions.put(*blocked("before", node, grace=3))
    invariants, since = InvariantChecks(actions.env), time.time()
    actions.sandbox.interrupt([instance], late=60, early=40)
    actions.env.until(since, lambda s: s.of("eviction", pod="default/before"))
    actions.sandbox.faults("kubernetes", [{"refuse": True}])
    actions.env.until(since, lambda s: s.of("node-deleted", node=node))
    actions.sandbox.report("i-0feedfacefeedface1", "running", as_node("i-0feedfacefeedface1", node))
    actions.env.until(since, lambda s: s.of("node-ready", node=node))
    actions.sandbox.faults("kubernetes", [])
    actions.put(pod("after", node))
    actions.env.wait([instance], since)
    seen = invariants.check([instance], doomed=[instance])
    assert not seen.of("eviction", pod="default/after")
    assert not seen.of("pod-deletion", pod="default/after")
    found = actions.kube.get(Node, node)
    assert found.spec is not None
    assert not found.spec.unschedulable
    assert not [t for t in found.spec.taints or () if t.key.startswith("leeway.sh/")]
