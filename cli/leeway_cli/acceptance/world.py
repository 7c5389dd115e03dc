"""What an acceptance creates and looks at. Everything has a fixed name, so that the next run finds
what an interrupted one has left."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from leeway.headroom.pause_pods import IMAGE
from leeway.headroom.pause_pods import NAMESPACE as HEADROOM_NAMESPACE
from leeway.instances.owners import OWNER_TAG, POOL_TAG
from leeway.kubernetes.connection import Connection
from leeway.launch.tags import CLUSTER_TAG
from leeway.manifests.configuration import StoredManifest
from leeway.selection.labels import NODEPOOL
from lightkube import ApiError
from lightkube.models.apps_v1 import DeploymentSpec
from lightkube.models.core_v1 import (
    Container,
    PodSpec,
    PodTemplateSpec,
    ResourceRequirements,
    Toleration,
)
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import Namespace, Node, Pod

from leeway_cli.errors import CannotBeDoneError, as_clause, aws_errors
from leeway_cli.manifests.apply_changes import apply_changes, stored_manifests
from leeway_cli.manifests.planned_change import Change, PlannedChange, plan_body
from leeway_cli.stack import Stack

NAME = "leeway-acceptance"
"""The namespace, the taint, the label of pods and the first part of the names of manifests."""


@dataclass(frozen=True)
class Stored:
    """A kind of manifest in the table."""

    resource: str
    version: str
    kind: str


NODE_CLASS = Stored("ec2nodeclass.karpenter.k8s.aws", "karpenter.k8s.aws/v1", "EC2NodeClass")
POOL = Stored("nodepool.karpenter.sh", "karpenter.sh/v1", "NodePool")
HEADROOM = Stored("headroom.leeway.sh", "leeway.sh/v1", "Headroom")
_RESOURCES = {one.resource for one in (NODE_CLASS, POOL, HEADROOM)}
_REQUESTS = {"cpu": "100m", "memory": "64Mi"}
_RUNNING = ["pending", "running", "stopping", "stopped"]
_ALIVE = [*_RUNNING, "shutting-down"]
_KEPT = ("role", "instanceProfile", "subnetSelectorTerms", "securityGroupSelectorTerms", "tags")
"""The fields of a user's node class that the nodes of an acceptance get too."""


@dataclass
class Machine:
    """An instance that the acceptance was given. Times are in seconds of the same clock."""

    instance_type: str
    zone: str
    capacity_type: str
    first_seen: float
    last_seen: float


