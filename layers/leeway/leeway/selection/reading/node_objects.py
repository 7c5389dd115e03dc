"""Node objects → the existing nodes of packing, with the pods on them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from leeway.selection.labels import NODEPOOL, normalised
from leeway.selection.pods import ExistingNode, PodSpec
from leeway.selection.pools import Taint
from leeway.selection.reading.objects import Document, name_of
from leeway.selection.resources import EBS_VOLUMES, Resources

MAX_VOLUMES = 1000
"""EBS volumes of a node whose driver reports no limit: more than any instance can attach."""


@dataclass(slots=True)
class PodsOnNode:
    """The pods of a node, and the claims that it attaches for them."""

    pods: list[PodSpec] = field(default_factory=list)
    terminating: Resources = field(default_factory=Resources)
    daemons: Resources = field(default_factory=Resources)
    claims: set[str] = field(default_factory=set)

    def add(self, spec: PodSpec, *, terminating: bool, daemon: bool) -> None:
        """Add a pod that has not finished."""
        if terminating:
            self.terminating = self.terminating + spec.requests
        else:
            self.pods.append(spec)
        if daemon:
            self.daemons = self.daemons + spec.requests

    def on(self, node: ExistingNode, attachable: int | None) -> ExistingNode:
        """Return the node with these pods, and with the number of EBS volumes that it attaches;
        None if its driver reports none."""
        volumes = Resources({EBS_VOLUMES: MAX_VOLUMES if attachable is None else attachable})
        return replace(
            node,
            allocatable=node.allocatable + volumes,
            pods=tuple(self.pods),
            terminating=self.terminating,
            daemons=self.daemons,
        )


def node_without_pods(document: Document) -> ExistingNode:
    """Read a validated Node."""
    metadata, spec, status = (document.get(part) or {} for part in ("metadata", "spec", "status"))
    labels = {normalised(k): v for k, v in (metadata.get("labels") or {}).items()}
    taints = [Taint(t["key"], t.get("value") or "", t["effect"]) for t in spec.get("taints") or ()]
    if spec.get("unschedulable"):
        taints.append(Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"))
    return ExistingNode(
        name=name_of(document),
        labels=labels,
        allocatable=_amounts(status.get("allocatable") or status.get("capacity") or {}),
        capacity=_amounts(status.get("capacity") or {}),
        taints=tuple(taints),
        pool=labels.get(NODEPOOL, ""),
    )


def _amounts(quantities: Mapping[str, Any]) -> Resources:
    return Resources.parsed({name: str(amount) for name, amount in quantities.items()})
