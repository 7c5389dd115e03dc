"""The control API of a cluster, over HTTP on its own port: access, instances, journal, faults."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Literal

import msgspec
from aiohttp import web

from leeway_sandbox.access import Gate
from leeway_sandbox.control import ControlApi, Journal, Query, Route
from leeway_sandbox.kubernetes import registry
from leeway_sandbox.kubernetes.authentication import AccessEntry, Authenticator
from leeway_sandbox.kubernetes.cluster import Cluster
from leeway_sandbox.kubernetes.controllers.instances import Instances
from leeway_sandbox.kubernetes.objects import CLOCK
from leeway_sandbox.kubernetes.store import Change
from leeway_sandbox.listening import control_response, refused

type Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Fault(msgspec.Struct, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """One fault.

    `rate` is the share of matching calls, `count` the remaining number of times. `drop` closes the
    connection in the middle of the answer, or, with "before", before the call is handled. `hold`
    applies to evictions: the seconds between the decrement of the budget and the deletion of the
    pod; a client that disconnects meanwhile cancels the deletion. `refuse` closes the port, and
    `clock` moves the dates of the server by seconds. `no_devices` stops the device plugins: nodes
    that join offer no devices until the fault is removed. These three apply to no call.
    """

    verb: str = "*"
    resource: str = "*"
    status: int = 0
    drop: bool | Literal["before"] = False
    retry_after: int = 1
    rate: Share = 1.0
    count: int | None = None
    latency: float = 0.0
    hold: float = 0.0
    refuse: bool = False
    clock: float = 0.0
    no_devices: bool = False

    def matches(self, verb: str, resource: str) -> bool:
        """Whether the fault applies to this call."""
        about_calls = not (self.refuse or self.clock or self.no_devices)
        return about_calls and self.verb in ("*", verb) and self.resource in ("*", resource)


class Faults:
    """The present faults."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._faults: list[Fault] = []
        self.refusing = False
        self.without_devices = False

    def replace(self, faults: list[Fault]) -> None:
        """Replace all faults."""
        self._faults = faults
        self.refusing = any(fault.refuse for fault in faults)
        self.without_devices = any(fault.no_devices for fault in faults)
        CLOCK.ahead = sum(fault.clock for fault in faults)

    def take(self, verb: str, resource: str) -> Fault | None:
        """Return the fault that applies to this call, and decrement its count."""
        for fault in self._faults:
            if fault.count == 0 or not fault.matches(verb, resource):
                continue
            if fault.rate < 1 and self._random.random() >= fault.rate:
                continue
            if fault.count is not None:
                fault.count -= 1
            return fault
        return None


class InstanceReport(msgspec.Struct):
    """The state of an instance, and its Node as EC2 describes it, which joins after `join` seconds
    if the instance runs. A machine of a real cluster takes its own time instead of `join`."""

    instance: str
    state: str
    node: dict[str, Any] | None = None
    join: float | None = None


class ClusterControl(ControlApi):
    """Takes access entries and reports of instances; `routes` are those of one kind of cluster."""

    def __init__(
        self,
        journal: Journal,
        authenticator: Authenticator,
        gate: Gate,
        report: Callable[[InstanceReport], None],
        routes: Mapping[str, Route],
    ) -> None:
        own: dict[str, Route] = {
            "PUT access": self._replace_access,
            "POST instances": self._report,
        }
        super().__init__(journal, {**own, **routes})
        self._authenticator = authenticator
        self._gate = gate
        self._take_report = report

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """Answer one HTTP request."""
        refusal = self._gate.refusal(request.path, request.headers)
        return refused(*refusal) if refusal else await control_response(self, request)

    def _replace_access(self, body: Any, _query: Query) -> dict[str, int]:
        granted = msgspec.convert(body, dict[str, AccessEntry])
        self._authenticator.grant(granted)
        return {"entries": len(granted)}

    def _report(self, body: Any, _query: Query) -> dict[str, str]:
        report = msgspec.convert(body, InstanceReport)
        self._take_report(report)
        return {"instance": report.instance, "state": report.state}


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
