"""Hazards: budgets that never allow, nodes that vanish, pods that do not go, clocks that differ.

Each ends with the promises: no pod lost that a correct drain would have saved, no hook left open,
nothing replaced twice, no survivor cordoned.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import pytest
from leeway.aws.manifests import DynamoManifestWriting
from lightkube import Client, KubeConfig
from lightkube.resources.core_v1 import Node, Pod

from sandbox.provisioning import HOOK, client
from sandbox.sandbox import Sandbox
from sandbox.scenario import Group, Scenario
from tests.aws.stored import manifest
from tests.end_to_end.conftest import daemonset, deployment
from tests.end_to_end.promises import Promises
from tests.end_to_end.rehearsal import Aftermath, Entry, Rehearsal
from tests.end_to_end.staging import Case, Stage, as_node, blocked, clingy, pod

CLUSTER = "hazards"
HEARTBEAT = 30  # seconds; the least that Auto Scaling takes
PATIENCE = 26.0  # seconds that the cluster's policy gives to an instance that its group ends
MARGIN = 5.0  # seconds that a drain keeps back of the two minutes
LAST_CHANCE = 15.0  # seconds that pods have when the two minutes are over
FINALIZER = "backups.example.com/upload"

WORLD = Scenario(
    cluster=CLUSTER,
    groups=(Group("hooked", 12, terminate_hook=True), Group("plain", 5)),
    workloads=(deployment("web", 34, 5), daemonset("cni")),
)


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    """A sandbox whose hooks are impatient, and whose users gave instances that end little time."""
    options = {"lambda": ["--retry-delay", "1"]}
    state = tmp_path_factory.mktemp("hazards")
    with Sandbox.start(WORLD, state_dir=state, options=options) as sandbox:
        assert sandbox.deployed is not None
        (table,) = sandbox.deployed.tables
        spec = {"notices": {"terminate-hook": {"deadline": f"{PATIENCE:g}s"}}}
        DynamoManifestWriting(lambda: client("dynamodb", sandbox.aws_url), table.name).write(
            CLUSTER, manifest(CLUSTER, spec=spec), 0
        )
        client("autoscaling", sandbox.aws_url).put_lifecycle_hook(
            AutoScalingGroupName="hooked",
            LifecycleHookName=HOOK,
            LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING",
            HeartbeatTimeout=HEARTBEAT,
            DefaultResult="CONTINUE",
        )
        yield Rehearsal(sandbox)


@pytest.fixture(scope="module")
def stage(rehearsal: Rehearsal) -> Iterator[Stage]:
    with Client(KubeConfig.from_file(rehearsal.sandbox.kubeconfig), trust_env=False) as kube:
        yield Stage(rehearsal, kube)


@dataclass(frozen=True)
class Troubles:
    """What befell several nodes at the same time, and what was seen of it."""

    seen: Aftermath
    cases: dict[str, Case]


HOOKED = ("blocked", "held", "deleted", "lifeless", "clingy", "future", "overdue")
PLAIN = ("early", "kept")


@pytest.fixture(scope="module")
def troubles(stage: Stage) -> Troubles:
    """All that needs no fault of the sandbox's, at the same time: it is waiting for the most."""
    hooked = stage.rehearsal.take(len(HOOKED), "hooked")
    plain = stage.rehearsal.take(len(PLAIN), "plain")
    at = {**dict(zip(HOOKED, hooked.items(), strict=True))}
    at |= dict(zip(PLAIN, plain.items(), strict=True))
    node = {name: where for name, (_, where) in at.items()}
    instance = {name: one for name, (one, _) in at.items()}
    stage.put(
        *blocked("blocked-short", node["blocked"], grace=6),
        *blocked("blocked-long", node["blocked"], grace=300),
        *blocked("held-back", node["held"], grace=3),
        *blocked("nodeless", node["deleted"], grace=4),
        pod("cut-off", node["lifeless"], grace=10, ends_after=8),
        pod("slow", node["early"], grace=60, ends_after=50),
        pod("stuck", node["kept"], finalizers=[FINALIZER]),
        pod("needed", node["kept"], priority="system-node-critical"),
        pod("unhurried", node["overdue"], grace=4, ends_after=3),
        clingy("clingy", node["clingy"]),
    )
    promises, since = Promises(stage.rehearsal), time.time()
    ends: dict[str, float] = {}

    def interrupt(*names: str, late: float, early: float = 0) -> None:
        told = [instance[name] for name in names]
        begun = stage.sandbox.interrupt(told, late=late, early=early)
        ends.update({n: one["reclaim_at"] for n, one in zip(names, begun, strict=True)})

    interrupt("blocked", "deleted", "lifeless", "kept", "clingy", late=95)
    interrupt("early", late=60, early=50)
    interrupt("future", late=-60, early=60)
    interrupt("overdue", late=150, early=-70)
    client("autoscaling", stage.sandbox.aws_url).terminate_instance_in_auto_scaling_group(
        InstanceId=instance["held"], ShouldDecrementDesiredCapacity=False
    )
    ends["held"] = time.time() + PATIENCE
    stage.cordoned(since, node["lifeless"])
    stage.sandbox.report(instance["lifeless"], "stopped")
    stage.cordoned(since, node["deleted"])
    stage.kube.delete(Node, node["deleted"])
    stage.rehearsal.wait(instance.values(), since)
    doomed = [instance[name] for name in ("lifeless", "early", "clingy")]
    deadlines = {instance["held"]: ends["held"], instance["overdue"]: since + LAST_CHANCE}
    seen = promises.hold(instance.values(), doomed=doomed, deadlines=deadlines)
    cases = {name: Case(instance[name], node[name], ends[name]) for name in at}
    return Troubles(seen, cases)


