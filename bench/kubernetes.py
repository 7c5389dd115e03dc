"""Measures the sandbox's cluster with ten thousand pods: its start, lists and evictions."""

import asyncio
import ssl
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
from leeway_sandbox.access import bearer, new_token
from leeway_sandbox.children import Child
from leeway_sandbox.scenario import Manifest, budget, deployment, namespace, pod_spec
from rich.console import Console
from rich.table import Table

from bench.statistics import percentile

NODES = 1_000
PODS = 10_000
DEPLOYMENTS = 20
EVICTIONS = 3_000
CLIENTS = 32
START_TIMEOUT = 180.0
"""Seconds within which the cluster must start."""

SPACE = "bench"
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "Deployment": f"/apis/apps/v1/namespaces/{SPACE}/deployments",
    "PodDisruptionBudget": f"/apis/policy/v1/namespaces/{SPACE}/poddisruptionbudgets",
}


@dataclass(frozen=True)
class Evicted:
    """The duration of a run of evictions, the seconds of each request, and the number of granted
    ones."""

    seconds: float
    each: list[float]
    granted: int


@dataclass(frozen=True)
class Probe:
    """A running cluster, its API with an admin's session, and its control API."""

    api: aiohttp.ClientSession
    control: aiohttp.ClientSession

    async def join_nodes(self) -> None:
        """Start all instances and wait until their nodes are Ready."""
        for number in range(NODES):
            await _post(self.control, "/_sandbox/instances", _instance(number))
        until = time.monotonic() + START_TIMEOUT
        ready = since = 0
        while ready < NODES:
            if time.monotonic() > until:
                raise TimeoutError(
                    f"{ready} of {NODES} nodes are Ready after {START_TIMEOUT:.0f} s"
                )
            await asyncio.sleep(0.1)
            found = await _get(self.control, f"/_sandbox/journal?since={since}")
            since = found["next"]
            ready += sum(entry["kind"] == "node-ready" for entry in found["entries"])

    async def run_pods(self) -> None:
        """Create the workloads and wait until all their pods run."""
        for manifest in _workloads():
            await _post(self.api, PATHS[manifest["kind"]], manifest)
        until = time.monotonic() + START_TIMEOUT
        running = 0
        while running < PODS:
            if time.monotonic() > until:
                raise TimeoutError(f"{running} of {PODS} pods run after {START_TIMEOUT:.0f} s")
            await asyncio.sleep(0.1)
            running = (await _get(self.control, "/_sandbox/status"))["running"]

    async def list_pods(self) -> list[float]:
        """List the pods of every node, one after the other. Returns the seconds of each request."""
        found = []
        for number in range(NODES):
            selector = {"fieldSelector": f"spec.nodeName={_name(number)}", "limit": "500"}
            began = time.perf_counter()
            async with self.api.get("/api/v1/pods", params=selector) as answer:
                answer.raise_for_status()
                await answer.read()
            found.append(time.perf_counter() - began)
        return found

    async def evict(self) -> Evicted:
        """Evict pods of all deployments with a number of concurrent clients."""
        listed = await _get(self.api, f"/api/v1/namespaces/{SPACE}/pods")
        names = [pod["metadata"]["name"] for pod in listed["items"]]
        # Names are sorted by deployment, so a stride selects pods of each one.
        chosen = iter(names[:: PODS // EVICTIONS][:EVICTIONS])
        each: list[float] = []
        statuses: list[int] = []
        began = time.perf_counter()
        await asyncio.gather(*(self._evict(chosen, each, statuses) for _ in range(CLIENTS)))
        return Evicted(time.perf_counter() - began, each, statuses.count(201))

    async def _evict(self, names: Iterator[str], each: list[float], statuses: list[int]) -> None:
        for name in names:
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
            path = f"/api/v1/namespaces/{SPACE}/pods/{name}/eviction"
            began = time.perf_counter()
            async with self.api.post(path, json=body) as answer:
                await answer.read()
                statuses.append(answer.status)
            each.append(time.perf_counter() - began)


def _workloads() -> Iterator[Manifest]:
    """Return Deployments, each with a budget that is evaluated at every eviction and blocks
    none."""
    yield namespace(SPACE)
    for number in range(DEPLOYMENTS):
        name = f"web-{number:02}"
        yield budget(SPACE, name, maxUnavailable="100%")
        yield deployment(SPACE, name, PODS // DEPLOYMENTS, pod_spec(grace=5))


def _name(number: int) -> str:
    return f"ip-10-0-{number // 250}-{number % 250}.ec2.internal"


def _instance(number: int) -> dict[str, Any]:
    instance, zone = f"i-{number:017x}", f"us-east-1{'abc'[number % 3]}"
    node = {
        "metadata": {"name": _name(number), "labels": {"topology.kubernetes.io/zone": zone}},
        "spec": {"providerID": f"aws:///{zone}/{instance}"},
        "status": {"capacity": {"cpu": "2", "memory": "8Gi", "pods": "29"}},
    }
    return {"instance": instance, "state": "running", "node": node, "join": None}


async def _get(session: aiohttp.ClientSession, path: str) -> Any:
    async with session.get(path) as answer:
        answer.raise_for_status()
        return await answer.json()


async def _post(session: aiohttp.ClientSession, path: str, body: Manifest) -> None:
    async with session.post(path, json=body) as answer:
        answer.raise_for_status()


def _peak_mb(process: int) -> float | None:
    """Return the peak memory of a process in MB; None if the kernel does not report it."""
    status = Path("/proc") / str(process) / "status"
    if not status.exists():
        return None
    (line,) = [x for x in status.read_text().splitlines() if x.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


def main() -> None:
    """Start the cluster's process, measure, and print the table."""
    with TemporaryDirectory() as folder:
        began = time.perf_counter()
        token = Path(folder) / "control-token"
        headers = bearer(new_token(token))
        arguments = ["--certificate", folder, "--control-token", str(token)]
        child = Child.start("leeway_sandbox.kubernetes", arguments, Path(folder) / "log")
        try:
            ready = child.ready(START_TIMEOUT)
            serves = time.perf_counter() - began
            rows = asyncio.run(_measure(ready, began, headers))
            peak = _peak_mb(child.process.pid)
        finally:
            child.stop()
    table = Table(title=f"The sandbox's cluster: {NODES:,} nodes, {PODS:,} pods")
    table.add_column("what")
    table.add_column("measured", justify="right")
    table.add_row("start until it serves", f"{serves:.1f} s")
    for row in rows:
        table.add_row(*row)
    table.add_row("peak memory", "unknown" if peak is None else f"{peak:.0f} MB")
    Console().print(table)


async def _measure(ready: Any, began: float, headers: dict[str, str]) -> list[tuple[str, str]]:
    """Run all measurements on the cluster; `began` is the start of its process."""
    trust = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=ready["ca"]), limit=CLIENTS)
    admin = {"Authorization": f"Bearer {ready['token']}"}
    async with (
        aiohttp.ClientSession(ready["url"], connector=trust, headers=admin) as api,
        aiohttp.ClientSession(ready["control"], headers=headers) as control,
    ):
        probe = Probe(api, control)
        await probe.join_nodes()
        nodes_ready = time.perf_counter() - began
        await probe.run_pods()
        all_run = time.perf_counter() - began
        listings = await probe.list_pods()
        evicted = await probe.evict()
    return [
        ("start until all nodes are Ready", f"{nodes_ready:.1f} s"),
        ("start until all pods run", f"{all_run:.1f} s"),
        ("list one node's pods, p50 / p99", _milliseconds(listings)),
        (f"evictions, {CLIENTS} clients", f"{len(evicted.each) / evicted.seconds:,.0f} a second"),
        ("one eviction, p50 / p99", _milliseconds(evicted.each)),
        ("granted", f"{evicted.granted:,} of {len(evicted.each):,}"),
    ]


def _milliseconds(seconds: Sequence[float]) -> str:
    return " / ".join(f"{percentile(seconds, at) * 1000:.1f} ms" for at in (0.5, 0.99))
