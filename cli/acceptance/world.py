"""What an acceptance creates and looks at. Everything has a fixed name, so that the next run finds
what an interrupted one has left."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from leeway.headroom.pause_pods import IMAGE
from leeway.instances.owners import OWNER_TAG, POOL_TAG
from leeway.kubernetes.connection import Connection
from leeway.launch.tags import CLUSTER_TAG
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

from cli.aws_errors import aws_errors
from cli.manifests.apply_changes import apply_changes, stored_manifests
from cli.manifests.planned_change import Change, PlannedChange, plan_body
from cli.stack import Stack

NAME = "leeway-acceptance"
"""The namespace, the taint and the first part of the names of pools."""

_CLASS, _POOL = "ec2nodeclass.karpenter.k8s.aws", "nodepool.karpenter.sh"
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
    """The cluster of an acceptance. `node_class` is the spec of the user's."""

    cluster: str
    stack: Stack
    connection: Connection
    ec2: Any
    node_class: Mapping[str, Any]
    sleep: Callable[[float], None] = time.sleep
    machines: dict[str, Machine] = field(default_factory=dict)

    def start(self, pool: str, alias: str, capacity_type: str) -> None:
        """Store a pool with its node class, and create a Deployment of one pod for it."""
        spec = {key: self.node_class[key] for key in _KEPT if key in self.node_class}
        self._store(
            _CLASS,
            "EC2NodeClass",
            "karpenter.k8s.aws/v1",
            pool,
            {**spec, "amiSelectorTerms": [{"alias": alias}]},
        )
        self._store(_POOL, "NodePool", "karpenter.sh/v1", pool, _pool(pool, capacity_type))
        kube = self.connection.typed
        namespace = Namespace(metadata=ObjectMeta(name=NAME))
        _unless_exists(lambda: kube.create(namespace))
        _unless_exists(lambda: kube.create(_deployment(pool), namespace=NAME))

    def runs(self, pool: str) -> bool:
        """Whether the pod of a pool runs on a Ready node of it."""
        self.look()
        kube = self.connection.typed
        on = [
            pod.spec.nodeName
            for pod in kube.list(Pod, namespace=NAME, labels={"app": pool})
            if pod.spec and pod.status and pod.status.phase == "Running"
        ]
        ready = {_name(one) for one in kube.list(Node, labels={NODEPOOL: pool}) if _is_ready(one)}
        return bool(on) and {*on} <= ready

    def stop(self, pool: str) -> None:
        """Delete the Deployment of a pool, so that its node is empty."""
        kube = self.connection.typed
        _unless_missing(lambda: kube.delete(Deployment, pool, namespace=NAME))

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
        changes = [
            PlannedChange(Change.DELETED, one.title, one, None)
            for one in stored_manifests(self.stack, self.cluster)
            if one.resource in (_CLASS, _POOL) and one.name.startswith(f"{NAME}-")
        ]
        apply_changes(self.stack, self.cluster, changes)
        nodes = [one for one in kube.list(Node) if _pool_of(one).startswith(f"{NAME}-")]
        return namespace is None and not (alive or changes or nodes)

    def _namespace(self) -> Namespace | None:
        try:
            return self.connection.typed.get(Namespace, NAME)
        except ApiError as error:
            if error.status.code == 404:
                return None
            raise

    def _store(
        self, resource: str, kind: str, version: str, name: str, spec: Mapping[str, Any]
    ) -> None:
        body = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
        stored = stored_manifests(self.stack, self.cluster)
        before = next((o for o in stored if (o.resource, o.name) == (resource, name)), None)
        planned = plan_body(before, resource, name, json.dumps(body), datetime.now(UTC))
        apply_changes(self.stack, self.cluster, [planned])


def _pool(name: str, capacity_type: str) -> dict[str, Any]:
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
                "expireAfter": "1h",
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


def _deployment(pool: str) -> Deployment:
    labels = {"app": pool}
    requests = ResourceRequirements(requests={"cpu": "100m", "memory": "64Mi"})
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
    return labels.get(NODEPOOL, "")


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