def moment(text: str) -> float:
    """A time in an outcome, in seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


def deleted(seen: Aftermath, name: str) -> list[Entry]:
    """The deletions of a pod past its budget."""
    return seen.of("pod-deletion", pod=f"default/{name}", via="delete")


def test_pods_of_a_budget_that_never_allows_are_deleted_at_their_latest_moment_in_an_interruption(
    troubles: Troubles,
) -> None:
    case, seen = troubles.cases["blocked"], troubles.seen
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


def test_a_terminate_hook_waits_for_a_budget_with_heartbeats_until_the_retirements_own_end(
    troubles: Troubles,
) -> None:
    case, seen = troubles.cases["held"], troubles.seen
    outcome = case.outcome(seen)
    assert (outcome["kind"], outcome["result"]) == ("terminate-hook", "drained")
    answers = [e["outcome"] for e in seen.of("lifecycle-action", instance=case.instance)]
    assert answers == ["begun", "heartbeat", "CONTINUE"]
    (gone,) = deleted(seen, "held-back")
    assert case.ends - 3 - 2 <= gone["at"]
    assert len(seen.of("eviction", pod="default/held-back", status=429)) > 3


def test_a_node_object_that_somebody_deletes_keeps_no_pod_from_its_due(troubles: Troubles) -> None:
    case, seen = troubles.cases["deleted"], troubles.seen
    assert case.outcome(seen)["result"] == "drained"
    (gone,) = deleted(seen, "nodeless")
    (lost,) = seen.of("node-deleted", node=case.node)
    assert lost["at"] < gone["at"]
    (end,) = seen.of("pod-ended", pod="default/nodeless")
    assert end["how"] == "graceful"


def test_an_instance_that_ec2_takes_early_is_replaced_once_and_leaves_nothing_behind(
    troubles: Troubles,
) -> None:
    case, seen = troubles.cases["early"], troubles.seen
    assert seen.of("reclaimed", instance=case.instance)
    assert {e["pod"] for e in seen.died([case.node])} == {"default/slow"}
    assert [o["replacement"] for o in seen.outcomes(case.instance)][:1] == ["detach"]
    assert seen.of("node-deleted", node=case.node)


def test_a_kubelet_that_dies_midway_holds_up_its_hook_no_longer_than_to_the_deadline(
    troubles: Troubles,
) -> None:
    case, seen = troubles.cases["lifeless"], troubles.seen
    assert case.outcome(seen)["result"] == "incomplete"
    assert "default/cut-off" in case.failed(seen)
    assert "came while the pod was terminating" in case.failed(seen)["default/cut-off"]
    (*_, answer) = seen.of("lifecycle-action", instance=case.instance)
    assert answer["outcome"] == "CONTINUE"
    assert answer["at"] <= case.ends


def test_a_pod_that_only_a_finalizer_keeps_is_named_with_it_and_holds_up_nobody(
    troubles: Troubles,
) -> None:
    case, seen = troubles.cases["kept"], troubles.seen
    outcome = case.outcome(seen)
    assert outcome["result"] == "drained"
    assert case.failed(seen) == {}
    (kept,) = [pod for pod in outcome["pods"] if pod["pod"] == "default/stuck"]
    assert (kept["stage"], kept["kept_by"]) == ("gone", [FINALIZER])
    (stuck,) = seen.of("pod-ended", pod="default/stuck")
    (needed,) = seen.of("pod-deletion", pod="default/needed")
    assert stuck["at"] < needed["at"] < case.ends - MARGIN - 5 - 1, "before its own latest moment"
    (said,) = [
        e["line"]["message"]
        for e in seen.of("logs")
        if isinstance(e["line"], dict) and e["line"].get("instance") == case.instance
        if "replacement" in e["line"]
    ]
    assert "default/stuck" in said
    assert FINALIZER in said


def test_a_pod_that_tolerates_everything_and_comes_back_is_evicted_once_reported_and_deleted_late(
    troubles: Troubles,
) -> None:
    case, seen = troubles.cases["clingy"], troubles.seen
    mine = [p for p in case.outcome(seen)["pods"] if p["pod"].startswith("default/clingy-")]
    first, second, *rest = mine
    assert (first["method"], second["method"]) == ("evict", "delete")
    assert "its toleration (operator Exists for every key) ignores" in second["reason"]["message"]
    assert all(p["stage"] == "left" for p in rest)
    evicted = [e for e in seen.of("eviction") if e["pod"].startswith("default/clingy-")]
    assert len(evicted) == 1
    (gone,) = deleted(seen, second["pod"].removeprefix("default/"))
    assert case.ends - MARGIN - 3 - 1 <= gone["at"]
    died = seen.died([case.node])
    assert {e["owner"] for e in died} <= {"Deployment/default/clingy"}


def test_a_warning_from_the_future_counts_from_its_arrival(troubles: Troubles) -> None:
    case, seen = troubles.cases["future"], troubles.seen
    outcome = case.outcome(seen)
    assert outcome["result"] == "drained"
    assert moment(outcome["noticed_at"]) < moment(outcome["cordoned_at"])
    assert moment(outcome["deadline"]) - moment(outcome["noticed_at"]) == 120 - MARGIN


def test_pods_have_their_grace_where_ec2_should_have_taken_the_instance_and_has_not(
    troubles: Troubles,
) -> None:
    case, seen = troubles.cases["overdue"], troubles.seen
    assert case.outcome(seen)["result"] == "drained"
    (gone,) = seen.of("pod-deletion", pod="default/unhurried")
    assert (gone["via"], gone["grace"]) == ("eviction", 4)
    (end,) = seen.of("pod-ended", pod="default/unhurried")
    assert end["how"] == "graceful"


@pytest.mark.parametrize(
    ("functions", "api_server"), [(60, -60), (-60, 60)], ids=["ahead", "behind"]
)
def test_clocks_that_differ_by_a_minute_change_nothing(
    stage: Stage, functions: float, api_server: float
) -> None:
    (instance, node) = stage.rehearsal.take(1, "hooked").popitem()
    name = f"clock-{'ahead' if functions > 0 else 'behind'}"
    stage.put(
        *blocked(name, node, grace=6, ends_after=4),
        pod(f"{name}-leaving", node, grace=70, ends_after=12),
        pod(f"{name}-long", node, grace=12, ends_after=10),
    )
    promises, since = Promises(stage.rehearsal), time.time()
    stage.sandbox.faults("lambda", [{"clock": functions}])
    stage.sandbox.faults("kubernetes", [{"clock": api_server}])
    stage.kube.delete(Pod, f"{name}-leaving", namespace="default")
    (begun,) = stage.sandbox.interrupt([instance], late=95)
    stage.rehearsal.wait([instance], since)
    seen = promises.hold([instance])
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


def test_another_machine_that_gets_the_nodes_name_keeps_its_pods_and_its_place(
    stage: Stage,
) -> None:
    (instance, node) = stage.rehearsal.take(1, "hooked").popitem()
    stage.put(*blocked("before", node, grace=3))
    promises, since = Promises(stage.rehearsal), time.time()
    stage.sandbox.interrupt([instance], late=60, early=52)
    stage.rehearsal.until(since, lambda s: s.of("eviction", pod="default/before"))
    stage.sandbox.faults("kubernetes", [{"refuse": True}])
    stage.rehearsal.until(since, lambda s: s.of("node-deleted", node=node))
    stage.sandbox.report("i-0feedfacefeedface1", "running", as_node("i-0feedfacefeedface1", node))
    stage.rehearsal.until(since, lambda s: s.of("node-ready", node=node))
    stage.sandbox.faults("kubernetes", [])
    stage.put(pod("after", node))
    stage.rehearsal.wait([instance], since)
    seen = promises.hold([instance], doomed=[instance])
    assert not seen.of("eviction", pod="default/after")
    assert not seen.of("pod-deletion", pod="default/after")
    found = stage.kube.get(Node, node)
    assert found.spec is not None
    assert not found.spec.unschedulable
    assert not [t for t in found.spec.taints or () if t.key.startswith("leeway.sh/")]
