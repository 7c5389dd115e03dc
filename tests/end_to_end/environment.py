"""A sandbox for end-to-end tests: interrupts nodes and reads the journals."""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx2
from leeway import __version__
from leeway.aws.table import DynamoTable
from leeway.manifests.configuration import StoredManifest, StoredManifests
from leeway_sandbox.provisioning import client
from leeway_sandbox.sandbox import Sandbox
from lightkube import Client, KubeConfig
from lightkube.resources.core_v1 import Event

Entry = dict[str, Any]

PATIENCE = 300.0
"""Seconds after which a test fails instead of waiting on. A busy machine may need many of them, and
Leeway repeats a read that failed only after a minute."""

END_WITHIN = 30.0
"""Seconds in which an execution ends after its outcome."""


@dataclass(frozen=True)
class Journal:
    """The journal entries since a time."""

    entries: tuple[Entry, ...]

    def of(self, kind: str, **fields: Any) -> list[Entry]:
        """Return the entries of a kind with these fields."""
        return [
            e
            for e in self.entries
            if e["kind"] == kind and all(e.get(name) == value for name, value in fields.items())
        ]

    def outcomes(self, instance: str) -> list[Entry]:
        """Return the details of the Leeway events about the retirements of an instance."""
        return [e["detail"] for e in self._told(instance) if "kind" in e["detail"]]

    def admissions(self, instance: str) -> list[Entry]:
        """Return the Leeway events about the admissions of an instance."""
        return [e for e in self._told(instance) if "kind" not in e["detail"]]

    def _told(self, instance: str) -> list[Entry]:
        events = self.of("put-events", source="leeway")
        return [e for e in events if e["detail"].get("instance") == instance]

    def executions(self, instance: str) -> set[str]:
        """Return the executions of an instance's retirement."""
        names = {e.get("execution") or "" for e in self.of("invocation")}
        return {name for name in names if name.startswith(f"retire-{instance}-")}

    def running(self, instances: Iterable[str]) -> set[str]:
        """Return the executions about these instances that have begun and have not ended."""
        started = {str(e["execution"]): e["execution_arn"] for e in self.of("execution-started")}
        ended = {e["execution_arn"] for e in self.of("execution-ended")}
        return {
            name
            for name, arn in started.items()
            if arn not in ended and any(instance in name for instance in instances)
        }

    def attempts(self, instance: str) -> list[int]:
        """Return the attempts of an instance's retirement."""
        begins = f"retire-{instance}-"
        names = self.executions(instance)
        return sorted(int(name.removeprefix(begins).partition("-")[0]) for name in names)

    def died(self, nodes: Iterable[str]) -> list[Entry]:
        """Return the pods (without those of DaemonSets) that ended with their node."""
        wanted = set(nodes)
        return [
            e
            for e in self.of("pod-ended", how="died-with-node")
            if e["node"] in wanted and not (e["owner"] or "").startswith("DaemonSet/")
        ]


