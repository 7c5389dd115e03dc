"""The Node objects of instances: join, readiness, dead kubelets, removal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

from leeway_sandbox.errors import RefusedError
from leeway_sandbox.kubernetes import defaults, registry
from leeway_sandbox.kubernetes.cluster import Cluster
from leeway_sandbox.kubernetes.objects import (
    Object,
    copy,
    has_taint,
    is_ready,
    name_of,
    owner_reference,
    taints_of,
    timestamp,
    with_condition,
)
from leeway_sandbox.kubernetes.store import Change

type State = Literal["pending", "running", "stopped", "terminated"]

_NOT_READY = "node.kubernetes.io/not-ready"
_UNREACHABLE = "node.kubernetes.io/unreachable"
_SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"
_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")
_CORDONED = "node.kubernetes.io/unschedulable"
_NOTICED_SECONDS = 1.0
_TAINTED_AFTER_SECONDS = 0.05
_DEVICES_AFTER_SECONDS = 0.3
_AMOUNTS = ("capacity", "allocatable")


class Instances:
    """The state of each instance, and its Node object."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._states: dict[str, State] = {}
        self._started = 0
        self._nodes: dict[str, str] = {}
        self._instance_of: dict[str, str] = {}
        self._joining: dict[str, asyncio.TimerHandle] = {}
        self._deaths: list[Callable[[str], None]] = []
        self._returns: list[Callable[[str], None]] = []
        self._devices: dict[str, Object] = {}
        self.device_plugins = True

    def start(self) -> None:
        """Start to watch changes."""
        self._cluster.store.listen(registry.NODE, self._node_changed)

    def watch_deaths(self, listener: Callable[[str], None]) -> None:
        """Call the listener with the node name when a kubelet stops."""
        self._deaths.append(listener)

    def watch_returns(self, listener: Callable[[str], None]) -> None:
        """Call the listener with the node name when a stopped instance runs again."""
        self._returns.append(listener)

    def states(self) -> dict[str, str]:
        """Return the state of every instance, by id."""
        return dict(self._states)

    def is_alive(self, node: str) -> bool:
        """Whether the kubelet of a node runs; true for a node without a known instance."""
        instance = self._instance_of.get(node)
        return instance is None or self._states[instance] == "running"

    def has_kubelet(self, node: str) -> bool:
        """Whether a known instance runs a kubelet of this name, with or without a Node."""
        return self._states.get(self._instance_of.get(node, "")) == "running"

    def report(self, instance: str, state: str, node: Object | None, join: float | None) -> None:
        """Handle the report that an instance runs, is stopped or is terminated.

        `node` is the manifest of its Node, which joins after `join` seconds (None: the usual time).

        Raises:
            SandboxError: the state is unknown, or a running instance has no node.
        """
        match state:
            case "stopped":
                self._die(instance, "stopped")
            case "terminated":
                self._die(instance, "terminated")
            case "running" if node:
                self._run(instance, copy(node), join)
            case _:
                raise RefusedError(
                    f"The state {state!r} with the node {node!r} is not valid. Report running "
                    "with a node, stopped, or terminated."
                )

    def _run(self, instance: str, manifest: Object, join: float | None) -> None:
        if self._states.get(instance) == "running":
            return
        name = name_of(manifest)
        earlier = self._instance_of.get(name, instance)
        if self._states.get(earlier) == "terminated":
            # EC2 gave its address to this one. On EC2 a Node is removed before another boots.
            self._clean_up(earlier)
        self._states[instance] = "running"
        self._nodes[instance] = name
        self._instance_of[name] = instance
        self._started += 1
        is_initial = self._started <= self._cluster.settings.initial_nodes
        usual = 0.0 if is_initial else self._cluster.jitter(self._cluster.settings.node_join)
        seconds = usual if join is None else join
        self._joining[instance] = self._cluster.later(seconds, self._join, instance, manifest)

    def _join(self, instance: str, manifest: Object) -> None:
        self._joining.pop(instance, None)
        store, name = self._cluster.store, name_of(manifest)
        if store.get(registry.NODE, "", name) is not None:
            self._come_back(instance, name)
            return
        self._cluster.journal.add("node-joined", node=name, instance=instance)
        self._devices[instance] = _take_devices(manifest)
        node = store.create(registry.NODE, _fresh_node(manifest))
        reference = owner_reference("Node", "v1", node)
        earlier = store.get(registry.LEASE, "kube-node-lease", name)
        if earlier is not None:  # of a deleted Node of this name: the collector comes later
            store.remove(registry.LEASE, earlier)
        store.create(
            registry.LEASE,
            {
                "metadata": {
                    "name": name,
                    "namespace": "kube-node-lease",
                    "ownerReferences": [reference],
                },
                "spec": {
                    "holderIdentity": name,
                    "leaseDurationSeconds": 40,
                    "renewTime": f"{timestamp()[:-1]}.000000Z",
                },
            },
        )
        self._be_ready_soon(instance, name)

    def _come_back(self, instance: str, name: str) -> None:
        """Handle a kubelet that starts again with its Node and its pods."""
        self._be_ready_soon(instance, name)
        for listener in self._returns:
            listener(name)

    def _be_ready_soon(self, instance: str, name: str) -> None:
        ready_after = self._cluster.jitter(self._cluster.settings.node_ready)
        self._cluster.later(ready_after, self._become_ready, instance, name)

    def _become_ready(self, instance: str, name: str) -> None:
        node = self._cluster.store.get(registry.NODE, "", name)
        if node is None or self._states.get(instance) != "running":
            return
        conditions = with_condition(
            node["status"]["conditions"],
            _condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        )
        self._replace(node, conditions, _without(node, _NOT_READY, _UNREACHABLE, _SHUTDOWN))
        if self._devices.get(instance):
            self._cluster.later(_DEVICES_AFTER_SECONDS, self._offer_devices, instance, name)

    def _offer_devices(self, instance: str, name: str) -> None:
        """Report the devices of a Ready node as its device plugin does, when that runs."""
        node = self._cluster.store.get(registry.NODE, "", name)
        if node is None or self._states.get(instance) != "running":
            return
        if not self.device_plugins:
            self._cluster.later(_DEVICES_AFTER_SECONDS, self._offer_devices, instance, name)
            return
        devices = self._devices.pop(instance)
        status = {
            **node["status"],
            **{field: {**node["status"].get(field, {}), **devices} for field in _AMOUNTS},
        }
        self._cluster.store.replace(registry.NODE, {**node, "status": status})
        self._cluster.journal.add("node-devices", node=name, devices=devices)

    def _die(self, instance: str, state: Literal["stopped", "terminated"]) -> None:
        joining = self._joining.pop(instance, None)
        if joining is not None:
            joining.cancel()
        before = self._states.get(instance)
        if before in (None, state, "terminated"):
            return
        self._states[instance] = state
        name = self._nodes[instance]
        if before == "running" and self._instance_of.get(name) == instance:
            for listener in self._deaths:
                listener(name)
            self._cluster.later(_NOTICED_SECONDS, self._become_unknown, instance, name)
        if state == "terminated":
            self._devices.pop(instance, None)
            removal = self._cluster.jitter(self._cluster.settings.node_removal)
            self._cluster.later(removal, self._clean_up, instance)

    def _become_unknown(self, instance: str, name: str) -> None:
        node = self._cluster.store.get(registry.NODE, "", name)
        state = self._states.get(instance)
        if node is None or self._instance_of.get(name) != instance or state == "running":
            return
        conditions = node["status"].get("conditions") or []
        for kind in ("Ready", *_PRESSURES):
            why = "Kubelet stopped posting node status."
            conditions = with_condition(
                conditions, _condition(kind, "Unknown", "NodeStatusUnknown", why)
            )
        taints = _without(node, _NOT_READY)
        taints += [
            {"key": _UNREACHABLE, "effect": effect, "timeAdded": timestamp()}
            for effect in ("NoSchedule", "NoExecute")
        ]
        if state == "stopped":  # the cloud node lifecycle controller keeps and taints such a Node
            taints.append({"key": _SHUTDOWN, "effect": "NoSchedule", "timeAdded": timestamp()})
        self._replace(node, conditions, taints)

    def _clean_up(self, instance: str) -> None:
        """Delete the Node of a terminated instance, as the cloud controller does."""
        name = self._nodes.pop(instance, None)
        if name is None:  # another instance has its address
            return
        if self._instance_of.get(name) == instance:
            node = self._cluster.store.get(registry.NODE, "", name)
            if node is not None:
                self._cluster.store.remove(registry.NODE, node)
            del self._instance_of[name]
        del self._states[instance]

    def _replace(self, node: Object, conditions: list[Object], taints: list[Object]) -> None:
        spec = {name: value for name, value in node["spec"].items() if name != "taints"}
        if taints:
            spec["taints"] = taints
        status = {**node["status"], "conditions": conditions}
        self._cluster.store.replace(registry.NODE, {**node, "spec": spec, "status": status})

    def _taint(self, name: str) -> None:
        """Set or remove the taint of a cordon, and remove that of a Node that is Ready, as the node
        lifecycle controller does."""
        node = self._cluster.store.get(registry.NODE, "", name)
        if node is None or not _is_tainted_late(node):
            return
        taints = _without(node, _CORDONED, *([_NOT_READY] if is_ready(node) else []))
        if node["spec"].get("unschedulable"):
            taints.append({"key": _CORDONED, "effect": "NoSchedule", "timeAdded": timestamp()})
        self._replace(node, node["status"].get("conditions") or [], taints)

    def _node_changed(self, change: Change) -> None:
        """Add the changes of nodes to the journal."""
        journal, node, old = self._cluster.journal, change.object, change.previous
        name = name_of(node)
        if change.type == "DELETED":
            journal.add("node-deleted", node=name, instance=_instance_id(node))
            return
        if is_ready(node) and (old is None or not is_ready(old)):
            journal.add("node-ready", node=name)
        if _is_tainted_late(node):
            self._cluster.later(_TAINTED_AFTER_SECONDS, self._taint, name)
        if old is None:
            return
        before: Object = old["spec"]
        if bool(node["spec"].get("unschedulable")) != bool(before.get("unschedulable")):
            cordoned = node["spec"].get("unschedulable")
            journal.add("node-cordoned" if cordoned else "node-uncordoned", node=name)
        taints, past = _without(node, _CORDONED), _without(old, _CORDONED)
        for taint in taints:
            if taint not in past:
                journal.add("node-tainted", node=name, taint=_taint_text(taint))
        for taint in past:
            if taint not in taints:
                journal.add("node-untainted", node=name, taint=_taint_text(taint))


