"""Changes that tests make in a cluster: pods, kubelets, Node objects and their names."""

import time
from dataclasses import dataclass
from typing import Any

from leeway_sandbox.scenario import ENDS_AFTER, Manifest, budget
from lightkube import Client
from lightkube.codecs import from_dict

from tests.end_to_end.conftest import deployment
from tests.end_to_end.environment import Entry, Environment, Journal


def pod(name: str, node: str, grace: int = 5, ends_after: float = 1, **metadata: Any) -> Manifest:
    """Return a pod on this node that takes `ends_after` seconds to end."""
    spec = {
        "nodeName": node,
        "terminationGracePeriodSeconds": grace,
        "containers": [{"name": "c", "image": "pause"}],
    }
    if "priority" in metadata:
        spec["priorityClassName"] = metadata.pop("priority")
    metadata = {
        "name": name,
        "namespace": "default",
        "labels": {"app": name},
        "annotations": {ENDS_AFTER: f"{ends_after}s"},
    } | metadata
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def blocked(name: str, node: str, grace: int = 5, ends_after: float = 1) -> list[Manifest]:
    """Return a pod on this node and a budget that always blocks its eviction."""
    return [budget("default", name, minAvailable=1), pod(name, node, grace, ends_after)]


def tolerating_deployment(name: str, node: str) -> Manifest:
    """Return a Deployment whose pod tolerates all taints and selects this node."""
    made = deployment(name, 1, 3)
    made["spec"]["template"]["spec"] |= {
        "tolerations": [{"operator": "Exists"}],
        "nodeSelector": {"kubernetes.io/hostname": node},
    }
    return made


def as_node(instance: str, name: str) -> Manifest:
    """Return the Node object of an instance with this name."""
    return {"metadata": {"name": name}, "spec": {"providerID": f"aws:///us-east-1a/{instance}"}}


class ClusterActions:
    """Changes the cluster by hand."""

    def __init__(self, env: Environment, kube: Client) -> None:
        self.env = env
        self.sandbox = env.sandbox
        self.kube = kube

    def put(self, *manifests: Manifest) -> None:
        """Create objects, and wait until their pods run."""
        since = time.time()
        for one in manifests:
            self.kube.create(from_dict(dict(one)))
        wanted = {f"default/{m['metadata']['name']}" for m in manifests if m["kind"] == "Pod"}
        self.env.until(since, lambda s: wanted <= {e["pod"] for e in s.of("pod-running")})

    def cordoned(self, since: float, node: str) -> None:
        """Wait until the node is cordoned."""
        self.env.until(since, lambda s: s.of("node-cordoned", node=node))


@dataclass(frozen=True)
class Case:
    """One instance, its node, and when EC2 reclaims it or its retirement must end (epoch
    seconds)."""

    instance: str
    node: str
    ends: float

    def outcome(self, seen: Journal) -> Entry:
        """Return the only outcome that Leeway published of the first retirement. A termination hook
        that comes after its end begins another one."""
        (outcome,) = (one for one in seen.outcomes(self.instance) if one["attempt"] == 1)
        return outcome

    def failed(self, seen: Journal) -> dict[str, str]:
        """Return the pods that Leeway reported as failed, with the reasons."""
        pods = self.outcome(seen)["pods"]
        return {p["pod"]: p["reason"]["message"] for p in pods if p["stage"] == "failed"}
