"""Rolls one Auto Scaling group to a new launch template in five ways, and counts missing pods.

The group has three nodes in two zones, with six pods of a Deployment whose budget allows one
disruption, and one pod whose budget allows none. Leeway runs as deployed. Instance refreshes and
updates of managed node groups are AWS's own: `_refresh` and `_update` do what its documents say,
against the same Auto Scaling and the same API server. Nodes join 30 s after their launch.

A pod is missing while its Deployment has fewer pods that are Ready, on an instance that runs, than
replicas. Sources: EC2 Auto Scaling user guide, "How an instance refresh works in an Auto Scaling
group"; EKS user guide, "Understand each phase of node updates".
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any

from leeway import __version__
from leeway.aws.table import DynamoTable
from leeway.manifests.configuration import StoredManifest, StoredManifests
from leeway.reconciliation.decide_roll import GROUP_ROLL, Asked, ask_for_roll
from leeway_sandbox.access_entries import access_key
from leeway_sandbox.provisioning import client
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import Group, Manifest, Scenario, deployment, pod_spec
from lightkube import ApiError, Client, KubeConfig
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Node
from lightkube.resources.core_v1 import Pod as CorePod
from rich.console import Console
from rich.table import Table

CLUSTER, GROUP, NODES = "bench", "web", 3
ZONES = ("us-east-1a", "us-east-1b")
REPLICAS = {"web": 6, "single": 1}
EVICTS_FOR = 900.0
"""Seconds after which the update of a managed node group fails if a pod has not left its node."""

AFTER_CORDON = 60.0
"""Seconds that such an update waits between the last eviction and the termination of a node."""

PATIENCE = 600.0
"""Seconds after which the bench ends a roll that does not end, without the 15 minutes above."""

TIMES = {
    "aws": ["--instance-start", "5", "--instance-stop", "5"],
    "kubernetes": ["--node-join", "20", "--node-ready", "5", "--pod-start", "5"],
}


def _budget(name: str, **allows: int) -> Manifest:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {**allows, "selector": {"matchLabels": {"app": name}}},
    }


SURGE: Manifest = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "RoleBinding",
    "metadata": {"name": "leeway-surge", "namespace": "default"},
    "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "leeway-surge",
    },
    "subjects": [
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name}
        for name in ("leeway:drain", "leeway:capacity")
    ],
}
"""The right to scale workloads (docs/surge.md)."""


@dataclass
class World:
    """A sandbox with the group; `old` are the instances that the roll replaces."""

    sandbox: Sandbox
    kube: Client
    old: frozenset[str] = frozenset()
    calls: Counter[str] = field(default_factory=Counter)
    """The calls of Auto Scaling that AWS's own rolls make, as the bench plays them."""

    def client(self, service: str) -> Any:
        """Return a client of the account."""
        return client(service, self.sandbox.aws_url)

    def call(self, operation: str, **arguments: Any) -> Any:
        """Make a call of Auto Scaling that changes the group, and count it."""
        self.calls[operation] += 1
        return getattr(self.client("autoscaling"), operation)(**arguments)

    def group(self) -> dict[str, Any]:
        """Return the group as Auto Scaling describes it."""
        described = self.client("autoscaling").describe_auto_scaling_groups(
            AutoScalingGroupNames=[GROUP]
        )
        found: dict[str, Any] = described["AutoScalingGroups"][0]
        return found

    def members(self) -> frozenset[str]:
        """Return the instances in service."""
        found = self.group()["Instances"]
        return frozenset(i["InstanceId"] for i in found if i["LifecycleState"] == "InService")

    def nodes(self) -> Mapping[str, Node]:
        """Return the Ready nodes by instance."""
        return {
            one.spec.providerID.rpartition("/")[2]: one
            for one in self.kube.list(Node)
            if one.spec and one.spec.providerID and _is_ready(one)
        }

    def new_nodes(self) -> int:
        """Count the Ready nodes that are not old."""
        return len((self.nodes().keys() & self.members()) - self.old)

    def until_new(self, count: int) -> None:
        """Wait until the group has this number of Ready nodes that are new."""
        _until(lambda: self.new_nodes() >= count)

    @property
    def is_rolled(self) -> bool:
        """Whether the group has its size again, of new nodes that are Ready."""
        return self.new_nodes() == NODES and self.group()["DesiredCapacity"] == NODES


def _is_ready(one: Any) -> bool:
    conditions = (one.status and one.status.conditions) or []
    return any(each.type == "Ready" and each.status == "True" for each in conditions)


