"""Measures how long a node of 100 pods takes to drain: Leeway, `kubectl drain`, a bare client."""

import asyncio
import base64
import json
import shutil
import ssl
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import aiohttp
from leeway.clock import SystemClock
from leeway.policy.rules import OnBlocked
from leeway.retirement.executor import DrainExecutor
from leeway.retirement.pods import Terms
from leeway.retirement.progress import Drain
from leeway_cli.kubeconfig import kubeconfig_cluster
from leeway_sandbox.access import bearer, new_token
from leeway_sandbox.children import Child
from leeway_sandbox.scenario import Manifest
from rich.console import Console
from rich.table import Table

PODS = 100
ROUNDS = 3
START_TIMEOUT = 60.0
"""Seconds within which the cluster must start and the pods of a node must run."""

SPACE = "/api/v1/namespaces/default/pods"


@dataclass(frozen=True)
class Drained:
    """The result of one drain: seconds from the start to the last eviction request and to the end,
    calls of the API, and CPU seconds of this process (not of child processes)."""

    last_request: float
    end: float
    calls: int
    cpu: float


class Probe:
    """A running cluster with its API and its control API."""

    def __init__(self, ready: Any, folder: Path, control_token: str) -> None:
        self.url: str = ready["url"]
        self.token: str = ready["token"]
        self.trust = ssl.create_default_context(cafile=ready["ca"])
        self.kubeconfig = folder / "kubeconfig"
        self._control: str = ready["control"]
        self._control_token = control_token
        authority = base64.b64encode(Path(ready["ca"]).read_bytes()).decode()
        cluster = {"server": self.url, "certificate-authority-data": authority}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "bench", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "admin"}}],
            "current-context": "bench",
        }
        self.kubeconfig.write_text(json.dumps(content))

    def control(self, path: str, body: Manifest | None = None) -> Any:
        """Call the control API."""
        return self._send(f"{self._control}{path}", body, self._control_token)

    def api(self, path: str, body: Manifest | None = None) -> Any:
        """Call the API server as its admin."""
        return self._send(f"{self.url}{path}", body, self.token)

    def calls(self) -> int:
        """Return the number of calls of the API so far."""
        calls: dict[str, dict[str, int]] = self.control("/_sandbox/status")["calls"]
        return Counter({user: sum(by.values()) for user, by in calls.items()}).total()

    def fill_node(self, number: int) -> str:
        """Start a node and wait until its pods run; return its name."""
        name, instance = f"ip-10-0-0-{number}.ec2.internal", f"i-{number:017x}"
        node = {
            "metadata": {"name": name},
            "spec": {"providerID": f"aws:///us-east-1a/{instance}"},
            "status": {"capacity": {"cpu": "64", "memory": "256Gi", "pods": "110"}},
        }
        body = {"instance": instance, "state": "running", "node": node, "join": 0}
        self.control("/_sandbox/instances", body)
        since = time.monotonic()
        while f'"{name}"' not in json.dumps(self.api("/api/v1/nodes")):
            _check(since)
        for pod in range(PODS):
            self.api(SPACE, _pod(f"web-{number}-{pod}", name))
        while self._running(name) < PODS:
            _check(since)
        return name

    def last_request(self, node: str, since: float) -> float:
        """Return when the termination of the last pod of a node was requested, in seconds after a
        time."""
        entries = self.control("/_sandbox/journal")["entries"]
        requested = [e["at"] for e in entries if e["kind"] == "pod-deletion" and e["node"] == node]
        assert len(requested) == PODS, f"{len(requested)} of {PODS} pods got a termination request"
        return float(max(requested)) - since

    def _running(self, node: str) -> int:
        pods = self.api(f"{SPACE}?fieldSelector=spec.nodeName%3D{node}")["items"]
        return sum(pod["status"].get("phase") == "Running" for pod in pods)

    def _send(self, url: str, body: Manifest | None, token: str) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {**bearer(token), "Content-Type": "application/json"}
        request = urllib.request.Request(url, data, headers)  # noqa: S310 (the sandbox's own)
        trust = self.trust if url.startswith("https") else None
        with urllib.request.urlopen(request, context=trust, timeout=10) as answer:  # noqa: S310
            return json.load(answer)


def _check(since: float) -> None:
    if time.monotonic() - since > START_TIMEOUT:
        raise TimeoutError("the sandbox's cluster did not come up")
    time.sleep(0.1)


