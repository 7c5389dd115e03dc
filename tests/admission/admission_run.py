"""An admission and all its dependencies in memory, with simulated time."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from leeway.admission.admit_node import AdmitNode
from leeway.admission.outcome import AdmissionOutcome
from leeway.admission.record import ADMISSION, Admission
from leeway.execution.attempt import AttemptId
from leeway.instances.facts import ObservedInstance
from leeway.notices import LifecycleHook
from leeway.pool_pauses import POOL, PoolRecord
from leeway.ports.aws import (
    CloudRefused,
    CloudUnavailable,
    HookResult,
    HookSettings,
    LifecycleActionOver,
)
from leeway.ports.kubernetes import ClusterRefused, ClusterUnavailable, Event
from leeway.ports.kubernetes_objects import Node, Taint
from leeway.reasons import Reason

from tests.fakes.table import Stored, TableInMemory
from tests.retirement.retirements import FACTS, NOTICED

ATTEMPT = AttemptId(FACTS.instance, FACTS.cluster, 1)
NODE = Node(FACTS.private_dns_name, "uid", f"aws:///us-east-1a/{FACTS.instance}", False, True, {})
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


@dataclass
class Dependencies:
    """All dependencies of an admission. `at` has changes of the state, by when they happen."""

    first: Admission
    nodes: dict[str, Node] = field(default_factory=dict)
    at: dict[datetime, Callable[["Dependencies"], None]] = field(default_factory=dict)
    manufacturers: tuple[str, ...] = ()
    type_errors: list[Exception] = field(default_factory=list)
    down: bool = False
    labels_allowed: bool = True
    table: TableInMemory = field(default_factory=TableInMemory)
    observed: ObservedInstance | None = None
    observe_errors: list[Exception] = field(default_factory=list)
    terminate_errors: list[Exception] = field(default_factory=list)
    terminated: list[str] = field(default_factory=list)
    set_ups: list[tuple[str, ...]] = field(default_factory=list)
    timeout: int = 300
    has_target: bool = False
    refusals: int = 0
    events_allowed: bool = True
    now_: datetime = NOTICED
    operations: int = 0
    lists: int = 0
    heartbeats: list[datetime] = field(default_factory=list)
    answers: list[HookResult] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)
    details: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.record = self.first

    @property
    def record(self) -> Admission:
        return self.table.records(ADMISSION)[self.first.instance]

    @record.setter
    def record(self, record: Admission) -> None:
        self.table.records(ADMISSION)[record.instance] = record

    @property
    def pools(self) -> Stored[PoolRecord]:
        return self.table.records(POOL, by="pool")

    # Clock
    def now(self) -> datetime:
        self.now_ += timedelta(milliseconds=1)
        for moment in [moment for moment in self.at if moment <= self.now_]:
            self.at.pop(moment)(self)
        return self.now_

    def sleep(self, seconds: float) -> None:
        self.now_ += timedelta(seconds=max(0.0, seconds))

    # Steps: a step that fails is retried, as the durable engine does.
    def run[T](self, name: str, kind: type[T], work: Callable[[], T]) -> T:
        self.operations += 1
        for _ in range(100):
            try:
                return work()
            except (ClusterUnavailable, CloudUnavailable):
                self.sleep(30)
        raise AssertionError(f"{name} failed a hundred times")

    def wait(self, name: str, seconds: int) -> None:
        self.operations += 1
        self.sleep(seconds)

    # LaunchedInstances
    def observe(self, instance: str) -> ObservedInstance | None:
        if self.observe_errors:
            raise self.observe_errors.pop()
        return self.observed

    def terminate(self, instance: str) -> None:
        if self.terminate_errors:
            raise self.terminate_errors.pop()
        self.terminated.append(instance)

    # InstanceTypes and Groups
    def accelerators(self, instance_type: str) -> tuple[str, ...]:
        if self.type_errors:
            raise self.type_errors.pop()
        return self.manufacturers

    def hook_settings(self, hook: LifecycleHook) -> HookSettings:
        return HookSettings(self.timeout, self.has_target)

    def heartbeat(self, instance: str, hook: LifecycleHook) -> None:
        self._fail_unless_the_hook_waits()
        self.heartbeats.append(self.now_)

    def complete(self, instance: str, hook: LifecycleHook, result: HookResult) -> None:
        if self.refusals:
            self.refusals -= 1
            raise CloudRefused("AccessDenied: autoscaling:CompleteLifecycleAction")
        self._fail_unless_the_hook_waits()
        self.answers.append(result)

    def _fail_unless_the_hook_waits(self) -> None:
        alive = (self.heartbeats or [NOTICED])[-1] + self.timeout * SECOND
        if self.now_ > alive or self.answers:
            raise LifecycleActionOver("No active Lifecycle Action found")

    # Cluster
    def node(self, name: str) -> Node | None:
        self._fail_if_down()
        return self.nodes.get(name)

    def node_of(self, instance: str, names: tuple[str, ...]) -> Node | None:
        self._fail_if_down()
        self.lists += 1
        return next((n for n in self.nodes.values() if n.runs_on(instance)), None)

    def set_up(
        self,
        node: Node,
        labels: Mapping[str, str],
        taints: Sequence[Taint] = (),
        without: Collection[str] = (),
        annotations: Mapping[str, str] | None = None,
    ) -> bool:
        if not self.labels_allowed:
            raise ClusterRefused('403: cannot patch resource "nodes"')
        current = self.nodes.get(node.name)
        if current is None or current.uid != node.uid:
            return False
        kept = tuple(one for one in current.taints if one.key not in without)
        changed = replace(
            current,
            labels={**current.labels, **labels},
            taints=(*kept, *taints),
            annotations={**current.annotations, **(annotations or {})},
        )
        self.nodes[node.name] = changed
        self.set_ups.append(tuple(sorted(labels)))
        return True

    def write_event(self, event: Event) -> None:
        self._fail_if_down()
        self.events.append((event.reason, event.message))

    def _fail_if_down(self) -> None:
        if self.down:
            raise ClusterUnavailable("connection refused")

    # LeewayEvents and AdmissionTelemetry
    def publish(self, detail_type: str, detail: str) -> None:
        if not self.events_allowed:
            raise CloudRefused("AccessDenied: events:PutEvents")
        self.reports.append(detail_type)
        self.details.append(json.loads(detail))

    def admitted(self, outcome: AdmissionOutcome) -> None:
        self.reports.append(outcome.message)

    def problem(self, cluster: str, reason: Reason, **facts: object) -> None:
        self.reports.append(reason.code)


def joins(node: Node = NODE) -> Callable[[Dependencies], None]:
    def join(deps: Dependencies) -> None:
        deps.nodes[node.name] = node

    return join


def use_case(deps: Dependencies) -> AdmitNode:
    partly: Any = deps  # it has the methods of the others that an admission calls
    return AdmitNode(deps.table, partly, deps, deps, deps, lambda _: partly, partly, deps)


def admit(deps: Dependencies) -> AdmissionOutcome:
    outcome = use_case(deps).admit(ATTEMPT, deps)
    assert outcome is not None
    return outcome
