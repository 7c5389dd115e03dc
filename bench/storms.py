"""How long simultaneous Spot interruptions take, from the notice to the last eviction request."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.statistics import percentile
from sandbox.up import Sandbox
from sandbox.world import Group, Manifest, World

SIZES = (1, 10, 100)
PODS_A_NODE = 3
PATIENCE = 150.0
SETTLE = 8.0
"""Seconds after a storm, until its successors have joined and its pods run again."""


@dataclass(frozen=True)
class Timing:
    """Seconds from the notice to the cordon and to the last first-time eviction request."""

    to_cordon: float | None
    to_evictions: float | None


def world(nodes: int) -> World:
    """A cluster of two groups, one of them with a terminate hook."""
    half = nodes // 2
    groups = (Group("hooked", half, terminate_hook=True), Group("plain", nodes - half))
    return World("bench", groups, (_deployment(nodes * PODS_A_NODE),))


def _deployment(replicas: int) -> Manifest:
    labels = {"app": "web"}
    container = {"name": "web", "image": "web", "resources": {"requests": {"cpu": "100m"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 5},
            },
        },
    }


def timings(entries: Sequence[Mapping[str, Any]], since: float) -> dict[str, Timing]:
    """Read from the journals what became of each instance that was noticed after `since`."""
    node_of = {e["instance"]: e["node"] for e in entries if e["kind"] == "node-joined"}
    found = {}
    noticed = [e for e in entries if e["kind"] == "notice" and e["at"] >= since]
    for notice in noticed:
        if "Interruption Warning" not in notice["detail_type"] or notice["instance"] in found:
            continue
        node, start = node_of[notice["instance"]], notice["at"]
        on_node = [e for e in entries if e.get("node") == node and e["at"] >= start]
        cordons = [e["at"] for e in on_node if e["kind"] == "node-cordoned"]
        asked: dict[str, float] = {}
        for entry in on_node:
            if entry["kind"] == "eviction":
                asked.setdefault(entry["uid"], entry["at"])
        found[notice["instance"]] = Timing(
            cordons[0] - start if cordons else None,
            max(asked.values()) - start if asked else None,
        )
    return found


def storm(sandbox: Sandbox, instances: Sequence[str]) -> tuple[dict[str, Timing], int, int]:
    """Interrupt these instances at once; their timings, how many workers then run, and how many
    of those were started meanwhile."""
    since = time.time()
    sandbox.interrupt(instances)
    until = time.monotonic() + PATIENCE
    ended: set[str] = set()
    while len(ended) < len(instances) and time.monotonic() < until:
        time.sleep(1)
        ended = {
            entry["detail"]["instance"]
            for entry in sandbox.journal()
            if entry["kind"] == "put-events" and entry["at"] >= since
        }
    entries = sandbox.journal()
    cold = sum(e["at"] >= since and e["kind"] == "invocation" and e["cold"] for e in entries)
    return timings(entries, since), _workers(sandbox), cold


def _workers(sandbox: Sandbox) -> int:
    functions = sandbox.status()["lambda"]["functions"]
    return sum(int(function["workers"]) for function in functions.values())


def _instances(sandbox: Sandbox) -> list[str]:
    return [e["instance"] for e in sandbox.journal() if e["kind"] == "node-joined"]


def main() -> None:
    """Run the storms, the first two of them to warm up, and print the table."""
    console = Console()
    table = Table(title="Simultaneous Spot interruptions (seconds after the notice)")
    for column in ("interruptions", "workers", "cold", "cordoned", "cordon p50", "p99"):
        table.add_column(column, justify="right")
    table.add_column("last eviction p50", justify="right")
    table.add_column("p99", justify="right")
    plan = [
        ("100, first", 100),
        ("100, second", 100),
        *((str(size), size) for size in SIZES),
    ]
    with TemporaryDirectory() as folder:
        needed = sum(size for _, size in plan)
        with Sandbox.start(world(needed + 20), state_dir=Path(folder)) as sandbox:
            waiting = _instances(sandbox)
            for name, size in plan:
                chosen, waiting = waiting[:size], waiting[size:]
                found, workers, cold = storm(sandbox, chosen)
                table.add_row(name, str(workers), str(cold), *_figures(list(found.values())))
                time.sleep(SETTLE)
    console.print(table)


def _figures(found: Sequence[Timing]) -> list[str]:
    cordons = [t.to_cordon for t in found if t.to_cordon is not None]
    evictions = [t.to_evictions for t in found if t.to_evictions is not None]
    return [
        f"{len(cordons)}/{len(found)}",
        *(f"{percentile(values, at):.2f}" for values in (cordons, evictions) for at in (0.5, 0.99)),
    ]
