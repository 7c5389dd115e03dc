"""provision_nodes deployed: pods that have no place get nodes, each once."""

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from leeway.aws.table import DynamoTable
from leeway.manifests.node_pool import ON_DEMAND_PERCENTAGE
from leeway.provisioning.tell import POD_WAITS
from leeway.selection.labels import INITIALIZED, INSTANCE_TYPE, REGISTERED
from leeway_sandbox.provisioning import client, create_workloads
from leeway_sandbox.sandbox import Sandbox
from lightkube import Client
from lightkube.models.core_v1 import PersistentVolumeClaimSpec, VolumeResourceRequirements
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Event, Node, PersistentVolumeClaim, Pod
from lightkube.types import PatchType

from tests.end_to_end.conftest import deployment
from tests.end_to_end.environment import Environment, kube_client, until
from tests.end_to_end.killed_runs import Killed, Killer, run_killed
from tests.end_to_end.launch_faults import ONE_POD_EACH, PoolCase, failing, until_consumed, wake
from tests.end_to_end.promises import check_promises
from tests.end_to_end.provisioning import (
    CLUSTER,
    FUNCTION,
    bound,
    instances,
    invoke,
    message,
    nodes,
    run,
    sandbox_with,
    store,
    table_of,
)
from tests.end_to_end.replacing import wait_until
from tests.end_to_end.rights import granted, used
from tests.end_to_end.test_scheduled_functions import adopt
from tests.launch.pools import document, node_class, pool

POOLS = ("killed", "repeated")
ASIDE = {"key": "aside", "effect": "NoSchedule"}
"""The taint of pools that take no pod of other tests."""
TEAM = "example.com/team"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
POOL = "karpenter.sh/nodepool"


def aside(name: str, **spec: Any) -> dict[str, Any]:
    """A pool of nodes with two processors for pods that tolerate its taint."""
    return pool(name, only={"cpu": ["2"]}, template={"taints": [ASIDE]}, **spec)


def two_teams() -> dict[str, Any]:
    """A pool whose nodes have one of two values of a label."""
    found = aside("shared")
    rules = found["spec"]["template"]["spec"]["requirements"]
    rules.append({"key": TEAM, "operator": "In", "values": ["x", "y"]})
    return found


def half() -> dict[str, Any]:
    """A pool of which half is on-demand."""
    found = aside("half")
    found["metadata"]["annotations"] = {ON_DEMAND_PERCENTAGE: "50"}
    return found


def on(of_pool: str, name: str, replicas: int, cpu: str = "1200m") -> Any:
    """A Deployment for a pool aside, whose pods each fill a node."""
    made: Any = deployment(name, replicas, 5)
    spec = made["spec"]["template"]["spec"]
    spec |= {"nodeSelector": {POOL: of_pool}, "tolerations": [ASIDE]}
    spec["containers"][0]["resources"]["requests"]["cpu"] = cpu
    return made