@dataclass
class World:
    """The cluster of an acceptance. `node_class` is the spec of the user's; `fis_role` is the ARN
    of the role that Fault Injection Service assumes. `expired` has the instances that a pool must
    lose."""

    cluster: str
    stack: Stack
    connection: Connection
    ec2: Any
    fis: Any
    node_class: Mapping[str, Any]
    fis_role: str = ""
    sleep: Callable[[float], None] = time.sleep
    machines: dict[str, Machine] = field(default_factory=dict)
    expired: dict[str, set[str]] = field(default_factory=dict)
    experiment: str = ""

    def start(self, pool: str, alias: str, capacity_type: str = "on-demand") -> None:
        """Store a pool with its node class, and create a Deployment of one pod for it."""
        self._store_pool(pool, alias, capacity_type)
        kube = self.connection.typed
        namespace = Namespace(metadata=ObjectMeta(name=NAME))
        _unless_exists(lambda: kube.create(namespace))
        _unless_exists(lambda: kube.create(_deployment(pool), namespace=NAME))

    def reserve(self, pool: str, alias: str) -> None:
        """Store a pool with its node class, and a Headroom of one pause pod for it, whose cron
        window is open now."""
        self._store_pool(pool, alias)
        self._store(HEADROOM, pool, _headroom(pool, datetime.now(UTC)))

    def runs(self, pool: str) -> bool:
        """Whether the pod of a pool runs on a Ready node of it."""
        self.look()
        on = [
            pod.spec.nodeName
            for pod in self._pods(pool)
            if pod.spec and pod.status and pod.status.phase == "Running"
        ]
        found = self.connection.typed.list(Node, labels={NODEPOOL: pool})
        ready = {_name(one) for one in found if _is_ready(one)}
        return bool(on) and {*on} <= ready

    def expire(self, pool: str) -> None:
        """Let the nodes that a pool has expire."""
        self.expired[pool] = {one["InstanceId"] for one in self.instances(pool)}
        self._store(POOL, pool, _pool(pool, expire_after="1s"))

    def interrupt(self, pool: str) -> None:
        """Let Fault Injection Service interrupt the Spot instances that a pool has.

        The template is deleted at once: the experiment that runs does not need it.
        """
        self.expired[pool] = {one["InstanceId"] for one in self.instances(pool)}
        target = {
            "resourceType": "aws:ec2:spot-instance",
            "resourceTags": {OWNER_TAG: "leeway", CLUSTER_TAG: self.cluster, POOL_TAG: pool},
            "selectionMode": "ALL",
        }
        action = {
            "actionId": "aws:ec2:send-spot-instance-interruptions",
            "parameters": {"durationBeforeInterruption": "PT2M"},
            "targets": {"SpotInstances": "nodes"},
        }
        with aws_errors("Fault Injection Service"):
            created = self.fis.create_experiment_template(
                description=f"Interrupts the Spot node of {pool} in cluster {self.cluster}",
                roleArn=self.fis_role,
                stopConditions=[{"source": "none"}],
                targets={"nodes": target},
                actions={"interrupt": action},
            )
            template = created["experimentTemplate"]["id"]
            try:
                started = self.fis.start_experiment(experimentTemplateId=template)
                self.experiment = started["experiment"]["id"]
            finally:
                self.fis.delete_experiment_template(id=template)

    def is_replaced(self, pool: str) -> bool:
        """Whether the nodes that expired or were interrupted have ended, and the pod runs on
        another one. As soon as there is another one, nodes of the pool do not expire any more.

        Raises:
            CannotBeDoneError: Fault Injection Service could not interrupt the nodes.
        """
        self._check_experiment()
        alive = {one["InstanceId"] for one in self.instances(pool)}
        old = self.expired[pool]
        if alive - old and self.experiment == "":
            self._store(POOL, pool, _pool(pool))
        return not alive & old and self.runs(pool)

    def _check_experiment(self) -> None:
        if self.experiment:
            with aws_errors("Fault Injection Service"):
                state = self.fis.get_experiment(id=self.experiment)["experiment"]["state"]
            if state["status"] in ("failed", "stopped"):
                problem = as_clause(state["reason"])
                raise CannotBeDoneError(f"Fault Injection Service interrupted nothing: {problem}.")

    def stop(self, pool: str) -> None:
        """Delete the Deployment or the Headroom of a pool, so that its node is empty."""
        kube = self.connection.typed
        _unless_missing(lambda: kube.delete(Deployment, pool, namespace=NAME))
        self._delete(lambda one: (one.resource, one.name) == (HEADROOM.resource, pool))

    def is_gone(self, pool: str) -> bool:
        """Whether a pool has no node and no instance any more."""
        self.look()
        nodes = [*self.connection.typed.list(Node, labels={NODEPOOL: pool})]
        return not nodes and not [*self.instances(pool)]

    def look(self) -> None:
        """Note how long each instance runs."""
        now = time.time()
        for one in self.instances():
            known = self.machines.get(one["InstanceId"])
            if known is None:
                self.machines[one["InstanceId"]] = Machine(
                    one["InstanceType"],
                    one["Placement"]["AvailabilityZone"],
                    one.get("InstanceLifecycle", "on-demand"),
                    one["LaunchTime"].timestamp(),
                    now,
                )
            else:
                known.last_seen = now

    def instances(self, pool: str = f"{NAME}-*") -> Iterator[Mapping[str, Any]]:
        """Yield the instances of pools of an acceptance that EC2 has not ended."""
        filters = [
            {"Name": f"tag:{OWNER_TAG}", "Values": ["leeway"]},
            {"Name": f"tag:{CLUSTER_TAG}", "Values": [self.cluster]},
            {"Name": f"tag:{POOL_TAG}", "Values": [pool]},
            {"Name": "instance-state-name", "Values": _ALIVE},
        ]
        with aws_errors("the instances"):
            pages = self.ec2.get_paginator("describe_instances").paginate(Filters=filters)
            for page in pages:
                for reserved in page["Reservations"]:
                    yield from reserved["Instances"]

    def remove(self) -> bool:
        """Remove everything that has the name of an acceptance, from this run or another one, and
        return whether there was nothing to remove.

        Pods go first, and pools last: until its manifest is gone, Leeway answers for a node. A run
        of Leeway that has already begun may launch a node after that: call it again.
        """
        kube = self.connection.typed
        namespace = self._namespace()
        # A real API server refuses to delete a namespace that ends already.
        if namespace is not None and not _ends(namespace):
            _unless_missing(lambda: kube.delete(Namespace, NAME))
        self.look()
        alive = [*self.instances()]
        if names := [one["InstanceId"] for one in alive if one["State"]["Name"] in _RUNNING]:
            with aws_errors("the instances"):
                self.ec2.terminate_instances(InstanceIds=names)
        stored = self._delete(
            lambda one: one.resource in _RESOURCES and one.name.startswith(f"{NAME}-")
        )
        nodes = [one for one in kube.list(Node) if _pool_of(one).startswith(f"{NAME}-")]
        return namespace is None and not (alive or stored or nodes or self._pods())

    def _namespace(self) -> Namespace | None:
        try:
            return self.connection.typed.get(Namespace, NAME)
        except ApiError as error:
            if error.status.code == 404:
                return None
            raise

    def _pods(self, pool: str | None = None) -> list[Pod]:
        """Return the pods of a pool, or those of all."""
        kube = self.connection.typed
        return [
            pod
            for namespace in (NAME, HEADROOM_NAMESPACE)
            for pod in kube.list(Pod, namespace=namespace, labels={NAME: pool})
        ]

    def _store_pool(self, pool: str, alias: str, capacity_type: str = "on-demand") -> None:
        spec = {key: self.node_class[key] for key in _KEPT if key in self.node_class}
        self._store(NODE_CLASS, pool, {**spec, "amiSelectorTerms": [{"alias": alias}]})
        self._store(POOL, pool, _pool(pool, capacity_type))

    def _store(self, kind: Stored, name: str, spec: Mapping[str, Any]) -> None:
        body = {
            "apiVersion": kind.version,
            "kind": kind.kind,
            "metadata": {"name": name},
            "spec": spec,
        }
        stored = stored_manifests(self.stack, self.cluster)
        before = next((o for o in stored if (o.resource, o.name) == (kind.resource, name)), None)
        planned = plan_body(before, kind.resource, name, json.dumps(body), datetime.now(UTC))
        apply_changes(self.stack, self.cluster, [planned])

    def _delete(self, which: Callable[[StoredManifest], bool]) -> bool:
        """Delete manifests, and return whether there were any."""
        changes = [
            PlannedChange(Change.DELETED, one.title, one, None)
            for one in stored_manifests(self.stack, self.cluster)
            if which(one)
        ]
        return bool(apply_changes(self.stack, self.cluster, changes))


