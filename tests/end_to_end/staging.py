"""What befalls a sandbox's nodes by hand: pods put on them, kubelets, Nodes and names lost."""

import time
from dataclasses import dataclass
from typing import Any

from lightkube import Client
from lightkube.codecs import from_dict

from sandbox.scenario import ENDS_AFTER, Manifest, budget
from tests.end_to_end.conftest import deployment
from tests.end_to_end.rehearsal import Aftermath, Entry, Rehearsal


def pod(name: str, node: str, grace: int = 5, ends_after: float = 1, **metadata: Any) -> Manifest:
    """A pod on this node that takes so many seconds to stop."""
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
    """A pod on this node that its budget never lets go."""
    return [budget("default", name, minAvailable=1), pod(name, node, grace, ends_after)]


def clingy(name: str, node: str) -> Manifest:
    """A Deployment whose pod tolerates everything and wants this node and no other."""
    made = deployment(name, 1, 3)
    made["spec"]["template"]["spec"] |= {
        "tolerations": [{"operator": "Exists"}],
        "nodeSelector": {"kubernetes.io/hostname": node},
    }
    return made


def as_node(instance: str, name: str) -> Manifest:
    """The Node that an instance becomes under this name."""
    return {"metadata": {"name": name}, "spec": {"providerID": f"aws:///us-east-1a/{instance}"}}


class Stage:
    """The cluster by hand: what a person, an operator or fate does to it."""

    def __init__(self, rehearsal: Rehearsal, kube: Client) -> None:
        self.rehearsal = rehearsal
        self.sandbox = rehearsal.sandbox
        self.kube = kube

    def put(self, *manifests: Manifest) -> None:
        """Create these, and wait until the pods among them run."""
        since = time.time()
        for one in manifests:
            self.kube.create(from_dict(dict(one)))
        wanted = {f"default/{m['metadata']['name']}" for m in manifests if m["kind"] == "Pod"}
        self.rehearsal.until(
            since, lambda s: wanted <= {e["pod"] for e in s.of("pod-running")}, patience=20
        )

    def cordoned(self, since: float, node: str) -> None:
        """Wait until the node is cordoned."""
        self.rehearsal.until(since, lambda s: s.of("node-cordoned", node=node), patience=20)


@dataclass(frozen=True)
class Case:
    """One instance, its node, and when EC2 takes it, or its work is to be over; epoch seconds."""

    instance: str
    node: str
    ends: float

    def outcome(self, seen: Aftermath) -> Entry:
        """Leeway's only word about it."""
        (outcome,) = seen.outcomes(self.instance)
        return outcome

    def failed(self, seen: Aftermath) -> dict[str, str]:
        """The pods that Leeway says it left behind, with its reasons."""
        pods = self.outcome(seen)["pods"]
        return {p["pod"]: p["reason"]["message"] for p in pods if p["stage"] == "failed"}
