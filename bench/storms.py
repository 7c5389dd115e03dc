"""Measures simultaneous Spot interruptions from the notice to the last eviction request."""

import json
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import Group, Manifest, Scenario
from rich.console import Console
from rich.table import Table

from bench.costs import Usage, dollars
from bench.statistics import percentile

SIZES = (1, 10, 100)
PODS_A_NODE = 3
WORKERS = 60
"""Concurrent invocations of a function in a storm of over a hundred. With more, the processors of
this machine are full and invocations time out."""
LEAST_COUNTED = 10
"""The number of interruptions from which the bill of one is meaningful."""
STORM_TIMEOUT = 150.0
"""Seconds within which a storm must end, plus one for each interruption."""
WARNED = 120.0
"""Seconds between a notice and the reclaim by EC2."""
SETTLE = 8.0
"""Seconds after a storm within which the replacements join and the pods run again."""


@dataclass(frozen=True)
class Timing:
    """Seconds from the notice to the cordon and to the last first eviction request of a pod."""

    to_cordon: float | None
    to_evictions: float | None


def world(nodes: int) -> Scenario:
    """Return a cluster of two groups, one of them with a terminate hook."""
    half = nodes // 2
    groups = (Group("hooked", half, terminate_hook=True), Group("plain", nodes - half))
    return Scenario("bench", groups, (_deployment(nodes * PODS_A_NODE),))


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
    """Read from the journals the timings of each instance with a notice after `since`."""
    node_of = {e["instance"]: e["node"] for e in entries if e["kind"] == "node-joined"}
    of_node: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for entry in entries:
        if entry["at"] >= since and "node" in entry:
            of_node[entry["node"]].append(entry)
    found: dict[str, Timing] = {}
    for notice in entries:
        if notice["kind"] != "notice" or notice["at"] < since or notice["instance"] in found:
            continue
        if "Interruption Warning" in notice["detail_type"]:
            after = [e for e in of_node[node_of[notice["instance"]]] if e["at"] >= notice["at"]]
            found[notice["instance"]] = _timing(after, notice["at"])
    return found


def _timing(entries: Sequence[Mapping[str, Any]], start: float) -> Timing:
    cordons = [e["at"] for e in entries if e["kind"] == "node-cordoned"]
    requested: dict[str, float] = {}
    for entry in entries:
        if entry["kind"] == "eviction":
            requested.setdefault(entry["uid"], entry["at"])
    return Timing(
        cordons[0] - start if cordons else None,
        max(requested.values()) - start if requested else None,
    )


@dataclass(frozen=True)
class Storm:
    """One storm: its timings by instance, calls, usage and workers. `died` counts the pods that EC2
    ended with their nodes, `went` the pods that ended in time."""

    timings: Mapping[str, Timing]
    died: int
    went: int
    calls: int
    usage: Usage
    workers: int
    cold: int


def storm(sandbox: Sandbox, instances: Sequence[str]) -> Storm:
    """Interrupt these instances at once, and wait until Leeway has published the result of each."""
    since, before = time.time(), sandbox.status()["aws"]["calls"]
    sandbox.interrupt(instances)
    until = time.monotonic() + STORM_TIMEOUT + len(instances)
    ended: set[str] = set()
    while len(ended) < len(instances) and time.monotonic() < until:
        time.sleep(max(1.0, len(instances) / 200))
        ended = {
            entry["detail"]["instance"]
            for entry in sandbox.journal()
            if entry["kind"] == "put-events" and entry["at"] >= since
        }
    journal = sandbox.journal()
    entries = [entry for entry in journal if entry["at"] >= since]
    status = sandbox.status()
    calls = Counter(status["aws"]["calls"])
    calls.subtract(before)
    functions = status["lambda"]["functions"].values()
    ends = Counter(
        entry["how"] == "died-with-node"
        for entry in entries
        if entry["kind"] == "pod-ended" and not entry["owner"].startswith("DaemonSet/")
    )
    return Storm(
        timings(journal, since),
        ends[True],
        ends[False],
        calls.total(),
        usage(entries, calls, _memory(sandbox)),
        sum(int(function["workers"]) for function in functions),
        sum(e["kind"] == "invocation" and e["cold"] for e in entries),
    )


