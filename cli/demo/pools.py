"""The pools of a demo: their workloads, their first nodes, and new nodes for pending pods.

`leeway launch` launches the nodes, in a process of its own with the environment of the sandbox.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import urllib3

from cli.errors import CannotBeDoneError
from cli.reasons import POOL_NOT_STARTED
from sandbox.children import ROOT
from sandbox.provisioning import create_workloads
from sandbox.scenario import Scenario

if TYPE_CHECKING:
    from sandbox.sandbox import Sandbox

READY_WITHIN = "60s"
PAUSE = 0.5  # seconds between two looks at pending pods
STOP_TIMEOUT = 5.0  # seconds


def start_pools(
    sandbox: "Sandbox", scenario: Scenario, show: Callable[[str, int, int | None], None]
) -> None:
    """Create the workloads of the pools, launch their nodes, and wait until the pods run.

    Raises:
        CannotBeDoneError: `leeway launch` failed.
    """
    if not scenario.pools:
        return
    show("launching the nodes of pools", 0, None)
    workloads = [manifest for pool in scenario.pools for manifest in pool.workloads]
    create_workloads(workloads, sandbox.write_kubeconfig())
    pending = _Pending(sandbox, scenario)
    while not pending.pods():
        time.sleep(PAUSE)
    if problem := pending.launch():
        raise CannotBeDoneError(POOL_NOT_STARTED(error=problem))
    nodes = sum(pool.nodes for pool in scenario.pools)
    pods = sum(pool.pods for pool in scenario.pools)
    sandbox.wait_for(scenario.nodes + nodes, scenario.pods + pods, show)


@contextmanager
def launching(sandbox: "Sandbox", scenario: Scenario) -> Iterator[None]:
    """Launch nodes for pending pods of the pools while the context lasts."""
    stop = threading.Event()
    pending = _Pending(sandbox, scenario)

    def work() -> None:
        while not stop.wait(PAUSE):
            if pending.pods():
                pending.launch()

    thread = threading.Thread(target=work, daemon=True)
    if scenario.pools:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        if scenario.pools:
            thread.join(STOP_TIMEOUT)


class _Pending:
    """The pods of pools that have no node, and `leeway launch` for them."""

    def __init__(self, sandbox: "Sandbox", scenario: Scenario) -> None:
        self._sandbox = sandbox
        self._cluster = scenario.cluster
        self._manifests = [manifest for pool in scenario.pools for manifest in pool.manifests]
        self._spaces = {
            manifest["metadata"]["namespace"]
            for pool in scenario.pools
            for manifest in pool.workloads
            if "namespace" in manifest["metadata"]
        }
        self._environment = {**os.environ, **sandbox.environment()}
        self._http = urllib3.PoolManager(
            ca_certs=sandbox.endpoints.ca,
            headers={"Authorization": f"Bearer {sandbox.endpoints.token}"},
        )

    def pods(self) -> list[Mapping[str, Any]]:
        """Return the pods without a node, in the namespaces of the pools."""
        return [
            pod
            for pod in self._list("v1", "pods")
            if pod["metadata"]["namespace"] in self._spaces
            and not pod["spec"].get("nodeName")
            and "deletionTimestamp" not in pod["metadata"]
        ]

    def launch(self) -> str:
        """Launch nodes for the pending pods; return an error message, empty if there is none."""
        folder = self._sandbox.state_dir
        running = [*self._list("v1", "nodes"), *self._list("v1", "pods")]
        running += self._list("apps/v1", "daemonsets")
        command = [sys.executable, "-m", "cli", "launch", "--cluster", self._cluster]
        command += ["-f", str(_write(folder / "pools.json", self._manifests))]
        command += ["--pods", str(_write(folder / "pending.json", self.pods()))]
        command += ["--nodes", str(_write(folder / "running.json", running))]
        command += ["--kubeconfig", str(self._sandbox.kubeconfig), "--timeout", READY_WITHIN]
        done = subprocess.run(
            command, cwd=ROOT, env=self._environment, capture_output=True, text=True, check=False
        )
        return "" if done.returncode == 0 else done.stderr.strip()

    def _list(self, version: str, resource: str) -> list[dict[str, Any]]:
        base = "api/v1" if version == "v1" else f"apis/{version}"
        answer = self._http.request("GET", f"{self._sandbox.kubernetes_url}/{base}/{resource}")
        listed = answer.json()
        kind = listed["kind"].removesuffix("List")
        return [{"apiVersion": version, "kind": kind, **item} for item in listed["items"]]


def _write(path: Path, documents: list[Any]) -> Path:
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))
    return path