class Watcher:
    """Counts, twice a second, the pods that are missing, in pod-seconds by Deployment."""

    def __init__(self, world: World, replicas: Mapping[str, int]) -> None:
        self._replicas = replicas
        self.missing: dict[str, float] = dict.fromkeys(replicas, 0.0)
        self.worst: Counter[str] = Counter()
        self._world, self._stop = world, Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Count no further."""
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        before = time.monotonic()
        while not self._stop.wait(0.5):
            with suppress(ApiError):
                lost = self._look()
                now = time.monotonic()
                for name, count in lost.items():
                    self.missing[name] += count * (now - before)
                    self.worst[name] = max(self.worst[name], count)
                before = now

    def _look(self) -> Mapping[str, int]:
        answer = self._world.client("ec2").describe_instances()
        running = {
            one["InstanceId"]
            for reservation in answer["Reservations"]
            for one in reservation["Instances"]
            if one["State"]["Name"] == "running"
        }
        on = {
            node.metadata.name
            for instance, node in self._world.nodes().items()
            if instance in running and node.metadata
        }
        serve = Counter(
            (pod.metadata.labels or {}).get("app")
            for pod in self._world.kube.list(CorePod, namespace="default")
            if pod.metadata and pod.spec and pod.spec.nodeName in on and _is_ready(pod)
        )
        return {name: max(wanted - serve[name], 0) for name, wanted in self._replicas.items()}


def _until(condition: Callable[[], object], seconds: float = PATIENCE) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= end:
            return False
        time.sleep(1)
    return True


def _leeway(world: World) -> str:
    """Ask for a roll as `leeway roll` does, and wait."""
    name = world.sandbox.environment()["LEEWAY_TABLE"]
    table = DynamoTable(partial(client, "dynamodb", world.sandbox.aws_url), name)
    asked = ask_for_roll(None, CLUSTER, GROUP, Asked("bench"), datetime.now(UTC))
    table.put(GROUP_ROLL, asked)
    _until(lambda: world.is_rolled)
    roll = table.get(GROUP_ROLL, cluster=CLUSTER, group=GROUP)
    if roll is None or world.is_rolled:
        return "all nodes are new"
    kept = next(iter(roll.kept.values()), None)
    return (
        f"{NODES - world.new_nodes()} node is kept: {kept.reason.message if kept else roll.waits}"
    )


def _refresh(world: World, first: bool = False) -> str:
    """Do what EC2's instance refresh does: one instance at a time for a group of three. `first`: a
    minimum of 100 % and a maximum of 110 % of healthy instances launch the new one first. The
    instance warmup is as long as a node takes to be Ready, and not longer."""
    for number, instance in enumerate(sorted(world.old), 1):
        if first:
            size = {"DesiredCapacity": NODES + 1}
            world.call("set_desired_capacity", AutoScalingGroupName=GROUP, **size)
            world.until_new(number)
        _terminate(world, instance, decrement=first)
        world.until_new(number)
    _until(lambda: world.is_rolled)
    return "all nodes are new"


def _terminate(world: World, instance: str, *, decrement: bool) -> None:
    world.call(
        "terminate_instance_in_auto_scaling_group",
        InstanceId=instance,
        ShouldDecrementDesiredCapacity=decrement,
    )


def _update(world: World) -> str:
    """Do what EKS does with a managed node group, with `maxUnavailable: 1`: two nodes more for each
    zone, cordon all old nodes, then evict, wait and terminate one at a time, and shrink again."""
    more = 2 * len(ZONES)
    group = world.group()
    size = {"DesiredCapacity": NODES + more, "MaxSize": group["MaxSize"] + more}
    world.call("update_auto_scaling_group", AutoScalingGroupName=GROUP, **size)
    world.until_new(more)
    for instance in world.old:
        _cordon(world, instance)
    for instance in sorted(world.old):
        if not _evicted(world, instance):
            return "the update fails with PodEvictionFailure after 15 minutes"
        time.sleep(AFTER_CORDON)
        _terminate(world, instance, decrement=False)
        more += 1
        world.until_new(more)
    for instance in sorted(world.members())[:-NODES]:
        _cordon(world, instance)
        if not _evicted(world, instance):
            return "the update fails while it shrinks the group"
        _terminate(world, instance, decrement=True)
    world.call("update_auto_scaling_group", AutoScalingGroupName=GROUP, MaxSize=group["MaxSize"])
    _until(lambda: world.is_rolled)
    return "all nodes are new"


def _cordon(world: World, instance: str) -> None:
    name = _name_of(world, instance)
    world.kube.patch(Node, name, {"spec": {"unschedulable": True}})


def _name_of(world: World, instance: str) -> str:
    metadata = world.nodes()[instance].metadata
    assert metadata is not None
    return str(metadata.name)


def _evicted(world: World, instance: str) -> bool:
    """Evict the pods of a node until it has none; False if it has some after 15 minutes."""
    name = _name_of(world, instance)

    def is_empty() -> bool:
        pods = [
            pod
            for pod in world.kube.list(CorePod, namespace="default")
            if pod.spec and pod.spec.nodeName == name and pod.metadata
        ]
        for pod in pods:
            assert pod.metadata is not None
            if pod.metadata.deletionTimestamp is None:
                metadata = ObjectMeta(name=pod.metadata.name, namespace="default")
                with suppress(ApiError):
                    eviction = CorePod.Eviction(metadata=metadata)
                    world.kube.create(eviction, str(metadata.name), namespace="default")
        return not pods

    return _until(is_empty, EVICTS_FOR)


@dataclass(frozen=True)
class Way:
    """A way to roll the group. `leeway`: Leeway's functions act."""

    name: str
    roll: Callable[[World], str]
    leeway: bool = False
    surge: bool = False


