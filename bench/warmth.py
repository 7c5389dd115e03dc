"""Measures the wait of a pod with and without headroom, on a sandbox whose group scales out.

The measurement begins with a full cluster. It waits for the headroom of a window, for a real pod
that uses it, and for new headroom.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import boto3
import yaml
from leeway.aws.table import DynamoTable
from leeway.manifests.configuration import StoredManifest, StoredManifests
from leeway.manifests.reading import read_manifests
from leeway_sandbox.sandbox import Sandbox
from leeway_sandbox.scenario import Group, Scenario, deployment, pod_spec
from lightkube import Client, KubeConfig
from lightkube.codecs import from_dict
from lightkube.resources.core_v1 import Pod
from rich.console import Console
from rich.table import Table

NODES = 4
"""The maximum of the group is twice its size; these waits use three nodes of it."""

JOIN = 6
"""Seconds that a node takes to join, ± a fifth; one to two minutes on EC2."""

WAIT_TIMEOUT = 60.0
TICK = 5.0
"""Seconds between runs of keep_headroom; a minute in a deployment."""

WORLD = Scenario(
    "warm",
    (Group("spot", NODES),),
    # One pod for each node, so that no other pod fits.
    (deployment("default", "web", NODES, pod_spec(cpu="1500m", grace=1)),),
)
PAUSE = {"leeway.sh/headroom": "office-room"}


@dataclass(frozen=True)
class Waits:
    """Seconds: the wait of a pod without headroom; how long before the window the headroom was
    ready (`early`); the wait of a pod with headroom; and the time until the headroom was
    refilled."""

    without: float
    early: float
    with_headroom: float
    refill: float


@contextmanager
def growing_sandbox(folder: Path, join: float = JOIN) -> Iterator[Sandbox]:
    """Run a sandbox whose group scales out for pending pods and whose schedules run on command."""
    options = {"kubernetes": ["--node-join", str(join)], "aws": ["--schedule-speed", "0"]}
    with Sandbox.start(WORLD, state_dir=folder, grow=True, options=options) as sandbox:
        yield sandbox


def measure(
    sandbox: Sandbox,
    ahead: timedelta = timedelta(seconds=25),
    lead: timedelta = timedelta(seconds=30),
    *,
    begin: bool = True,
) -> Waits:
    """Measure, beginning with a full cluster.

    The window starts at the first minute that is at least `ahead` away; its headroom may be ready
    `lead` before it. `begin` waits for this start before the real pod is created.

    Raises:
        TimeoutError: a pod does not run, or headroom is not ready.
    """
    with Client(KubeConfig.from_file(sandbox.kubeconfig), trust_env=False) as kube:
        stage = _Stage(sandbox, kube)
        without = stage.run("cold")
        start = _next_minute(datetime.now(UTC) + ahead)
        stage.write(start, lead)
        stage.tick_until(lambda: bool(_running(kube, PAUSE)))
        early = (start - datetime.now(UTC)).total_seconds()
        stage.tick_until(lambda: datetime.now(UTC) >= start or not begin)
        held = _running(kube, PAUSE)
        with_headroom = stage.run("warm")
        began = time.monotonic()
        stage.tick_until(lambda: bool(_running(kube, PAUSE) - held))
        return Waits(without, early, with_headroom, time.monotonic() - began)


class _Stage:
    """The sandbox with the operations of this measurement."""

    def __init__(self, sandbox: Sandbox, kube: Client) -> None:
        self._sandbox = sandbox
        self._kube = kube
        (self._schedule,) = [
            one["name"] for one in sandbox.schedules() if one["name"].endswith("-keep-headroom")
        ]

    def run(self, name: str) -> float:
        """Run one more pod as large as a node. Returns the seconds until it runs."""
        pod = pod_spec(cpu="1500m", grace=1)
        self._kube.create(from_dict(dict(deployment("default", name, 1, pod))))
        began = time.monotonic()
        _until(lambda: bool(_running(self._kube, {"app": name})))
        return time.monotonic() - began

    def write(self, start: datetime, lead: timedelta) -> None:
        """Apply a Headroom with a window of half an hour from this minute on."""
        end = start + timedelta(minutes=30)
        window = {
            "timezone": "UTC",
            "start": f"{start.minute} {start.hour} * * *",
            "end": f"{end.minute} {end.hour} * * *",
            "replicas": 1,
        }
        pod = {"requests": {"cpu": "1500m"}}
        buffer = {"name": "room", "pod": pod, "windows": [window], "leadTime": f"{lead.seconds}s"}
        document = {
            "apiVersion": "leeway.sh/v1",
            "kind": "Headroom",
            "metadata": {"name": "office"},
            "spec": {"buffers": [buffer]},
        }
        (written,) = read_manifests(yaml.safe_dump(document), "bench").written
        environment = self._sandbox.environment()
        client = boto3.client(
            "dynamodb",
            endpoint_url=environment["AWS_ENDPOINT_URL"],
            region_name=environment["AWS_REGION"],
            aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        )
        stored = StoredManifest(
            written.kind.resource, "", written.name, written.body, 1, "bench", datetime.now(UTC)
        )
        writing = StoredManifests(DynamoTable(lambda: client, environment["LEEWAY_TABLE"]))
        writing.write(WORLD.cluster, stored, replaces=0)

    def tick_until(self, condition: Callable[[], bool]) -> None:
        """Run keep_headroom until a condition holds."""
        until = time.monotonic() + 3 * WAIT_TIMEOUT
        due = 0.0
        while not condition():
            if time.monotonic() > until:
                raise TimeoutError("headroom was not kept")
            if time.monotonic() >= due:
                self._sandbox.fire(self._schedule)
                due = time.monotonic() + TICK
            time.sleep(0.05)


def _running(kube: Client, labels: dict[str, str]) -> frozenset[str]:
    """Return the names of running pods with these labels that are not terminating."""
    return frozenset(
        pod.metadata.name
        for pod in kube.list(Pod, namespace="*", labels=dict(labels))
        if pod.metadata and pod.metadata.name and not pod.metadata.deletionTimestamp
        if pod.status and pod.status.phase == "Running"
    )


def _until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_TIMEOUT
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError("a pod does not run")
        time.sleep(0.02)


def _next_minute(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0) + timedelta(minutes=1)


def main() -> None:
    """Measure on a new sandbox, and print the table."""
    with TemporaryDirectory() as folder, growing_sandbox(Path(folder)) as sandbox:
        waits = measure(sandbox)
    table = Table(title=f"The wait of a pod; a node takes {JOIN} s to join")
    table.add_column("what")
    table.add_column("seconds", justify="right")
    table.add_row("a pod without headroom", f"{waits.without:.1f}")
    table.add_row("the headroom is ready before its window starts", f"{waits.early:.1f}")
    table.add_row("a pod with headroom", f"{waits.with_headroom:.1f}")
    table.add_row("until the used headroom is refilled", f"{waits.refill:.1f}")
    Console().print(table)
