"""Capacity that is given back, deployed: empty, expired and under-used nodes go, others stay.

The sandbox runs no schedules: the tests send the messages of each minute, some seconds apart.
"""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from leeway.aws.table import DynamoTable
from leeway.disruption.decide import TRIED_AGAIN_AFTER
from leeway.execution.retrying import Conflicts
from leeway.retirement.record import ENDED_WITHOUT_NODE_AFTER, RETIREMENT, Retirement
from leeway_sandbox.provisioning import client
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import Manifest
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import Node

from tests.end_to_end.conftest import deployment
from tests.end_to_end.environment import (
    PATIENCE,
    Entry,
    Journal,
    events_about,
    first,
    run_reconcile,
    until,
)
from tests.end_to_end.provisioning import (
    CLUSTER,
    FUNCTION,
    instances,
    run,
    sandbox_with,
    table_of,
)
from tests.end_to_end.replacing import TEAM, Replacing
from tests.end_to_end.rights import granted, used
from tests.launch.pools import document, node_class, pool

CHURN = {"percent": 100, "atLeast": 10, "within": "1s"}
QUICK = {"consolidateAfter": "1s", "budgets": [{"nodes": "100%"}]}
EVERY_SAVING = {"usdPerPodMoved": 0, "leastAge": "1s"}
"""Moves cost nothing, also those of pods that came seconds ago."""

NEVER = {"consolidateAfter": "Never"}
SPEC = {
    "churn": CHURN,
    "giveBack": EVERY_SAVING,
    "notices": {"unhealthy-node": {"deadline": "10s"}},
}
PROTECTED = "karpenter.sh/do-not-disrupt"


def team(name: str, replicas: int, **annotations: str) -> Manifest:
    """A Deployment whose pods need nodes of their team."""
    made = deployment(name, replicas, 5)
    template = made["spec"]["template"]
    template["metadata"]["annotations"] = annotations
    template["spec"]["nodeSelector"] = {TEAM: name}
    template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1500m"
    return made


def team_pool(name: str, cpu: str = "2", expires: str = "Never", **spec: Any) -> dict[str, Any]:
    """A pool whose nodes take the pods of one team; a pod fits on two processors."""
    template = {"expireAfter": expires}
    return pool(
        name, ["on-demand"], labels={TEAM: name}, only={"cpu": [cpu]}, template=template, **spec
    )


def provisioner() -> dict[str, Any]:
    """The first API of Karpenter."""
    key = "karpenter.k8s.aws/instance-"
    requirements = [
        {"key": f"{key}cpu", "operator": "In", "values": ["2"]},
        {"key": f"{key}category", "operator": "In", "values": ["m"]},
    ]
    return {
        "apiVersion": "karpenter.sh/v1alpha5",
        "kind": "Provisioner",
        "metadata": {"name": "spare"},
        "spec": {
            "labels": {TEAM: "spare"},
            "requirements": requirements,
            "ttlSecondsAfterEmpty": 30,
        },
    }


class GivingBack(Replacing):
    """The cluster. `empty_since` is when the last pod of the team `spare` was gone."""

    empty_since = 0.0

    def scale(self, name: str, replicas: int) -> None:
        """Scale the Deployment of a team."""
        self.kube.patch(Deployment, name, {"spec": {"replicas": replicas}}, namespace="default")

    def runs_until[T](self, found: Callable[[], T | None], timeout: float = PATIENCE) -> T:
        """Have provision_nodes run every two seconds until something is found."""
        end = time.monotonic() + timeout
        while not (value := found()):
            assert time.monotonic() < end, self.since(0).of("logs")[-6:]
            assert run(self.sandbox) == []
            self._let_declined_be_tried_again()
            time.sleep(2)
        return value

    def _let_declined_be_tried_again(self) -> None:
        """Let ten minutes pass for nodes whose retirement was declined. On a busy machine a read
        may fail, or a pod may start on the node meanwhile."""
        told = self.since(0).of("put-events", source="leeway")
        declined = [e["detail"] for e in told if e["detail"].get("result") == "declined"]
        changed = [
            _change_retirement(self.sandbox, one["instance"], _as_if_long_ended) for one in declined
        ]
        if any(changed):
            self.end_warm(FUNCTION)

    def outcome(
        self, instance: str, since: float = 0, kind: str = "capacity-return", declined: bool = False
    ) -> Entry | None:
        """The outcome of the retirement of an instance, if there is one. Faults of other tests, and
        a busy machine, may have an earlier one `declined`."""
        found = (e for e in self.since(since).outcomes(instance) if e["kind"] == kind)
        return next((e for e in found if (e["result"] == "declined") is declined), None)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GivingBack]:
    with sandbox_with(
        tmp_path_factory.mktemp("giving-back"),
        node_class(),
        provisioner(),
        team_pool("shrunk", "4", disruption=QUICK),
        team_pool("aged", expires="60s", disruption=NEVER),
        team_pool("raced", disruption=QUICK),
        team_pool("deleted", disruption=NEVER),
        team_pool("kept", expires="1s", disruption=QUICK),
        team_pool("sick", disruption={"budgets": [{"nodes": "0"}]}),
        team_pool("guarded", annotations={PROTECTED: "true"}, disruption=QUICK),
        document("Cluster", CLUSTER, SPEC),
    ) as (sandbox, kube):
        found = GivingBack(sandbox, kube)
        kept = team("kept", 1, **{PROTECTED: "true"})
        found.create(team("spare", 1), team("shrunk", 6), team("aged", 1), team("raced", 1), kept)
        sick = team("sick", 1, **{PROTECTED: "true"})
        found.create(team("deleted", 1), team("guarded", 1), sick)
        run_reconcile(found)  # the index of instances
        found.scale("spare", 0)
        found.scale("guarded", 0)
        found.empty_since = time.time()
        yield found


