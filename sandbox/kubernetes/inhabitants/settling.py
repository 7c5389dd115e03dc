"""Settles a new cluster: its first objects, and everybody who lives in it."""

from __future__ import annotations

import dataclasses

from sandbox.kubernetes import defaults, registry
from sandbox.kubernetes.cluster import Cluster
from sandbox.kubernetes.inhabitants.daemonsets import DaemonSets
from sandbox.kubernetes.inhabitants.deployments import Deployments
from sandbox.kubernetes.inhabitants.disruption import Disruption
from sandbox.kubernetes.inhabitants.garbage import Garbage
from sandbox.kubernetes.inhabitants.instances import Instances
from sandbox.kubernetes.inhabitants.jobs import Jobs
from sandbox.kubernetes.inhabitants.kubelets import Kubelets
from sandbox.kubernetes.inhabitants.replicasets import ReplicaSets
from sandbox.kubernetes.inhabitants.scheduler import Scheduler
from sandbox.kubernetes.inhabitants.statefulsets import StatefulSets
from sandbox.kubernetes.inhabitants.taints import Taints
from sandbox.kubernetes.inhabitants.volumes import Volumes

_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


@dataclasses.dataclass(frozen=True)
class Inhabitants:
    """Those the API itself has to talk to."""

    instances: Instances
    disruption: Disruption


def settle(cluster: Cluster) -> Inhabitants:
    """Create what every cluster has and start its inhabitants.

    The order matters in one place: the budgets' bookkeeping hears of a pod before anybody acts.
    """
    disruption = Disruption(cluster)
    instances = Instances(cluster)
    volumes = Volumes(cluster, instances)
    for inhabitant in (
        disruption,
        instances,
        Garbage(cluster, instances),
        Scheduler(cluster, volumes),
        volumes,
        Kubelets(cluster, instances, volumes),
        Taints(cluster, instances),
        ReplicaSets(cluster),
        Deployments(cluster),
        DaemonSets(cluster),
        StatefulSets(cluster),
        Jobs(cluster),
    ):
        inhabitant.start()
    _furnish(cluster)
    cluster.store.forget()
    return Inhabitants(instances, disruption)


def _furnish(cluster: Cluster) -> None:
    store = cluster.store
    for name in _NAMESPACES:
        namespace = {"metadata": {"name": name}, "spec": {"finalizers": ["kubernetes"]}}
        defaults.fill(registry.NAMESPACE, namespace)
        defaults.admit(registry.NAMESPACE, namespace, store)
        store.create(registry.NAMESPACE, namespace)
        account = {"metadata": {"name": "default", "namespace": name}}
        store.create(registry.SERVICE_ACCOUNT, account)
    for name, value in _PRIORITIES.items():
        priority = {"metadata": {"name": name}, "value": value}
        defaults.fill(registry.PRIORITY_CLASS, priority)
        store.create(registry.PRIORITY_CLASS, priority)
    storage = {
        "metadata": {
            "name": "gp3",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "ebs.csi.aws.com",
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    store.create(registry.STORAGE_CLASS, storage)