def _pod(name: str, node: str) -> Manifest:
    container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": "100m"}}}
    spec = {"nodeName": node, "terminationGracePeriodSeconds": 1, "containers": [container]}
    return {"metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec}


def by_engine(probe: Probe, node: str) -> Callable[[], None]:
    """Drain as a warm `retire_node` does, with cordon and load balancers. Like the bare client, it
    has read the cluster already and has no open connection."""
    cluster = kubeconfig_cluster(probe.kubeconfig)
    clock = SystemClock()

    def drain() -> None:
        now = clock.now()
        terms = Terms(now + timedelta(seconds=115), OnBlocked.DELETE)
        cluster.cordon(node, None)
        drain = DrainExecutor(cluster, clock).run(node, Drain(), terms, now + timedelta(minutes=1))
        assert drain.drained, drain
        cluster.close()

    return drain


def by_command(probe: Probe, node: str) -> Callable[[], None]:
    """Drain with `leeway drain`, in its own process."""
    leeway = [sys.executable, "-m", "leeway_cli", "drain", node, "--force"]
    return partial(_run, [*leeway, "--kubeconfig", str(probe.kubeconfig)])


def by_kubectl(probe: Probe, node: str) -> Callable[[], None]:
    """Drain with `kubectl drain`, in its own process."""
    kubectl = ["kubectl", "--kubeconfig", str(probe.kubeconfig)]
    return partial(_run, [*kubectl, "drain", node, "--force"])


def by_bare_client(probe: Probe, node: str) -> Callable[[], None]:
    """List the pods, evict all at once, and watch until all are gone: the minimum of a drain."""
    return lambda: asyncio.run(_evict_all(probe, node))


async def _evict_all(probe: Probe, node: str) -> None:
    connector = aiohttp.TCPConnector(ssl=probe.trust, limit=64)
    headers = {"Authorization": f"Bearer {probe.token}"}
    selected = {"fieldSelector": f"spec.nodeName={node}"}
    async with aiohttp.ClientSession(probe.url, connector=connector, headers=headers) as api:
        cordon = {"spec": {"unschedulable": True}}
        merge = {"Content-Type": "application/merge-patch+json"}
        body = json.dumps(cordon)
        (await api.patch(f"/api/v1/nodes/{node}", data=body, headers=merge)).raise_for_status()
        async with api.get("/api/v1/pods", params=selected) as answer:
            listed = await answer.json()
        left = {pod["metadata"]["name"] for pod in listed["items"]}
        version = listed["metadata"]["resourceVersion"]
        watched = {**selected, "watch": "true", "resourceVersion": version}
        async with api.get("/api/v1/pods", params=watched) as watch:
            requests = asyncio.gather(*(_evict(api, name) for name in left))
            while left:
                event = json.loads(await watch.content.readline())
                if event["type"] == "DELETED":
                    left.discard(event["object"]["metadata"]["name"])
            await requests


async def _evict(api: aiohttp.ClientSession, name: str) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    async with api.post(f"{SPACE}/{name}/eviction", json=body) as answer:
        answer.raise_for_status()


def _run(command: list[str]) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


type Way = Callable[[Probe, str], Callable[[], None]]
"""Prepares a way to drain a node, before the measurement starts."""

WAYS: dict[str, Way] = {
    "bare client": by_bare_client,
    "Leeway, warm": by_engine,
    "leeway drain": by_command,
    "kubectl drain": by_kubectl,
}


def _measure(probe: Probe, way: Way, number: int) -> Drained:
    node = probe.fill_node(number)
    drain = way(probe, node)
    calls, began, cpu = probe.calls(), time.time(), process_time()
    drain()
    end, cpu = time.time() - began, process_time() - cpu
    return Drained(probe.last_request(node, began), end, probe.calls() - calls, cpu)


def main() -> None:
    """Drain full nodes, each way in turn, and print the median of each."""
    table = Table(title=f"One node of {PODS} pods with a grace of 1 s, median of {ROUNDS}")
    for title in ("", "last eviction request", "drained", "API calls", "least CPU"):
        table.add_column(title, justify="right" if title else "left")
    ways = {name: way for name, way in WAYS.items() if _is_here(name)}
    found: dict[str, list[Drained]] = {name: [] for name in ways}
    with TemporaryDirectory() as folder:
        file = Path(folder) / "control-token"
        token = new_token(file)
        arguments = ["--certificate", folder, "--control-token", str(file)]
        child = Child.start("leeway_sandbox.kubernetes", arguments, Path(folder) / "log")
        try:
            probe = Probe(child.ready(START_TIMEOUT), Path(folder), token)
            for turn in range(ROUNDS * len(ways)):
                name = list(ways)[turn % len(ways)]
                found[name].append(_measure(probe, ways[name], turn + 1))
        finally:
            child.stop()
    for name, runs in found.items():
        middle = sorted(runs, key=lambda run: run.end)[len(runs) // 2]
        times = (f"{middle.last_request:.2f} s", f"{middle.end:.2f} s")
        cpu = min(run.cpu for run in runs)
        own = f"{cpu * 1000:.0f} ms" if WAYS[name] in (by_engine, by_bare_client) else ""
        table.add_row(name, *times, str(middle.calls), own)
    Console().print(table)


def _is_here(name: str) -> bool:
    return not name.startswith("kubectl") or shutil.which("kubectl") is not None