def usage(
    entries: Sequence[Mapping[str, Any]], calls: Mapping[str, int], memory: Mapping[str, int]
) -> Usage:
    """Return the usage that AWS would charge, from the journals, the calls and the functions'
    memory in MiB."""
    invocations = [e for e in entries if e["kind"] == "invocation"]
    ended = [e for e in entries if e["kind"] == "execution-ended"]
    logs = [e for e in entries if e["kind"] == "logs"]
    return Usage(
        invocations=len(invocations),
        gb_seconds=sum(e["milliseconds"] * memory[e["function"]] for e in invocations)
        / 1000
        / 1024,
        durable_operations=sum(e["operations"] for e in ended),
        durable_bytes=sum(e["written"] for e in ended),
        table_reads=calls.get("dynamodb:GetItem", 0) + calls.get("dynamodb:Query", 0),
        table_writes=calls.get("dynamodb:PutItem", 0) + calls.get("dynamodb:UpdateItem", 0),
        events=calls.get("events:PutEvents", 0),
        log_bytes=sum(len(json.dumps(e["line"])) for e in logs),
    )


def _memory(sandbox: Sandbox) -> dict[str, int]:
    functions = sandbox.deployed.functions if sandbox.deployed else ()
    return {function.name: function.memory for function in functions}


def instances_of(sandbox: Sandbox) -> list[str]:
    """Return all instances that have joined, in this order."""
    return [e["instance"] for e in sandbox.journal() if e["kind"] == "node-joined"]


def main(size: int | None = None) -> None:
    """Run storms of the usual sizes after two warm-up storms, or one warm storm of this size."""
    console = Console()
    table = Table(title="Simultaneous Spot interruptions (seconds after the notice)")
    for column in ("interruptions", "workers", "cold", "cordoned in time", "cordon p50", "p99"):
        table.add_column(column, justify="right")
    table.add_column("last eviction p50", justify="right")
    table.add_column("p99", justify="right")
    table.add_column("pods that died with their node", justify="right")
    plan = [("100, first", 100), ("100, second", 100)]
    plan += [(str(number), number) for number in ([size] if size else SIZES)]
    storms = _run(plan)
    for (name, _), found in zip(plan, storms, strict=True):
        row = _figures(list(found.timings.values()))
        lost = f"{found.died}/{found.died + found.went}"
        table.add_row(name, str(found.workers), str(found.cold), *row, lost)
    console.print(table)
    for (name, number), found in list(zip(plan, storms, strict=True))[2:]:
        if number >= LEAST_COUNTED:
            console.print(_bill(name, number, found))


def _run(plan: Sequence[tuple[str, int]]) -> list[Storm]:
    # Schedules do not run: their calls every minute belong to no storm.
    options = {"aws": ["--schedule-speed", "0"]}
    if max(size for _, size in plan) > max(SIZES):
        options["lambda"] = ["--concurrency", str(WORKERS)]
    needed = sum(size for _, size in plan)
    storms = []
    with TemporaryDirectory() as folder:
        starting = Sandbox.start(world(needed + 20), state_dir=Path(folder), options=options)
        with starting as sandbox:
            run_reconcile(sandbox)
            waiting = instances_of(sandbox)
            for _, size in plan:
                chosen, waiting = waiting[:size], waiting[size:]
                storms.append(storm(sandbox, chosen))
                time.sleep(SETTLE)
    return storms


def run_reconcile(sandbox: Sandbox) -> None:
    """Run reconcile, so that the index has the instances."""
    for schedule in sandbox.schedules():
        if "reconcile" in schedule["name"]:
            since = time.time()
            sandbox.fire(schedule["arn"])
            while not any(
                e["kind"] == "invocation" and "reconcile" in e["function"] and e["at"] > since
                for e in sandbox.journal()
            ):
                time.sleep(0.2)


def _bill(name: str, interruptions: int, found: Storm) -> Table:
    """Return a table of the usage of one interruption, and the price of a thousand."""
    each, costs = found.usage.per(interruptions), dollars(found.usage.per(interruptions))
    table = Table(title=f"{name} interruptions: usage of one, and USD for 1,000")
    for column in ("what", "each", "USD for 1,000"):
        table.add_column(column, justify="left" if column == "what" else "right")
    table.add_row("AWS API calls", f"{found.calls / interruptions:,.1f}", "")
    for what, used in asdict(each).items():
        table.add_row(what.replace("_", " "), f"{used:,.2f}", f"{1000 * costs[what]:.4f}")
    table.add_row("total", "", f"{1000 * costs['total']:.4f}")
    return table


def _figures(found: Sequence[Timing]) -> list[str]:
    cordons = [t.to_cordon for t in found if t.to_cordon is not None]
    evictions = [t.to_evictions for t in found if t.to_evictions is not None]
    return [
        f"{sum(seconds < WARNED for seconds in cordons)}/{len(found)}",
        *(f"{percentile(values, at):.2f}" for values in (cordons, evictions) for at in (0.5, 0.99)),
    ]
