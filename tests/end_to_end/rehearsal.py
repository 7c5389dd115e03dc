"""Interrupts nodes of a sandbox and tells, from its journals, what became of them."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lightkube import Client, KubeConfig
from lightkube.resources.core_v1 import Event

from sandbox.up import Sandbox

Entry = dict[str, Any]


@dataclass(frozen=True)
class Aftermath:
    """What the sandbox saw since an interruption, and what Leeway said of it."""

    entries: tuple[Entry, ...]

    def of(self, kind: str, **fields: Any) -> list[Entry]:
        """The entries of a kind with these fields."""
        return [
            e
            for e in self.entries
            if e["kind"] == kind and all(e.get(name) == value for name, value in fields.items())
        ]

    def outcomes(self, instance: str) -> list[Entry]:
        """The details of Leeway's own events about an instance."""
        events = self.of("put-events", source="leeway")
        return [e["detail"] for e in events if e["detail"]["instance"] == instance]

    def executions(self, instance: str) -> set[str]:
        """The executions that worked on an instance's retirement; those of others go on beside."""
        names = {e.get("execution") or "" for e in self.of("invocation")}
        return {name for name in names if name.startswith(f"retire-{instance}-")}

    def attempts(self, instance: str) -> list[int]:
        """Which attempts of an instance's retirement were worked on."""
        begins = f"retire-{instance}-"
        names = self.executions(instance)
        return sorted(int(name.removeprefix(begins).partition("-")[0]) for name in names)

    def died(self, nodes: Iterable[str]) -> list[Entry]:
        """The pods, but for daemons', that ended with their node and not by themselves."""
        wanted = set(nodes)
        return [
            e
            for e in self.of("pod-ended", how="died-with-node")
            if e["node"] in wanted and not (e["owner"] or "").startswith("DaemonSet/")
        ]


class Rehearsal:
    """A sandbox whose nodes are used up, one interruption after the other."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self._fresh: list[Entry] = []
        self._used: set[str] = set()

    def take(self, count: int, group: str = "") -> dict[str, str]:
        """Nodes that nothing has happened to yet, as instance → node."""
        entries = self.sandbox.journal()
        groups = {e["instance"]: e["group"] for e in entries if e["kind"] == "instance-state"}
        gone = {e["instance"] for e in entries if e["kind"] in ("node-gone", "reclaimed")}
        found = {
            e["instance"]: e["node"]
            for e in entries
            if e["kind"] == "node-joined"
            and e["instance"] not in self._used | gone
            and group in ("", groups.get(e["instance"]))
        }
        chosen = dict(list(found.items())[:count])
        assert len(chosen) == count, f"only {len(chosen)} fresh nodes are left"
        self._used |= set(chosen)
        return chosen

    def interrupt(
        self, instances: Sequence[str], late: float = 60, patience: float = 90
    ) -> Aftermath:
        """Interrupt these at once and wait until Leeway has said how each of them ended."""
        since = time.time()
        self.sandbox.interrupt(instances, late=late)
        return self.wait(instances, since, patience)

    def wait(self, instances: Iterable[str], since: float, patience: float = 90) -> Aftermath:
        """Wait until Leeway has said how each of these instances ended."""
        until = time.monotonic() + patience
        aftermath = self.since(since)
        while not all(aftermath.outcomes(instance) for instance in instances):
            assert time.monotonic() < until, self._missing(aftermath, instances)
            time.sleep(0.3)
            aftermath = self.since(since)
        # What follows the outcome by a moment: the Kubernetes Event, the execution's end.
        time.sleep(1.5)
        return self.since(since)

    def until[T](self, since: float, found: Callable[[Aftermath], T], patience: float = 60) -> T:
        """Wait for the first truthy finding in what has happened since."""
        end = time.monotonic() + patience
        while not (value := found(self.since(since))):
            assert time.monotonic() < end, self.since(since).of("logs")[-8:]
            time.sleep(0.3)
        return value

    def since(self, moment: float) -> Aftermath:
        """All that happened since."""
        return Aftermath(tuple(e for e in self.sandbox.journal() if e["at"] >= moment))

    def _missing(self, aftermath: Aftermath, instances: Iterable[str]) -> str:
        silent = [i for i in instances if not aftermath.outcomes(i)]
        lines = [str(e["line"])[:300] for e in aftermath.of("logs")][-12:]
        return "no outcome for " + ", ".join(silent) + "\n" + "\n".join(lines)


def events_about(sandbox: Sandbox, node: str) -> list[Event]:
    """The Kubernetes Events that Leeway wrote about a node."""
    with Client(KubeConfig.from_file(sandbox.kubeconfig), trust_env=False) as client:
        listed = list(client.list(Event, namespace="default"))
    return [
        e for e in listed if e.involvedObject.name == node and e.reportingComponent == "leeway"
    ]


def tick(rehearsal: Rehearsal) -> None:
    """Let a minute have passed."""
    (name,) = [s["name"] for s in rehearsal.sandbox.schedules() if "reconcile" in s["name"]]
    assert rehearsal.sandbox.fire(name) == ["leeway-reconcile"]


def until[T](condition: Callable[[], T], patience: float = 60) -> T:
    end = time.monotonic() + patience
    while not (value := condition()):
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.3)
    return value
