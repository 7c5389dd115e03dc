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
from leeway.instances.facts import OWNER_TAG, POOL_TAG
from leeway.launch.node_settings import CLUSTER_TAG
from leeway.manifests.configuration import StoredManifest
from leeway.selection.labels import OS
from leeway.selection.offers.catalog import Catalog
from lightkube import ApiError
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Namespace, Node, Pod

from leeway_cli.errors import CannotBeDoneError, as_clause, aws_errors
from leeway_cli.kubeconfig import KubeconfigConnection
from leeway_cli.manifests.changes import (
    Change,
    PlannedChange,
    apply_changes,
    plan_body,
    stored_manifests,
)
from leeway_cli.stack import Stack

_FIS = "Fault Injection Service"

NAME = "leeway-acceptance"
"""The namespace, the taint, the label of pods and the first part of the names of manifests."""


@dataclass(frozen=True)
class Stored:
    """A kind of manifest in the table."""

    resource: str
    version: str
    kind: str

    def document(self, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return the manifest of this kind."""
        return {
            "apiVersion": self.version,
            "kind": self.kind,
            "metadata": {"name": name},
            "spec": spec,
        }


NODE_CLASS = Stored("ec2nodeclass.karpenter.k8s.aws", "karpenter.k8s.aws/v1", "EC2NodeClass")
POOL = Stored("nodepool.karpenter.sh", "karpenter.sh/v1", "NodePool")
HEADROOM = Stored("headroom.leeway.sh", "leeway.sh/v1", "Headroom")
_RESOURCES = {one.resource for one in (NODE_CLASS, POOL, HEADROOM)}
_REQUESTS = {"cpu": "100m", "memory": "64Mi"}
_TOLERATIONS = [{"key": NAME, "operator": "Exists"}]
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
    windows: bool
    first_seen: float
    last_seen: float


@dataclass
class World:
    """The cluster of an acceptance. `node_class` is the spec of the user's, `windows_class` that
    for Windows; `fis_role` is the ARN of the role that Fault Injection Service assumes. `pools` has
    the arguments of pool_spec of each pool that was stored, `expired` the instances that a pool
    must lose. `experiment` is the id of the experiment that runs."""

    cluster: str
    stack: Stack
    connection: KubeconfigConnection
    ec2: Any
    fis: Any
    node_class: Mapping[str, Any]
    fis_role: str = ""
    windows_class: Mapping[str, Any] = field(default_factory=dict)
    catalog: Catalog | None = None
    sleep: Callable[[float], None] = time.sleep
    machines: dict[str, Machine] = field(default_factory=dict)
    pools: dict[str, dict[str, str]] = field(default_factory=dict)
    expired: dict[str, set[str]] = field(default_factory=dict)
    experiment: str = ""

    def start(self, pool: str, alias: str, capacity_type: str = "on-demand") -> None:
        """Store a pool with its node class, and create a Deployment of one pod for it."""
        self._store_pool(pool, alias, capacity_type)
        self.deploy(pool)

    def deploy(self, pool: str) -> None:
        """Create a Deployment of one pod, which runs only on nodes with the label of a pool."""
        kube = self.connection.typed
        namespace = Namespace(metadata=ObjectMeta(name=NAME))
        _unless_exists(lambda: kube.create(namespace))
        labels = {NAME: pool}
        template = {"metadata": {"labels": labels}, "spec": self.pod_spec(pool)}
        deployment: Any = Deployment.from_dict(
            {
                "metadata": {"name": pool, "namespace": NAME},
                "spec": {
                    "replicas": 1,
                    "selector": {"matchLabels": labels},
                    "template": template,
                },
            }
        )
        _unless_exists(lambda: kube.create(deployment, namespace=NAME))

    def pod_spec(self, pool: str) -> dict[str, Any]:
        """Return the spec of the pod of a pool."""
        pause = {"name": "pause", "image": IMAGE, "resources": {"requests": _REQUESTS}}
        return {
            "containers": [pause],
            "nodeSelector": {NAME: pool, OS: self.pools.get(pool, {}).get("system", "linux")},
            "tolerations": _TOLERATIONS,
            "terminationGracePeriodSeconds": 5,
        }

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
        found = self.connection.typed.list(Node, labels={NAME: pool})
        ready = {_name(one) for one in found if _is_ready(one)}
        return bool(on) and {*on} <= ready

    def expire(self, pool: str) -> None:
        """Let the nodes that a pool has expire."""
        self.expired[pool] = self.alive(pool)
        self._store(POOL, pool, pool_spec(pool, **self.pools[pool], expire_after="1s"))

    def is_replaced(self, pool: str) -> bool:
        """Whether the nodes that expired or were interrupted have ended, and the pod runs on
        another one. As soon as there is another one, nodes of the pool do not expire any more."""
        alive = self.alive(pool)
        old = self.expired[pool]
        if alive - old:
            self._store(POOL, pool, pool_spec(pool, **self.pools[pool]))
        return not alive & old and self.runs(pool)

    def stop(self, pool: str) -> None:
        """Delete the Deployment or the Headroom of a pool, so that its node is empty."""
        kube = self.connection.typed
        _unless_missing(lambda: kube.delete(Deployment, pool, namespace=NAME))
        self._delete(lambda one: (one.resource, one.name) == (HEADROOM.resource, pool))

    def is_gone(self, pool: str) -> bool:
        """Whether a pool has no node and no instance any more."""
        self.look()
        nodes = [*self.connection.typed.list(Node, labels={NAME: pool})]
        return not nodes and not self.alive(pool)

    def look(self) -> None:
        """Note how long each instance runs."""
        now = time.time()
        for one in [*self.instances(self.of_pools()), *self.instances(self.of_group)]:
            known = self.machines.get(one["InstanceId"])
            if known is None:
                self.machines[one["InstanceId"]] = Machine(
                    one["InstanceType"],
                    one["Placement"]["AvailabilityZone"],
                    one.get("InstanceLifecycle", "on-demand"),
                    one.get("Platform") == "windows",
                    one["LaunchTime"].timestamp(),
                    now,
                )
            else:
                known.last_seen = now

    def of_pools(self, pool: str = f"{NAME}-*") -> dict[str, str]:
        """Return the tags of the instances of a pool, or of all pools of an acceptance."""
        return {OWNER_TAG: "leeway", CLUSTER_TAG: self.cluster, POOL_TAG: pool}

    @property
    def of_group(self) -> dict[str, str]:
        """The tag of the group of an acceptance, of its launch template and of its instances."""
        return {"leeway.sh/acceptance": self.cluster}

    def alive(self, pool: str) -> set[str]:
        """Return the ids of the instances of a pool that EC2 has not ended."""
        return {one["InstanceId"] for one in self.instances(self.of_pools(pool))}

    def instances(self, tags: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
        """Yield the instances with these tags that EC2 has not ended."""
        filters = [
            *({"Name": f"tag:{key}", "Values": [value]} for key, value in tags.items()),
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
        alive = [*self.instances(self.of_pools())]
        if names := [one["InstanceId"] for one in alive if one["State"]["Name"] in _RUNNING]:
            with aws_errors("the instances"):
                self.ec2.terminate_instances(InstanceIds=names)
        stored = self._delete(
            lambda one: one.resource in _RESOURCES and one.name.startswith(f"{NAME}-")
        )
        nodes = [one for one in kube.list(Node) if _pool_of(one).startswith(f"{NAME}-")]
        return namespace is None and not (alive or stored or nodes or self._pods())

    def gives_windows_addresses(self) -> bool:
        """Whether the VPC CNI of the cluster gives pods on Windows nodes addresses. Source: EKS
        user guide, "Deploy Windows nodes on EKS clusters"."""
        try:
            found = self.connection.typed.get(ConfigMap, "amazon-vpc-cni", namespace="kube-system")
        except ApiError as error:
            if error.status.code == 404:
                return False
            raise
        return (found.data or {}).get("enable-windows-ipam") == "true"

    def _namespace(self) -> Namespace | None:
        try:
            return self.connection.typed.get(Namespace, NAME)
        except ApiError as error:
            if error.status.code == 404:
                return None
            raise

    def _pods(self, pool: str | None = None) -> list[Pod]:
        """Return the pods of a pool, or those of all. Pause pods have no label of the pool."""
        kube = self.connection.typed
        return [
            pod
            for namespace in (NAME, HEADROOM_NAMESPACE)
            for pod in kube.list(Pod, namespace=namespace)
            if (asked := _pool_asked(pod)) and pool in (None, asked)
        ]

    def _store_pool(self, pool: str, alias: str, capacity_type: str = "on-demand") -> None:
        system = "windows" if alias.startswith("windows") else "linux"
        self.pools[pool] = {"capacity_type": capacity_type, "system": system}
        self._store(NODE_CLASS, pool, self.node_class_spec(alias))
        self._store(POOL, pool, pool_spec(pool, **self.pools[pool]))

    def node_class_spec(self, alias: str) -> dict[str, Any]:
        """Return the spec of a node class with the network and the role of the user's."""
        users = self.windows_class if alias.startswith("windows") else self.node_class
        spec = {key: users[key] for key in _KEPT if key in users}
        return {**spec, "amiSelectorTerms": [{"alias": alias}]}

    def _store(self, kind: Stored, name: str, spec: Mapping[str, Any]) -> None:
        body = kind.document(name, spec)
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

    def interrupt(self, what: str, tags: Mapping[str, str], minutes: int = 2) -> None:
        """Begin an experiment of Fault Injection Service: EC2 recommends a rebalance for the Spot
        instances with these tags at once, and interrupts them after this time, 2 to 15 minutes,
        with its warning two minutes before.

        The template is deleted at once: the experiment that runs does not need it. Source: AWS FIS
        user guide, "AWS FIS actions reference", aws:ec2:send-spot-instance-interruptions.
        """
        target = {
            "resourceType": "aws:ec2:spot-instance",
            "resourceTags": dict(tags),
            "selectionMode": "ALL",
        }
        action = {
            "actionId": "aws:ec2:send-spot-instance-interruptions",
            "parameters": {"durationBeforeInterruption": f"PT{minutes}M"},
            "targets": {"SpotInstances": "nodes"},
        }
        with aws_errors(_FIS):
            created = self.fis.create_experiment_template(
                description=f"Interrupts the Spot node of {what} in cluster {self.cluster}",
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

    def check_experiment(self) -> None:
        """Raise CannotBeDoneError if the experiment, if there is one, interrupts nothing."""
        if self.experiment:
            with aws_errors(_FIS):
                state = self.fis.get_experiment(id=self.experiment)["experiment"]["state"]
            if state["status"] in ("failed", "stopped"):
                problem = as_clause(state["reason"])
                raise CannotBeDoneError(f"{_FIS} interrupted nothing: {problem}.")

    def stop_experiment(self) -> None:
        """Stop the experiment, if there is one: AWS bills each minute of its action."""
        if self.experiment:
            with aws_errors(_FIS):
                self.fis.stop_experiment(id=self.experiment)
            self.experiment = ""


def pool_spec(
    name: str,
    capacity_type: str = "on-demand",
    system: str = "linux",
    expire_after: str = "1h",
) -> dict[str, Any]:
    """A pool of small types, whose nodes go as soon as they are empty, and after an hour even if
    nobody cleans up. Windows needs more memory than the smallest types have."""
    rules = {
        "karpenter.sh/capacity-type": [capacity_type],
        "kubernetes.io/arch": ["amd64"],
        OS: [system],
        "karpenter.k8s.aws/instance-category": ["m"] if system == "windows" else ["c", "m", "t"],
        "karpenter.k8s.aws/instance-cpu": ["2"],
    }
    return {
        "limits": {"cpu": "4"},
        "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "0s"},
        "template": {
            "metadata": {"labels": {NAME: name}},
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
            },
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
        "nodeSelector": {NAME: pool},
        "tolerations": _TOLERATIONS,
    }
    return {"buffers": [{"name": "pods", "pod": pod, "windows": [window]}]}


def _pool_asked(pod: Pod) -> str:
    """Return the pool that a pod selects."""
    return str(((pod.spec.nodeSelector if pod.spec else None) or {}).get(NAME, ""))


def _name(node: Node) -> str:
    return str(node.metadata.name) if node.metadata else ""


def _pool_of(node: Node) -> str:
    labels = (node.metadata.labels if node.metadata else None) or {}
    return str(labels.get(NAME, ""))


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
