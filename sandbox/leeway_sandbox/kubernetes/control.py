"""The control API of the cluster, over HTTP on its own port: instances, journal, faults."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from leeway_sandbox.access import Gate
from leeway_sandbox.control import Query
from leeway_sandbox.kubernetes import registry
from leeway_sandbox.kubernetes.authentication import Authenticator
from leeway_sandbox.kubernetes.cluster import Cluster
from leeway_sandbox.kubernetes.cluster_control import ClusterControl, InstanceReport
from leeway_sandbox.kubernetes.controllers.instances import Instances
from leeway_sandbox.kubernetes.faults import Fault, Faults
from leeway_sandbox.kubernetes.store import Change

type Listening = Callable[[bool], Awaitable[None]]


class FaultList(msgspec.Struct, forbid_unknown_fields=True):
    """The faults that replace all present faults."""

    faults: list[Fault]


class Control(ClusterControl):
    """Lets the command line and tests control the cluster and read its state."""

    def __init__(
        self,
        cluster: Cluster,
        instances: Instances,
        authenticator: Authenticator,
        faults: Faults,
        listen: Listening,
        status: Callable[[], dict[str, Any]],
        gate: Gate,
    ) -> None:
        super().__init__(
            cluster.journal,
            authenticator,
            gate,
            self._join_or_leave,
            {"GET status": self._show_status, "PUT faults": self._replace_faults},
        )
        self._cluster = cluster
        self._instances = instances
        self._faults = faults
        self._listen = listen
        self._status = status
        self._running = 0
        cluster.store.listen(registry.POD, self._count)

    def _show_status(self, _body: Any, _query: Query) -> dict[str, Any]:
        store = self._cluster.store
        return {
            "cluster": self._cluster.settings.name,
            "revision": store.revision,
            "nodes": store.count(registry.NODE),
            "pods": store.count(registry.POD),
            "running": self._running,
            "instances": self._instances.states(),
            **self._status(),
        }

    async def _replace_faults(self, body: Any, _query: Query) -> FaultList:
        """Replace the faults; one with `refuse` closes the API's port until the next PUT."""
        wanted = msgspec.convert(body, FaultList)
        self._faults.replace(wanted.faults)
        self._instances.device_plugins = not self._faults.without_devices
        await self._listen(not self._faults.refusing)
        return wanted

    def _join_or_leave(self, report: InstanceReport) -> None:
        self._instances.report(report.instance, report.state, report.node, report.join)

    def _count(self, change: Change) -> None:
        """Update the number of running pods, so that a status request is cheap."""
        is_running = change.type != "DELETED" and change.object["status"]["phase"] == "Running"
        before = change.previous
        was_running = before is not None and before["status"]["phase"] == "Running"
        self._running += is_running - was_running