def labels(kube: Client, of_pool: str) -> list[dict[str, str]]:
    """The labels of each node of a pool."""
    found = [one.metadata.labels or {} for one in nodes(kube) if one.metadata]
    return [one for one in found if one.get(POOL) == of_pool]


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A cluster without nodes, with pools."""
    with sandbox_with(
        tmp_path_factory.mktemp("provisioned"),
        pool(only={"cpu": ["2", "4", "8"]}),
        node_class(),
        *(pool(name, capacity=["on-demand"], only=ONE_POD_EACH) for name in POOLS),
        two_teams(),
        half(),
        aside("overlaid", capacity=["on-demand"]),
    ) as (running, _):
        yield running


@pytest.fixture
def kube(sandbox: Sandbox) -> Iterator[Client]:
    with kube_client(sandbox) as opened:
        yield opened
        sandbox.faults("aws", [])
        sandbox.faults("lambda", [])
        check_promises(sandbox, ahead=["Deployment/default/reports"])


def test_a_cluster_without_nodes_gets_them_for_pending_pods_and_none_twice(
    sandbox: Sandbox, kube: Client
) -> None:
    create_workloads([deployment("web", 12, 5)], sandbox.write_kubeconfig())
    until(lambda: len(list(kube.list(Pod, namespace="default"))) == 12)
    assert invoke(sandbox, message(why="12 pods are pending"), message()) == []
    bought = instances(sandbox)
    assert bought
    # The nodes join now: a message for the same pods, late or repeated, launches nothing.
    for _ in range(4):
        assert run(sandbox) == []
    assert until(lambda: len(bound(kube)) == 12)
    assert run(sandbox) == []
    assert instances(sandbox) == bought
    assert len(nodes(kube)) == len(bought)
    by_the_api = {f"default/{name}": seconds for name, seconds in to_nodes(kube).items()}
    assert Counter(logged_times(sandbox)) == Counter(by_the_api.items()), "each pod once"
    waits = DynamoTable(lambda: client("dynamodb", sandbox.aws_url), table_of(sandbox)).get(
        POD_WAITS, cluster=CLUSTER
    )
    assert waits is not None
    assert (waits.count, waits.seconds) == (12, sum(by_the_api.values()))
    assert used(sandbox, "ProvisionNodesRole") <= granted("leeway-provision")


def to_nodes(kube: Client) -> dict[str, int]:
    """The seconds from the creation of each bound pod to its node, as the API server says."""
    found = {}
    for pod in kube.list(Pod, namespace="default"):
        assert pod.metadata is not None
        assert pod.metadata.creationTimestamp is not None
        for one in (pod.status and pod.status.conditions) or ():
            if one.type == "PodScheduled" and one.status == "True" and one.lastTransitionTime:
                waited = one.lastTransitionTime - pod.metadata.creationTimestamp
                found[str(pod.metadata.name)] = int(waited.total_seconds())
    return found


def logged_times(sandbox: Sandbox) -> list[tuple[str, int]]:
    """The pods and seconds that the panel of the dashboard reads."""
    lines = client("logs", sandbox.aws_url).get_paginator("filter_log_events")
    pattern = "{ $.seconds_to_node >= 0 }"
    pages = lines.paginate(logGroupName=f"/aws/lambda/{FUNCTION}", filterPattern=pattern)
    found = [json.loads(one["message"]) for page in pages for one in page["events"]]
    return [(one["pod"], one["seconds_to_node"]) for one in found if "seconds_to_node" in one]


def test_a_pod_that_fits_nowhere_has_one_event_and_a_status(sandbox: Sandbox, kube: Client) -> None:
    impossible: Any = deployment("huge", 3, 5)
    impossible["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "900"
    before = instances(sandbox)
    create_workloads([impossible], sandbox.write_kubeconfig())

    def told() -> list[Event]:
        events = kube.list(Event, namespace="default")
        ours = (one for one in events if one.reportingComponent == "leeway")
        return [one for one in ours if one.involvedObject.kind == "Pod"]

    def three_told() -> bool:
        assert run(sandbox) == []
        return len(told()) == 3

    assert until(three_told)
    assert run(sandbox) == []
    found = told()
    assert {one.reason for one in found} == {"RequestTooLarge"}
    assert all("900" in str(one.message) for one in found)
    assert {one.count for one in found} == {1}
    assert len(found) == 3
    key = {"pk": {"S": f"PROVISIONING#{CLUSTER}"}, "sk": {"S": "STATUS"}}
    dynamodb = client("dynamodb", sandbox.aws_url)
    status = json.loads(
        dynamodb.get_item(TableName=table_of(sandbox), Key=key)["Item"]["record"]["S"]
    )
    (group,) = status["without_node"]
    assert (group["reason"]["code"], group["count"]) == ("RequestTooLarge", 3)
    assert status["waiting"] == 3
    assert not [pod for pod, _ in logged_times(sandbox) if "huge" in pod]
    assert instances(sandbox) == before, "they launch nothing"


def test_an_api_server_that_does_not_answer_keeps_the_message(sandbox: Sandbox) -> None:
    sandbox.faults("kubernetes", [{"verb": "list", "resource": "pods", "status": 503}])
    kept = message()
    assert invoke(sandbox, kept) == [kept["messageId"]]
    sandbox.faults("kubernetes", [])
    assert invoke(sandbox, kept) == []


def test_a_run_that_is_killed_after_any_change_at_aws_is_completed_by_the_next(
    sandbox: Sandbox, kube: Client
) -> None:
    """Each kill meets the launch for one more pod."""
    case = PoolCase(sandbox, kube, "killed")
    wanted = len(case.pods())
    met: set[str] = set()

    def is_killed(killer: Killer) -> bool:
        nonlocal wanted
        if len(case.instances()) == wanted:
            wanted += 1
            case.need(wanted)
            case.delete_templates()
        killed = False
        try:
            assert run_killed(sandbox, killer) == []
        except Killed:
            killed = True
            met.add(killer.killed_at)
        if killer.changed:
            assert run_killed(sandbox, Killer()) == []
            assert len(case.instances()) == wanted, f"killed after {killer.killed_at}"
        return killed

    assert any(not is_killed(Killer(number)) for number in itertools.count(1))
    # Two runs may make another number of calls, so that the numbers pass over one.
    for name in {"ec2:CreateLaunchTemplate", "ec2:CreateFleet", "lambda:Invoke"} - met:
        assert is_killed(Killer(name=name))
    case.check_launched(wanted)
    case.until_all_run()


def test_late_and_repeated_messages_and_a_kill_launch_nothing_twice(
    sandbox: Sandbox, kube: Client
) -> None:
    """Messages arrive a second late and are delivered three times, when other pods wait or none. A
    killed run keeps its message."""
    case = PoolCase(sandbox, kube, "repeated")
    sandbox.faults("aws", [failing("CreateFleet", kill=True, when="after", count=1)])
    late, repeated = {"latency": 1}, {"copies": 3}
    sandbox.faults("lambda", [{"function": FUNCTION, **one} for one in (late, repeated)])
    for count in (2, 3):
        case.need(count)
        for _ in range(2):
            wake(sandbox)
    until_consumed(sandbox)
    batches = [e for e in sandbox.journal() if e["kind"] == "queue-batch"]
    assert [e["outcome"] for e in batches].count("killed") == 1
    assert max(one["receives"] for e in batches for one in e["messages"]) >= 3
    case.check_launched(3)
    case.until_all_run()


def test_a_pod_whose_claim_no_node_can_meet_gets_its_node_when_the_claim_is_met(
    sandbox: Sandbox, kube: Client
) -> None:
    """A pod with device claims gets none. Both have an Event that says why."""
    claimed: Any = deployment("claimed", 1, 5)
    devices: Any = deployment("devices", 1, 5)
    for one in (claimed, devices):
        container = one["spec"]["template"]["spec"]["containers"][0]
        container["resources"]["requests"]["cpu"] = "6"  # no node has room for it
    source = {"persistentVolumeClaim": {"claimName": "data"}}
    claimed["spec"]["template"]["spec"]["volumes"] = [{"name": "data", **source}]
    gpu = {"name": "gpu", "resourceClaimName": "gpu-1"}
    devices["spec"]["template"]["spec"]["resourceClaims"] = [gpu]
    before = instances(sandbox)
    create_workloads([claimed, devices], sandbox.write_kubeconfig())

    def told() -> set[str]:
        assert run(sandbox) == []
        return {
            str(one.reason)
            for one in kube.list(Event, namespace="default")
            if one.reportingComponent == "leeway"
        }

    assert until(lambda: told() >= {"VolumeClaimNotMet", "DeviceClaimsNotPlanned"})
    assert instances(sandbox) == before
    kube.create(
        PersistentVolumeClaim(
            metadata=ObjectMeta(name="data", namespace="default"),
            spec=PersistentVolumeClaimSpec(
                accessModes=["ReadWriteOnce"],
                resources=VolumeResourceRequirements(requests={"storage": "1Gi"}),
            ),
        )
    )
    assert until(lambda: run(sandbox) == [] and len(instances(sandbox)) == len(before) + 1)
    assert until(lambda: any(name.startswith("claimed-") for name in bound(kube)))
    assert not any(name.startswith("devices-") for name in bound(kube))


def test_nodes_have_the_label_values_and_the_capacity_types_that_were_planned(
    sandbox: Sandbox, kube: Client
) -> None:
    apart = on("shared", "apart", 2)
    term = {"labelSelector": {"matchLabels": {"app": "apart"}}, "topologyKey": TEAM}
    apart["spec"]["template"]["spec"]["affinity"] = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    }
    create_workloads([apart, on("half", "halved", 4)], sandbox.write_kubeconfig())

    def all_run() -> bool:
        assert run(sandbox) == []
        return sum(name.startswith(("apart-", "halved-")) for name in bound(kube)) == 6

    assert until(all_run)
    assert {one[TEAM] for one in labels(kube, "shared")} == {"x", "y"}
    types = Counter(one[CAPACITY_TYPE] for one in labels(kube, "half"))
    assert types == {"spot": 2, "on-demand": 2}


SOON = timedelta(seconds=45)
"""The shortest time to a window: two functions start, and read the new manifests."""

FIVE_CORES = {"requests": {"cpu": "5"}}
"""No other node of the module has room for such a pod, and no node for two of them."""


def next_window() -> tuple[datetime, dict[str, str]]:
    """Return the start of a window that opens within 105 seconds, and its cron expressions."""
    start = (datetime.now(UTC) + SOON + timedelta(minutes=1)).replace(second=0, microsecond=0)
    end = start + timedelta(minutes=30)
    cron = {"start": f"{start:%M %H} * * *", "end": f"{end:%M %H} * * *"}
    return start, {"timezone": "UTC", **cron}


def of_windows(window: dict[str, str]) -> list[dict[str, Any]]:
    """A buffer of one pause pod, and a target of two pods."""
    buffer = {"name": "warm", "pod": FIVE_CORES, "windows": [{**window, "replicas": 1}]}
    trigger = {"type": "cron", "metadata": {**window, "desiredReplicas": "2"}}
    return [
        {
            "apiVersion": "leeway.sh/v1",
            "kind": "Headroom",
            "metadata": {"name": "office"},
            "spec": {"buffers": [buffer]},
        },
        {
            "apiVersion": "keda.sh/v1alpha1",
            "kind": "ScaledObject",
            "metadata": {"name": "reports", "namespace": "default"},
            "spec": {
                "scaleTargetRef": {"name": "reports"},
                "minReplicaCount": 0,
                "triggers": [trigger],
            },
        },
    ]


HEADROOM = "leeway-keep-headroom"


def forget_manifests(sandbox: Sandbox) -> None:
    """End the processes of two functions: the next ones read the manifests again."""
    for function in (HEADROOM, FUNCTION):
        Environment(sandbox).end_warm(function)


def running(kube: Client, namespace: str, name: str) -> list[Pod]:
    """Return the Running pods of a Deployment."""
    found = kube.list(Pod, namespace=namespace)
    return [
        pod
        for pod in found
        if pod.metadata
        and str(pod.metadata.name).startswith(f"{name}-")
        and pod.status
        and pod.status.phase == "Running"
    ]


def test_nodes_are_launched_before_a_window_and_at_its_start_every_pod_runs(
    sandbox: Sandbox, kube: Client
) -> None:
    target: Any = deployment("reports", 0, 5)
    target["spec"]["template"]["spec"]["containers"][0]["resources"] = FIVE_CORES
    create_workloads([target], sandbox.write_kubeconfig())
    adopt(kube, "leeway-headroom-target")
    before = set(instances(sandbox))
    start, window = next_window()
    store(sandbox, *of_windows(window))
    forget_manifests(sandbox)
    pausing = ("leeway-headroom", "office-warm")

    def buffer_exists() -> bool:
        sandbox.fire(HEADROOM)
        return any(pod.metadata for pod in kube.list(Pod, namespace=pausing[0]))

    until(buffer_exists)
    # The lead follows from the times to join so far, and is a minute at least.
    until(lambda: not run(sandbox) and len(set(instances(sandbox)) - before) == 3)
    bought = set(instances(sandbox)) - before
    fleets = [e["at"] for e in sandbox.journal() if e["kind"] == "fleet"]
    assert max(fleets) < start.timestamp(), "the nodes were launched too late"
    wait_until(start.timestamp())
    until(lambda: len(running(kube, *pausing)) == 1)
    sandbox.fire(HEADROOM)
    until(lambda: len(running(kube, "default", "reports")) == 2)
    pods = running(kube, "default", "reports")
    joined = {e["node"]: e["instance"] for e in sandbox.journal() if e["kind"] == "node-joined"}
    serving = {joined[str(p.spec.nodeName)] for p in [*pods, *running(kube, *pausing)] if p.spec}
    assert serving == bought
    assert run(sandbox) == []
    assert set(instances(sandbox)) == before | bought


FUSE = "smarter-devices/fuse"
COVERED = "m6i.large"
"""A type that is not the cheapest one."""


def test_a_promised_resource_gets_a_node_that_waits_for_its_device_plugin(
    sandbox: Sandbox, kube: Client
) -> None:
    """By NodeOverlays: EC2 launches by their prices, and a node is initialized when its device
    plugin offers what they promise. The last test: the overlays change all pools."""
    covered = {"key": INSTANCE_TYPE, "operator": "In", "values": [COVERED]}
    store(
        sandbox,
        document("NodeOverlay", "fuse", {"requirements": [], "capacity": {FUSE: 1}}),
        document("NodeOverlay", "covered", {"requirements": [covered], "price": "0.001"}),
    )
    forget_manifests(sandbox)
    workload = on("overlaid", "builder", 1, "100m")
    resources = workload["spec"]["template"]["spec"]["containers"][0]["resources"]
    for field in ("requests", "limits"):
        resources[field] = {**resources.get(field, {}), FUSE: "1"}
    before = set(instances(sandbox))
    create_workloads([workload], sandbox.write_kubeconfig())
    assert until(lambda: not run(sandbox) and set(instances(sandbox)) - before)
    launched = set(instances(sandbox))
    assert len(launched - before) == 1
    assert until(lambda: [one.get(REGISTERED) for one in labels(kube, "overlaid")] == ["true"])
    (found,) = labels(kube, "overlaid")
    assert found[INSTANCE_TYPE] == COVERED, "EC2 itself would choose a cheaper type"
    for _ in range(3):
        assert run(sandbox) == []
    assert set(instances(sandbox)) == launched, "the node that starts has a place for the pod"
    assert INITIALIZED not in labels(kube, "overlaid")[0]
    assert not any(name.startswith("builder-") for name in bound(kube))
    offer(kube)
    assert until(lambda: any(name.startswith("builder-") for name in bound(kube)))
    assert until(lambda: labels(kube, "overlaid")[0].get(INITIALIZED) == "true")
    assert run(sandbox) == []
    assert set(instances(sandbox)) == launched


def offer(kube: Client) -> None:
    """Offer the resource, as a device plugin does."""
    (node,) = [
        one.metadata
        for one in nodes(kube)
        if one.metadata and (one.metadata.labels or {}).get(POOL) == "overlaid"
    ]
    patch = {"status": {field: {FUSE: "1"} for field in ("capacity", "allocatable")}}
    kube.patch(Node.Status, str(node.name), patch, patch_type=PatchType.MERGE)