class Environment:
    """A sandbox whose nodes the tests use, each once."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self._used: set[str] = set()

    def unused_nodes(self, count: int, group: str = "") -> dict[str, str]:
        """Return unused nodes, by instance, which are used from now on."""
        chosen = self.free_nodes(count, group)
        assert len(chosen) == count, f"only {len(chosen)} unused nodes"
        self._used |= set(chosen)
        return chosen

    def free_nodes(self, count: int, group: str = "") -> dict[str, str]:
        """Return unused nodes, by instance, at most so many."""
        entries = self.sandbox.journal()
        groups = {e["instance"]: e["group"] for e in entries if e["kind"] == "instance-state"}
        gone = {e["instance"] for e in entries if e["kind"] in ("node-deleted", "reclaimed")}
        found = {
            e["instance"]: e["node"]
            for e in entries
            if e["kind"] == "node-joined"
            and e["instance"] not in self._used | gone
            and group in ("", groups.get(e["instance"]))
        }
        return dict(list(found.items())[:count])

    def interrupt(self, instances: Sequence[str], late: float = 60) -> Journal:
        """Interrupt instances, and wait until Leeway has published the outcome of each."""
        since = time.time()
        self.sandbox.interrupt(instances, late=late)
        return self.wait(instances, since)

    def wait(
        self,
        instances: Iterable[str],
        since: float,
        told: Callable[[Journal, str], list[Entry]] = Journal.outcomes,
    ) -> Journal:
        """Wait until Leeway has published the outcome of each instance, and its executions have
        ended: the Kubernetes Event follows the outcome. One that goes on is not waited for long."""
        until = time.monotonic() + PATIENCE
        journal = self.since(since)
        while missing := [one for one in instances if not told(journal, one)]:
            assert time.monotonic() < until, self._missing(journal, missing)
            time.sleep(0.3)
            journal = self.since(since)
        until = time.monotonic() + END_WITHIN
        while journal.running(instances) and time.monotonic() < until:
            time.sleep(0.3)
            journal = self.since(since)
        return journal

    def until[T](self, since: float, found: Callable[[Journal], T]) -> T:
        """Return the first truthy result about the entries since a time."""
        end = time.monotonic() + PATIENCE
        while not (value := found(self.since(since))):
            assert time.monotonic() < end, self.since(since).of("logs")[-8:]
            time.sleep(0.3)
        return value

    def since(self, moment: float) -> Journal:
        """Return all entries since a time."""
        return Journal(tuple(e for e in self.sandbox.journal() if e["at"] >= moment))

    def next_run(self, function: str) -> Entry:
        """Run a function as its schedule does, and wait for the end of a run."""

        def ended(seen: Journal) -> list[Entry]:
            return seen.of("invocation", function=function)

        before = len(ended(self.since(0)))
        assert self.sandbox.fire(function) == [function]
        return self.until(0, lambda seen: ended(seen)[before:])[0]

    def end_warm(self, function: str) -> None:
        """End the warm processes of a function, with what they remember, and remove its faults."""
        functions = client("lambda", self.sandbox.lambda_url)
        while self.sandbox.status()["lambda"]["functions"][function]["idle"]:
            self.sandbox.faults("lambda", [{"function": function, "kill": "before"}])
            functions.invoke(FunctionName=function, Payload=b"{}")
        self.sandbox.faults("lambda", [])

    def forget_unavailable_offerings(self) -> None:
        """Remove the marks of offerings as unavailable: an interruption marks that of its instance
        for three minutes."""
        dynamodb = client("dynamodb", self.sandbox.aws_url)
        table = self.sandbox.environment()["LEEWAY_TABLE"]
        for item in dynamodb.scan(TableName=table)["Items"]:
            if item["sk"]["S"].startswith("UNAVAILABLE#"):
                key = {name: item[name] for name in ("pk", "sk")}
                dynamodb.delete_item(TableName=table, Key=key)

    def _missing(self, journal: Journal, missing: Iterable[str]) -> str:
        lines = [str(e["line"])[:300] for e in journal.of("logs")][-12:]
        return "no outcome for " + ", ".join(missing) + "\n" + "\n".join(lines)


def events_about(sandbox: Sandbox, node: str) -> list[Event]:
    """Return the Kubernetes Events of Leeway about a node."""
    with kube_client(sandbox) as client:
        listed = list(client.list(Event, namespace="default"))
    return [e for e in listed if e.involvedObject.name == node and e.reportingComponent == "leeway"]


def say(sandbox: Sandbox, **spec: Any) -> None:
    """Write the Cluster manifest, over the one that there is. A function that has read that one
    keeps it for half a minute."""
    cluster = sandbox.endpoints.cluster
    kind = {"apiVersion": "leeway.sh/v1", "kind": "Cluster"}
    body = json.dumps({**kind, "metadata": {"name": cluster}, "spec": spec})
    table = sandbox.environment()["LEEWAY_TABLE"]
    stored = StoredManifests(DynamoTable(lambda: client("dynamodb", sandbox.aws_url), table))
    before = next((one.version for one in stored.of(cluster, "cluster.leeway.sh")), 0)
    manifest = StoredManifest(
        "cluster.leeway.sh", "", cluster, body, before + 1, __version__, datetime.now(UTC)
    )
    stored.write(cluster, manifest, before)


def first(entries: Sequence[Entry]) -> float:
    """Return the time of the first of some entries."""
    return min(float(entry["at"]) for entry in entries)


def run_reconcile(env: Environment) -> None:
    """Run reconcile once."""
    (name,) = [s["name"] for s in env.sandbox.schedules() if "reconcile" in s["name"]]
    assert env.sandbox.fire(name) == ["leeway-reconcile"]


def kube_client(sandbox: Sandbox) -> Client:
    """Return a client of the sandbox's cluster, whose answers take long on a busy machine."""
    config = KubeConfig.from_file(sandbox.kubeconfig)
    return Client(config, timeout=httpx2.Timeout(PATIENCE), trust_env=False)


def until[T](condition: Callable[[], T], timeout: float = PATIENCE) -> T:
    end = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < end, "the condition did not hold in time"
        time.sleep(0.3)
    return value