WAYS = (
    Way("`leeway roll`", _leeway, leeway=True),
    Way("`leeway roll`, `surge: true`", _leeway, leeway=True, surge=True),
    Way("EC2's instance refresh", _refresh),
    Way("EC2's instance refresh, 100 % to 110 %", partial(_refresh, first=True)),
    Way("an update of a managed node group", _update),
)


@dataclass(frozen=True)
class Result:
    """What a roll did: its time in seconds, pod-seconds that were missing by Deployment, the most
    pods that were missing at once, calls of EC2 and Auto Scaling, and how it ended."""

    seconds: float
    missing: Mapping[str, float]
    worst: Mapping[str, int]
    calls: int
    end: str


def _run(way: Way, blocked: bool) -> Result:
    template = pod_spec(cpu="250m", memory="256Mi", grace=10, ends_after=1.0)
    names = ("web", "single") if blocked else ("web",)
    budgets = {"web": _budget("web", maxUnavailable=1), "single": _budget("single", minAvailable=1)}
    workloads = [deployment("default", one, REPLICAS[one], template) for one in names]
    workloads += [budgets[one] for one in names]
    workloads += [SURGE] if way.surge else []
    scenario = Scenario(CLUSTER, (Group(GROUP, NODES, zones=ZONES),), tuple(workloads))
    options = {part: list(given) for part, given in TIMES.items()}
    if not way.leeway:
        options["aws"] += ["--schedule-speed", "0"]
    with (
        TemporaryDirectory() as folder,
        Sandbox.start(scenario, state_dir=Path(folder), options=options) as sandbox,
        Client(KubeConfig.from_file(sandbox.kubeconfig), trust_env=False) as kube,
    ):
        world = World(sandbox, kube)
        world.old = world.members()
        _prepare(world, way)
        before, replicas = _calls(sandbox), {one: REPLICAS[one] for one in names}
        began, watcher = time.monotonic(), Watcher(world, replicas)
        end = way.roll(world)
        seconds = time.monotonic() - began
        time.sleep(5)
        watcher.stop()
        made = _calls(sandbox) - before
        calls = made if way.leeway else world.calls.total()
        return Result(seconds, dict(watcher.missing), dict(watcher.worst), calls, end)


def _prepare(world: World, way: Way) -> None:
    """Give the group another launch template version; without Leeway, let no event reach it."""
    world.client("ec2").create_launch_template_version(
        LaunchTemplateName=f"{CLUSTER}-{GROUP}",
        SourceVersion="1",
        LaunchTemplateData={"Monitoring": {"Enabled": True}},
    )
    if way.leeway:
        _say(world.sandbox, churn={"percent": 100}, surge=way.surge)
    else:
        events = world.client("events")
        for rule in events.list_rules()["Rules"]:
            events.disable_rule(Name=rule["Name"])


def _say(sandbox: Sandbox, **spec: Any) -> None:
    """Write a Cluster manifest."""
    body = {"apiVersion": "leeway.sh/v1", "kind": "Cluster", "metadata": {"name": CLUSTER}}
    written = StoredManifest(
        "cluster.leeway.sh",
        "",
        CLUSTER,
        json.dumps({**body, "spec": spec}),
        1,
        __version__,
        datetime.now(UTC),
    )
    table = DynamoTable(
        partial(client, "dynamodb", sandbox.aws_url), sandbox.environment()["LEEWAY_TABLE"]
    )
    StoredManifests(table).write(CLUSTER, written, 0)


def _calls(sandbox: Sandbox) -> int:
    """Count the calls of EC2 and Auto Scaling that Leeway's functions have made."""
    assert sandbox.deployed
    by_key = sandbox.status()["aws"]["calls_by_access_key"]
    made = [by_key.get(access_key(one.name), {}) for one in sandbox.deployed.functions]
    return sum(
        count
        for calls in made
        for name, count in calls.items()
        if name.startswith(("ec2:", "autoscaling:"))
    )


def main() -> None:
    """Roll the group in each way, without and with a pod that its budget keeps."""
    console = Console(width=150)
    for blocked in (False, True):
        title = "with a pod that its budget keeps" if blocked else "budgets allow one disruption"
        table = Table(title=f"A roll of three nodes: {title}")
        for column in ("way", "minutes", "pod-minutes missing", "of them the single pod", "worst"):
            table.add_column(column, justify="left" if column == "way" else "right")
        table.add_column("calls", justify="right")
        table.add_column("end")
        for way in WAYS:
            if way.surge and not blocked:
                continue
            table.add_row(way.name, *_row(_run(way, blocked)))
        console.print(table)


def _row(found: Result) -> Iterator[str]:
    yield f"{found.seconds / 60:.1f}"
    yield f"{sum(found.missing.values()) / 60:.2f}"
    yield f"{found.missing.get('single', 0) / 60:.2f}"
    yield str(sum(found.worst.values()))
    yield str(found.calls)
    yield found.end
