"""The control API of a real cluster: the same calls as that of the sandbox's own Kubernetes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from leeway_sandbox.access import Gate
from leeway_sandbox.control import Query
from leeway_sandbox.errors import SandboxError
from leeway_sandbox.journal import Journal
from leeway_sandbox.kubernetes.authentication import Authenticator
from leeway_sandbox.kubernetes.control import ClusterControl
from leeway_sandbox.real_cluster.machines import Machines


class Control(ClusterControl):
    """Lets the other processes of the sandbox and its users control the link to the cluster."""

    def __init__(
        self,
        journal: Journal,
        machines: Machines,
        authenticator: Authenticator,
        status: Callable[[], dict[str, Any]],
        leave: Callable[[], Awaitable[None]],
        gate: Gate,
    ) -> None:
        super().__init__(
            journal,
            authenticator,
            gate,
            lambda report: machines.report(report.instance, report.state, report.node),
            {
                "GET status": lambda _body, _query: status(),
                "PUT faults": self._replace_faults,
                "POST leave": self._leave,
            },
        )
        self._leave_cluster = leave

    def _replace_faults(self, body: Any, _query: Query) -> dict[str, Any]:
        if body != {"faults": []}:
            raise SandboxError(
                "The sandbox injects no faults into a real cluster. Use faults of the parts aws "
                "and lambda, or a sandbox with its own Kubernetes."
            )
        return {"faults": []}

    async def _leave(self, _body: Any, _query: Query) -> dict[str, bool]:
        await self._leave_cluster()
        return {"left": True}
