"""The instances of the sandbox's EC2 as machines of the real cluster.

The first instances are the Nodes that the cluster has. A later one needs a machine: the user's join
command adds it, or a Node without a machine stands for it. An instance that ends takes its machine
along: by the user's leave command, or by the deletion of its Node alone.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import os
from collections.abc import Coroutine
from urllib.parse import urlencode

import httpx2 as httpx

from leeway_sandbox.control import Journal
from leeway_sandbox.errors import RefusedError
from leeway_sandbox.real_cluster.observer import NODES, Links, Observer
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
        status = {**manifest["status"], "conditions": [_ready()]}
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


JOINS_WITHIN_SECONDS = 300.0
"""How long a new machine may take from the end of the join command to its Node."""

_LOOK_SECONDS = 0.5


class Machines:
    """Starts and ends machines as EC2 reports their instances."""

    def __init__(
        self,
        upstream: Upstream,
        links: Links,
        observer: Observer,
        bare: BareNodes,
        journal: Journal,
        join: str,
        leave: str,
    ) -> None:
        self._upstream = upstream
        self._links = links
        self._observer = observer
        self._bare = bare
        self._journal = journal
        self._join = join
        self._leave = leave
        self._states: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._joining = asyncio.Lock()  # two new Nodes at once could not be told apart

    def states(self) -> dict[str, str]:
        """Return the state of every instance, by id."""
        return dict(self._states)

    def report(self, instance: str, state: str, node: Object | None) -> None:
        """Handle the report that an instance runs, is stopped or is terminated.

        Raises:
            SandboxError: the state is unknown, or a running instance has no node.
        """
        before = self._states.get(instance)
        match state:
            case "running" if node:
                if before == "running":
                    return
                self._states[instance] = state
                self._begin(self._run(instance, node))
            case "stopped" | "terminated":
                if before in (None, state):
                    return
                self._states[instance] = state
                self._begin(self._end(instance, state))
            case _:
                raise RefusedError(
                    f"The state {state!r} with the node {node!r} is not valid. Report running "
                    "with a node, stopped, or terminated."
                )

    async def finish(self) -> None:
        """Cancel what is still going on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, instance: str, manifest: Object) -> None:
        if self._links.node_of(instance) is not None:
            return  # it was stopped, and its Node is still there
        name = self._links.take(instance, manifest)
        if name is not None:
            self._observer.announce(name)
        elif self._join:
            async with self._joining:
                await self._join_machine(instance, manifest)
        else:
            await self._join_without_machine(instance, manifest)

    async def _join_without_machine(self, instance: str, manifest: Object) -> None:
        name = str(manifest["metadata"]["name"])
        self._links.link(instance, name, manifest)
        try:
            await self._bare.create(manifest)
        except (httpx.HTTPError, RefusedRequestError) as error:
            self._links.unlink(name)
            self._note("node-not-joined", instance, str(error))

    async def _join_machine(self, instance: str, manifest: Object) -> None:
        before = self._observer.nodes()
        problem = await self._command(self._join, self._about(instance, manifest))
        until = asyncio.get_running_loop().time() + JOINS_WITHIN_SECONDS
        while problem is None:
            new = sorted(self._observer.nodes() - before)
            if new:
                self._links.link(instance, new[0], manifest)
                self._observer.announce(new[0])
                return
            if asyncio.get_running_loop().time() > until:
                problem = f"no new Node came within {JOINS_WITHIN_SECONDS:.0f} s"
            await asyncio.sleep(_LOOK_SECONDS)
        self._note("node-not-joined", instance, problem)

    async def _end(self, instance: str, state: str) -> None:
        name = self._links.node_of(instance)
        if name is None:
            return
        self._journal.add("machine-ends", node=name, instance=instance, state=state)
        if name in self._bare:
            self._bare.forget(name)
        elif self._leave:
            environment = {"LEEWAY_SANDBOX_NODE": name, "LEEWAY_SANDBOX_STATE": state}
            problem = await self._command(
                self._leave, {"LEEWAY_SANDBOX_INSTANCE": instance, **environment}
            )
            if problem is not None:
                self._note("machine-not-ended", instance, problem)
        if state == "terminated":
            await self._delete_node(name)

    async def _delete_node(self, name: str) -> None:
        """Delete the Node of a terminated instance, as AWS's cloud controller does."""
        try:
            if await self._upstream.find(f"{NODES}/{name}") is not None:
                await self._upstream.call("DELETE", f"{NODES}/{name}")
        except (httpx.HTTPError, RefusedRequestError) as error:
            _log.warning("delete of Node %s: %s", name, error)

    async def _command(self, command: str, environment: dict[str, str]) -> str | None:
        """Run the user's command; return what went wrong, None for nothing."""
        process = await asyncio.create_subprocess_shell(
            command,
            env={**os.environ, **environment},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        if process.returncode == 0:
            return None
        last = output.decode(errors="replace").strip().rpartition("\n")[2]
        return f"the command exited with {process.returncode}: {last[:300]}"

    def _about(self, instance: str, manifest: Object) -> dict[str, str]:
        labels = manifest["metadata"].get("labels", {})
        return {
            "LEEWAY_SANDBOX_INSTANCE": instance,
            "LEEWAY_SANDBOX_NODE": str(manifest["metadata"]["name"]),
            "LEEWAY_SANDBOX_ZONE": str(labels.get("topology.kubernetes.io/zone", "")),
        }

    def _note(self, kind: str, instance: str, problem: str) -> None:
        _log.warning("%s %s: %s", kind, instance, problem)
        self._journal.add(kind, instance=instance, problem=problem)
