"""The Cluster Protocol with one node in real time, for tests of DrainExecutor with threads."""

import threading
from dataclasses import dataclass, field
from datetime import timedelta

from leeway.clock import SystemClock
from leeway.policy.rules import OnBlocked
from leeway.ports.kubernetes import Event, Marks, NodeCount
from leeway.ports.kubernetes_objects import Attachment, Controller, Node, Pod, Response
from leeway.retirement.executor import DrainExecutor
from leeway.retirement.pods import Terms
from leeway.retirement.progress import Drain

from tests.fakes.pod_feed import ListedPods

GRANTED = Response(201)


def pod(name: str, **more: object) -> Pod:
    return Pod(
        "shop",
        name,
        f"uid-{name}",
        "Running",
        1,
        Controller("ReplicaSet", "web"),
        **more,  # type: ignore[arg-type]
    )


@dataclass
class FakeNode:
    """A cluster of one node, whose pods end as soon as they are evicted.

    - `hangs`: the names of the pods whose evictions hang until `others_done`.
    - `late_pod`: appears when all other pods are gone.
    - `lists`, `balancers`, `volumes`: what the next calls return or raise.
    """

    there: dict[str, Pod]
    attached: list[str] = field(default_factory=list)
    balancers: list[bool | Exception] = field(default_factory=lambda: [True])
    lists: list[Exception] = field(default_factory=list)
    volumes: Exception | None = None
    listed: int = 0
    hangs: frozenset[str] = frozenset()
    others_done: threading.Event = field(default_factory=threading.Event)
    evicted: list[str] = field(default_factory=list)
    late_pod: Pod | None = None
    exclusions: int = 0
    machine: str = "machine-1"
    node_reads: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def watch_pods(self, node: str, selector: str = "") -> ListedPods:
        return ListedPods(self.pods_on, node, lambda seconds: SystemClock().sleep(0.01))

    def pods_on(self, node: str, selector: str = "") -> list[Pod]:
        self.listed += 1
        if self.lists:
            raise self.lists.pop(0)
        with self._lock:
            return list(self.there.values())

    def evict(self, pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        if pod.name in self.hangs:
            assert self.others_done.wait(60), "the other pods are delayed"
        with self._lock:
            self.evicted.append(pod.name)
            self.there.pop(pod.uid, None)
            if not self.there and self.late_pod:
                self.there[self.late_pod.uid], self.late_pod = self.late_pod, None
            if not {p.name for p in self.there.values()} - self.hangs:
                self.others_done.set()
        return GRANTED

    def delete(self, pod: Pod, grace: int | None, dry_run: bool = False) -> Response:
        return self.evict(pod, grace)

    def attachments_on(self, node: str) -> list[Attachment]:
        if self.volumes:
            raise self.volumes
        claim = self.attached.pop(0) if self.attached else ""
        return [Attachment("pv-1", claim)] if claim else []

    def exclude_from_load_balancers(self, node: str) -> bool:
        self.exclusions += 1
        answer = self.balancers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def eviction_is_granted(self, pod: Pod) -> bool:
        return False

    def budgets_of(self, pod: Pod) -> tuple[str, ...]:
        return ("one", "two")

    def node_of(self, instance: str, names: tuple[str, ...]) -> Node | None:
        return None

    def node(self, name: str) -> Node | None:
        self.node_reads += 1
        return Node(name, self.machine, "", True, True, {}) if self.machine else None

    def cordon(self, node: str, marks: Marks | None) -> None: ...

    def release(self, node: str, attempt: int | None = None) -> bool:
        return False

    def set_up(self, node: Node, *more: object) -> bool:
        return True

    def nodes(self) -> list[Node]:
        return []

    def count_nodes(self) -> NodeCount:
        return NodeCount(1, 0)

    def write_event(self, event: Event) -> None: ...


def node_with(*pods: Pod) -> FakeNode:
    return FakeNode({p.uid: p for p in pods})


def drain(cluster: FakeNode, seconds: float = 30, **more: object) -> Drain:
    now = SystemClock().now()
    terms = Terms(now + timedelta(seconds=seconds), OnBlocked.DELETE)
    until = now + timedelta(minutes=1)
    executor = DrainExecutor(cluster, SystemClock())
    return executor.run("node-1", Drain(), terms, until, **more)  # type: ignore[arg-type]