def test_pods_of_a_smaller_deployment_move_to_fewer_nodes(world: GivingBack) -> None:
    before = world.nodes("shrunk")
    assert len(before) == 3
    since = time.time()
    world.scale("shrunk", 2)
    world.runs_until(lambda: len(world.nodes("shrunk")) == 1 and len(world.running("shrunk")) == 2)
    gone = before.keys() - world.nodes("shrunk").keys()
    assert set(world.running("shrunk").values()) <= set(before.values()), "no node was launched"
    for instance in gone:
        outcome = world.runs_until(partial(world.outcome, instance, since))
        assert (outcome["result"], outcome["terminated"]) == ("drained", True)


def test_an_empty_node_goes_after_its_ttl(world: GivingBack) -> None:
    (instance,) = _launched(world.since(0), "spare")
    outcome = world.runs_until(lambda: world.outcome(instance))
    assert (outcome["result"], outcome["terminated"]) == ("drained", True)
    assert any(outcome["node"] in one and "(Empty)" in one for one in _told(world.since(0)))
    cordoned = world.since(world.empty_since).of("node-cordoned", node=outcome["node"])
    assert first(cordoned) - world.empty_since >= 30
    events = {one.reason for one in events_about(world.sandbox, outcome["node"])}
    assert "NodeDrained" in events


def test_an_expired_node_goes_after_its_successor_has_joined(world: GivingBack) -> None:
    (instance, *_) = _launched(world.since(0), "aged")
    outcome = world.runs_until(lambda: world.outcome(instance))
    assert (outcome["result"], outcome["terminated"]) == ("drained", True)
    seen = world.since(0)
    joined = [e for e in seen.of("node-joined") if e["instance"] in _launched(seen, "aged")]
    successor = next(e for e in joined if e["instance"] != instance)
    evicted = [e for e in seen.of("pod-ended") if "aged" in str(e.get("pod"))]
    assert successor["at"] < first(evicted)


def test_a_pod_that_comes_between_the_decision_and_the_cordon_keeps_its_node(
    world: GivingBack,
) -> None:
    ((instance, node),) = world.nodes("raced").items()
    since = time.time()
    world.scale("raced", 0)
    functions, retire = client("lambda", world.sandbox.lambda_url), "leeway-retire-node"
    functions.put_function_concurrency(FunctionName=retire, ReservedConcurrentExecutions=0)
    try:
        world.runs_until(lambda: any(node in one for one in _told(world.since(since))))
        world.scale("raced", 1)
        until(lambda: list(world.running("raced").values()) == [node])
    finally:
        functions.delete_function_concurrency(FunctionName=retire)
    outcome = world.runs_until(lambda: world.outcome(instance, since, declined=True))
    assert not outcome["terminated"]
    assert "NodeKept" in str(outcome)
    seen = world.since(since)
    assert seen.of("node-cordoned", node=node), "the pod came before the cordon took effect"
    assert not [one for one in seen.of("eviction") if one.get("node") == node]
    assert list(world.running("raced").values()) == [node]
    found = world.kube.get(Node, node)
    assert found.spec is not None
    assert not found.spec.unschedulable
    assert instance in instances(world.sandbox)


def test_the_nodes_of_a_protected_pool_stay_until_their_annotation_is_removed(
    world: GivingBack,
) -> None:
    ((instance, node),) = world.nodes("guarded").items()

    def is_protected() -> bool:
        found = world.kube.get(Node, node).metadata
        return found is not None and (found.annotations or {}).get(PROTECTED) == "true"

    assert world.runs_until(is_protected), "from its admission on"
    assert not world.since(0).executions(instance), "though it has been empty since it joined"
    since = time.time()
    world.kube.patch(Node, node, {"metadata": {"annotations": {PROTECTED: None}}})
    outcome = world.runs_until(lambda: world.outcome(instance, since))
    assert (outcome["result"], outcome["terminated"]) == ("drained", True)


