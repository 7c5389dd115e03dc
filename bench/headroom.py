"""Measures one run of keep_headroom: its duration and calls with 200 manifests in 20 clusters."""

import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import boto3
import yaml
from leeway.aws.table import DynamoTable
from leeway.clock import SystemClock
from leeway.headroom.keep_headroom import KeepHeadroom
from leeway.headroom.pause_pods import NAMESPACE
from leeway.kubernetes.connection import Connection
from leeway.kubernetes.workloads import HttpWorkloads
from leeway.manifests.configuration import Configuration, StoredManifest, StoredManifests
from leeway.manifests.headroom import desired_headroom
from leeway.manifests.reading import Written, read_manifests
from leeway.reasons import Reason
from leeway_cli.kubeconfig import kubeconfig_connection
from leeway_sandbox.access import new_token
from leeway_sandbox.children import Child
from leeway_sandbox.provisioning import kubeconfig
from leeway_sandbox.scenario import deployment, pod_spec
from rich.console import Console
from rich.table import Table

from bench.statistics import percentile

CLUSTERS = 20
BUFFERS, TARGETS = 5, 5
"""Manifests of each kind in each cluster."""

QUIET_TICKS = 5
START_TIMEOUT = 120.0
STATE = "headroom"

ALWAYS = {"timezone": "UTC", "start": "*/2 * * * *", "end": "* * * * *"}
"""A window that is always open."""


@dataclass(frozen=True)
class Measured:
    """The duration of one run in seconds, and its calls of each API."""

    seconds: float
    kubernetes: int
    dynamodb: int
    problems: int


class Bench:
    """The clusters, the table and the use case. Each run builds the use case again, so that it
    reads everything as a cold function does."""

    def __init__(self, table: str, dynamodb: Any, connections: dict[str, Connection]) -> None:
        self.calls = {"kubernetes": 0, "dynamodb": 0}
        for connection in connections.values():
            connection.plain.event_hooks["request"].append(self._count_kubernetes)
        dynamodb.meta.events.register("before-call", self._count_dynamodb)
        self._table = table
        self._dynamodb = dynamodb
        self._connections = connections
        self._at = SystemClock()

    def _count_kubernetes(self, _request: object) -> None:
        self.calls["kubernetes"] += 1

    def _count_dynamodb(self, **_: object) -> None:
        self.calls["dynamodb"] += 1

    def manifest_problem(self, cluster: str, manifest: str, reason: Reason) -> None:
        """Fail: a problem makes the measurement invalid."""
        raise AssertionError(f"{cluster}: {manifest}: {reason}")

    def tick(self) -> Measured:
        """Run once without caches, as a function that has just started."""
        manifests = StoredManifests(DynamoTable(lambda: self._dynamodb, self._table))
        configuration = Configuration(manifests, self._at, self)
        keeper = KeepHeadroom(
            desired=partial(desired_headroom, configuration),
            count_invalid=configuration.faulty,
            table=DynamoTable(lambda: self._dynamodb, self._table, self._at),
            workloads_in=cache(lambda name: HttpWorkloads(self._connections[name])),
            report=lambda _: None,
            clock=self._at,
        )
        before = dict(self.calls)
        began = time.perf_counter()
        reports = keeper.run(self._connections)
        return Measured(
            time.perf_counter() - began,
            self.calls["kubernetes"] - before["kubernetes"],
            self.calls["dynamodb"] - before["dynamodb"],
            sum(len(one.problems) + bool(one.problem) for one in reports),
        )


def main() -> None:
    """Start the clusters and the table, write the manifests, run, and print the table."""
    with TemporaryDirectory() as folder, ExitStack() as stack:
        bench = _start(Path(folder), stack)
        first = bench.tick()
        quiet = [bench.tick() for _ in range(QUIET_TICKS)]
    count = CLUSTERS * (BUFFERS + TARGETS)
    table = Table(title=f"A run of keep_headroom: {count} manifests, {CLUSTERS} clusters")
    for title in ("tick", "seconds", "Kubernetes calls a manifest", "DynamoDB calls a cluster"):
        table.add_column(title, justify="left" if title == "tick" else "right")
    table.add_row("the first: all is made", *_figures([first], count))
    table.add_row(f"nothing changes ({QUIET_TICKS} ticks)", *_figures(quiet, count))
    Console().print(table)
    assert not first.problems
    assert not any(one.problems for one in quiet)


