"""Reports the instances of a cluster to the sandbox's Kubernetes, with the Node of each.

A real instance runs a kubelet, which registers the Node.
"""

import json
import logging
import queue
import threading
import time
from collections.abc import Mapping
from typing import Any

import urllib3
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.ec2.models.instances import Instance

from leeway_sandbox.aws import booting, instances
from leeway_sandbox.aws.cloud import Cloud
from leeway_sandbox.aws.fleet_launch import fleet_of

log = logging.getLogger(__name__)

# The tags from which the Cluster Autoscaler reads the labels and taints of a group. Instances have
# them as well, because no kubelet reads their user data.
LABEL_TAG = "k8s.io/cluster-autoscaler/node-template/label/"
TAINT_TAG = "k8s.io/cluster-autoscaler/node-template/taint/"
RESOURCE_TAG = "k8s.io/cluster-autoscaler/node-template/resources/"
CLUSTER_TAG = "kubernetes.io/cluster/"
EKS_TAG = "aws:eks:cluster-name"
"""EKS writes it on an instance that joins a cluster; nobody else can."""
CLUSTER_NAME_TAGS = (EKS_TAG, "eks:cluster-name")


# EC2 state → reported state of the node, for the states that change the node.
REPORTED_STATES = {"running": "running", "stopping": "stopped", "shutting-down": "terminated"}
ATTEMPTS = 6
FIRST_DELAY = 0.2  # seconds, doubling


def cluster_of(instance: Instance) -> str | None:
    """Return the cluster of the tags of the instance, or None."""
    tags = instances.tags(instance)
    for key in CLUSTER_NAME_TAGS:
        if key in tags:
            return tags[key]
    for key, value in tags.items():
        if key.startswith(CLUSTER_TAG) and value == "owned":
            return key.removeprefix(CLUSTER_TAG)
    return None


def node_of(instance: Instance) -> dict[str, Any]:
    """Return the Node that the kubelet of the instance registers."""
    name, zone, tags = instance.private_dns_name, instance.placement.zone, instances.tags(instance)
    kind = INSTANCE_TYPES[instance.instance_type]
    architectures = kind["ProcessorInfo"]["SupportedArchitectures"]
    labels = {
        "beta.kubernetes.io/instance-type": instance.instance_type,
        "eks.amazonaws.com/capacityType": "SPOT" if instance.lifecycle == "spot" else "ON_DEMAND",
        "kubernetes.io/arch": "arm64" if "arm64" in architectures else "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": instance.instance_type,
        "topology.kubernetes.io/region": instance.region_name,
        "topology.kubernetes.io/zone": zone,
    }
    taints = []
    for key, value in tags.items():
        if key.startswith(LABEL_TAG):
            labels[key.removeprefix(LABEL_TAG)] = value
        elif key.startswith(TAINT_TAG):
            content, _, effect = value.rpartition(":")
            taint = {"key": key.removeprefix(TAINT_TAG), "value": content, "effect": effect}
            taints.append(taint)
    capacity, allocatable = booting.resources(kind)
    for key, value in tags.items():
        if key.startswith(RESOURCE_TAG):
            resource = key.removeprefix(RESOURCE_TAG)
            capacity[resource] = allocatable[resource] = value
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"providerID": f"aws:///{zone}/{instance.id}", "taints": taints},
        "status": {"capacity": capacity, "allocatable": allocatable},
    }


class NodeLink:
    """Reports instances to the control API of their cluster, in order, without the cloud's lock."""

    def __init__(self, cloud: Cloud, headers: Mapping[str, str]):
        self._cloud = cloud
        self.controls: dict[str, str] = {}  # cluster name → base URL of its control API
        self._headers = {"Content-Type": "application/json", **headers}
        self._booted: dict[str, tuple[str, dict[str, Any]] | None] = {}  # instances that boot
        self._reported: dict[str, str] = {}  # instance → last reported state
        self._queue: queue.SimpleQueue[tuple[str, dict[str, Any]]] = queue.SimpleQueue()
        self._http = urllib3.PoolManager(maxsize=1, retries=False)
        threading.Thread(target=self._work, name="nodes", daemon=True).start()
        cloud.watch_instances(self._changed)

    def _changed(self, instance: Instance, state: str) -> None:
        cluster, node = self._joined(instance, state)
        if cluster is None or cluster not in self.controls:
            return
        # The kubelet stops soon after the shutdown begins.
        reported = REPORTED_STATES.get(state)
        known = self._reported.get(instance.id)
        if reported is None or reported == known or (reported != "running" and known is None):
            return
        self._reported[instance.id] = reported
        if reported == "terminated":
            del self._reported[instance.id]
        node = node or node_of(instance)
        body = {"instance": instance.id, "state": reported, "node": node, "join": None}
        self._queue.put((cluster, body))

    def _joined(self, instance: Instance, state: str) -> tuple[str | None, dict[str, Any] | None]:
        """The cluster of an instance, and its Node if its user data decides about that.

        An instance of a fleet, and one with user data, boots when it runs for the first time. Every
        other instance joins the cluster that its tags name.
        """
        if fleet_of(instance) is None and not instance.user_data:
            return cluster_of(instance), None
        if state == "running" and instance.id not in self._booted:
            booted = self._booted[instance.id] = booting.boot(self._cloud, instance)
            if booted is not None:
                instance.add_tags({EKS_TAG: booted[0]})
        joined = self._booted.get(instance.id)
        if state == "terminated":
            self._booted.pop(instance.id, None)
        return joined or (None, None)

    def _work(self) -> None:
        while True:
            cluster, body = self._queue.get()
            for attempt in range(ATTEMPTS):
                try:
                    self._post(cluster, body)
                    break
                except urllib3.exceptions.HTTPError as error:
                    log.warning("The report of %s to cluster %s failed: %s", body, cluster, error)
                    time.sleep(FIRST_DELAY * 2**attempt)

    def _post(self, cluster: str, body: dict[str, Any]) -> None:
        answer = self._http.request(
            "POST",
            f"{self.controls[cluster]}/_sandbox/instances",
            body=json.dumps(body),
            headers=self._headers,
            timeout=10.0,
        )
        if answer.status >= 300:
            raise urllib3.exceptions.HTTPError(f"HTTP {answer.status}: {answer.data[:200]!r}")
