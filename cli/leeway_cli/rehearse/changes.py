"""The lines of manifests that change a finding, and the `kubectl` commands that write them."""

import json
import shlex
from dataclasses import dataclass
from typing import Any

from leeway.kubernetes.translate import is_subdomain
from leeway.printable import printable

from leeway_cli.rehearse.cluster import Budget, Workload

_PATCHED = frozenset({"Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"})
"""Workloads whose spec `kubectl patch` changes."""

_EDITED = _PATCHED | {"DaemonSet", "Job", "CronJob"}


@dataclass(frozen=True, slots=True)
class Change:
    """A line of a manifest. `object` is `Kind namespace/name`, `field` a path in it, `value` what
    it should be (empty: see the field). `manager` writes the object today; `command` is empty if
    the line can't be written by a command."""

    object: str
    field: str
    value: str
    manager: str = ""
    command: str = ""

    @property
    def line(self) -> str:
        """The line, such as `spec.replicas: 2`."""
        return f"{self.field}: {self.value}" if self.value else self.field


def shorten_grace(workload: Workload, seconds: int) -> Change:
    """End within the time of a notice."""
    return _in_template(workload, "terminationGracePeriodSeconds", seconds)


def add_replicas(workload: Workload, replicas: int) -> Change:
    """Run more pods."""
    return _changed(workload, ("spec", "replicas"), replicas)


def spread_pods(workload: Workload) -> Change:
    """Run the pods on different nodes."""
    field = f"{workload.template}spec.topologySpreadConstraints"
    value = "maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule"
    return Change(workload.key, field, value, workload.manager, _edit(workload))


def make_room(workload: Workload) -> Change:
    """Ask for what a node has, or get nodes."""
    field = f"{workload.template}spec.containers[].resources.requests"
    value = "what a node of the cluster has, or apply a NodePool or a headroom manifest"
    return Change(workload.key, field, value, workload.manager, _edit(workload))


def keep_zone_free(workload: Workload) -> Change:
    """Use a volume that every zone reaches."""
    claims = "spec.volumeClaimTemplates[].spec.storageClassName"
    field = claims if workload.keeps_names else f"{workload.template}spec.volumes"
    value = "a class of every zone, such as EFS, or keep room in each zone by headroom"
    return Change(workload.key, field, value, workload.manager, _edit(workload))


def create_controller(workload: Workload) -> Change:
    """Let a controller create the pod."""
    return Change(workload.key, "kind", "Deployment", workload.manager)


def edit(workload: Workload, field: str, value: str) -> Change:
    """Change a field of the pods that no patch can change without its other entries."""
    inside = field if field.startswith("metadata.") else f"spec.{field}"
    path = f"{workload.template}{inside}"
    return Change(workload.key, path, value, workload.manager, _edit(workload))


def allow(budget: Budget, workload: Workload, evictions: int) -> Change:
    """Allow more evictions at a time; of a single pod, besides, run another one."""
    command = ""
    if _named(budget.namespace, budget.name):
        patch = json.dumps({"spec": {"minAvailable": None, "maxUnavailable": evictions}})
        command = _kubectl(budget.namespace, "patch", "pdb", budget.name, patch)
    more = workload.replicas == 1 and bool(workload.template)
    value = str(evictions) + (f", and spec.replicas: 2 of {workload.key}" if more else "")
    return Change(
        f"PodDisruptionBudget {budget.key}",
        "spec.maxUnavailable",
        value,
        budget.manager,
        command,
    )


def delete_budget(budget: Budget) -> Change:
    """Keep one budget for a pod."""
    command = ""
    if _named(budget.namespace, budget.name):
        command = _kubectl(budget.namespace, "delete", "pdb", budget.name)
    return Change(
        f"PodDisruptionBudget {budget.key}",
        "spec.selector",
        "of other pods, or delete the budget",
        budget.manager,
        command,
    )


def own_nodes(owner: str) -> Change:
    """Let Leeway drain the nodes of another controller."""
    kind = "managed-node-group" if owner.startswith("managed") else "karpenter"
    kind = "auto-mode" if owner.startswith("EKS") else kind
    return Change("Cluster (leeway.sh)", "spec.takes", f"[{kind}]", "leeway apply")


def _in_template(workload: Workload, field: str, value: int) -> Change:
    path = (*workload.template.rstrip(".").split("."), "spec", field)
    return _changed(workload, tuple(part for part in path if part), value)


def _changed(workload: Workload, path: tuple[str, ...], value: int) -> Change:
    command = ""
    if workload.kind in _PATCHED and _named(workload.namespace, workload.name):
        patch: Any = value
        for part in reversed(path):
            patch = {part: patch}
        kind = workload.kind.lower()
        command = _kubectl(workload.namespace, "patch", kind, workload.name, json.dumps(patch))
    return Change(workload.key, ".".join(path), str(value), workload.manager, command)


def _edit(workload: Workload) -> str:
    if workload.kind not in _EDITED or not _named(workload.namespace, workload.name):
        return ""
    return _kubectl(workload.namespace, "edit", workload.kind.lower(), workload.name)


def _named(namespace: str, name: str) -> bool:
    """Whether both are names that Kubernetes accepts: no others get into a command."""
    return is_subdomain(namespace) and is_subdomain(name)


def _kubectl(namespace: str, verb: str, kind: str, name: str, patch: str = "") -> str:
    words = ["kubectl", "--namespace", printable(namespace), verb, kind, name]
    return shlex.join([*words, "--type", "merge", "--patch", patch] if patch else words)
