"""Nodes without a machine, for instances that nothing joins to the real cluster.

The sandbox does the work of their kubelets: it renews their Leases, reports their pods as running,
and ends them. No container runs.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from urllib.parse import urlencode

import httpx2 as httpx

from leeway_sandbox.real_cluster.observer import NODES
from leeway_sandbox.real_cluster.upstream import (
    MERGE_PATCH,
    STRATEGIC_PATCH,
    Object,
    RefusedRequestError,
    Upstream,
)

LABEL = "sandbox.leeway.sh/without-machine"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_RENEWED_SECONDS = 10
_LEASE_SECONDS = 40
_ENDS_AFTER_SECONDS = 1.0
_AMOUNTS = {"cpu": "2", "memory": "4Gi", "pods": "58"}
_READY_CONDITIONS = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
_log = logging.getLogger(__name__)


class BareNodes:
    """The Nodes without a machine, by name, from their creation to their end."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._names: set[str] = set()
        self._ending: dict[str, asyncio.Task[None]] = {}

    async def create(self, manifest: Object) -> str:
        """Create the Node that EC2 describes, with a Lease; return its name."""
        metadata = manifest["metadata"]
        name = str(metadata["name"])
        labels = {**metadata.get("labels", {}), LABEL: "true"}
        # The taint keeps pods away until the Node is Ready, as a kubelet's registration does.
        taints = [
            *(manifest["spec"].get("taints") or ()),
            {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
        ]
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {"providerID": manifest["spec"]["providerID"], "taints": taints},
        }
        await self._upstream.call("POST", NODES, node)
        self._names.add(name)
        await self._renew(name)
        amounts = (manifest.get("status") or {}).get("capacity") or _AMOUNTS
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [_ready()]}
        await self._upstream.call(
            "PATCH", f"{NODES}/{name}/status", {"status": status}, STRATEGIC_PATCH
        )
        return name

    def forget(self, name: str) -> None:
        """Stop the work of a kubelet: its instance has ended."""
        self._names.discard(name)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    async def remove_all(self) -> None:
        """Delete the Nodes that are left, and those of a sandbox that was killed."""
        self._names.clear()
        query = urlencode({"labelSelector": f"{LABEL}=true"})
        await self._upstream.call("DELETE", f"{NODES}?{query}")

    async def run(self) -> None:
        """Renew the Leases until the task is cancelled."""
        while True:
            await asyncio.sleep(_RENEWED_SECONDS)
            for name in sorted(self._names):
                try:
                    await self._renew(name)
                    body = {"status": {"conditions": [_ready()]}}
                    path = f"{NODES}/{name}/status"
                    await self._upstream.call("PATCH", path, body, STRATEGIC_PATCH)
                except (httpx.HTTPError, RefusedRequestError) as error:
                    _log.warning("heartbeat of %s: %s", name, error)

    async def changed(self, what: str, found: Object) -> None:
        """Start or end a pod that is bound to one of the Nodes."""
        node = (found.get("spec") or {}).get("nodeName")
        if what == "DELETED" or node not in self._names:
            return
        try:
            await self._act(found)
        except (httpx.HTTPError, RefusedRequestError) as error:
            _log.warning("pod %s: %s", found["metadata"]["name"], error)

    async def _act(self, pod: Object) -> None:
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        uid = str(metadata["uid"])
        if "deletionTimestamp" in metadata:
            if uid not in self._ending:
                self._ending[uid] = asyncio.create_task(self._end(path, uid))
        elif (pod.get("status") or {}).get("phase", "Pending") == "Pending":
            await self._upstream.call(
                "PATCH", f"{path}/status", {"status": _running(pod)}, STRATEGIC_PATCH
            )

    async def _end(self, path: str, uid: str) -> None:
        await asyncio.sleep(_ENDS_AFTER_SECONDS)
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        try:
            await self._upstream.call("DELETE", path, body)
        except (httpx.HTTPError, RefusedRequestError) as error:
            _log.warning("end of %s: %s", path, error)
        self._ending.pop(uid, None)

    async def _renew(self, name: str) -> None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": _LEASE_SECONDS,
            "renewTime": now.replace("+00:00", "Z"),
        }
        try:
            await self._upstream.call("PATCH", f"{_LEASES}/{name}", {"spec": spec}, MERGE_PATCH)
        except RefusedRequestError as error:
            if error.status != 404:
                raise
            kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
            await self._upstream.call(
                "POST", _LEASES, {**kind, "metadata": {"name": name}, "spec": spec}
            )


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _ready() -> Object:
    return {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "the sandbox does the work of this kubelet",
        "lastHeartbeatTime": _now(),
    }


def _running(pod: Object) -> Object:
    now = _now()
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": now} for kind in _READY_CONDITIONS
    ]
    containers = [
        {
            "name": one["name"],
            "image": one.get("image", ""),
            "imageID": "",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
        }
        for one in pod["spec"]["containers"]
    ]
    return {
        "phase": "Running",
        "startTime": now,
        "conditions": conditions,
        "containerStatuses": containers,
    }