def _figures(ticks: Sequence[Measured], count: int) -> tuple[str, str, str]:
    seconds = [one.seconds for one in ticks]
    shown = f"{percentile(seconds, 0.5):.2f}"
    if len(ticks) > 1:
        shown += f" (at most {max(seconds):.2f})"
    kubernetes = sum(one.kubernetes for one in ticks) / len(ticks) / count
    dynamodb = sum(one.dynamodb for one in ticks) / len(ticks) / CLUSTERS
    return shown, f"{kubernetes:.2f}", f"{dynamodb:.2f}"


def _start(folder: Path, stack: ExitStack) -> Bench:
    names = [f"cluster-{number:02}" for number in range(CLUSTERS)]
    new_token(folder / "control-token")
    control = ["--control-token", str(folder / "control-token")]
    aws = Child.start("leeway_sandbox.aws", control, folder / "aws.log")
    stack.callback(aws.stop)
    children = {}
    for name in names:
        arguments = ["--certificate", str(folder / name), "--cluster-name", name, *control]
        children[name] = Child.start("leeway_sandbox.kubernetes", arguments, folder / f"{name}.log")
        stack.callback(children[name].stop)
    dynamodb = _table(str(aws.ready(START_TIMEOUT)["url"]))
    connections: dict[str, Connection] = {}
    for name, child in children.items():
        ready = child.ready(START_TIMEOUT)
        config = folder / f"{name}.yaml"
        config.write_text(
            yaml.safe_dump(kubeconfig(name, ready["url"], ready["ca"], ready["token"]))
        )
        connections[name] = stack.enter_context(closing(kubeconfig_connection(config)))
        _furnish(connections[name])
        _write(dynamodb, name)
    return Bench(STATE, dynamodb, connections)


def _table(url: str) -> Any:
    client = boto3.client(
        "dynamodb",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="bench",
        aws_secret_access_key="bench",  # noqa: S106 (the sandbox accepts any)
    )
    keys = (("pk", "HASH"), ("sk", "RANGE"))
    client.create_table(
        TableName=STATE,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": k, "AttributeType": "S"} for k, _ in keys],
        KeySchema=[{"AttributeName": k, "KeyType": kind} for k, kind in keys],
    )
    return client


def _furnish(connection: Connection) -> None:
    """Create Leeway's namespace and the Deployments that the ScaledObjects scale."""
    namespace = {"metadata": {"name": NAMESPACE}}
    connection.plain.request("POST", "/api/v1/namespaces", json=namespace).raise_for_status()
    for number in range(TARGETS):
        body = deployment("default", f"web-{number}", 1, pod_spec(grace=5))
        answer = connection.plain.request(
            "POST", "/apis/apps/v1/namespaces/default/deployments", json=body
        )
        answer.raise_for_status()


def _write(dynamodb: Any, cluster: str) -> None:
    writing = StoredManifests(DynamoTable(lambda: dynamodb, STATE))
    for one in _manifests():
        now = datetime.now(UTC) - timedelta(minutes=5)
        body = StoredManifest(one.kind.resource, one.namespace, one.name, one.body, 1, "bench", now)
        writing.write(cluster, body, replaces=0)


@cache
def _manifests() -> tuple[Written, ...]:
    """Return the manifests of one cluster."""
    documents: list[dict[str, Any]] = []
    for number in range(BUFFERS):
        buffer = {
            "name": "warm",
            "pod": {"requests": {"cpu": "1", "memory": "2Gi"}},
            "windows": [{**ALWAYS, "replicas": 3}],
            "linear": {"nodesPerReplica": 10},
        }
        documents.append(
            {
                "apiVersion": "leeway.sh/v1",
                "kind": "Headroom",
                "metadata": {"name": f"pool-{number}"},
                "spec": {"buffers": [buffer]},
            }
        )
    for number in range(TARGETS):
        trigger = {"type": "cron", "metadata": {**ALWAYS, "desiredReplicas": "4"}}
        documents.append(
            {
                "apiVersion": "keda.sh/v1alpha1",
                "kind": "ScaledObject",
                "metadata": {"name": f"web-{number}"},
                "spec": {"scaleTargetRef": {"name": f"web-{number}"}, "triggers": [trigger]},
            }
        )
    reading = read_manifests(yaml.safe_dump_all(documents), "bench")
    assert not reading.problems
    return reading.written
