"""The instances of the sandbox's EC2 as machines of the real cluster.

The first instances are the Nodes that the cluster has. A later one needs a machine: the user's join
command adds it, or a Node without a machine stands for it. An instance that ends takes its machine
along: by the user's leave command, or by the deletion of its Node alone.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Coroutine

import httpx2 as httpx

from leeway_sandbox.errors import RefusedError
from leeway_sandbox.journal import Journal
from leeway_sandbox.real_cluster.bare_nodes import BareNodes
from leeway_sandbox.real_cluster.links import Links
from leeway_sandbox.real_cluster.observer import NODES, Observer
from leeway_sandbox.real_cluster.upstream import Object, RefusedRequestError, Upstream

JOINS_WITHIN_SECONDS = 300.0
"""How long a new machine may take from the end of the join command to its Node."""

_LOOK_SECONDS = 0.5
_log = logging.getLogger(__name__)


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
