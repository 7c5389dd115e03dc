"""Bootstraps a new cluster: creates its first objects and starts its controllers."""

from __future__ import annotations

import dataclasses

from leeway_sandbox.kubernetes import defaults, registry
from leeway_sandbox.kubernetes.cluster import Cluster
from leeway_sandbox.kubernetes.controllers.deployments import Deployments
from leeway_sandbox.kubernetes.controllers.disruption import Disruption
from leeway_sandbox.kubernetes.controllers.endpoints import Endpoints
from leeway_sandbox.kubernetes.controllers.garbage import Garbage, Taints
from leeway_sandbox.kubernetes.controllers.instances import Instances
from leeway_sandbox.kubernetes.controllers.kubelets import Kubelets
from leeway_sandbox.kubernetes.controllers.replicasets import DaemonSets, ReplicaSets, StatefulSets
from leeway_sandbox.kubernetes.controllers.scheduler import Scheduler
from leeway_sandbox.kubernetes.controllers.volumes import Volumes
from leeway_sandbox.kubernetes.custom_resources import CustomResources

_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


@dataclasses.dataclass(frozen=True)
class Controllers:
    """The controllers that the API calls directly."""

    instances: Instances
    disruption: Disruption


def bootstrap(cluster: Cluster) -> Controllers:
    """Start the controllers and create the initial objects of every cluster.

    The disruption controller comes first, so that budgets count a pod before other controllers act.
    """
    disruption = Disruption(cluster)
    instances = Instances(cluster)
    volumes = Volumes(cluster, instances)
    for controller in (
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
        Endpoints(cluster),
        CustomResources(cluster),
    ):
        controller.start()
    _create_initial_objects(cluster)
    cluster.store.forget()
    return Controllers(instances, disruption)


def _create_initial_objects(cluster: Cluster) -> None:
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