def _take_devices(manifest: Object) -> Object:
    """Remove the devices from a Node, and return them. Their names have a domain."""
    amounts: Object = {}
    for field in _AMOUNTS:
        found = (manifest.get("status") or {}).get(field) or {}
        amounts |= {name: found.pop(name) for name in [*found] if "/" in name}
    return amounts


def _fresh_node(manifest: Object) -> Object:
    metadata = manifest["metadata"]
    name = metadata["name"]
    labels = metadata.setdefault("labels", {})
    labels.setdefault("kubernetes.io/hostname", name)
    labels.setdefault("kubernetes.io/os", "linux")
    labels.setdefault("kubernetes.io/arch", "amd64")
    spec, status = manifest.setdefault("spec", {}), manifest.setdefault("status", {})
    spec["taints"] = [
        *(spec.get("taints") or ()),
        {"key": _NOT_READY, "effect": "NoSchedule"},
    ]
    status.setdefault("capacity", {"cpu": "4", "memory": "16Gi", "pods": "58"})
    status.setdefault("addresses", [{"type": "Hostname", "address": name}])
    status.setdefault(
        "nodeInfo",
        {
            "machineID": "",
            "systemUUID": "",
            "bootID": "",
            "kernelVersion": "6.12.0-sandbox",
            "osImage": "Leeway sandbox",
            "containerRuntimeVersion": "containerd://2.1.0",
            "kubeletVersion": "v1.36.0",
            "kubeProxyVersion": "",
            "operatingSystem": labels["kubernetes.io/os"],
            "architecture": labels["kubernetes.io/arch"],
        },
    )
    status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 10250}})
    why = "kubelet has sufficient resources available"
    status["conditions"] = [
        *(_condition(kind, "False", "KubeletHasSufficient", why) for kind in _PRESSURES),
        _condition("Ready", "False", "KubeletNotReady", "container runtime network not ready"),
    ]
    defaults.fill(registry.NODE, manifest)
    return {"metadata": metadata, "spec": spec, "status": status}


def _condition(kind: str, status: str, reason: str, message: str) -> Object:
    now = timestamp()
    return {
        "type": kind,
        "status": status,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }


def _is_tainted_late(node: Object) -> bool:
    """Whether the taints of a Node do not agree with its cordon, or with its Ready condition."""
    cordoned = bool(node["spec"].get("unschedulable"))
    ready = is_ready(node) and has_taint(node, _NOT_READY)
    return ready or cordoned != has_taint(node, _CORDONED)


def _without(node: Object, *keys: str) -> list[Object]:
    return [one for one in taints_of(node) if one["key"] not in keys]


def _taint_text(taint: Object) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint['effect']}"


def _instance_id(node: Object) -> str | None:
    provider: str = node["spec"].get("providerID", "")
    return provider.rpartition("/")[2] or None
