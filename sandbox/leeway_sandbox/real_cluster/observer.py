"""Watches Nodes and pods of the real cluster, and writes what happens to them into the journal;
links its Nodes to the instances of the sandbox's EC2."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2 as httpx

from leeway_sandbox.control import Journal
from leeway_sandbox.real_cluster.upstream import Object, RefusedRequestError, Upstream

NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
CORDONED = "node.kubernetes.io/unschedulable"
_HASH = "pod-template-hash"
_AGAIN_SECONDS = 1.0
_log = logging.getLogger(__name__)

type OnChange = Callable[[str, Object], Awaitable[None]]
"""Takes ADDED, MODIFIED or DELETED, and the object."""


@dataclass(frozen=True, slots=True)
class SeenNode:
    """What the journal says of a Node."""

    ready: bool
    cordoned: bool
    taints: frozenset[str]


@dataclass(frozen=True, slots=True)
class SeenPod:
    """What the journal says of a pod."""

    path: str
    uid: str
    node: str
    owner: str | None
    running: bool
    finished: bool
    terminating: bool


@dataclass
class Links:
    """The links between instances and Nodes. `free` are Nodes without an instance, in order.

    A Node's `spec.providerID` cannot be changed, and that of kind or k3d has no instance. So
    whoever reads a Node through the sandbox finds the providerID of its instance, and the labels
    that EKS's nodes have where this Node has none.
    """

    free: list[str]
    _manifests: dict[str, Object] = field(default_factory=dict)
    _instances: dict[str, str] = field(default_factory=dict)

    def take(self, instance: str, manifest: Object) -> str | None:
        """Link an instance to the next free Node, and return that; None if none is free."""
        if not self.free:
            return None
        name = self.free.pop(0)
        self.link(instance, name, manifest)
        return name

    def link(self, instance: str, name: str, manifest: Object) -> None:
        """Link an instance to a Node; `manifest` is the Node as EC2 describes it."""
        self._instances[name] = instance
        self._manifests[name] = manifest

    def node_of(self, instance: str) -> str | None:
        """Return the Node of an instance; None if it has none."""
        return next((name for name, one in self._instances.items() if one == instance), None)

    def instance_of(self, name: str) -> str | None:
        """Return the instance of a Node; None if it has none."""
        return self._instances.get(name)

    def unlink(self, name: str) -> None:
        """Forget the instance of a Node that is gone."""
        self._instances.pop(name, None)
        self._manifests.pop(name, None)

    def shown(self, node: Object) -> Object:
        """Return a Node as the functions read it. An object of another kind, or of a Node without
        an instance, stays as it is."""
        metadata = node.get("metadata") or {}
        manifest = self._manifests.get(str(metadata.get("name")))
        if manifest is None or "spec" not in node:
            return node
        labels = {**manifest["metadata"].get("labels", {}), **(metadata.get("labels") or {})}
        spec = {**node["spec"], "providerID": manifest["spec"]["providerID"]}
        return {**node, "metadata": {**metadata, "labels": labels}, "spec": spec}


class Observer:
    """The Nodes and pods of the cluster, as its watches report them."""

    def __init__(self, upstream: Upstream, links: Links, journal: Journal) -> None:
        self._upstream = upstream
        self._links = links
        self._journal = journal
        self._nodes: dict[str, SeenNode] = {}
        self._pods: dict[str, SeenPod] = {}
        self._told: set[str] = set()  # Nodes of which the journal says that they joined
        self.listeners: list[OnChange] = []

    def pod(self, path: str) -> SeenPod | None:
        """Return a pod by namespace and name."""
        return self._pods.get(path)

    def nodes(self) -> frozenset[str]:
        """Return the names of all Nodes."""
        return frozenset(self._nodes)

    def pods_of(self, node: str) -> int:
        """Return how many pods run on a Node."""
        return sum(pod.running for pod in self._pods.values() if pod.node == node)

    def counts(self) -> dict[str, int]:
        """Return the numbers of nodes, pods and running pods."""
        running = sum(pod.running for pod in self._pods.values())
        return {"nodes": len(self._nodes), "pods": len(self._pods), "running": running}

    async def run(self) -> None:
        """Follow Nodes and pods until the task is cancelled."""
        await asyncio.gather(
            self._follow(NODES, self._node_changed), self._follow(PODS, self._pod_changed)
        )

    def announce(self, name: str) -> None:
        """Write that a Node has joined, when it has got its instance."""
        if name in self._told or name not in self._nodes:
            return
        self._told.add(name)
        self._journal.add("node-joined", node=name, instance=self._links.instance_of(name))
        if self._nodes[name].ready:
            self._journal.add("node-ready", node=name)

    async def _follow(self, path: str, changed: OnChange) -> None:
        known: dict[str, Object] = {}
        while True:
            try:
                listed = await self._upstream.call("GET", path)
                fresh = {_name(one): one for one in listed["items"]}
                for name in known.keys() - fresh.keys():
                    await changed("DELETED", known.pop(name))
                for name, found in fresh.items():
                    await changed("MODIFIED" if name in known else "ADDED", found)
                known = fresh
                version = listed["metadata"]["resourceVersion"]
                async for event in self._upstream.watch(path, version):
                    if event["type"] == "ERROR":
                        break  # usually 410: the version is too old
                    if event["type"] != "BOOKMARK":
                        await self._apply(known, event, changed)
            except (httpx.HTTPError, RefusedRequestError, KeyError, ValueError) as error:
                _log.warning("watch of %s: %s", path, error)
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _apply(
        self, known: dict[str, Object], event: Mapping[str, Any], changed: OnChange
    ) -> None:
        found = event["object"]
        if event["type"] == "DELETED":
            known.pop(_name(found), None)
        else:
            known[_name(found)] = found
        await changed(event["type"], found)

    async def _node_changed(self, what: str, node: Object) -> None:
        name = _name(node)
        before = self._nodes.get(name)
        if what == "DELETED":
            self._nodes.pop(name, None)
            self._told.discard(name)
            self._journal.add("node-deleted", node=name, instance=self._links.instance_of(name))
        else:
            self._nodes[name] = after = _seen_node(node)
            if name in self._told and before is not None:
                self._note(name, before, after)
            if self._links.instance_of(name) is not None:
                self.announce(name)
        await self._tell(what, node)

    def _note(self, name: str, before: SeenNode, after: SeenNode) -> None:
        if after.ready and not before.ready:
            self._journal.add("node-ready", node=name)
        if after.cordoned != before.cordoned:
            kind = "node-cordoned" if after.cordoned else "node-uncordoned"
            self._journal.add(kind, node=name)
        for taint in sorted(after.taints - before.taints):
            self._journal.add("node-tainted", node=name, taint=taint)
        for taint in sorted(before.taints - after.taints):
            self._journal.add("node-untainted", node=name, taint=taint)

    async def _pod_changed(self, what: str, pod: Object) -> None:
        after = _seen_pod(pod)
        before = self._pods.get(after.path)
        about = {"pod": after.path, "uid": after.uid, "node": after.node, "owner": after.owner}
        if what == "DELETED":
            self._pods.pop(after.path, None)
            if before is not None and before.node and not before.finished:
                self._journal.add("pod-ended", **about, how="ended")
        else:
            self._pods[after.path] = after
            self._note_pod(before, after, about)
        await self._tell(what, pod)

    def _note_pod(self, before: SeenPod | None, after: SeenPod, about: dict[str, Any]) -> None:
        if before is None or before.uid != after.uid:
            self._journal.add("pod-created", pod=after.path, uid=after.uid, owner=after.owner)
            before = None
        if after.terminating and not (before and before.terminating):
            self._journal.add("pod-deletion", **about)
        if after.running and not (before and before.running):
            self._journal.add("pod-running", **about)
        if after.finished and not (before is None or before.finished):
            self._journal.add("pod-ended", **about, how="ended")

    async def _tell(self, what: str, found: Object) -> None:
        for listener in self.listeners:
            await listener(what, found)


def _name(found: Object) -> str:
    metadata = found["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}".lstrip("/")


def _seen_node(node: Object) -> SeenNode:
    conditions = (node.get("status") or {}).get("conditions") or ()
    taints = node["spec"].get("taints") or ()
    return SeenNode(
        ready=any(one["type"] == "Ready" and one["status"] == "True" for one in conditions),
        cordoned=bool(node["spec"].get("unschedulable")),
        taints=frozenset(
            f"{one['key']}={one.get('value', '')}:{one['effect']}"
            for one in taints
            if one["key"] != CORDONED
        ),
    )


def _seen_pod(pod: Object) -> SeenPod:
    metadata, status = pod["metadata"], pod.get("status") or {}
    phase = status.get("phase", "Pending")
    return SeenPod(
        path=_name(pod),
        uid=str(metadata.get("uid", "")),
        node=str(pod["spec"].get("nodeName") or ""),
        owner=_owner(metadata),
        running=phase == "Running",
        finished=phase in ("Succeeded", "Failed"),
        terminating="deletionTimestamp" in metadata,
    )


def _owner(metadata: Object) -> str | None:
    """Return the workload of a pod, such as "Deployment/default/web". The names of a ReplicaSet and
    its Deployment differ by the hash of the pods."""
    owners = [one for one in metadata.get("ownerReferences") or () if one.get("controller")]
    if not owners:
        return None
    namespace = metadata.get("namespace", "")
    kind, name = owners[0]["kind"], str(owners[0]["name"])
    suffix = f"-{(metadata.get('labels') or {}).get(_HASH, '')}"
    if kind == "ReplicaSet" and len(suffix) > 1 and name.endswith(suffix):
        return f"Deployment/{namespace}/{name.removesuffix(suffix)}"
    return f"{kind}/{namespace}/{name}"