def _pool(name: str, capacity_type: str = "on-demand", expire_after: str = "1h") -> dict[str, Any]:
    """A pool of small types, whose nodes go as soon as they are empty, and after an hour even if
    nobody cleans up."""
    rules = {
        "karpenter.sh/capacity-type": [capacity_type],
        "kubernetes.io/arch": ["amd64"],
        "karpenter.k8s.aws/instance-category": ["c", "m", "t"],
        "karpenter.k8s.aws/instance-cpu": ["2"],
    }
    return {
        "limits": {"cpu": "4"},
        "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "0s"},
        "template": {
            "spec": {
                "expireAfter": expire_after,
                "taints": [{"key": NAME, "effect": "NoSchedule"}],
                "nodeClassRef": {
                    "group": "karpenter.k8s.aws",
                    "kind": "EC2NodeClass",
                    "name": name,
                },
                "requirements": [
                    {"key": key, "operator": "In", "values": values}
                    for key, values in rules.items()
                ],
            }
        },
    }


def _headroom(pool: str, now: datetime) -> dict[str, Any]:
    """A cron window that opened a minute ago and closes in two hours."""
    start, end = now - timedelta(minutes=1), now + timedelta(hours=2)
    window = {
        "timezone": "UTC",
        "start": f"{start.minute} {start.hour} * * *",
        "end": f"{end.minute} {end.hour} * * *",
        "replicas": 1,
    }
    pod = {
        "requests": _REQUESTS,
        "labels": {NAME: pool},
        "nodeSelector": {NODEPOOL: pool},
        "tolerations": [{"key": NAME, "operator": "Exists"}],
    }
    return {"buffers": [{"name": "pods", "pod": pod, "windows": [window]}]}


def _deployment(pool: str) -> Deployment:
    labels = {NAME: pool}
    requests = ResourceRequirements(requests=_REQUESTS)
    return Deployment(
        metadata=ObjectMeta(name=pool, namespace=NAME),
        spec=DeploymentSpec(
            replicas=1,
            selector=LabelSelector(matchLabels=labels),
            template=PodTemplateSpec(
                metadata=ObjectMeta(labels=labels),
                spec=PodSpec(
                    containers=[Container(name="pause", image=IMAGE, resources=requests)],
                    nodeSelector={NODEPOOL: pool},
                    tolerations=[Toleration(key=NAME, operator="Exists")],
                    terminationGracePeriodSeconds=5,
                ),
            ),
        ),
    )


def _name(node: Node) -> str:
    return str(node.metadata.name) if node.metadata else ""


def _pool_of(node: Node) -> str:
    labels = (node.metadata.labels if node.metadata else None) or {}
    return str(labels.get(NODEPOOL, ""))


def _ends(namespace: Namespace) -> bool:
    return bool(namespace.metadata and namespace.metadata.deletionTimestamp)


def _is_ready(node: Node) -> bool:
    conditions = (node.status.conditions if node.status else None) or []
    return any(one.type == "Ready" and one.status == "True" for one in conditions)


def _unless_exists(act: Callable[[], object]) -> None:
    _tolerate(409, act)


def _unless_missing(act: Callable[[], object]) -> None:
    _tolerate(404, act)


def _tolerate(status: int, act: Callable[[], object]) -> None:
    try:
        act()
    except ApiError as error:
        if error.status.code != status:
            raise