def test_an_instance_ends_15_minutes_after_its_node_was_deleted(world: GivingBack) -> None:
    ((instance, node),) = world.nodes("deleted").items()
    since = time.time()
    world.kube.delete(Node, node)
    run_reconcile(world)
    world.until(since, lambda seen: [e for e in _lines(seen) if e["code"] == "NodeDeleted"])
    _change_retirement(world.sandbox, instance, _as_if_begun_earlier)
    outcome = world.until(since, lambda _: world.outcome(instance, since))
    assert outcome is not None
    assert (outcome["result"], outcome["terminated"]) == ("no-node", True)
    assert instance not in instances(world.sandbox)
    lines = _lines(world.since(since))
    codes = [str(one["code"]) for one in lines if one.get("instance") == instance]
    assert codes.count("NodeDeleted") == 1, "reconcile says it once"
    assert "StartLost" not in codes


def test_a_node_whose_kubelet_is_dead_is_replaced_though_its_pod_never_ends(
    world: GivingBack,
) -> None:
    ((instance, node),) = world.nodes("sick").items()
    since = time.time()
    world.sandbox.report(instance, "stopped")
    _say_unhealthy(world, node, since=datetime.now(UTC) - timedelta(minutes=29))
    run_reconcile(world)
    world.until(since, lambda seen: seen.of("invocation", function="leeway-reconcile"))
    assert not world.since(since).executions(instance), "half an hour is tolerated"
    _say_unhealthy(world, node, since=datetime.now(UTC) - timedelta(minutes=31))
    run_reconcile(world)
    repaired = partial(world.outcome, instance, since, "unhealthy-node")
    outcome = world.runs_until(repaired)
    assert (outcome["result"], outcome["terminated"]) == ("incomplete", True)
    seen = world.since(since)
    assert seen.of("eviction", node=node), "neither an annotation nor the pool holds it"
    world.runs_until(lambda: set(world.running("sick").values()) - {node} or None)


def _say_unhealthy(world: GivingBack, node: str, since: datetime) -> None:
    """Write the condition Ready as the node lifecycle controller does."""
    condition = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
    at = {"lastTransitionTime": f"{since:%Y-%m-%dT%H:%M:%SZ}"}
    patch = {"status": {"conditions": [condition | at]}}
    world.kube.patch(Node.Status, node, patch)


def test_a_pod_that_forbids_disruption_keeps_its_expired_node(world: GivingBack) -> None:
    ((instance, node),) = world.nodes("kept").items()
    assert not world.since(0).executions(instance)
    assert list(world.running("kept").values()) == [node]
    assert used(world.sandbox, "ProvisionNodesRole") <= granted("leeway-provision")


def _as_if_long_ended(record: Retirement) -> Retirement:
    """The record of a retirement without effect as it is ten minutes later."""
    ended = record.ended_at
    if ended is None or not record.had_no_effect:
        return record
    if datetime.now(UTC) - ended >= TRIED_AGAIN_AFTER:
        return record
    return record.model_copy(update={"ended_at": ended - TRIED_AGAIN_AFTER})


def _as_if_begun_earlier(record: Retirement) -> Retirement:
    """The record of a retirement without a Node as it is 15 minutes later."""
    return record.model_copy(update={"noticed_at": record.noticed_at - ENDED_WITHOUT_NODE_AFTER})


def _change_retirement(
    sandbox: Sandbox, instance: str, change: Callable[[Retirement], Retirement]
) -> bool:
    """Write the record of a retirement as if time had passed; return whether that changes it."""
    dynamodb = client("dynamodb", sandbox.aws_url)
    stored = DynamoTable(lambda: dynamodb, table_of(sandbox))
    conflicts = Conflicts("its record")
    while True:
        with conflicts:
            record = stored.get(RETIREMENT, cluster=CLUSTER, instance=instance)
            assert record is not None
            changed = change(record)
            if changed != record:
                version = {"version": record.version + 1}
                stored.put(RETIREMENT, changed.model_copy(update=version))
            return changed != record


def _lines(seen: Journal) -> list[Entry]:
    """The log lines with a code."""
    lines = [one["line"] for one in seen.of("logs")]
    return [one for one in lines if isinstance(one, dict) and "code" in one]


def _told(seen: Journal) -> list[str]:
    """The log lines about capacity that is given back."""
    return [str(one["message"]) for one in _lines(seen) if one["code"] == "CapacityReturned"]


def _launched(seen: Journal, name: str) -> list[str]:
    fleets = [one for one in seen.of("fleet") if one["tags"].get("leeway.sh/nodepool") == name]
    return [one["instance"] for fleet in fleets for one in fleet["launched"]]
